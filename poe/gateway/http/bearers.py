"""Keeps for some seconds what the broker has said of tokens, so that most requests ask nothing.

Only what was said is kept: where the broker does not answer, or does not know a token, the next
request asks again. Wrong tokens therefore take no place here, however many come.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from poe.broker.access.permission import Need
from poe.gateway.http.inquiry import Question, Ruling, Usage

BEARERS_MAX = 4096
RULINGS_MAX = 64
"""What is kept of one bearer; then all of it is forgotten."""
NAMES_MAX = 1000
"""Of one question, so that the broker serves others between two."""
NAMES_BYTES_MAX = 32 << 10
"""Likewise, unless it is one name."""
_NAME_MAX = sha256().digest_size - 1
"""Bytes of a name that are kept; a longer one is known by its digest, which no other name can be:
whoever may do something with the one would else be taken to be allowed it with the other."""


class Asked(Protocol):
    """Whoever answers questions, as `Inquiry` does."""

    async def ask(self, token: str, question: Question, usage: Usage) -> Ruling | None:
        """Return what there is to say; None: the token is nobody's."""


class ShownToken(NamedTuple):
    """A token that a client has shown; whose it is, or whether anybody's, is another question."""

    text: str
    digest: str
    """SHA-256 in hex, by which it is known here."""


class Held(NamedTuple):
    """A ruling on one name."""

    is_allowed: bool
    until_s: float
    """Until when it holds, by the clock of the bearers."""


class Bearer:
    """Whoever has shown a certain token, which was valid.

    Attributes:
        principal: whose token it is.
        usage: what was used since the broker was told.
        owed_until_s: when the quota is paid, by the clock of the bearers.
    """

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.usage = Usage()
        self.owed_until_s = 0.0
        self._held: dict[Need, Held] = {}

    @property
    def size(self) -> int:
        """Return how many rulings are kept."""
        return len(self._held)

    def held(self, need: Need, now_s: float) -> Held | None:
        """Return what was said lately."""
        held = self._held.get(_short(need))
        return held if held is not None and now_s < held.until_s else None

    def hold(self, question: Question, ruling: Ruling, now_s: float) -> None:
        """Keep what was said of one name, and what is owed."""
        self.principal = ruling.principal
        self.owed_until_s = now_s + ruling.delay_s
        if len(question.names) == 1:
            if len(self._held) >= RULINGS_MAX:
                self._held.clear()
            need = Need(question.operation, question.kind, question.names[0])
            self._held[_short(need)] = Held(ruling.allowed[0], now_s + ruling.ttl_s)


class Bearers:
    """Those who have shown valid tokens lately; belongs to one event loop.

    Invariants: bearers <= BEARERS_MAX; of each, rulings <= RULINGS_MAX. The same question is under
    way once, however many wait for its answer.
    """

    def __init__(self, asked: Asked, clock: Callable[[], float] = time.monotonic) -> None:
        self._asked = asked
        self._clock = clock
        self._bearers: OrderedDict[str, Bearer] = OrderedDict()
        self._asking: dict[tuple[str, Need], asyncio.Task[Held | None]] = {}

    @property
    def size(self) -> int:
        """Return how many there are."""
        return len(self._bearers)

    def find(self, shown: ShownToken) -> Bearer | None:
        """Return who has shown a token lately."""
        return self._bearers.get(shown.digest)

    def owed_s(self, bearer: Bearer) -> float:
        """Return how long a bearer has to wait until its quota is paid."""
        return max(0.0, bearer.owed_until_s - self._clock())

    def left_s(self, held: Held) -> float:
        """Return how long a ruling holds from now on."""
        return max(0.0, held.until_s - self._clock())

    async def rule(self, shown: ShownToken, need: Need) -> Held | None:
        """Return whether a bearer meets a need; None: the token is nobody's.

        Raises:
            RequestRefused: 503, nobody says so.
        """
        bearer = self._bearers.get(shown.digest)
        if bearer is not None:
            self._bearers.move_to_end(shown.digest)
            if (held := bearer.held(need, self._clock())) is not None:
                return held
        key = shown.digest, need
        if key not in self._asking:
            task = asyncio.ensure_future(self._ask_one(shown, need))
            task.add_done_callback(lambda ended: self._end(key, ended))
            self._asking[key] = task
        # Others wait for it, too.
        return await asyncio.shield(self._asking[key])

    async def permitted(
        self, shown: ShownToken, operation: str, kind: str, names: Sequence[bytes]
    ) -> list[bytes]:
        """Return with which of these names a bearer may do something.

        Raises:
            RequestRefused: 503, nobody says so.
        """
        found: list[bytes] = []
        for some in _parts(names):
            ruling = await self._ask(shown, Question(operation, kind, some))
            if ruling is not None:
                found += [
                    each for each, allowed in zip(some, ruling.allowed, strict=True) if allowed
                ]
        return found

    async def _ask_one(self, shown: ShownToken, need: Need) -> Held | None:
        asked_s = self._clock()
        ruling = await self._ask(shown, Question(need.operation, need.kind, [need.name]))
        return None if ruling is None else Held(ruling.allowed[0], asked_s + ruling.ttl_s)

    async def _ask(self, shown: ShownToken, question: Question) -> Ruling | None:
        bearer = self._bearers.get(shown.digest)
        used = Usage()
        if bearer is not None:
            used, bearer.usage = bearer.usage, used
        asked_s = self._clock()
        try:
            ruling = await self._asked.ask(shown.text, question, used)
        except BaseException:
            if bearer is not None:
                bearer.usage.add(used)
            raise
        if ruling is None:
            self._bearers.pop(shown.digest, None)
            return None
        bearer = self._bearers.setdefault(shown.digest, bearer or Bearer(ruling.principal))
        bearer.hold(question, ruling, asked_s)
        if len(self._bearers) > BEARERS_MAX:
            self._bearers.popitem(last=False)
        return ruling

    def _end(self, key: tuple[str, Need], task: "asyncio.Task[Held | None]") -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # nobody may be left who waits for it


def _parts(names: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield the names of one question after the other."""
    begin = size_bytes = 0
    for end, name in enumerate(names):
        size_bytes += len(name)
        if end - begin == NAMES_MAX or (size_bytes > NAMES_BYTES_MAX and end > begin):
            yield names[begin:end]
            begin, size_bytes = end, len(name)
    yield names[begin:]


def _short(need: Need) -> Need:
    if len(need.name) <= _NAME_MAX:
        return need
    return need._replace(name=sha256(need.name).digest())
