"""Messages that have failed for good: put onto another topic, once, with what is known of them.

Strategy: the state notes durably that a message is dying, with a number; then it is put with that
number, as a sequenced put, so that who dies in between puts it once all the same; then the state
notes that it is dead. Such a message is an envelope: the value as it was, and headers that say
where it came from and why. One that was an envelope already keeps its key and its headers.
"""

import contextlib
from collections.abc import Awaitable, Callable

from poe.broker.appendix.message import GetRange
from poe.broker.groups.dead_letters import Dying
from poe.broker.groups.state import GroupState
from poe.broker.registry.log_groups_table import LOG_GROUPS_TOPIC
from poe.broker.registry.topic_registry import CreateTopic
from poe.broker.requests.listing import reached_pointer
from poe.broker.requests.log_messages import LOGS, CreateLog
from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.slices import read_records
from poe.errors import (
    CopyIsBehind,
    CorruptRecord,
    InvalidEnvelope,
    InvalidMessage,
    PoeError,
    ProducerFenced,
    PutTooLarge,
    RepeatedPut,
    SequenceGap,
    TopicExists,
    TopicNotCreated,
)
from poe.protocol import PutId, envelope
from poe.topic_properties import TopicProperties

_EPOCH_MAX = (1 << 32) - 1
_BYTES_MAX = 8 * 1024 * 1024
_COUNT_MAX = 1000
_PUT_S = 5.0
"""What each wait of a try may take: all members of the group wait meanwhile."""
_PAUSE_S = 1.0
_PAUSE_MAX_S = 30.0
"""From one try that fails to the next: the first time, and at most."""


class DeadLetters:
    """Buries what a group has given up."""

    __slots__ = ("_handler", "_is_of_log", "_not_before_s", "_pause_s", "_state")

    def __init__(
        self, handler: RequestHandler, state: GroupState, *, is_of_log: bool = False
    ) -> None:
        self._handler = RequestHandler(handler.actor, handler.routes, put_timeout_s=_PUT_S)
        self._is_of_log = is_of_log
        """Whether any node may be the next one that buries: the topic is to be replicated."""
        self._state = state
        self._pause_s = 0.0
        self._not_before_s = 0.0

    @property
    def wait_s(self) -> float:
        """How long to wait for the next try: their topic has refused the last one."""
        return max(0.0, self._not_before_s - self._handler.actor.monotonic_s())

    @property
    def topic(self) -> bytes:
        """The topic that they are put onto."""
        return self._state.definition.dead_letter_topic

    async def bury(self, now_us: int, write: Callable[[], Awaitable[None]]) -> None:
        """Put all that is dying onto the topic, and write that it is dead; nothing within `wait_s`.

        Where the topic was made anew meanwhile, or a power cut has set it back, or the log of the
        group, it expects other numbers; those are written first.

        Raises:
            PoeError: that is not possible now; it is to be tried again.
        """
        shared = self._state.shared
        while not self.wait_s and (dying := shared.next_dying()) is not None:
            try:
                with contextlib.suppress(RepeatedPut):  # it is there, though the log has lost that
                    await self._put(dying)
            except PoeError as error:
                newest = _epoch_there(error, dying)
                if newest is not None:
                    shared.renumber_dying(now_us, newest)
                    await write()
                    continue
                self._pause_s = min(2 * self._pause_s or _PAUSE_S, _PAUSE_MAX_S)
                self._not_before_s = self._handler.actor.monotonic_s() + self._pause_s
                raise
            self._pause_s = 0.0
            shared.buried(dying)
            await write()

    async def _put(self, dying: Dying) -> None:
        await self._check_copy(dying)
        pointer, letters, pointers = dying.after, list[bytes](), list[int]()
        while pointer < dying.last:
            wanted = GetRange(pointer, dying.last, _COUNT_MAX, _BYTES_MAX)
            try:
                found = await self._handler.get_range(dying.unit, wanted)
            except CorruptRecord as error:
                if (error.pointer or 0) <= pointer:
                    raise  # how much is damaged is not known, as where an index is
                pointer = error.pointer or 0
                continue
            if found is None:
                break
            records = read_records(dying.unit, found)
            is_enveloped = self._is_enveloped(dying.unit)
            letters += [
                dead_letter(dying, *each, is_enveloped=is_enveloped) for each in records.pairs()
            ]
            pointers += records.pointers.tolist()
            pointer = found.records.last_pointer
        if not letters:  # also of messages that are gone: those behind it would be refused
            gone = envelope.encode(None, b"", {**_headers(dying), "poe.gone": b"1"})
            letters, pointers = [gone], [dying.last]
        put_id = PutId(self._state.definition.id, dying.epoch, dying.sequence)
        if self._is_of_log:
            await self._make_replicated()
        while True:
            try:
                return await self._put_letters(letters, put_id)
            except (InvalidMessage, PutTooLarge) as error:
                # With what is said of it a message may be larger than any may be, or all be too
                # much; where some are the one, the rest may still be the other.
                short = [letter_of_large(dying, pointer) for pointer in pointers]
                fitting = _fitting(letters, short, error)
                if fitting == letters:
                    raise
                letters = fitting

    async def _put_letters(self, letters: list[bytes], put_id: PutId) -> None:
        try:
            await self._handler.put(self._partition(), letters, None, put_id)
        except TopicNotCreated:  # by puts of others; this one must not fail for that
            with contextlib.suppress(TopicExists):
                made = CreateTopic(self.topic, TopicProperties(envelope=True))
                await self._handler.ask_registry(made)
            await self._handler.put(self._partition(), letters, None, put_id)

    async def _check_copy(self, dying: Dying) -> None:
        """Take no message for gone that the copy of this node has not got yet.

        Of a topic that was deleted there is no copy: its letters say so, and hold up no others.

        Raises:
            CopyIsBehind: it may come.
        """
        unit, routes = dying.unit, self._handler.routes
        is_there = unit in (routes.replicas or {}) or unit in routes.unnoted
        if not self._is_of_log or (routes.is_catalog_known and not is_there):
            return
        if await reached_pointer(self._handler.actor, routes, unit) < dying.last:
            raise CopyIsBehind(unit)

    async def _make_replicated(self) -> None:
        """Make the topic as a replicated one, where there is none.

        Raises:
            TopicExists: there is one of a node alone.
            PoeError: it cannot be made now.
        """
        properties = self._handler.routes.properties
        assert properties is not None
        found = properties.find(self.topic)
        if found is None:
            log = properties.find(LOG_GROUPS_TOPIC)
            replicas = 3 if log is None else log.properties.replicas
            made = CreateLog(self.topic, TopicProperties(envelope=True, replicas=replicas))
            with contextlib.suppress(TopicExists):  # maybe another node has made it just now
                await self._handler.actor.call(LOGS, made, timeout_s=_PUT_S)
            found = properties.find(self.topic)
        if found is None or not found.properties.is_replicated:
            raise TopicExists(self.topic)

    def _partition(self) -> bytes:
        """Return the topic that holds all of them, also where somebody has made several."""
        properties = self._handler.routes.properties
        described = None if properties is None else properties.find(self.topic)
        return self.topic if described is None else described.partition_topics()[0]

    def _is_enveloped(self, unit: bytes) -> bool:
        """Return whether messages may be envelopes: as the topic says, if it was ever described."""
        properties = self._handler.routes.properties
        if properties is None:
            return True
        topic = properties.holder(unit) or properties.find(unit)
        return topic is None or topic.properties.envelope


