"""The control messages and the error reply: msgpack maps, for everything but messages of topics.

They are few and small, so that clarity comes before speed. A request is bounded in bytes and in
items before anything of it is built.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from poe.errors import LocalProtocolError, PoeError, RemoteProtocolError
from poe.protocol.faults import error_message, error_values, rebuild_error
from poe.protocol.frames import frame_header
from poe.protocol.maps import pack_begin, pack_map, take_id, take_text, unpack_map

CONTROL_SIZE_MAX = 256 * 1024
"""Bytes in the body of a control request."""
CONTROL_COUNT_MAX = 16_384
"""Items in any one list or map of a control request: so many partitions may a member of a group
tell that it reads."""
CONTROL_NESTED_MAX = 20_000
"""Lists and maps in all of a control request: each takes a hundred times its byte, and in numbers
they have Python's cycle collector run again and again."""


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """Ask for anything but messages: `topics`, `status`, `wait` ….

    Wire:
        msgpack map of `op`, `id` and the arguments by name
    """

    MESSAGE_TYPE: ClassVar[int] = 16

    op: str
    id: int
    """Chosen by the client, 0 to 2^64 - 1; the reply repeats it."""
    arguments: dict[str, Any]

    def encode(self) -> bytes:
        """Return the frame.

        Raises:
            LocalProtocolError: an argument named `op` or `id`, one that msgpack cannot hold, or
                more than `CONTROL_SIZE_MAX` bytes of them.
        """
        if "op" in self.arguments or "id" in self.arguments:
            msg = f"control request {self.op!r} has an argument op or id; these names are taken"
            raise LocalProtocolError(msg)
        what = f"control request {self.op!r}"
        body = pack_map({"op": self.op, "id": self.id, **self.arguments}, what)
        if len(body) > CONTROL_SIZE_MAX:
            msg = f"{what} of {len(body)} bytes is refused; use at most {CONTROL_SIZE_MAX}"
            raise LocalProtocolError(msg)
        return frame_header(self.MESSAGE_TYPE, len(body)) + body

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body.

        Raises:
            RemoteProtocolError: too large, or no map that holds `op` and `id`.
        """
        what = "control request"
        if len(body) > CONTROL_SIZE_MAX:
            msg = f"{what} of {len(body)} bytes is refused; send at most {CONTROL_SIZE_MAX}"
            raise RemoteProtocolError(msg)
        fields = unpack_map(body, what, CONTROL_COUNT_MAX, CONTROL_NESTED_MAX)
        return cls(take_text(fields, "op", what), take_id(fields, what), fields)


@dataclass(frozen=True, slots=True)
class ControlReply:
    """The result of a control request.

    Wire:
        msgpack map of `id` and `result`
    """

    MESSAGE_TYPE: ClassVar[int] = 17

    id: int
    result: Any

    def encode(self) -> bytes:
        """Return the frame.

        Raises:
            LocalProtocolError: a result that msgpack cannot hold.
        """
        body = pack_map({"id": self.id, "result": self.result}, "control reply")
        return frame_header(self.MESSAGE_TYPE, len(body)) + body

    @classmethod
    def join(cls, request_id: int, count: int, parts: list[bytes]) -> bytes:
        """Return the frame of a result that is a map of `count` items, packed in `parts`."""
        begin = pack_begin({"id": request_id}, "result", count)
        size = len(begin) + sum(map(len, parts))
        # At once: to copy 15 MB, those of 100,000 topics, keeps everybody waiting for 15 ms.
        return b"".join([frame_header(cls.MESSAGE_TYPE, size), begin, *parts])

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body.

        Raises:
            RemoteProtocolError: no map that holds `id` and `result`.
        """
        fields = unpack_map(body, "control reply")
        if "result" not in fields:
            msg = "control reply has no result"
            raise RemoteProtocolError(msg)
        return cls(take_id(fields, "control reply"), fields["result"])


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """A request was refused, or its frame could not be understood.

    Wire:
        msgpack map of `code`, `name`, `message`, `values` (the error's attributes), and `id` where
        the request had one
    """

    MESSAGE_TYPE: ClassVar[int] = 18

    code: int
    name: str
    message: str
    id: int | None
    values: dict[str, Any]

    @classmethod
    def from_error(cls, error: PoeError, request_id: int | None = None) -> Self:
        """Describe the error, with the id of the control request that failed."""
        name = type(error).__name__
        return cls(error.code, name, error_message(error), request_id, error_values(error))

    def to_error(self) -> PoeError:
        """Return the error as the server raised it, or a `ServerError` where we cannot."""
        return rebuild_error(self.code, self.name, self.message, self.values)

    def encode(self) -> bytes:
        """Return the frame."""
        fields = {"code": self.code, "name": self.name, "message": self.message}
        given = {} if self.id is None else {"id": self.id}
        body = pack_map({**fields, "values": self.values, **given}, "error")
        return frame_header(self.MESSAGE_TYPE, len(body)) + body

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body; a server that sends no `values` is understood.

        Raises:
            RemoteProtocolError: no map that holds `code`, `name` and `message`.
        """
        what = "error reply"
        fields = unpack_map(body, what)
        code = fields.get("code")
        values = fields.get("values", {})
        if type(code) is not int or not isinstance(values, dict):
            msg = f"{what} needs a number as its code and a map as its values"
            raise RemoteProtocolError(msg)
        name = take_text(fields, "name", what)
        message = take_text(fields, "message", what)
        request_id = take_id(fields, what) if "id" in fields else None
        return cls(code, name, message, request_id, values)
