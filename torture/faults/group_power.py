"""The power fails while groups of a real node work, at the defaults and with `ack="fsync"`.

What is left of the positions is what they were at an earlier point in time, and of work nothing is
taken for done that nobody has done. With `fsync`, and of what is older than a sync, nothing is
forgotten.
"""

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from poe.errors import PoeError
from poe.protocol import Done, Failed, LeaseRequest, Socket, envelope
from poe.protocol.leases import VERDICTS, Verdict
from torture.disk import FileSystem, PoweredDisk, powered_disk, write_back_parts
from torture.group_member import records_of
from torture.scenario import Run, Trial
from torture.server import Server, read_all
from torture.simulated_members import WorkJudge
from torture.workload import Ack

_ACKS: tuple[Ack, ...] = ("flushed", "fsync")
_LIVES = 2
_SIZE_MIB = 256
_SLACK_S = 1.0
"""A sync may take as long, on a machine that does other things besides."""
_PATIENCE_S = 30.0
_SHOWN_MAX = 5
_UNITS = [b"a", b"b", b"c"]
_JOBS, _LETTERS = b"jobs", b"workers.dead"
_LEASE_S = 60.0
_BYTES_MAX = 1 << 20
_NOTE_BYTES = 1000
"""With so many beside each position, a snapshot follows each 64 of them."""
_POSITIONS = {
    "group": "positions",
    "mode": "ordered",
    "topics": _UNITS,
    "options": {"session_s": 60.0},
}
_WORKERS = {
    "group": "workers",
    "mode": "shared",
    "topics": [_JOBS],
    "options": {"session_s": 60.0, "lease_s": _LEASE_S, "attempts_max": 2, "retry_s": 0.1},
}


def play(run: Run, kind: FileSystem) -> None:
    """Cut the power twice in each trial, look what is left, and have the rest done."""
    with powered_disk(run.folder, _SIZE_MIB, kind) as disk:
        run.each(lambda trial: _History(disk, run.folder, trial).play())


class _History:
    """One folder, the lives of the nodes on it, and those who work with their groups."""

    def __init__(self, disk: PoweredDisk, folder: Path, trial: Trial) -> None:
        self._disk = disk
        self._folder = disk.folder / f"life-{trial.number}"
        self._log = folder / f"{trial.number}.log"
        self._trial = trial
        self._random = trial.random
        self._ack = _ACKS[trial.number % len(_ACKS)]
        self._sync_interval_s = self._random.choice([1.0, 0.2])
        self._committer = _Committer(Random(self._random.random()))
        self._worker = _Worker(Random(self._random.random()))

    def play(self) -> None:
        """Live and lose the power, again and again; then do what is left."""
        for _ in range(_LIVES):
            with self._start() as server:
                self._look(server)
                lost_since_s = self._work_and_cut(server)
            self._disk.restore()
            self._committer.lose(lost_since_s)
            self._worker.lose(lost_since_s)
        with self._start() as server:
            self._look(server)
            with server.connect() as client:
                self._trial.failures += self._worker.finish(client)[:_SHOWN_MAX]
            server.stop()
        told = [line for line in self._log.read_text().splitlines() if " ERROR " in line]
        self._trial.failures += [f"logged {line}" for line in told[:3]]
        if self._trial.failures:
            self._trial.failures.append(f"of {self._ack}")
        self._trial.note(
            commits=len(self._committer.commits),
            jobs=len(self._worker.judge.messages),
            redelivered=self._worker.judge.redelivered_count,
            letters=self._worker.letters_count,
        )
        shutil.rmtree(self._folder)

    def _start(self) -> Server:
        return Server(
            self._folder,
            boot=self._disk.boot,
            # As most disks do, and so that changes come while a sync is under way.
            sync_s=self._random.choice([0.0, 0.01]),
            min_free=0,
            log=self._log,
            ack=self._ack,
            sync_interval=self._sync_interval_s,
        )

    def _look(self, server: Server) -> None:
        """Compare the positions with what was answered."""
        with server.connect() as client:
            names = {each["group"] for each in client.control("groups")}
            is_there = _POSITIONS["group"] in names
            told = client.control("group_positions", group="positions") if is_there else {}
        self._trial.failures += self._committer.judge_positions(told)

    def _work_and_cut(self, server: Server) -> float:
        """Have everybody work until the power fails; return since when things may be forgotten."""
        random = self._random
        threads = [
            threading.Thread(target=_until_it_dies, args=(server, each.work), daemon=True)
            for each in (self._committer, self._worker)
        ]
        for thread in threads:
            thread.start()
        threads[0].join(random.choice([0.3, 1.0, 2.5]))
        server.freeze()
        cut_s = time.monotonic()
        write_back_parts(self._folder, random, synced_share=random.choice([0.0, 0.1, 0.3]))
        self._disk.cut(has_flushed_log=random.random() < 0.3)
        server.kill()
        for thread in threads:
            thread.join()
        self._trial.note(cuts=1)
        if self._ack == "fsync":
            return cut_s + _PATIENCE_S  # which nothing is
        return cut_s - 2 * self._sync_interval_s - _SLACK_S


def _until_it_dies(server: Server, work: Callable[[Socket], None]) -> None:
    try:
        with server.connect() as client:
            work(client)
    except (PoeError, OSError):
        pass  # it has died


@dataclass(slots=True)
class _Commit:
    """Positions that were sent together."""

    positions: dict[bytes, int]
    acked_s: float | None = None


