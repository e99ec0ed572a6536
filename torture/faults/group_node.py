"""Groups of a whole node in simulated time: kills, power cuts, crashes, failing disks.

Members commit, take work and say what became of it; whatever happens to the node, no position is
ahead of what was acknowledged, nothing that was done comes again but for what a power cut may take,
and in the end all is done, or a dead letter.
"""

from random import Random
from typing import Any

from poe.broker.requests.groups import GROUPS, address_of
from poe.protocol import Done, Failed, LeaseRequest, envelope
from poe.protocol.leases import VERDICTS, Verdict
from torture.checker import Put
from torture.layers.simulated_disk import SimulatedDisk
from torture.layers.watched import ERRORS
from torture.scenario import Run, Trial
from torture.simulated_members import (
    Asked,
    PositionsJudge,
    WorkJudge,
    ask,
    take_many_snapshots,
)
from torture.simulated_node import WORK_S_MAX, SimulatedNode
from torture.workload import Ack

_STEPS = 150
_MEMBERS = [bytes([number]) * 16 for number in range(1, 4)]
_UNITS = [b"a", b"b", b"c"]
_JOBS = b"jobs"
_LEASE_S = 20.0
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
    "options": {"session_s": 60.0, "lease_s": _LEASE_S, "attempts_max": 2, "retry_s": 0.5},
}
_WINDOW_S = 2 * (1.0 + WORK_S_MAX)
"""What is older is durable, though nobody has waited for it, as in `sim`."""
_MEMORY_S = 0.06
"""What is older was written, with `memory`, too."""
_END_ROUNDS = 200


def play(run: Run) -> None:
    """Let each seed make up a history."""
    take_many_snapshots()
    run.each(lambda trial: _History(trial).play())


