"""A node dies at each single change of the files of its groups, which live a short life.

The life is always the same: members join, commit, take work, acknowledge it, give it back or up,
and leave; snapshots are written, a group is deleted and made anew. At each operation on the log of
the groups and on their dead letters the node is killed, or loses its power, when half of what it
writes was written, or all.
"""

import contextlib
from collections.abc import Sequence
from random import Random
from typing import Any

from poe.broker.groups.options import Mode
from poe.protocol import Done, Failed, Lease, LeaseRequest, envelope
from poe.protocol.leases import Verdict
from poe.storage import Files
from torture.checker import Put, Record
from torture.layers.simulated_disk import SimulatedDisk
from torture.layers.watched import Operation, WatchedFiles
from torture.scenario import Run, Trial
from torture.simulated_members import (
    Asked,
    PositionsJudge,
    WorkJudge,
    ask,
    take_many_snapshots,
)
from torture.simulated_node import SimulatedNode
from torture.workload import Ack

_KILL, _POWER_CUT = False, True
_WAYS: list[tuple[Ack, bool, float | None]] = [
    ("flushed", _KILL, None),
    ("flushed", _POWER_CUT, 2.0),
    ("fsync", _POWER_CUT, None),
    ("memory", _KILL, 0.06),
]
"""What the groups' log promises, what happens to the node, and the seconds before that of which
something may be forgotten: twice `sync_interval`, or those in which it is written; None: nothing.
"""
_CHANGES = {
    "open", "write_at", "truncate", "allocate", "sync", "rename", "unlink", "make_folder",
    "remove_folder", "sync_folder", "lock",
}  # fmt: skip
"""Operations that change something, or make it durable."""
_MEMBER, _OTHER = b"a" * 16, b"b" * 16
_UNITS = [b"a", b"b", b"c"]
_JOBS, _LETTERS = b"jobs", b"workers.dead"
_FOLDERS = ("topics/poe.groups", "topics/workers.dead")
"""Of the topics whose files are meant."""
_LEASE_S = 600.0
_TRIM_S = 31.0
"""By then the log was looked at, and what nobody needs of it removed."""
_BYTES_MAX = 1 << 20
_POSITIONS = {
    "group": "positions",
    "mode": "ordered",
    "topics": _UNITS,
    "options": {"session_s": 600.0},
}
_WORKERS = {
    "group": "workers",
    "mode": "shared",
    "topics": [_JOBS],
    "options": {"session_s": 600.0, "lease_s": _LEASE_S, "attempts_max": 2, "retry_s": 0.5},
}
_END_ROUNDS = 100
_EVERY = 3


class _Died(KeyboardInterrupt):
    """The node is to end here; actors let it pass."""


class _Disk(SimulatedDisk):
    """Ends the node at one of the operations that change files of groups."""

    def __init__(self, nth: int, share: float) -> None:
        super().__init__()
        self.operations: list[str] = []
        """The names of those that were counted."""
        self._nth: int | None = nth
        self._share = share

    def files(self) -> Files:
        """The file layer of the next process."""
        return WatchedFiles(super().files(), self._count)

    def live_on(self) -> None:
        """End nobody any more."""
        self._nth = None

    def _count(self, operation: Operation) -> None:
        is_look = operation.name == "open" and operation.arguments[-1] in {"r", "r+"}
        if is_look or operation.name not in _CHANGES or not operation.path.startswith(_FOLDERS):
            return
        self.operations.append(operation.name)
        if len(self.operations) - 1 != self._nth:
            return
        if self._share < 1:
            operation.do_in_part(self._share)
        else:
            with contextlib.suppress(OSError):  # a file that is not there
                operation.do(*operation.arguments)
        raise _Died


