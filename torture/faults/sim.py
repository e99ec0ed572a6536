"""A whole node in simulated time meets everything: kills, power cuts, failing disks, odd clocks."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from random import Random

from poe.errors import (
    ConnectionClosed,
    PoeError,
    ProducerFenced,
    RepeatedPut,
    SequenceGap,
    UnknownTopic,
)
from poe.storage import PutKey
from torture.checker import Journal, Put, Record, Sender
from torture.layers.simulated_disk import SimulatedDisk
from torture.layers.watched import ERRORS
from torture.scenario import Run, Trial
from torture.simulated_node import WORK_S_MAX, SimulatedNode
from torture.workload import Ack

_STEPS = 400
_TOPICS = [b"a", b"b", b"c"]
_WINDOW_S = 2 * (1.0 + WORK_S_MAX)
"""What is older is durable, though nobody has waited for it: `sync_interval` and a sync, twice
where one was under way."""

_MEMORY_S = 0.06
"""What is older was written, with `memory`, too."""

_REPAIR_S = 3.0
"""Time within which a node gets over faults that have passed."""


def play(run: Run) -> None:
    """Let each seed make up a history."""
    run.each(lambda trial: _History(trial).play())


@dataclass
class _Numbered:
    """A producer that numbers its puts onto a topic, and puts again what is not acknowledged."""

    sender: Sender
    topic: bytes
    client: int
    epoch: int = 0
    sequence: int = 0
    put: Put | None = None
    may_be_forgotten: bool = False
    """Whether the topic may have lost what was acknowledged."""

    def put_id(self) -> PutKey:
        """Return the id of the next put."""
        return (b"%16d" % self.client, self.epoch, self.sequence)


class _History:
    """One node, its clients, and what happens to them."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.random: Random = trial.random
        acks: list[Ack] = ["flushed", "fsync", "memory"]
        self.ack = self.random.choice(acks)
        self.journal = Journal()
        self.trimmed: dict[bytes, int] = {}
        self.senders = [Sender(self.journal, self.random) for _ in range(4)]
        self.numbered = [
            _Numbered(Sender(self.journal, self.random), topic, number)
            for number, topic in enumerate(_TOPICS)
        ]
        self.read_records: dict[bytes, list[Record]] = {}
        """What a reader of each topic was given; with memory or failures, since the last crash."""
        count_limit = self.random.choice([20, 60])
        self.node = SimulatedNode(SimulatedDisk(), self.ack, count_limit, self.random)
        self.has_power_cuts = self.random.random() < 0.6
        # How much a power cut may take of what was not waited for, is promised of sound disks only.
        # With memory, what a disk does not take waits there for a kill.
        is_cautious = self.has_power_cuts or self.ack == "memory"
        self.has_failures = self.ack == "fsync" or not is_cautious

    def play(self) -> None:
        """Do steps; they stop at the first that shows a fault."""
        steps = {
            self.put: 50,
            self.put_numbered: 15,
            self.read: 10,
            self.pass_time: 20,
            self.fail: 2,
            self.heal: 4,
            self.kill_actor: 2,
            self.set_clock: 1,
            self.trim: 1,
            self.delete: 1,
            self.crash: 1,
            self.restart: 1,
            self.check: 1,
        }
        chosen = self.random.choices(list(steps), list(steps.values()), k=_STEPS)
        for number, step in enumerate(chosen):
            step()
            if self.trial.failures:
                self.trial.failures.append(f"at step {number}, {step.__name__}, {self.ack}")
                break
        else:
            self.check()
        self.node.stop()
        self.trial.note(steps=_STEPS, acked=self.journal.acked_count())

    def put(self) -> None:
        number = self.random.randrange(4)
        put = self.senders[number].begin(self.random.choice(_TOPICS), count_max=8, length_max=40)
        self.node.begin_put(number, put)

    def put_numbered(self) -> None:
        """Put with an id, or put again what was not acknowledged, or as if it had not been."""
        each = self.random.choice(self.numbered)
        put = each.put
        if put is not None and put.answer is None:
            return
        answer = None if put is None else put.answer
        match answer:
            case SequenceGap() if each.may_be_forgotten:
                each.epoch, each.sequence, each.may_be_forgotten = each.epoch + 1, 0, False
            case RepeatedPut() | ProducerFenced() | SequenceGap():
                self.trial.failures.append(f"{put} of {each.put_id()}: {answer}")
            case int() if put is not None and put.pointer not in {None, answer}:
                self.trial.failures.append(f"{put} was at {put.pointer}, and is at {answer}")
        if put is None or (isinstance(answer, int) and self.random.random() < 0.8):
            each.sequence += put is not None
            put = each.put = each.sender.begin(each.topic, count_max=8, length_max=40)
        put.put_id, put.answer, put.is_refused = each.put_id(), None, False
        self.node.begin_put(each.client, put)

    def read(self, topic: bytes | None = None) -> None:
        """Have a reader read on; or another one from the begin."""
        topic = topic or self.random.choice(_TOPICS)
        known = self.read_records.setdefault(topic, [])
        after = known[-1][0] if known else 0
        with contextlib.suppress(PoeError):  # of a disk that fails
            self.node.read(topic, 0, self.random.choice([0, 1, 2, 100]))
            known += self.node.read(topic, after, self.random.choice([1, 2, 100]))

    def pass_time(self) -> None:
        self.node.advance(self.random.choice([0.0, 0.01, 0.5, 3.0]))

    def fail(self) -> None:
        if not self.has_failures:
            return
        self.node.disk.failing.fail(
            self.random.randrange(30),
            self.random.choice(ERRORS),
            is_for_ever=self.random.random() < 0.4,
        )

    def heal(self) -> None:
        self.node.disk.failing.heal()

    def kill_actor(self) -> None:
        servers = self.node.servers()
        if servers and self.random.random() < 0.8:
            self.node.kill_actor(self.random.choice(servers), self.random.choice(["kill", "bug"]))
        else:
            self.node.kill_actor(self.random.choice(["topic_registry", "appendix_sup"]))
            self.node.advance(1.0)  # or the root supervisor would give up, as it should

    def set_clock(self) -> None:
        self.node.wall.offset_us += self.random.randrange(-(10**10), 10**10)

    def trim(self) -> None:
        topic = self.random.choice(_TOPICS)
        puts = self.journal.puts.get(topic, [])
        pointers = sorted(put.pointer for put in puts if put.pointer is not None)
        if pointers:
            pointer = self.random.choice(pointers)
            self.trimmed[topic] = max(self.trimmed.get(topic, 0), pointer)
            self.node.begin_trim(topic, pointer)

    def delete(self) -> None:
        """Delete a topic, while nobody puts; the next put makes another one."""
        topic = self.random.choice(_TOPICS)
        if self.has_power_cuts:
            return  # which may bring it back
        self.node.disk.failing.heal()
        self.node.advance(_REPAIR_S)
        with contextlib.suppress(UnknownTopic):
            self.node.control("delete", topic=topic)
        self.journal.puts.pop(topic, None)
        self.trimmed.pop(topic, None)
        self.read_records.pop(topic, None)
        for each in self.numbered:
            if each.topic == topic:
                each.put, each.may_be_forgotten = None, True

    def crash(self) -> None:
        disk, random = self.node.disk, self.random
        is_power_cut = self.has_power_cuts and random.random() < 0.7
        if is_power_cut:
            self.cut_power()
        else:
            self.node.abandon(disk.kill)
        disk.failing.heal()
        self.trial.note(power_cuts=is_power_cut, kills=not is_power_cut)
        died_s = self.node.clock.monotonic_s()
        # With memory, what one power cut takes the next one may bring back.
        is_exact = self.ack != "memory" and not self.has_failures
        if not is_exact:
            self.read_records.clear()
        elif is_power_cut:
            self._forget_newest(died_s)
        for each in self.numbered:
            each.may_be_forgotten |= is_power_cut or self.ack == "memory"
            if each.put is not None and each.put.answer is None:
                each.put.answer = ConnectionClosed("it has died")
        self.node.start()
        for topic, pointer in self.trimmed.items():
            if not is_exact:  # what is lost may have been trimmed, too
                self.trimmed[topic] = min(pointer, self.node.last_pointer(topic))
        if is_power_cut:
            self.trial.failures += self.node.damage()
            may_lose = self._may_be_cut(died_s)
            # What was cut off, and the cut not made durable, as its client was told.
            may_return = attrgetter("is_doubtful")
            self.judge(may_lose, may_return)
        else:
            self.judge(self._may_be_killed(died_s))
        self._forget_trimmed()

    def _forget_trimmed(self) -> None:
        """Expect nothing of puts of which the journal knows no more: they may be lost as well."""
        for each in self.numbered:
            puts = self.journal.puts.get(each.topic, ())
            if each.may_be_forgotten and each.put is not None and each.put not in puts:
                each.put.pointer = None

    def cut_power(self) -> None:
        """End the machine; readers may have seen what is lost, and its clock be set back."""
        if self.random.random() < 0.5:
            self.put()
            self.node.advance(WORK_S_MAX + 0.1)
            for topic in _TOPICS:
                self.read(topic)
        self.node.abandon(lambda: self.node.disk.cut_power(self.random))
        if self.random.random() < 0.5:  # it has no battery
            self.node.wall.offset_us -= self.random.randrange(10**7)

    def _forget_newest(self, died_s: float) -> None:
        """Forget what was read of the last moment: of it nothing may be known to the disk."""
        for topic, known in self.read_records.items():
            puts = self.journal.puts.get(topic, [])
            older = [put for put in puts if (put.acked_s or died_s) < died_s - WORK_S_MAX]
            pointer = max((put.pointer or 0 for put in older), default=0)
            known[:] = [each for each in known if each[0] <= pointer]

    def restart(self) -> None:
        self.node.disk.failing.heal()
        self.node.advance(_REPAIR_S)
        self.node.stop()
        self.node.start()
        self.judge()

    def check(self) -> None:
        self.node.disk.failing.heal()
        self.node.advance(_REPAIR_S)
        self.judge()

    def judge(
        self,
        may_lose: Callable[[Put], bool] = lambda _: False,
        may_return: Callable[[Put], bool] = lambda _: False,
    ) -> None:
        stored = dict(self.node.read_all())
        for topic, known in self.read_records.items():
            after = known[-1][0] if known else 0
            trimmed = self.trimmed.get(topic, 0)  # a power cut may bring it back
            missed = {each for each in stored.get(topic, ()) if trimmed < each[0] <= after}
            missed -= set(known)
            self.trial.expect(
                is_true=not missed, otherwise=f"a reader of {topic!r} missed {missed}"
            )
        for topic, pointer in self.trimmed.items():
            self.journal.forget(topic, pointer)
            stored[topic] = [each for each in stored.get(topic, ()) if each[0] > pointer]
        self.trial.failures += self.journal.judge(stored, may_lose=may_lose, may_return=may_return)

    def _may_be_killed(self, now_s: float) -> Callable[[Put], bool]:
        """Tell what a kill may take: what was in the memory of the process."""

        def may_lose(put: Put) -> bool:
            is_new = put.acked_s is not None and put.acked_s > now_s - _MEMORY_S
            return self.ack == "memory" and is_new

        return may_lose

    def _may_be_cut(self, now_s: float) -> Callable[[Put], bool]:
        """Tell what a power cut may take: what nobody was promised, and what is too new."""

        def may_lose(put: Put) -> bool:
            is_new = put.acked_s is not None and put.acked_s > now_s - _WINDOW_S
            is_promised = self.ack == "fsync" or (self.ack == "flushed" and not is_new)
            return put.is_unanswered or not is_promised

        return may_lose
