"""Members of groups on a simulated node: clients that ask as connections do, and what they know.

`PositionsJudge` and `WorkJudge` hold what the node says against what clients were answered. Both
are told of kills and power cuts, and what these may take away.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from poe.actors import GenServer
from poe.broker import RoutingTable
from poe.broker.coordinator import group
from poe.broker.requests.groups import group_operation, lease_messages
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import PoeError
from poe.protocol import IndexedRecords, Lease, LeaseRequest
from poe.protocol.leases import Verdict
from torture.checker import Record
from torture.group_member import records_of
from torture.simulated_node import SimulatedNode

_PATIENCE_S = 12.0
_SLICE_S = 0.05
_TICK_S = 1e-6
"""The node counts microseconds; sums of seconds are off by less."""


def take_many_snapshots() -> None:
    """Have groups of this process take snapshots often, from now on."""
    group._SNAPSHOT_BYTES_MIN = 300  # a whole group has about as many
    group._SNAPSHOT_RATIO = 0.5  # type: ignore[assignment]


@dataclass(slots=True)
class Asked:
    """A request to a group, and what came of it; neither answer nor error: nobody knows."""

    request: LeaseRequest | tuple[str, dict[str, Any]]
    answer: Any = None
    error: PoeError | None = None

    @property
    def is_answered(self) -> bool:
        """Whether it was done, as far as the answer says."""
        return self.answer is not None


class GroupClient(GenServer):
    """Carries out requests to groups one after the other, as a connection does."""

    def init(self, routes: RoutingTable) -> None:
        """Take what connections are given."""
        self._handler = RequestHandler(self, routes)

    async def handle_cast(self, asked: Asked) -> None:
        """Ask, and note what came of it."""
        try:
            if isinstance(asked.request, LeaseRequest):
                lease, found = await lease_messages(self._handler, asked.request)
                asked.answer = lease, [] if found is None else _records(found)
            else:
                op, arguments = asked.request
                asked.answer = await group_operation(self._handler, op, arguments) or {}
        except PoeError as error:
            asked.error = error


def ask(node: SimulatedNode, request: LeaseRequest | tuple[str, dict[str, Any]]) -> Asked:
    """Ask, and wait until that is answered, or for a while."""
    asked = Asked(request)
    node.system.cast(node.start_client(GroupClient), asked)
    for _ in range(round(_PATIENCE_S / _SLICE_S)):
        if asked.answer is not None or asked.error is not None:
            break
        node.advance(_SLICE_S)
    return asked


def _records(found: Any) -> list[Record]:
    return records_of(IndexedRecords.of(found.entries, memoryview(found.records.read())))


@dataclass(slots=True)
class _Commit:
    """A position that was sent: its pointer, when it was answered, if it was."""

    pointer: int
    acked_s: float | None = None


class PositionsJudge:
    """What may be the positions of one group: those that were answered last, or not answered since.

    Pointers are sent in rising order.
    """

    def __init__(self) -> None:
        self._commits: dict[bytes, list[_Commit]] = {}
        self._last = 0

    def begin(self, unit: bytes) -> _Commit:
        """Note a position that is about to be sent."""
        self._last += 1
        commit = _Commit(self._last)
        self._commits.setdefault(unit, []).append(commit)
        return commit

    def lose(self, since_s: float) -> None:
        """Let what was answered at a time or later be lost."""
        for commits in self._commits.values():
            for commit in commits:
                if commit.acked_s is not None and commit.acked_s >= since_s:
                    commit.acked_s = None

    def judge(self, positions: dict[bytes, Any]) -> list[str]:
        """Compare with what the group says; what it says is settled from now on."""
        failures = []
        for unit, commits in self._commits.items():
            found = positions.get(unit)
            pointer = None if found is None else found[0]
            acked = [at for at, each in enumerate(commits) if each.acked_s is not None]
            allowed: list[int | None] = [each.pointer for each in commits[max(acked, default=0) :]]
            if not acked:
                allowed.append(None)
            if pointer not in allowed:
                failures.append(f"{unit!r} is at {pointer}, and may be at one of {allowed}")
            settled = [each for each in commits if each.pointer == pointer]
            for each in settled:
                each.acked_s = each.acked_s if each.acked_s is not None else 0.0
            self._commits[unit] = settled
        return failures


@dataclass(slots=True)
class _Message:
    """What is known of one message of a work queue."""

    pointer: int | None = None
    """Where it lies, as far as it was handed out."""
    copies_count: int = 1
    """How often it was put, each time but the last one in vain."""
    put_s: float | None = None
    done_s: float | None = None
    """When its acknowledgement was answered."""
    dead_s: float | None = None
    """When it was answered that it is given up."""
    may_be_done: bool = False
    """Whether somebody has acknowledged it, and was not answered, or that may be lost."""
    deliveries_count: int = 0
    failures_count: int = 0
    held_until_s: float = 0.0
    """Nobody else may be given it before that."""

    def put_again(self, pointer: int) -> None:
        """Forget what became of the copy that was cut off."""
        self.pointer = pointer
        self.copies_count += 1
        self.done_s = self.dead_s = None
        self.may_be_done = False
        self.held_until_s = 0.0


@dataclass(slots=True)
class _Held:
    lease: Lease
    member: bytes
    records: list[Record]


class WorkJudge:
    """What may be delivered of one work queue, and what must have been done of it in the end.

    With `are_puts_repeated`, a message may be cut off at a sync that fails, after it was read, and
    put once more by the node. Then it is another message, of which nothing was said.
    """

    def __init__(self, lease_s: float, *, are_puts_repeated: bool = False) -> None:
        self.messages: dict[bytes, _Message] = {}
        self.held: dict[int, _Held] = {}
        self.failures: list[str] = []
        self.redelivered_count = 0
        self._lease_s = lease_s
        self._are_puts_repeated = are_puts_repeated

    def put(self, name: bytes) -> _Message:
        """Note a message that is about to be put."""
        return self.messages.setdefault(name, _Message())

    def deliver(
        self, member: bytes, lease: Lease, records: list[Record], asked_s: float, now_s: float
    ) -> None:
        """A member was given messages for what it had asked at a time."""
        for pointer, name in records:
            message = self.messages[name]
            self._locate(name, message, pointer)
            if message.done_s is not None:
                self.failures.append(f"{name!r} was done at {message.done_s}, and came at {now_s}")
            if message.dead_s is not None:
                self.failures.append(f"{name!r} was dead at {message.dead_s}, and came at {now_s}")
            if message.held_until_s > now_s + _TICK_S:
                self.failures.append(f"{name!r} was held by another one, and came at {now_s}")
            message.held_until_s = asked_s + self._lease_s
            message.deliveries_count += 1
            self.redelivered_count += message.deliveries_count > 1
        self.held[lease.id] = _Held(lease, member, records)

    def free(self, members: Iterable[bytes] | None = None) -> None:
        """What members hold, or all, may be given to others: they left, or the node died."""
        for held in self.held.values():
            if members is None or held.member in members:
                self._free(held)

    def begin_answer(self, lease_id: int, verdict: Verdict | None) -> None:
        """A member is about to say what became of a lease; None: it is done."""
        held = self.held[lease_id]
        for message in self._messages(held):
            if verdict is None:
                message.may_be_done = True
            else:
                message.failures_count += verdict != "release"
        self._free(held)

    def answered(
        self, lease_id: int, verdict: Verdict | None, now_s: float, *, is_lost: bool
    ) -> None:
        """It was told that this was taken, or that it did not hold the lease any more."""
        held = self.held.pop(lease_id)
        for message in self._messages(held) if not is_lost else ():
            if verdict is None:
                message.done_s = now_s
            elif verdict == "dead":
                message.dead_s = now_s

    def lose(self, since_s: float) -> None:
        """Let what was answered at a time or later be lost."""
        for message in self.messages.values():
            if message.done_s is not None and message.done_s >= since_s:
                message.done_s = None
            if message.dead_s is not None and message.dead_s >= since_s:
                message.dead_s = None
            if message.put_s is not None and message.put_s >= since_s:
                message.put_s = None

    def judge_end(self, stored: set[bytes], letters: list[bytes], *, has_lost: bool) -> list[str]:
        """Nothing is left to be handed out: say what is neither done nor a dead letter."""
        failures = list(self.failures)
        for name, message in self.messages.items():
            count = letters.count(name)
            if message.put_s is not None and name not in stored:
                failures.append(f"{name!r} is not stored")
            is_over = message.done_s is not None or message.may_be_done or count
            if name in stored and not is_over and not (has_lost and message.failures_count):
                failures.append(f"{name!r} was never done")
            is_there = name in stored or not self._are_puts_repeated
            if message.dead_s is not None and is_there and not count:
                failures.append(f"{name!r} was given up, and is no dead letter")
            if count > message.copies_count and not has_lost:
                failures.append(f"{name!r} has {count} dead letters")
            if count and not message.failures_count and message.deliveries_count < 2:
                failures.append(f"{name!r} is a dead letter, and has never failed")
        return failures

    def _locate(self, name: bytes, message: _Message, pointer: int) -> None:
        """Note where a message lies; where it lay elsewhere before, it was put again."""
        if message.pointer is None:
            message.pointer = pointer
        elif self._are_puts_repeated and pointer > message.pointer:
            message.put_again(pointer)
        elif pointer != message.pointer:
            before = message.pointer
            self.failures.append(f"{name!r} was at pointer {before}, and came at {pointer}")

    def _messages(self, held: _Held) -> list[_Message]:
        """Return what somebody holds, less what was cut off and put again since."""
        found = ((pointer, self.messages[name]) for pointer, name in held.records)
        return [message for pointer, message in found if message.pointer == pointer]

    def _free(self, held: _Held) -> None:
        for message in self._messages(held):
            message.held_until_s = 0.0
