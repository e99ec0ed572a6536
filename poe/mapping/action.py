"""What becomes of a message: plain values, which rules tell and functions return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from poe.mapping.message import Message


@dataclass(frozen=True, slots=True)
class Ok:
    """It is done with; the position moves."""


@dataclass(frozen=True, slots=True)
class Drop:
    """It is thrown away, which is counted apart."""

    reason: str = ""


@dataclass(frozen=True, slots=True, init=False)
class To:
    """It is put onto topics: as it came, or with another value, key or headers.

    To("orders.vip")                       # as it came
    To(["orders.vip", "audit"], b"...")    # another value
    To("orders.vip", message.with_key(b"ann"))
    """

    topics: tuple[str, ...]
    message: Message | bytes | None
    """What is put: a message with its key and headers, a value, or None: the message as it came."""

    key: bytes | None
    """Instead of that of the message; None leaves it."""

    headers: Mapping[str, bytes] | None
    """Likewise."""

    def __init__(
        self,
        topics: str | Sequence[str],
        value: Message | bytes | None = None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        object.__setattr__(self, "topics", names)
        object.__setattr__(self, "message", value)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "headers", headers)

    def onto(self, came: Message) -> Message:
        """Return what is put, of the message as it came."""
        put = self.message
        if put is None:
            put = came
        elif isinstance(put, bytes):
            put = came._replace(value=put)
        if self.key is not None:
            put = put.with_key(self.key)
        return put if self.headers is None else put.with_headers(self.headers)


@dataclass(frozen=True, slots=True)
class Retry:
    """It is tried again, later."""

    after_s: float | None = None
    """Seconds; None: as `on_error` says."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The target or something else is away: the mapping waits, and begins with this message."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Dead:
    """It is put to the dead letters of the mapping."""

    why: str = ""


Action = Ok | Drop | To | Retry | Stop | Dead
"""What may become of a message."""
