"""Carries out the effects of one unit against a server, in the thread of its worker."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time_ns
from typing import Any, Final, Literal

from poe.errors import (
    InvalidMessage,
    NodeIsBehind,
    NotReplicated,
    PoeError,
    ProducerFenced,
    PropertyMismatch,
    RepeatedPut,
    SequenceGap,
    TopicExists,
    TopicNotCreated,
    UnderCopies,
    UnknownTopic,
)
from poe.mapping.connection import Connection
from poe.mapping.judge import due_s, letter_that_fits, run_of
from poe.mapping.message import Columns, columns_of, topic_text
from poe.mapping.plan import Sent, Target, topic_key
from poe.mapping.rule_set import RuleSet
from poe.mapping.unit import (
    ANEW,
    LEAVE,
    Commit,
    Counted,
    Describe,
    Effect,
    Read,
    Store,
    Tell,
    Wait,
    Work,
)
from poe.protocol import DescribedTopic, IndexedRecords, Socket
from poe.protocol.server import Server
from poe.record import POINTER_MAX
from poe.topic_properties import TopicProperties

State = Literal["idle", "running", "retrying", "waiting", "stopped"]

_CALL_TIMEOUT_S: Final = 30.0
_WAIT_S: Final = 1.0
"""A long poll is no longer, so that a unit can be let go."""
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0
_TARGETS_KEPT_S: Final = 60.0
_READ_BYTES: Final = 8 << 20
_COPY_S: Final = 5.0
"""For so long a node's copy may be behind what was planned, before another one is asked."""


class Tally:
    """What has become of the messages of all units of a process; any thread may ask and tell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Count a batch, by rule and what became of its messages."""
        with self._lock:
            self._counts.update(counts)

    def counts(self) -> Counter[tuple[str, str]]:
        """Return what was counted since the process has started."""
        with self._lock:
            return Counter(self._counts)


@dataclass(slots=True)
class Status:
    """How far one unit is; its worker's thread alone changes it."""

    unit: bytes
    state: State = "running"
    reason: str = ""
    """Why it does not go on, or did not before."""
    pointer: int = 0
    messages: int = 0
    batches: int = 0
    lost: int = 0
    """Messages that were deleted before they were read."""
    tally: Tally = field(default_factory=Tally)

    def turn(self, state: State, reason: str = "") -> None:
        """Note what it does now."""
        self.state = state
        if reason:
            self.reason = reason


class Signals:
    """What somebody else wants of a worker.

    `leave` is set where its unit is to be let go, in order; `lost` where it is another's, or all is
    to end at once, and then `leave` is, too.
    """

    __slots__ = ("leave", "lost")

    def __init__(self) -> None:
        self.leave = threading.Event()
        self.lost = threading.Event()

    def end(self) -> None:
        """Have the worker do nothing more."""
        self.lost.set()
        self.leave.set()


class Over(Exception):
    """Nothing more may be done with the unit."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a unit is, and who works on it."""

    servers: Sequence[Server]
    """Nodes that have the same topics, in the order to ask them in."""
    group: str
    member: bytes
    generation: int
    unit: bytes
    topic: bytes