@dataclass(slots=True)
class _Committer:
    """The owner of all units of a group, which commits one time after the other."""

    random: Random
    commits: list[_Commit] = field(default_factory=list)
    """All that may have been taken, in order."""

    def work(self, client: Socket) -> None:
        """Commit for as long as the node lives."""
        for unit in _UNITS:
            client.write(unit, [b"it is there"])
        member = self.random.randbytes(16)
        client.control("group_join", member=member, **_POSITIONS)
        named = {"group": "positions", "member": member}
        told: dict[str, Any] = {"keep": [], "generation": 0}
        while len(told["keep"]) < len(_UNITS):
            told = client.control("group_heartbeat", owned=[], generation=0, wait_s=0.1, **named)
        while True:
            commit = _Commit(
                {
                    unit: len(self.commits) + 1
                    for unit in self.random.sample(_UNITS, self.random.randint(1, len(_UNITS)))
                }
            )
            self.commits.append(commit)
            sent = {unit: [at, _note_of(at)] for unit, at in commit.positions.items()}
            taken = client.control(
                "group_commit", positions=sent, generation=told["generation"], **named
            )
            assert taken == commit.positions, f"of {commit.positions} were taken {taken}"
            commit.acked_s = time.monotonic()

    def lose(self, since_s: float) -> None:
        """Let what was answered at a time or later be lost."""
        for commit in self.commits:
            if commit.acked_s is not None and commit.acked_s >= since_s:
                commit.acked_s = None

    def judge_positions(self, told: dict[bytes, Any]) -> list[str]:
        """Expect what some commit has left that is no older than what is sure; it is sure now."""
        found = {unit: position[0] for unit, position in told.items() if position is not None}
        notes = [position for position in told.values() if position is not None]
        wrong = [at for at, note in notes if note != _note_of(at)]
        if wrong:
            return [f"beside the positions {wrong} lie other bytes"]
        sure_count = max(
            (at for at, each in enumerate(self.commits, 1) if each.acked_s is not None), default=0
        )
        state: dict[bytes, int] = {}
        states = [dict(state)]
        for commit in self.commits:
            state |= commit.positions
            states.append(dict(state))
        if found not in states[sure_count:]:
            expected = f"{states[sure_count]} to {states[-1]}"
            return [f"positions are {found}, which they never were from {expected}"]
        del self.commits[states.index(found, sure_count) :]
        for commit in self.commits:
            commit.acked_s = 0.0
        return []


def _note_of(pointer: int) -> bytes:
    return b"%d " % pointer * (_NOTE_BYTES // len(b"%d " % pointer))


class _Worker:
    """Members of a work queue, of which one at a time does something."""

    def __init__(self, random: Random) -> None:
        self.judge = WorkJudge(_LEASE_S)
        self.letters_count = 0
        self._random = random
        self._members: list[bytes] = []
        self._has_lost = False

    def work(self, client: Socket) -> None:
        """Put, take and answer for as long as the node lives."""
        self._join(client, 3)
        while True:
            step = self._random.choices([self._put, self._take, self._answer], [2, 3, 4])[0]
            step(client)

    def lose(self, since_s: float) -> None:
        """The node has died; let what was answered at a time or later be lost."""
        self._has_lost |= since_s < time.monotonic()
        self.judge.free()
        self.judge.held.clear()
        self.judge.lose(since_s)

    def finish(self, client: Socket) -> list[str]:
        """Do all that is left; say what was forgotten, and what came again though it was done."""
        self._join(client, 1)
        deadline_s = time.monotonic() + _PATIENCE_S
        while _left_count(client):
            if time.monotonic() > deadline_s:
                return ["work has no end"]
            self._take(client, limit=100, wait_s=0.1)
            for lease_id in list(self.judge.held):
                self._tell(client, lease_id, None)
        letters = [envelope.decode(each).value or b"" for _, each in read_all(client, _LETTERS)]
        self.letters_count = len(letters)
        stored = {name for _, name in read_all(client, _JOBS)}
        return self.judge.judge_end(stored, letters, has_lost=self._has_lost)

    def _join(self, client: Socket, count: int) -> None:
        self._members = [self._random.randbytes(16) for _ in range(count)]
        for member in self._members:
            client.control("group_join", member=member, **_WORKERS)

    def _put(self, client: Socket) -> None:
        first = len(self.judge.messages)
        names = [b"%d" % (first + at) for at in range(self._random.randint(1, 5))]
        messages = [self.judge.put(name) for name in names]
        client.write(_JOBS, names)
        for message in messages:
            message.put_s = time.monotonic()

    def _take(self, client: Socket, limit: int = 0, wait_s: float = 0.0) -> None:
        member = self._random.choice(self._members)
        limit = limit or self._random.choice([1, 3, 10])
        asked_s = time.monotonic()
        reply = client.lease(LeaseRequest("workers", member, limit, _BYTES_MAX, wait_s))
        if reply.lease.id:
            records = records_of(reply.records)
            self.judge.deliver(member, reply.lease, records, asked_s, time.monotonic())

    def _answer(self, client: Socket) -> None:
        if self.judge.held:
            verdict: Verdict | None = self._random.choice([None] * 6 + [*VERDICTS])
            self._tell(client, self._random.choice(list(self.judge.held)), verdict)

    def _tell(self, client: Socket, lease_id: int, verdict: Verdict | None) -> None:
        held = self.judge.held[lease_id]
        lease = held.lease
        done, failed = [Done(lease_id)], []
        if verdict is not None:
            done, failed = [], [Failed(lease_id, lease.after, lease.last, verdict)]
        self.judge.begin_answer(lease_id, verdict)
        reply = client.lease(LeaseRequest("workers", held.member, 0, _BYTES_MAX, 0.0, done, failed))
        is_lost = lease_id in reply.lease.lost
        self.judge.answered(lease_id, verdict, time.monotonic(), is_lost=is_lost)


def _left_count(client: Socket) -> int:
    lag = client.control("group_lag", group="workers")
    return sum(each["messages"] for each in lag.values())
