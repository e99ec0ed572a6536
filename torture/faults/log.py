"""Replicated topics in simulated time meet everything: kills, power cuts, elections, lost disks.

Three to five whole nodes on simulated disks agree by a simulated engine. Clients put, read, trim,
make and delete topics at any of them, while nodes and engines have their troubles. In the end all
is mended, and what nodes have and clients were told is judged by `torture/log_rules.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from poe.broker import control
from poe.broker.requests.log_messages import LOGS, DescribeLogs
from poe.errors import (
    NoQuorum,
    PoeError,
    ProducerFenced,
    RepeatedPut,
    SequenceGap,
    TopicUnavailable,
    UnknownTopic,
)
from poe.protocol import PutId
from poe.testing.simulated_log import CALM, Hazards
from torture.layers.watched import ERRORS
from torture.log_history import Change, Copy, LogHistory, Put, Read, Stuck, Trimmed, Try
from torture.log_rules import broken
from torture.scenario import Run, Trial
from torture.simulated_log_nodes import LogCluster, LogNode, read, read_all

_STEPS = 60
_PAUSES_S = [0.0, 0.0, 0.002, 0.02, 0.1, 0.5, 2.0]
_TOPICS = ("t", "u")
_FLEETING = "d"
"""A topic that is deleted now and then."""
_HAZARDS = [
    CALM,
    Hazards(lose_ack=0.2, lose=0.1, again=0.3),
    Hazards(late=0.3, lose_ack=0.1, again=0.5),
    Hazards(lose_ask=0.3, lose=0.05),
]
_HEALED_S = 20.0
_PATIENCE_S = 130.0


def play(run: Run) -> None:
    """Let each seed make up a history."""

    def judge(trial: Trial) -> None:
        trial.failures += broken(simulate(trial))

    run.each(judge)


def simulate(trial: Trial) -> LogHistory:
    """Return the history of a cluster in trouble."""
    trouble = _Trouble(trial)
    trouble.play()
    history = trouble.history
    acked = sum(put.acked is not None for put in history.puts)
    trial.note(puts=len(history.puts), acked=acked, reads=len(history.reads))
    return history


@dataclass(slots=True)
class _Producer:
    """Puts onto one topic, in its order, and again what is in doubt, where it has a name."""

    name: str
    topic: str
    is_sequenced: bool
    number: int = 0
    put: Put | None = None
    is_waiting: bool = False
    acked: list[Put] = field(default_factory=list)
    """What it may put again."""


@dataclass(slots=True)
class _Reader:
    topic: str
    after: int = 0


class _Trouble:
    """A cluster, its clients, and what happens to them."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        random: Random = trial.random
        self.random = random
        self.history = LogHistory()
        self.count_limit = random.choice([8, 30])
        self.cluster = LogCluster(random, random.choice([3, 3, 3, 4, 5]), self.count_limit)
        self.log = self.cluster.log
        self.producers = [
            _Producer(f"p{number}", topic, number % 2 == 0)
            for number, topic in enumerate((*_TOPICS, *_TOPICS, "t", _FLEETING, _FLEETING))
        ]
        self.readers = [_Reader(topic) for topic in (*_TOPICS, "t")]
        self._mendings: list[Callable[[], None]] = []
        self._message_count = 0
        self.has_disk_failures = random.random() < 0.4
        self.has_losses = random.random() < 0.7

    # ---- the whole ------------------------------------------------------------------------------

    def play(self) -> None:
        """Do steps, mend all, and look at what there is."""
        self.begin_topics()
        steps: dict[Callable[[], None], int] = {
            self.put: 60,
            self.repeat: 6,
            self.read: 14,
            self.trim: 2,
            self.delete: 1,
            self.remake: 1,
            self.alter: 1,
            self.shrink: 1,
            self.cut: 2,
            self.pause: 2,
            self.elect: 3,
            self.hazard: 3,
            self.disconnect: 2,
            self.mend: 6,
            self.kill: 3,
            self.stop: 2,
            self.cut_power: 1,
            self.start: 8,
            self.crash: 2,
            self.forget: 4,
            self.jump: 1,
            self.lose_files: 2,
            self.fail_disk: 6,
        }
        for step in self.random.choices(list(steps), list(steps.values()), k=_STEPS):
            step()
            self.cluster.advance(self.random.choice(_PAUSES_S))
        self.end()

    def begin_topics(self) -> None:
        """Make all topics."""
        self.cluster.advance(0.1)
        for topic in (*_TOPICS, _FLEETING):
            self.make(topic)
            self.cluster.advance(0.5)
            self.cluster.settle()
            self.cluster.advance(0.5)

    def end(self) -> None:
        """Mend all, and note what the nodes have."""
        self.heal()
        if not self.are_well():
            self.cluster.advance(_PATIENCE_S)
        self.settle_clients()
        self.cluster.advance(2.0)
        self.cluster.settle()
        self.cluster.advance(1.0)
        self.look()
        for node in self.cluster.running:
            node.leave()

    def heal(self) -> None:
        """End all faults, and have all nodes run."""
        while self._mendings:
            self._mendings.pop()()
        self.log.mend()
        for node in self.cluster.nodes.values():
            node.disk.failing.heal()
            if not node.is_running:
                self.cluster.start(node)
        self.cluster.advance(_HEALED_S)

    def settle_clients(self) -> None:
        """Have each producer know what became of its last put, and put one more at each node."""
        for producer in self.producers * 2:
            if producer.is_waiting:
                self.cluster.advance(_PATIENCE_S)
            if producer.is_waiting:
                self.history.stuck.append(Stuck(f"{producer.put} is never answered"))
                producer.put, producer.is_waiting = None, False
            if producer.put is not None and producer.topic != _FLEETING:
                self.put_again(producer, self.random.choice(self.cluster.running))
                self.cluster.advance(1.0)
        for node in self.cluster.running:
            for topic in _TOPICS:
                self.put_last(node, topic)

    def put_last(self, node: LogNode, topic: str) -> None:
        """Have a node that has healed take something."""
        last = _Producer(f"end-{node.name}", topic, is_sequenced=False)
        self.begin_put(last)
        put = last.put
        self.put_again(last, node)
        for _ in range(20):
            if last.is_waiting:
                self.cluster.advance(0.3)
        if put is None or put.acked is None:
            self.history.stuck.append(Stuck(f"{put} is not taken when all has healed"))

    def look(self) -> None:
        """Note what each node has."""
        for node in self.cluster.running:
            for topic in (*_TOPICS, _FLEETING):
                self.look_at(node, topic)

    def look_at(self, node: LogNode, topic: str) -> None:
        """Note what a node has of a topic."""
        records: Any = self.answer(node, partial(read_all, topic.encode()))
        described: Any = self.answer(
            node, partial(control, op="describe", arguments={"topic": topic.encode()})
        )
        files = node.files(topic)
        if isinstance(described, PoeError) and topic == _FLEETING:
            records, first = (), 0
        elif isinstance(described, PoeError) or isinstance(records, PoeError):
            self.history.stuck.append(Stuck(f"{topic} at {node.name}: {described}, {records}"))
            return
        else:
            first = described["partitions"][0]["first_ordinal"] or 0
            if self.has_disk_failures:
                files = node.segment_files(topic)
        self.history.copies.append(Copy(node.name, topic, first, records, files))

    def are_well(self) -> bool:
        """Return whether all copies follow their streams."""
        for node in self.cluster.nodes.values():
            if not node.is_running:
                return False
            told = self.answer(node, describe_logs)
            if isinstance(told, PoeError) or len(told["topics"]) < len(_TOPICS):
                return False
            if any(each["state"] != "following" for each in told["topics"].values()):
                return False
        return True

    def answer(self, node: LogNode, request: Callable[[Any], Any]) -> Any:
        """Return what a node answers at once."""
        answers: list[Any] = []
        node.ask(request, answers.append)
        node.move_to(self.cluster.now_s)
        for _ in range(20):
            if answers:
                return answers[0]
            self.cluster.advance(0.1)
        return TopicUnavailable(b"nothing was answered", 2.0)

    # ---- clients --------------------------------------------------------------------------------

    def any_node(self) -> LogNode | None:
        """Return a node that runs."""
        return self.random.choice(self.cluster.running) if self.cluster.running else None

    def make(self, topic: str) -> None:
        """Make a topic."""
        node = self.any_node()
        if node is None:
            return
        properties: dict[str, Any] = {"replicas": 3}
        arguments = {"topic": topic.encode(), "properties": properties}
        node.ask(partial(control, op="topic_create", arguments=arguments), self.note_made)

    def note_made(self, answer: Any) -> None:
        """Take what came of it."""

    def remake(self) -> None:
        """Make the topic that is deleted now and then."""
        self.make(_FLEETING)

    def delete(self) -> None:
        """Delete it."""
        node = self.any_node()
        if node is None:
            return
        number = len(self.history.deletes)
        self.history.deletes.append(Change(_FLEETING, float("inf")))

        def told(answer: Any) -> None:
            # Where no majority was heard, or the node has ended, it may be deleted later.
            if not isinstance(answer, PoeError) or isinstance(answer, UnknownTopic):
                self.history.deletes[number] = Change(_FLEETING, self.cluster.now_us)

        node.ask(partial(control, op="delete", arguments={"topic": _FLEETING.encode()}), told)

    def alter(self) -> None:
        """Change something of a topic that changes nothing."""
        node = self.any_node()
        if node is not None:
            changes = {"max_age": self.random.choice([10**6, 2 * 10**6])}
            arguments = {"topic": self.random.choice(_TOPICS).encode(), "properties": changes}
            node.ask(partial(control, op="topic_alter", arguments=arguments), lambda _: None)

    def shrink(self) -> None:
        """Have a topic let go of its oldest segments from now on."""
        node, topic = self.any_node(), _TOPICS[-1]
        if node is not None:
            self.history.shrinking.add(topic)
            arguments = {"topic": topic.encode(), "properties": {"max_bytes": 1000}}
            node.ask(partial(control, op="topic_alter", arguments=arguments), lambda _: None)

    def put(self) -> None:
        """Have a producer put, or put again."""
        node = self.any_node()
        idle = [each for each in self.producers if not each.is_waiting]
        if node is None or not idle:
            return
        producer = self.random.choice(idle)
        if producer.put is None:
            self.begin_put(producer)
        self.put_again(producer, node)

    def repeat(self) -> None:
        """Have a producer put again what was acknowledged, as if it had not heard that."""
        node = self.any_node()
        idle = [each for each in self.producers if each.put is None and each.acked]
        if node is None or not idle:
            return
        producer = self.random.choice(idle)
        producer.put = self.random.choice(producer.acked[-3:])
        self.put_again(producer, node)

    def begin_put(self, producer: _Producer) -> None:
        """Begin with messages that were put nowhere yet."""
        random = self.random
        count, size = random.choice([1, 1, 2, 5]), random.choice([0, 10, 60])
        names = []
        for _ in range(count):
            self._message_count += 1
            names.append(b"%s.%d:" % (producer.name.encode(), self._message_count) + b"x" * size)
        put = Put(
            producer.topic, producer.name, producer.number, tuple(names), producer.is_sequenced
        )
        producer.number += 1
        producer.put = put
        self.history.puts.append(put)

    def put_again(self, producer: _Producer, node: LogNode) -> None:
        """Ask a node for what a producer has begun with."""
        put = producer.put
        assert put is not None
        asked = Try(node.name, self.cluster.now_us)
        put.tries.append(asked)
        producer.is_waiting = True
        put_id = None
        if put.is_sequenced:
            put_id = PutId(producer.name.encode().ljust(16, b"-"), 0, put.number)
        topic, messages = put.topic.encode(), list(put.messages)

        def request(handler: Any) -> Any:
            return handler.put(topic, messages, None, put_id)

        node.ask(request, partial(self.told, producer, put, asked))

    def told(self, producer: _Producer, put: Put, asked: Try, answer: Any) -> None:
        """Note what a put was answered."""
        producer.is_waiting = False
        asked.answered_us = self.cluster.now_us
        asked.why = repr(answer)
        match answer:
            case int():
                asked.outcome, asked.pointer = "acked", answer
                if put.is_sequenced and put.topic != _FLEETING and put not in producer.acked:
                    producer.acked.append(put)
            case NoQuorum() | UnknownTopic():
                asked.outcome = "refused"
            case SequenceGap() if not self.cluster.nodes[asked.node].knows(put.topic):
                asked.outcome = "refused"
            case SequenceGap() | RepeatedPut() | ProducerFenced() if put.topic != _FLEETING:
                asked.outcome = "wrong"
            case _:
                asked.outcome = "doubt"
        if asked.outcome in {"acked", "wrong"} or not put.is_sequenced:
            producer.put = None
        if put.topic == _FLEETING and put.is_sequenced and isinstance(answer, PoeError):
            # The topic may be another one by now: whoever knows that begins anew.
            producer.put = None
            if isinstance(answer, SequenceGap):
                producer.number, producer.name = 0, producer.name + "+"

    def lose_clients_of(self, node: LogNode) -> None:
        """Have who waits for a node that has died know so."""
        for producer in self.producers:
            put = producer.put
            if put is None or not producer.is_waiting or put.tries[-1].node != node.name:
                continue
            producer.is_waiting = False
            put.tries[-1].outcome = "unanswered"
            if not put.is_sequenced:
                producer.put = None

    def read(self) -> None:
        """Have a reader read on, at any node."""
        node = self.any_node()
        if node is None:
            return
        reader = self.random.choice(self.readers)
        after = reader.after
        node.ask(
            partial(read, reader.topic.encode(), after, self.random.choice([1, 5, 100])),
            partial(self.note_read, node, reader, after),
        )

    def note_read(self, node: LogNode, reader: _Reader, after: int, answer: Any) -> None:
        """Note what it was answered."""
        if isinstance(answer, tuple) and answer and reader.after == after:
            row = Read(node.name, reader.topic, self.cluster.now_us, after, answer[-1][0], answer)
            self.history.reads.append(row)
            reader.after = answer[-1][0]

    def trim(self) -> None:
        """Trim a topic up to something that was acknowledged."""
        node = self.any_node()
        topic = self.random.choice(_TOPICS)
        pointers = [
            put.acked.pointer for put in self.history.puts if put.topic == topic and put.acked
        ]
        if node is None or not pointers:
            return
        pointer = self.random.choice(pointers)
        self.history.trims.append(Trimmed(topic, pointer))
        arguments = {"topic": topic.encode(), "pointer": pointer}
        node.ask(partial(control, op="trim", arguments=arguments), lambda _: None)

    # ---- troubles of the engine -----------------------------------------------------------------

    def cut(self) -> None:
        """Cut a node off from the others."""
        name = self.random.choice(list(self.cluster.nodes))
        self.log.cut(name)
        self._mendings.append(partial(self.log.heal, name))
        self.trial.note(faults=1)

    def pause(self) -> None:
        """Have a node's server stop for a while."""
        name = self.random.choice(list(self.cluster.nodes))
        self.log.pause(name)
        self._mendings.append(partial(self.log.resume, name))
        self.trial.note(faults=1)

    def elect(self) -> None:
        """Have nobody lead for a while."""
        if not self.log.is_leaderless:
            self.log.begin_election()
            self._mendings.append(self.log.end_election)
            self.trial.note(faults=1)

    def hazard(self) -> None:
        """Have other things go wrong from now on."""
        self.log.hazards = self.random.choice(_HAZARDS)

    def disconnect(self) -> None:
        """Have a node lose its server for a moment."""
        self.log.lose_connection(self.random.choice(list(self.cluster.nodes)))

    def mend(self) -> None:
        """End a fault."""
        if self._mendings:
            self._mendings.pop(self.random.randrange(len(self._mendings)))()

    def jump(self) -> None:
        """Set clocks wrong: that of the engine, and those of nodes."""
        self.log.skew_us = self.random.randrange(-5_000_000, 5_000_000)
        for node in self.cluster.nodes.values():
            node.wall.offset_us = self.random.randrange(-(10**10), 10**10)

    def forget(self) -> None:
        """Have a stream forget what all nodes have by now, durably; at times, more than that."""
        if not self.log.streams or not self.has_losses:
            return
        name = self.random.choice(sorted(self.log.streams))
        stream = self.log.streams[name]
        if self.is_kept(name):
            stream.forget_to(stream.last_place - self.random.choice([0, 0, 1, 5]))
            self.trial.note(forgotten=1)

    def is_kept(self, stream: str) -> bool:
        """Return whether two nodes have all of a stream, durably: that much is promised."""
        for node in self.cluster.running:
            node.move_to(self.cluster.now_s)
        self.cluster.advance(3.0)
        found = self.log.streams.get(stream)
        if found is None:
            return False
        count = 0
        for node in self.cluster.running:
            told = self.answer(node, describe_logs)
            if isinstance(told, PoeError):
                continue
            for each in told["topics"].values():
                is_whole = each["state"] == "following" and each["place"] >= found.last_place
                count += each["stream"] == stream and is_whole
        return count >= 2

    # ---- troubles of nodes ----------------------------------------------------------------------

    def kill(self) -> None:
        """Kill a node."""
        node = self.any_node()
        if node is not None:
            node.die(node.disk.kill)
            self.lose_clients_of(node)
            self.trial.note(kills=1)

    def stop(self) -> None:
        """Stop a node in good order."""
        node = self.any_node()
        if node is not None and not self.has_disk_failures:
            node.leave()
            self.lose_clients_of(node)

    def cut_power(self) -> None:
        """Cut the power of one node, or of all at once."""
        nodes = self.cluster.running
        if self.random.random() < 0.5:
            nodes = nodes[:1]
        for node in nodes:
            node.die(partial(node.disk.cut_power, self.random))
            self.lose_clients_of(node)
            self.trial.note(power_cuts=1)

    def start(self) -> None:
        """Start a node that does not run."""
        down = [each for each in self.cluster.nodes.values() if not each.is_running]
        if down:
            node = self.random.choice(down)
            node.disk.failing.heal()
            self.cluster.start(node)

    def crash(self) -> None:
        """Kill an actor."""
        node = self.any_node()
        if node is None:
            return
        chosen: list[Any] = [*node.replicas(), *node.servers()]
        dice = self.random.random()
        if dice < 0.6 and chosen:
            node.kill_actor(self.random.choice(chosen), self.random.choice(["kill", "bug"]))
        else:
            node.kill_actor(self.random.choice(["topic_registry", "logs", "replica_sup"]))
            self.cluster.advance(1.0)  # or the root supervisor would give up, as it should

    def lose_files(self) -> None:
        """Have a node lose its disk, or files of it, where the others have all."""
        down = [each for each in self.cluster.nodes.values() if not each.is_running]
        if len(down) != 1 or not self.has_losses or not self.are_well_but(down[0]):
            return
        [node] = down
        inodes = node.disk.memory.inodes
        topic = self.random.choice(_TOPICS)
        kind = self.random.choice(["all", "receipts", "topic"])
        self.trial.note(losses=1)
        if kind == "all":
            node.wipe()
        for path in sorted(inodes):
            if path.startswith(f"topics/{topic}/") and (
                kind == "topic" or (kind == "receipts" and path.endswith("_seq"))
            ):
                del inodes[path]

    def are_well_but(self, node: LogNode) -> bool:
        """Return whether all other nodes have all that there is, durably."""
        self.cluster.advance(3.0)
        return not node.is_running and all(
            self.is_whole(each, stream)
            for stream in list(self.log.streams)
            for each in self.cluster.nodes.values()
            if each is not node
        )

    def is_whole(self, node: LogNode, stream: str) -> bool:
        """Return whether a node has all of a stream."""
        found = self.log.streams[stream]
        told = self.answer(node, describe_logs) if node.is_running else TopicUnavailable(b"", 0)
        if isinstance(told, PoeError):
            return False
        return any(
            each["stream"] == stream
            and each["state"] == "following"
            and each["place"] >= found.last_place
            for each in told["topics"].values()
        )

    def fail_disk(self) -> None:
        """Have the disk of a node fail now and then."""
        node = self.any_node()
        if node is not None and self.has_disk_failures:
            nth, is_for_ever = self.random.randrange(10), self.random.random() < 0.3
            node.disk.failing.fail(nth, self.random.choice(ERRORS), is_for_ever=is_for_ever)
            self._mendings.append(node.disk.failing.heal)


def describe_logs(handler: Any) -> Any:
    """Ask how the replicas of a node are."""
    return handler.actor.call(LOGS, DescribeLogs(), timeout_s=None)
