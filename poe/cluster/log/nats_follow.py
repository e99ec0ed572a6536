"""Following a stream of the engine: each entry once, in order, none left out, whatever breaks.

Entries come from a consumer, which the engine keeps in the memory of one server and loses with it.
Nothing of it is trusted but for what it delivers: its entries are counted, and so are the places of
the stream. Whatever does not fit, and silence, lead to another consumer from the place after the
last one that was handed on.

They are asked for in portions. Another portion is asked for when the one before is complete and
what was handed on is not too far ahead of what the owner has taken, so that memory is bounded.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from poe.cluster.log.engine import (
    FOLLOW_AHEAD_MAX_BYTES,
    CatalogChanged,
    EngineEvent,
    Entries,
    Entry,
    Forgotten,
    Lost,
)
from poe.cluster.log.nats_api import (
    CONSUMER_CREATE,
    CONSUMER_DELETE,
    INFO,
    NEXT,
    STREAM_NOT_FOUND,
    consumer_settings,
    error_code,
    is_entry,
    next_request,
    place_of,
)
from poe.cluster.log.nats_frames import Message, description_of, status_of
from poe.cluster.log.nats_link import Link, LinkLost, NoResponders, TooLarge
from poe.cluster.log.nats_server import PAYLOAD_MAX_BYTES

PORTION: Final = 1000
PORTION_BYTES: Final = 4 << 20
"""Or one entry that is larger."""
CATCHING_UP_MAX: Final = 8
"""So many follows at a time may have a portion of old entries under way: the engine hangs up on a
connection to which more than 64 MiB wait to be sent."""
HEARTBEAT_S: Final = 1.0
SILENCE_S: Final = 2.5
"""Without an entry or a sign of life for so long, a consumer is gone."""
ASK_S: Final = 3.0
AGAIN_S: Final = 0.25
EXPIRES_S: Final = 30.0
MISSING_LOOKS: Final = 4
MISSING_S: Final = 6.0
"""A stream is lost when it was not there at so many looks in a row, which took so long: servers
that have just started may not know of it yet."""
BEHIND_S: Final = 30.0
"""Or when it ended before what was followed already: who leads it may still read its own log."""

_TOO_LARGE: Final = b"Message Size Exceeds"
_CONFLICT: Final = b"409"
_EXPIRED: Final = b"408"
_IDLE: Final = b"100"


_SILENT: Final = b"", b""


class _Again(Exception):
    """The consumer is of no use any more."""


class Consumer(ABC):
    """Reads a stream from a place on; what comes is for `take`, in order and without a gap.

    All is called in one event loop.
    """

    def __init__(self, name: str, start: int, catching_up: asyncio.Semaphore) -> None:
        self.next = start
        """The place of what comes next."""
        self._name = name
        self._catching_up = catching_up
        self._changed = asyncio.Event()
        self._count = 0
        """How many the consumer has delivered."""
        self._portion = 0
        """How many of the portion are still to come."""
        self._rest = 0
        """How many there are in the stream that were not delivered."""
        self._status: tuple[bytes, bytes] | None = None
        self._heard_s = 0.0
        self._is_broken = False

    async def run(self, link: Link) -> None:
        """Read, until the connection is lost or there is nothing more to follow."""
        is_over = False
        while not (is_over or link.closed.is_set()):
            try:
                if await self.look(link):
                    await self._read(link)
                is_over = True
            except (
                _Again,
                TimeoutError,
                NoResponders,
                LinkLost,
                TooLarge,
                LookupError,
                ValueError,
            ):
                await asyncio.sleep(AGAIN_S)

    async def look(self, link: Link) -> bool:
        """Return whether the stream is there to be read from the next place on."""
        del link
        return True

    @abstractmethod
    def take(self, subject: bytes, place: int, time_us: int, payload: bytes) -> bool:
        """Take a message; return whether there is more to be read."""

    def hand_on(self) -> None:  # noqa: B027 - not all have to
        """Hand on what was taken since."""

    async def may_read(self) -> None:  # noqa: B027 - likewise
        """Wait until more may be read."""

    async def _read(self, link: Link) -> None:
        question = consumer_settings(self._name, max(self.next, 1))
        answer = await link.ask(CONSUMER_CREATE + self._name, question, ASK_S)
        if error_code(answer):
            raise _Again
        consumer = str(answer["name"])
        self._count = 0
        self._rest = int(answer.get("num_pending", 0))
        try:
            async with link.listening(self._hear) as inbox:
                while await self._read_portion(link, f"{NEXT}{self._name}.{consumer}", inbox):
                    await self.may_read()
        finally:
            if not link.closed.is_set():
                # Nobody waits for it: it would be gone in a while by itself.
                gone = link.publish(f"{CONSUMER_DELETE}{self._name}.{consumer}", b"")
                await asyncio.shield(asyncio.ensure_future(_quietly(gone)))

    async def _read_portion(self, link: Link, subject: str, inbox: str) -> bool:
        """Ask for a portion and wait until it is there; return whether there is more to be read."""
        if self._rest == 0:
            return await self._await_portion(link, subject, inbox)
        async with self._catching_up:
            return await self._await_portion(link, subject, inbox)

    async def _await_portion(self, link: Link, subject: str, inbox: str) -> bool:
        bytes_max = PORTION_BYTES
        # Where there are old ones, no more than these: the turn is for others then.
        count = min(PORTION, self._rest or PORTION)
        while True:
            self._status = None
            self._portion = count
            self._heard_s = time.monotonic()
            request = next_request(count, bytes_max, EXPIRES_S, HEARTBEAT_S)
            await link.publish(subject, request, inbox)
            await self._await_change()
            self.hand_on()
            if self._portion == 0:
                return True
            if self._portion < 0:
                return False
            code, text = self._ended_by()
            if code == _CONFLICT and text.startswith(_TOO_LARGE):
                if self._portion < count:
                    return True
                bytes_max = PAYLOAD_MAX_BYTES + (1 << 20)
            elif code == _EXPIRED:
                return True
            else:
                raise _Again

    def _ended_by(self) -> tuple[bytes, bytes]:
        """Return what the engine has ended a portion with."""
        return self._status or _SILENT

    async def _await_change(self) -> None:
        """Wait for the end of a portion, or of the consumer."""
        while self._portion > 0 and self._status is None:
            self._changed.clear()
            rest_s = self._heard_s + SILENCE_S - time.monotonic()
            if self._is_broken or rest_s <= 0:
                self._is_broken = False
                self.hand_on()
                raise _Again
            try:
                async with asyncio.timeout(rest_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _hear(self, message: Message) -> None:
        """Take a message of the consumer's, or what the engine says of it."""
        self._heard_s = time.monotonic()
        if is_entry(message.reply):
            place, number, time_us, self._rest = place_of(message.reply)
            if self._is_broken or self._portion <= 0:
                return
            if number != self._count + 1 or place < self.next:
                self._is_broken = True
                self._changed.set()
                return
            self._count = number
            self._portion -= 1
            if not self.take(message.subject, place, time_us, message.payload):
                self._portion = -1
            self.next = place + 1
            if self._portion <= 0:
                self._changed.set()
            return
        status = status_of(message.headers)
        if status and status != _IDLE:
            self._status = status, description_of(message.headers)
            self._changed.set()