def play(run: Run) -> None:
    """Have each trial die at all operations in one of the ways."""
    take_many_snapshots()
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    ack, is_power_cut, window_s = _WAYS[trial.number % len(_WAYS)]
    # The first one lives to the end, to count what it may die of.
    whole = _Life(ack, _Disk(-1, 1.0))
    whole.live()
    operations = list(whole.disk.operations)
    trial.failures += whole.end(since_s=None)
    trial.note(operations=len(operations))
    for nth, name in run.thinned(enumerate(operations), _EVERY):
        # What is no write is not done in part: that it was not done is how the one before ends.
        for share in (0.5, 1.0) if name == "write_at" else (1.0,):
            life = _Life(ack, _Disk(nth, share))
            random = Random(trial.random.random())
            try:
                life.live()
                trial.failures.append("it has lived to the end, and otherwise than before")
            except _Died:
                life.die(random if is_power_cut else None)
                since_s = None if window_s is None else life.now_s - window_s
                trial.failures += life.end(since_s)
            trial.note(deaths=1)
            if trial.failures:
                trial.failures.append(f"at operation {nth}, {share}, {ack}, {is_power_cut=}")
                return


class _Life:
    """One node, its groups, and what their members know."""

    def __init__(self, ack: Ack, disk: _Disk) -> None:
        self.disk = disk
        self._node = SimulatedNode(disk, ack, count_limit=8)
        self._positions = PositionsJudge()
        self._work = WorkJudge(_LEASE_S)
        self._generation = 0
        self._modes: list[tuple[str | None, float]] = [(None, -1e9)]
        """What somebody wanted a group to be, and when that was answered."""

    @property
    def now_s(self) -> float:
        return self._node.clock.monotonic_s()

    def live(self) -> None:
        """Do all of it."""
        self._put(20)
        self._own()
        self._commit(*_UNITS)
        for member in (_MEMBER, _OTHER):
            self._ask("group_join", **_WORKERS, member=member)
        first, second, third = (self._take(each, 3) for each in (_MEMBER, _OTHER, _OTHER))
        self._answer(second, None)  # behind what is not done
        self._answer(third, "retry")
        self._want("ordered")
        self._node.advance(3.0)  # then all that is a power cut's loss no more, with `flushed`
        self._commit(b"a")
        self._answer(self._take(_MEMBER, 3), "dead")
        self._answer(self._take(_OTHER, 1), "release")
        self._answer(first, None)
        self._want(None)
        self._want("shared")
        self._work.free([_MEMBER])
        self._ask("group_leave", group="workers", member=_MEMBER)
        self._commit(b"b", b"c")
        self._node.advance(3.0)
        # Now nobody needs the beginning of the log, which is removed.
        for _ in range(8):
            self._commit(*_UNITS)
            self._answer(self._take(_OTHER, 1), None)
        self._want(None)
        self._node.advance(_TRIM_S)

    def die(self, random: Random | None) -> None:
        """End the process, or all of the machine, and start again."""
        disk = self.disk
        disk.live_on()
        if random is None:
            self._node.abandon(disk.kill)
        else:
            self._node.abandon(lambda: disk.cut_power(random))
        self._node.start()
        self._work.free()

    def end(self, since_s: float | None) -> list[str]:
        """Do what is left; say what is wrong. What is newer than `since_s` may be forgotten."""
        self.disk.live_on()
        sure_s = self.now_s if since_s is None else since_s
        if since_s is not None:
            self._positions.lose(since_s)
            self._work.lose(since_s)
        told = self._ask("groups")
        modes = {each["group"]: each["mode"] for each in told}
        failures = self._judge_modes(modes.get("gone"), sure_s)
        positions = self._ask("group_positions", group="positions") if "positions" in modes else {}
        failures += self._positions.judge(positions)
        return failures + self._finish(has_lost=since_s is not None)

    # ---- what members do -------------------------------------------------------------------------

    def _ask(self, op: str, **arguments: object) -> Any:
        return self._answer_of(ask(self._node, (op, arguments)))

    def _answer_of(self, asked: Asked) -> Any:
        """Return the answer; nothing that is asked here is refused, or takes long."""
        if asked.error is not None:
            raise asked.error
        assert asked.is_answered, asked.request
        return asked.answer

    def _put(self, count: int) -> None:
        names = [b"%d" % number for number in range(count)]
        messages = [self._work.put(name) for name in names]
        put = Put(_JOBS, 0, 0, names)
        for topic in _UNITS:
            self._node.begin_put(0, Put(topic, 0, 0, [topic]))
        self._node.begin_put(0, put)
        self._node.advance(0.1)
        for message in messages:
            message.put_s = put.acked_s

    def _own(self) -> None:
        """Have a member own all units of the ordered group."""
        self._ask("group_join", **_POSITIONS, member=_MEMBER)
        self._node.advance(0.1)
        beat = {"group": "positions", "member": _MEMBER, "generation": 0, "owned": _UNITS}
        self._generation = self._ask("group_heartbeat", **beat)["generation"]

    def _commit(self, *units: bytes) -> None:
        commits = {unit: self._positions.begin(unit) for unit in units}
        positions = {unit: each.pointer for unit, each in commits.items()}
        named = {"group": "positions", "member": _MEMBER, "generation": self._generation}
        assert self._ask("group_commit", **named, positions=positions) == positions
        for each in commits.values():
            each.acked_s = self.now_s

    def _lease(self, member: bytes, limit: int, *told: Sequence[Any]) -> tuple[Lease, list[Record]]:
        request = LeaseRequest("workers", member, limit, _BYTES_MAX, 0.0, *told)
        leased: tuple[Lease, list[Record]] = self._answer_of(ask(self._node, request))
        return leased

    def _take(self, member: bytes, limit: int) -> int:
        """Take messages; return the number of the lease, 0 where there are none."""
        asked_s = self.now_s
        lease, records = self._lease(member, limit)
        if lease.id:
            self._work.deliver(member, lease, records, asked_s, self.now_s)
        return lease.id

    def _answer(self, lease_id: int, verdict: Verdict | None) -> None:
        held = self._work.held[lease_id]
        lease = held.lease
        done, failed = [Done(lease_id)], []
        if verdict is not None:
            done, failed = [], [Failed(lease_id, lease.after, lease.last, verdict)]
        self._work.begin_answer(lease_id, verdict)
        answer, _ = self._lease(held.member, 0, done, failed)
        is_lost = lease_id in answer.lost
        self._work.answered(lease_id, verdict, self.now_s, is_lost=is_lost)

    def _want(self, mode: Mode | None) -> None:
        """Make a group of a mode, or delete it."""
        self._modes.append((mode, float("inf")))
        if mode is None:
            self._ask("group_delete", group="gone")
        else:
            self._ask("group_create", group="gone", mode=mode, topics=[_JOBS])
        self._modes[-1] = mode, self.now_s

    # ---- the judge -------------------------------------------------------------------------------

    def _judge_modes(self, found: str | None, sure_s: float) -> list[str]:
        """Expect what a group was to be last that is sure, or anything that came behind that."""
        sure = max(at for at, (_, told_s) in enumerate(self._modes) if told_s <= sure_s)
        allowed = [mode for mode, _ in self._modes[sure:]]
        return [] if found in allowed else [f"the group is {found}, and may be {allowed}"]

    def _finish(self, *, has_lost: bool) -> list[str]:
        """Have all work done that is left, and judge."""
        for _ in range(_END_ROUNDS):
            self._ask("group_join", **_WORKERS, member=_OTHER)
            lease_id = self._take(_OTHER, 10)
            if lease_id:
                self._answer(lease_id, None)
            elif not self._left_count():
                break
            else:
                self._node.advance(0.5)
        else:
            return ["work has no end"]
        stored = dict(self._node.read_all())
        letters = [envelope.decode(each).value or b"" for _, each in stored.get(_LETTERS, ())]
        names = {each for _, each in stored.get(_JOBS, ())}
        return self._work.judge_end(names, letters, has_lost=has_lost)

    def _left_count(self) -> int:
        lag = self._ask("group_lag", group="workers")
        return sum(each["messages"] for each in lag.values())