class _History:
    """One node, two groups, their members, and what happens to them."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.random: Random = trial.random
        acks: list[Ack] = ["flushed", "flushed", "fsync", "memory"]
        self.ack = self.random.choice(acks)
        self.has_power_cuts = self.random.random() < 0.6
        # How much a power cut may take is promised of sound disks only, as in `sim`.
        is_cautious = self.has_power_cuts or self.ack == "memory"
        self.has_failures = self.random.random() < 0.5 and (self.ack == "fsync" or not is_cautious)
        self.has_lost = False
        self.node = SimulatedNode(
            SimulatedDisk(), self.ack, self.random.choice([20, 60]), self.random
        )
        self.positions = PositionsJudge()
        self.work = WorkJudge(_LEASE_S, are_puts_repeated=self.has_failures and self.ack == "fsync")
        self.generations: dict[bytes, int] = {}
        self.workers: set[bytes] = set()
        self.jobs_count = 0

    @property
    def now_s(self) -> float:
        return self.node.clock.monotonic_s()

    def play(self) -> None:
        """Do steps; they stop at the first that shows a fault."""
        steps = {
            self.put: 20,
            self.commit: 20,
            self.take: 20,
            self.answer: 25,
            self.leave: 1,
            self.pass_time: 10,
            self.fail: 2,
            self.heal: 3,
            self.kill_actor: 4,
            self.crash: 3,
            self.stop: 1,
            self.check: 3,
        }
        chosen = self.random.choices(list(steps), list(steps.values()), k=_STEPS)
        for number, step in enumerate(chosen):
            step()
            self.trial.failures += self.work.failures
            if self.trial.failures:
                self.trial.failures.append(f"at step {number}, {step.__name__}, {self.ack}")
                break
        else:
            self.end()
        self.node.stop()
        self.trial.note(steps=_STEPS, jobs=self.jobs_count, redelivered=self.work.redelivered_count)

    # ---- what members do -------------------------------------------------------------------------

    def ask(self, request: LeaseRequest | tuple[str, dict[str, Any]]) -> Asked:
        return ask(self.node, request)

    def put(self) -> None:
        self.jobs_count += 1
        name = b"%d" % self.jobs_count
        message = self.work.put(name)
        put = Put(_JOBS, 0, self.jobs_count, [name])
        self.node.begin_put(0, put)
        self.node.advance(self.random.choice([0.0, 0.05, 0.5]))
        if put.acked_s is not None:
            message.put_s = put.acked_s

    def commit(self) -> None:
        """Have one member, which owns all units, tell a position."""
        member = _MEMBERS[0]
        if member not in self.generations:
            joined = self.ask(("group_join", {**_POSITIONS, "member": member}))
            if not joined.is_answered:
                return
            self.node.advance(0.1)
            beat = {"group": "positions", "member": member, "generation": 0, "owned": _UNITS}
            told = self.ask(("group_heartbeat", beat))
            if not told.is_answered:
                return
            self.generations[member] = told.answer["generation"]
        units = self.random.sample(_UNITS, self.random.randint(1, 3))
        commits = {unit: self.positions.begin(unit) for unit in units}
        arguments = {
            "group": "positions",
            "member": member,
            "generation": self.generations[member],
            "positions": {unit: each.pointer for unit, each in commits.items()},
        }
        told = self.ask(("group_commit", arguments))
        if told.is_answered:
            for unit in told.answer:
                commits[unit].acked_s = self.now_s
            self.trial.note(commits=len(told.answer))
        if told.error is not None or set(told.answer or ()) != set(units):
            self.generations.pop(member)

    def take(self) -> None:
        """Have a member ask for work."""
        member = self.random.choice(_MEMBERS)
        if member not in self.workers:
            if not self.ask(("group_join", {**_WORKERS, "member": member})).is_answered:
                return
            self.workers.add(member)
        asked_s = self.now_s
        limit, wait_s = self.random.choice([1, 3, 10]), self.random.choice([0.0, 0.0, 2.0])
        asked = self.ask(LeaseRequest("workers", member, limit, 1 << 20, wait_s))
        if asked.is_answered:
            lease, records = asked.answer
            if self.has_failures:  # a group that crashes of them forgets who holds what
                self.work.free()
            if lease.id:
                self.work.deliver(member, lease, records, asked_s, self.now_s)
        else:
            self.workers.discard(member)  # what it was to be given is anybody's

    def answer(self) -> None:
        """Have a member say what became of what it holds, or held."""
        if not self.work.held:
            return
        lease_id = self.random.choice(sorted(self.work.held))
        held = self.work.held[lease_id]
        verdict: Verdict | None = self.random.choice([None] * 6 + [*VERDICTS])
        done, failed = [Done(lease_id)], []
        if verdict is not None:
            lease = held.lease
            done, failed = [], [Failed(lease_id, lease.after, lease.last, verdict, None, "why")]
        self.work.begin_answer(lease_id, verdict)
        request = LeaseRequest("workers", held.member, 0, 1 << 20, 0.0, done, failed)
        asked = self.ask(request)
        if asked.is_answered:
            lease, _ = asked.answer
            is_lost = lease_id in lease.lost
            self.work.answered(lease_id, verdict, self.now_s, is_lost=is_lost)
        else:
            self.work.held.pop(lease_id, None)

    def leave(self) -> None:
        if self.workers:
            member = self.random.choice(sorted(self.workers))
            self.workers.discard(member)
            self.work.free([member])
            self.ask(("group_leave", {"group": "workers", "member": member}))

    # ---- what happens to the node ----------------------------------------------------------------

    def pass_time(self) -> None:
        self.node.advance(self.random.choice([0.01, 0.5, 3.0, 31.0]))

    def fail(self) -> None:
        if self.has_failures:
            self.node.disk.failing.fail(
                self.random.randrange(30), self.random.choice(ERRORS), is_for_ever=False
            )

    def heal(self) -> None:
        self.node.disk.failing.heal()

    def kill_actor(self) -> None:
        names = [address_of("positions"), address_of("workers"), GROUPS, "group_sup"]
        if self.random.random() < 0.8:
            self.node.kill_actor(self.random.choice(names), self.random.choice(["kill", "bug"]))
        else:
            servers = self.node.servers()
            if servers:
                self.node.kill_actor(self.random.choice(servers))
        self.restarted()
        self.node.advance(1.0)

    def restarted(self) -> None:
        """Nobody is a member any more, perhaps."""
        self.generations.clear()
        self.workers.clear()
        self.work.free()

    def crash(self) -> None:
        disk, random = self.node.disk, self.random
        is_power_cut = self.has_power_cuts and random.random() < 0.7
        died_s = self.now_s
        if is_power_cut:
            self.node.abandon(lambda: disk.cut_power(random))
            if self.ack != "fsync":
                self.lose(died_s - _WINDOW_S)
        else:
            self.node.abandon(disk.kill)
            if self.ack == "memory":
                self.lose(died_s - _MEMORY_S)
        disk.failing.heal()
        self.trial.note(power_cuts=is_power_cut, kills=not is_power_cut)
        self.node.start()
        self.restarted()
        self.check()

    def lose(self, since_s: float) -> None:
        self.has_lost = True
        self.positions.lose(since_s)
        self.work.lose(since_s)

    def stop(self) -> None:
        self.node.disk.failing.heal()
        self.node.advance(3.0)
        self.node.stop()
        self.node.start()
        self.restarted()
        self.check()

    def check(self) -> None:
        """Compare the positions with what was answered."""
        self.node.disk.failing.heal()
        self.node.advance(3.0)
        asked = self.ask(("group_positions", {"group": "positions"}))
        if asked.is_answered:
            self.trial.failures += self.positions.judge(asked.answer)
        elif self.generations:
            self.trial.failures.append(f"positions are not told: {asked.error}")

    def end(self) -> None:
        """Have all work done that is left, and judge."""
        self.check()
        if self.has_failures:  # as in `take`; and what was given up came once more, put again
            self.work.free()
        member = _MEMBERS[1]
        for _ in range(_END_ROUNDS):
            joined = self.ask(("group_join", {**_WORKERS, "member": member}))
            asked_s = self.now_s
            asked = self.ask(LeaseRequest("workers", member, 10, 1 << 20, 2.0))
            if not joined.is_answered or not asked.is_answered:
                self.trial.failures.append(f"in the end: {joined.error or asked.error}")
                return
            lease, records = asked.answer
            if lease.id:
                self.work.deliver(member, lease, records, asked_s, self.now_s)
                self.work.begin_answer(lease.id, None)
                self.ask(LeaseRequest("workers", member, 0, 1, 0.0, [Done(lease.id)]))
            elif self.is_idle():
                break
        else:
            self.trial.failures.append("work has no end")
        stored = dict(self.node.read_all())
        letters = [
            envelope.decode(each).value or b"" for _, each in stored.get(b"workers.dead", ())
        ]
        names_stored = {each for _, each in stored.get(_JOBS, ())}
        self.trial.note(letters=len(letters))
        self.trial.failures += self.work.judge_end(names_stored, letters, has_lost=self.has_lost)

    def is_idle(self) -> bool:
        """Whether the group has nothing more to hand out."""
        told = self.ask(("group", {"group": "workers"}))
        if not told.is_answered:
            return False
        [unit] = told.answer["units"]
        jobs = dict(self.node.read_all()).get(_JOBS)
        return not jobs or bool(unit["floor"] >= jobs[-1][0])