async def _quietly(publishing: Any) -> None:  # noqa: ANN401 - a coroutine
    try:
        await publishing
    except (LinkLost, TooLarge):
        return


class StreamFollow(Consumer):
    """Follows a stream of entries, one `follow` long."""

    def __init__(  # noqa: PLR0913, PLR0917 - what `follow` is given, and what all follows share
        self,
        stream: str,
        name: str,
        after_place: int,
        follow_id: int,
        catching_up: asyncio.Semaphore,
        hear: Callable[[EngineEvent], None],
    ) -> None:
        super().__init__(name, after_place + 1, catching_up)
        self.stream, self.follow_id = stream, follow_id
        self.is_over = False
        self._hear_event = hear
        self._loop = asyncio.get_running_loop()
        self._taken: list[Entry] = []
        self._made = ""
        """When the stream was made, by which one of the same name is told from it."""
        self._missing = 0
        self._missing_since_s = 0.0
        self._is_held_to = False
        self._ahead: deque[tuple[int, int]] = deque()
        self._ahead_bytes = 0
        self._room = asyncio.Event()

    async def look(self, link: Link) -> bool:
        """See whether the stream is that which was followed, and remembers the next entry."""
        answer = await link.ask(INFO + self._name, None, ASK_S)
        if error_code(answer) == STREAM_NOT_FOUND:
            return self._is_missing(MISSING_S)
        if error_code(answer):
            raise _Again
        made, state = str(answer["created"]), answer["state"]
        first, last = int(state["first_seq"]), int(state["last_seq"])
        if made != (self._made or made):
            self._end(Lost(self.stream, self.follow_id))
            return False
        if last < self.next - 1:
            # It may only be a server that is behind, for a moment.
            return self._is_missing(BEHIND_S)
        self._missing = 0
        self._made = made
        if first > self.next:
            self._end(Forgotten(self.stream, self.follow_id, first))
            return False
        return True

    def _is_missing(self, patience_s: float) -> bool:
        """End the follow, once it has been so for long enough."""
        now_s = time.monotonic()
        if self._missing == 0:
            self._missing_since_s = now_s
        self._missing += 1
        if self._missing < MISSING_LOOKS or now_s - self._missing_since_s < patience_s:
            raise _Again
        self._end(Lost(self.stream, self.follow_id))
        return False

    def take(self, subject: bytes, place: int, time_us: int, payload: bytes) -> bool:
        """Collect an entry; all that come in one turn of the loop are handed on together."""
        del subject
        if place != self.next:
            self._end(Forgotten(self.stream, self.follow_id, place))
            return False
        if not self._taken:
            self._loop.call_soon(self.hand_on)
        self._taken.append(Entry(place, time_us, payload))
        return True

    def hand_on(self) -> None:
        """Hand on what was collected."""
        taken = self._taken
        if not taken or self.is_over:
            return
        self._taken = []
        if self._is_held_to:
            size = sum(len(each.payload) for each in taken)
            self._ahead.append((taken[-1].place, size))
            self._ahead_bytes += size
        self._hear_event(Entries(self.stream, self.follow_id, taken))

    def has_taken(self, place: int) -> None:
        """Note up to where the owner is done; from now on it is waited for."""
        self._is_held_to = True
        ahead = self._ahead
        while ahead and ahead[0][0] <= place:
            self._ahead_bytes -= ahead.popleft()[1]
        self._room.set()

    async def may_read(self) -> None:
        """Wait until the owner is not far behind."""
        while self._ahead_bytes > FOLLOW_AHEAD_MAX_BYTES:
            self._room.clear()
            await self._room.wait()

    def stop(self) -> None:
        """Hand on nothing any more."""
        self.is_over = True

    def _end(self, event: EngineEvent) -> None:
        self.hand_on()
        if not self.is_over:
            self.is_over = True
            self._hear_event(event)


class CatalogFollow(Consumer):
    """Reads the catalog, in which values that were replaced are gaps."""

    def __init__(
        self,
        name: str,
        subject: str,
        catching_up: asyncio.Semaphore,
        hear: Callable[[CatalogChanged], None],
    ) -> None:
        super().__init__(name, 1, catching_up)
        self._subject = subject
        self._hear_changed = hear

    def take(self, subject: bytes, place: int, time_us: int, payload: bytes) -> bool:
        """Hand on the value of a key."""
        del time_us
        key = subject.decode().removeprefix(self._subject)
        self._hear_changed(CatalogChanged(key, payload, place))
        return True
