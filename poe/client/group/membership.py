"""One member of a group: joins it, is heard of, and joins anew when the group knows it no more.

Being there and getting on with the work are different things: heartbeats come from here, on the
library's own event loop, however long a handler runs.
"""

import asyncio
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import index
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from poe.client.async_retrying_socket import AsyncRetryingSocket
from poe.client.async_socket import AsyncSocket
from poe.client.patience import pause_after
from poe.client.server_order import ServerOrder
from poe.errors import GroupFenced, PoeError, RemoteProtocolError

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PAUSE_S = 0.5
"""After a heartbeat that has failed."""
_CLOSE_S = 5.0
"""The end waits no longer for a server that does not answer."""
BEAT_MAX_S = 60.0
"""No server holds an answer back for longer: who is heard of less often would hear of news late."""

_ANSWERS: Mapping[str, type] = {"group_commit": dict, "group_extend": list}
"""What is worked with in the background, where an error of its type would be heard of by nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """What a member says of itself, and of the group that is made where there is none."""

    group: str
    mode: str
    topics: Sequence[bytes]
    instance: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_map(self) -> dict[str, Any]:
        """Return the arguments with which to join."""
        return {
            "mode": self.mode,
            "topics": list(self.topics),
            "instance": self.instance,
            "options": dict(self.options),
            "name": f"{socket.gethostname()}:{os.getpid()}",
        }


class Reach(NamedTuple):
    """Where the servers are, and how long to try."""

    servers: ServerOrder[Any]
    timeout_s: float | None
    request_timeout_s: float

    def socket(self, on_lost: Callable[[], object]) -> AsyncRetryingSocket:
        """Return a connection, which begins with its first call."""
        return AsyncRetryingSocket(
            self.servers,
            timeout_s=self.timeout_s,
            request_timeout_s=self.request_timeout_s,
            on_lost=on_lost,
        )


class Work(Protocol):
    """What a member has of its group; called on the event loop, one call at a time."""

    def owned(self) -> list[bytes]:
        """Return the units that it works on."""

    async def heard(self, granted: Mapping[bytes, Sequence[Any]], revoke: Sequence[bytes]) -> bool:
        """Begin with what it may own now, and give up what it is to; whether anything changed.

        Args:
            granted: for each new unit its topic, which partition of that it is, and its position,
                a pointer with bytes; None where the group never had one.
            revoke: units that it is to leave out of `owned` as soon as it works on them no more.
        """

    async def lost(self) -> None:
        """Let go of all at once: the group knows the member no more, and may give it to others."""

    def failed(self, error: PoeError) -> None:
        """Note that the group could not be asked; it is asked again."""


class _Told(NamedTuple):
    """What a group answers to a member that joins, or is heard of."""

    generation: int
    granted: Mapping[bytes, Sequence[Any]]
    revoke: Sequence[bytes]
    beat_s: float

    @classmethod
    def from_map(cls, content: Any, op: str, beat_s: float) -> Self:  # noqa: ANN401 - to be checked
        """Take an answer; `beat_s` counts where it tells none.

        Raises:
            RemoteProtocolError: it is no such answer.
        """
        try:
            granted = {
                _name(name): (_name(topic), index(partition), _position(at))
                for name, (topic, partition, at) in content["granted"].items()
            }
            revoke = [_name(name) for name in content.get("revoke", ())]
            beat_s = float(content.get("heartbeat_s", beat_s))
            told = cls(index(content["generation"]), granted, revoke, beat_s)
        except (AttributeError, TypeError, KeyError, IndexError, ValueError) as error:
            raise senseless(op, content) from error
        if not 0 < beat_s < math.inf:
            raise senseless(op, content)
        return told


def _name(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(value)
    return value


def _position(at: Any) -> Sequence[Any] | None:  # noqa: ANN401 - to be checked
    return None if at is None else (index(at[0]), *at[1:])


def senseless(op: str, answer: object) -> RemoteProtocolError:
    """Return the error of an answer that is none."""
    return RemoteProtocolError(f"the answer to {op} is {answer!r:.200}")


class Membership:
    """A member for as long as it is open; belongs to one event loop.

    Attributes:
        id: 16 bytes.
        generation: the newest one that the group has told.
        beat_s: how often it is to be heard of; 0 before it has joined.
    """

    def __init__(
        self, reach: Reach, info: MemberInfo, work: Work, on_lost: Callable[[], object]
    ) -> None:
        self.id = os.urandom(16)
        self.generation = 0
        self._info = info
        self._work = work
        # A heartbeat may be held back until there is something to say, and would delay the others.
        self._beat_socket = reach.socket(on_lost)
        self._ask_socket = reach.socket(on_lost)
        self._asking = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._has_asked = False
        """Whether a server was reached, which may count it as a member."""
        self._hurry = asyncio.Event()
        self.beat_s = 0.0

    async def open(self) -> None:
        """Join, and go on being heard of.

        Raises:
            GroupMismatch: the group is not what it is taken for.
            PoeError: another refusal, or no server could be reached.
        """
        if self._beating is None:
            await self._join()
            self._beating = asyncio.create_task(self._beat())

    async def close(self, **last: object) -> None:
        """Leave, so that what is left goes to others at once.

        Args:
            last: what to commit before, as arguments of `group_commit`; it takes no longer so.
        """
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        if self._has_asked:
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await self.ask("group_leave", **last)
            except (PoeError, TimeoutError) as error:
                level = logging.WARNING if last else logging.INFO
                _log.log(level, "group %s is left without saying so: %s", self._info.group, error)
        await asyncio.gather(self._beat_socket.close(), self._ask_socket.close())

    def hurry(self) -> None:
        """Have the next heartbeat sent now."""
        self._hurry.set()

    async def ask(self, op: str, **arguments: object) -> Any:  # noqa: ANN401 - what the op answers
        """Return what the group answers.

        Raises:
            GroupFenced: it knows the member no more, which joins anew by itself.
            RemoteProtocolError: that makes no sense.
            PoeError: another refusal, or no server could be reached.
        """
        answer = await self.call(self._control(op, arguments))
        if not isinstance(answer, _ANSWERS.get(op, object)):
            raise senseless(op, answer)
        return answer

    async def call(self, request: Callable[[AsyncSocket], Awaitable[T]], extra_s: float = 0.0) -> T:
        """Return what another request returns, on the connection that `ask` has.

        Raises:
            PoeError: as `ask`.
        """
        async with self._asking:
            try:
                return await self._ask_socket.call(request, extra_s)
            except GroupFenced:
                self.hurry()
                raise

    # ---- inside -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            try:
                try:
                    await self._beat_once()
                except GroupFenced as error:
                    _log.warning("%s", error)
                    await self._join_anew()
            except PoeError as error:
                self._work.failed(error)
                await asyncio.sleep(pause_after(error, _PAUSE_S))

    async def _beat_once(self) -> None:
        """Be heard of, and wait until it is time again, or there is something to say."""
        clock_s = asyncio.get_running_loop().time
        begin_s = clock_s()
        self._hurry.clear()
        said = {
            "generation": self.generation,
            "owned": self._work.owned(),
            "wait_s": self.beat_s,
        }
        told = await self._say("group_heartbeat", said, self.beat_s)
        if not await self._work.heard(told.granted, told.revoke):
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, begin_s + self.beat_s - clock_s())):
                    await self._hurry.wait()

    async def _join(self) -> None:
        told = await self._say("group_join", self._info.as_map())
        self.beat_s = min(told.beat_s, BEAT_MAX_S)
        await self._work.heard(told.granted, ())

    async def _say(self, op: str, arguments: Mapping[str, Any], extra_s: float = 0.0) -> _Told:
        """Say something to the group, and return what it answers; the generation is noted.

        Raises:
            RemoteProtocolError: that makes no sense.
            PoeError: as `ask`.
        """
        answer = await self._beat_socket.call(self._control(op, arguments), extra_s)
        told = _Told.from_map(answer, op, self.beat_s)
        self.generation = told.generation
        return told

    async def _join_anew(self) -> None:
        """Begin from nothing, but where another start of the same instance is there now."""
        await self._work.lost()
        if self._info.instance is not None:
            await self._check_instance(self._info.instance)
        await self._join()

    async def _check_instance(self, instance: str) -> None:
        """Refuse to throw out who has come with the same instance.

        Raises:
            GroupFenced: somebody has.
            RemoteProtocolError: the answer makes no sense.
        """
        told = await self._beat_socket.call(self._control("group", {}))
        try:
            others = [
                each["name"]
                for each in told["members"]
                if each["instance"] == instance and each["id"] != self.id
            ]
        except (TypeError, KeyError) as error:
            raise senseless("group", told) from error
        if others:
            again = f"instance {instance!r} has been started again, as {others[0]}"
            why = f"{again}; who is to be a member beside it needs another instance name"
            raise GroupFenced(self._info.group, why)

    def _control(
        self, op: str, arguments: Mapping[str, Any]
    ) -> Callable[[AsyncSocket], Awaitable[Any]]:
        """Return what asks the group."""
        arguments = {"group": self._info.group, "member": self.id, **arguments}

        def ask(socket: AsyncSocket) -> Awaitable[Any]:
            self._has_asked = True
            return socket.control(op, **arguments)

        return ask