def _epoch_there(error: PoeError, dying: Dying) -> int | None:
    """Return behind which epoch a topic takes what it refuses now; None: it is tried as it is."""
    match error:
        case SequenceGap() if dying.sequence:
            return dying.epoch
        case ProducerFenced(newest_epoch=newest) if newest < _EPOCH_MAX:
            return newest
    return None


def _fitting(
    letters: list[bytes], short: list[bytes], refusal: InvalidMessage | PutTooLarge
) -> list[bytes]:
    """Return letters as their topic may take them: of those that are too large the short ones.

    Where all together are too much, these are the largest, and no more of them than it takes.
    """
    fitting = letters.copy()
    if isinstance(refusal, InvalidMessage):
        too_large = [n for n, each in enumerate(letters) if len(each) > refusal.message_max]
        excess_bytes = sum(len(letters[number]) for number in too_large)
    else:
        too_large = sorted(range(len(letters)), key=lambda number: -len(letters[number]))
        excess_bytes = refusal.size_bytes - refusal.maximum
    for number in too_large:
        if excess_bytes <= 0:
            break
        if len(short[number]) < len(letters[number]):
            fitting[number] = short[number]
            excess_bytes -= len(letters[number]) - len(short[number])
    return fitting


def dead_letter(dying: Dying, pointer: int, message: bytes, *, is_enveloped: bool) -> bytes:
    """Return a message as it is put aside, with what is known of it.

    With `is_enveloped` it may be an envelope, of which key and headers are kept.
    """
    headers = _headers(dying, pointer)
    if is_enveloped:
        with contextlib.suppress(InvalidEnvelope):
            key, value, had = envelope.decode(message)
            return envelope.encode(key, value, {**(had or {}), **headers, "poe.envelope": b"1"})
    return envelope.encode(None, message, headers)


def letter_of_large(dying: Dying, pointer: int) -> bytes:
    """Return what is known of a message that no letter has room for: it stays where it was."""
    return envelope.encode(None, b"", {**_headers(dying, pointer), "poe.large": b"1"})


def _headers(dying: Dying, pointer: int | None = None) -> dict[str, bytes]:
    headers = {
        "poe.topic": dying.unit,
        "poe.attempts": str(dying.attempts).encode(),
        "poe.reason": dying.reason.encode("utf-8", "replace"),
    }
    return headers if pointer is None else {**headers, "poe.pointer": str(pointer).encode()}