class Doors:
    """What a unit's effects go through; one thread at a time.

    Args:
        place: whose effects they are.
        rules: of them only the names of topics, which never change, count here.
        status: is told how far it is.
        signals: what somebody else wants.
        tell: gets sentences for people.
    """

    def __init__(
        self,
        place: Place,
        rules: RuleSet,
        status: Status,
        signals: Signals,
        tell: Callable[[str], object],
    ) -> None:
        self._place = place
        self._dead_topic, self._retry_topic = rules.dead_topic, rules.retry_topic
        self._status = status
        self._leave = signals.leave
        self._lost = signals.lost
        self._tell = tell
        self._connection = Connection(place.servers, _CALL_TIMEOUT_S)
        self._targets: dict[bytes, tuple[float, Target]] = {}
        self._source: TopicProperties | None = None
        self._next_ordinal: int | None = None
        self.is_in_doubt = False
        """Whether a commit was sent of which nobody knows whether it was taken."""

    def carry_out(self, work: Work) -> None:
        """Carry out all effects of a unit, until it ends.

        Raises:
            PoeError: the plan that was found cannot be gone on with.
        """
        answer: Any = None
        try:
            while not self._lost.is_set():
                answer = self._answer(work.send(answer))
        except (StopIteration, Over):
            pass
        finally:
            work.close()
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # ---- inside -------------------------------------------------------------------------------

    def _answer(self, effect: Effect) -> Any:  # noqa: ANN401 - as each effect says
        match effect:
            case Read():
                return self._read(effect)
            case Commit(pointer, data):
                return self._commit(pointer, data)
            case Describe(topics, spread):
                return {
                    topic: self._target(topic, need, spread.get(topic_key(topic), 1))
                    for topic, need in topics.items()
                }
            case Store(puts):
                return self._store(puts)
            case Wait(seconds, why, kind):
                self._status.turn("stopped" if kind == "stop" else "retrying", why)
                if self._leave.wait(seconds):
                    return LEAVE
            case Tell(text):
                self._tell(f"{topic_text(self._place.unit)}: {text}")
            case Counted(counts, messages, pointer):
                self._count(counts, messages, pointer)
        return None

    def _count(self, counts: Mapping[tuple[str, str], int], messages: int, pointer: int) -> None:
        status = self._status
        status.tally.add(counts)
        status.messages += messages
        status.batches += 1
        status.pointer = pointer
        status.turn("running")

    def _read(self, read: Read) -> Any:  # noqa: ANN401 - messages, None or LEAVE
        if self._leave.is_set():
            return LEAVE
        if read.is_to_wait:
            self._status.turn("idle")
            unit = self._place.unit
            if not self._until_done(lambda s: s.wait(unit, read.first, _WAIT_S)):
                return LEAVE if self._leave.is_set() else None
        is_copy = read.last is not None and self._properties().is_replicated
        records = self._until_done(lambda s: self._records(s, read, is_copy=is_copy))
        if not len(records):
            return None
        self._look_for_gaps(records, is_behind=read.last is None)
        columns = self._columns(records)
        if columns.topic == self._retry_topic:
            return self._due(columns, is_planned=read.last is not None)
        return columns

    def _records(self, socket: Socket, read: Read, *, is_copy: bool) -> IndexedRecords:
        """Return messages; of a plan none is taken for deleted that a copy is yet to get.

        A copy has all that was agreed on up to its end, but for what was deleted: so where it goes
        up to the last message of the plan, what is not there is gone.

        Raises:
            NodeIsBehind: the copy of this node does not go so far.
        """
        unit = self._place.unit
        last = POINTER_MAX if read.last is None else read.last
        if is_copy and not socket.wait(unit, last - 1, _COPY_S):
            lacks = f"topic {topic_text(unit)} up to pointer {last}, to where a batch is planned,"
            raise NodeIsBehind(self._connection.name, lacks)
        return socket.read_range(unit, read.first, last, read.limit, _READ_BYTES)

    def _due(self, columns: Columns, *, is_planned: bool) -> Columns | None:
        """Return messages of the retry topic that are due; wait a while, where the first is not."""
        count = run_of(columns)
        if not is_planned:
            headers = columns.headers or ()
            waits = (place for place in range(count) if due_s(headers[place], now_us()) > 0)
            count = next(waits, count)
            if count == 0:
                self._status.turn("idle")
                self._leave.wait(min(_WAIT_S, due_s(headers[0], now_us())))
                return None
        return columns.head(count)

    def _look_for_gaps(self, records: IndexedRecords, *, is_behind: bool) -> None:
        """Tell of messages that were deleted before they were read."""
        expected = self._next_ordinal
        if is_behind and expected is not None and records.ordinal > expected:
            count = records.ordinal - expected
            self._status.lost += count
            self._tell(f"{topic_text(self._place.unit)}: {count} messages were deleted unread")
        self._next_ordinal = records.ordinal + len(records)

    def _columns(self, records: IndexedRecords) -> Columns:
        topic = self._place.topic
        return columns_of(
            topic,
            records.pointers.tolist(),
            records.messages(),
            is_enveloped=self._properties().envelope or topic == self._retry_topic,
        )

    def _commit(self, pointer: int, data: bytes) -> bool:
        """Write a plan down. Where its answer is lost nobody may go on with what it says.

        A commit that is sent again could overtake itself: the first one may lie in a socket of the
        server, and come in when later ones are written.
        """
        place = self._place
        self.is_in_doubt = True
        try:
            told = self._connection.socket().control(
                "group_commit",
                group=place.group,
                member=place.member,
                generation=place.generation,
                positions={place.unit: [pointer, data]},
            )
        except PoeError as error:
            self._status.turn("waiting", str(error))
            raise Over from error
        self.is_in_doubt = False
        return place.unit in told

    def _properties(self) -> TopicProperties:
        """Return those of the topic that is read; of one that is not there what any may have."""
        if self._source is None:
            found = self._until_done(lambda s: self._found(s, self._place.topic))
            if found is None:
                return TopicProperties()
            self._source = found.properties
        return self._source

    def _found(self, socket: Socket, topic: bytes) -> DescribedTopic | None:
        """Return a topic; one that other nodes have, too, where these may be asked next.

        Raises:
            NodeIsBehind: this node does not know it; another one does.
            NotReplicated: it is one of this node alone.
        """
        found = socket.find_topic(topic)
        if self._connection.others_count:
            if found is None:
                raise NodeIsBehind(self._connection.name, f"topic {topic_text(topic)}")
            if not found.properties.is_replicated:
                raise NotReplicated(topic)
            self._connection.known.add(topic)
        return found

    def _target(self, topic: bytes, need: bool, least: int) -> Target:  # noqa: FBT001 - as in the effect
        known = self._targets.get(topic)
        if known is not None and monotonic() - known[0] < _TARGETS_KEPT_S:
            target = known[1]
            if len(target.partitions) >= least:
                return target
        replicas = self._properties().replicas
        made: dict[str, Any] = {"envelope": need}
        if replicas > 1:
            made["replicas"] = replicas
        if least > 1:  # it had so many when the batch was planned, and was deleted since
            made["partitions"] = least
        described = self._until_done(lambda s: self._described(s, topic, least, made))
        names = tuple(each.topic for each in described.partitions)
        # Letters, and what waits, are envelopes whatever somebody has made these topics with.
        is_own = topic in {self._dead_topic, self._retry_topic}
        target = Target(names or (topic,), is_own or described.properties.envelope)
        self._targets[topic] = monotonic(), target
        return target

    def _described(
        self, socket: Socket, topic: bytes, least: int, properties: Mapping[str, Any]
    ) -> DescribedTopic:
        """Return what a topic has, and make it where it is not there.

        Raises:
            NodeIsBehind, NotReplicated: as `_found`.
        """
        try:
            described = socket.describe(topic)
        except UnknownTopic:
            try:
                described = socket.create_topic(topic, **properties)
            except TopicExists:
                described = socket.describe(topic)
        has = described.properties
        if self._connection.others_count and not has.is_replicated:
            raise NotReplicated(topic)
        if has.is_replicated and len(described.partitions) < least:
            raise NodeIsBehind(
                self._connection.name, f"all {least} partitions of topic {topic_text(topic)}"
            )
        return described

    def _store(self, puts: Sequence[Sent]) -> str | None:
        """Put all; ANEW where a topic, or its partition, is not there any more."""
        at = 0
        while at < len(puts):
            put = puts[at]
            try:
                is_stored = self._until_done(lambda s, put=put: self._stored(s, put))  # type: ignore[misc]
            except SequenceGap:  # one in front was lost: all of that topic again
                at = next(place for place, each in enumerate(puts) if each.topic == put.topic)
                continue
            if not is_stored:
                self._targets.clear()
                if self._leave.wait(_PAUSE_S):
                    raise Over
                return ANEW
            at += 1
        return None

    def _stored(self, socket: Socket, put: Sent) -> bool:
        """Put, but for what is stored already; False where the topic is not what it was.

        Raises:
            NotReplicated: as `_found`.
            PoeError: as `Socket.write`.
        """
        if self._connection.others_count and put.topic not in self._connection.known:
            try:
                self._found(socket, put.topic)
            except NodeIsBehind:  # or it was deleted, which who describes it finds out
                return False
        # Who has put behind it has first put this; and a queue makes more copies by itself.
        with suppress(RepeatedPut, ProducerFenced, UnderCopies):
            try:
                self._write(socket, put)
            except (PropertyMismatch, TopicNotCreated):
                return False
        return True

    def _write(self, socket: Socket, put: Sent) -> None:
        """Put; of letters for which no message has room what it has room for."""
        try:
            socket.write(put.topic, put.messages, put.put_id)
        except InvalidMessage as error:
            dead = self._targets.get(self._dead_topic)
            if dead is None or put.topic not in dead[1].partitions:
                raise
            # With what is said of it a message may be larger than any may be.
            # What has waited was on another partition, of which nobody knows which.
            has_waited = self._place.topic == self._retry_topic
            partition = None if has_waited else self._place.unit
            room = error.message_max
            fitting = [letter_that_fits(each, room, partition) for each in put.messages]
            socket.write(put.topic, fitting, put.put_id)

    def _until_done(self, call: Callable[[Socket], Any]) -> Any:  # noqa: ANN401 - what it returns
        """Return what a call returns, however long that takes; what fails, the next node is asked.

        Raises:
            Over: the unit is to go before that.
            SequenceGap: the server's answer.
        """
        pause_s = _PAUSE_S
        while True:
            try:
                return call(self._connection.socket())
            except SequenceGap:
                raise
            except PoeError as error:
                self._status.turn("waiting", str(error))
                self._connection.failed()
                if self._leave.wait(pause_s) or self._lost.is_set():
                    raise Over from error
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def now_us() -> int:
    """Return the time, in microseconds since the epoch."""
    return time_ns() // 1000
