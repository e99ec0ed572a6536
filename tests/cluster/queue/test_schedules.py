"""A queue on several nodes, with whatever goes wrong between them: what holds all the same."""

import random
from itertools import combinations

import pytest

from poe.cluster.identity import StreamId
from poe.cluster.queue.group_share import GroupShare
from poe.cluster.queue.knowledge import StreamKnowledge
from poe.cluster.queue.queue import BestEffortQueue
from poe.cluster.ranges import covered
from poe.errors import PoeError, TooFewNodes
from tests.cluster.queue.wired import Wired

SCHEDULES_COUNT = 60


class Schedule:
    """One history by a seed: puts, work, frames lost, doubled and late, cuts, deaths, new lives."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"queue schedule {seed}")
        self.count = self.dice.randrange(2, 6)
        self.wanted = self.dice.randrange(1, self.count + 1)
        self.is_persistent = self.dice.random() < 0.3
        self.nodes = Wired(self.count, seed, copies=self.wanted, persist=self.is_persistent)
        self.nodes.make_group(0)
        self.put: dict[object, list[bytes]] = {}
        self.put_at: dict[object, BestEffortQueue] = {}
        self.worked: list[bytes] = []
        self.deaths = 0
        self.cuts: set[tuple[int, int]] = set()
        self.loss = self.dice.choice([0.0, 0.05, 0.3])

    def run(self, steps: int) -> None:
        """Have things happen, then nothing but time until all is quiet."""
        for number in range(steps):
            self.step(number)
        self.loss = 0.0
        for number in range(self.count):
            if self.is_persistent and self.nodes.refs[number] not in self.nodes.queues:
                self.nodes.restart(number)
        for one, other in sorted(self.cuts):
            self.heal(one, other)
        self.nodes.wait(45 + 10 * self.count)

    def step(self, number: int) -> None:
        alive = [self.nodes.refs.index(ref) for ref in self.nodes.queues]
        node = self.dice.choice(alive)
        what = self.dice.random()
        if what < 0.35:
            token = f"put {number}"
            messages = [b"%d.%d" % (number, at) for at in range(self.dice.randrange(1, 6))]
            try:
                self.nodes.put(node, messages, token, copies=self.dice.choice([None, 1]))
            except TooFewNodes:
                return
            self.put[token] = messages
            self.put_at[token] = self.nodes[node]
        elif what < 0.6:
            self.work(node)
        elif what < 0.8:
            self.wait(self.dice.choice([0.001, 0.1, 1.5]))
        elif what < 0.9 and self.count > 1:
            one, other = sorted(self.dice.sample(range(self.count), 2))
            if (one, other) in self.cuts:
                self.heal(one, other)
            elif {one, other} <= set(alive):
                self.cuts.add((one, other))
                self.nodes.part(one, other)
        elif what < 0.93:
            self.kill_or_restart(node, alive)
        elif what < 0.95:
            self.nodes.crash(node)
            self.nodes.make_group(node)  # as a member does that finds none
        else:
            self.shake()

    def kill_or_restart(self, node: int, alive: list[int]) -> None:
        """Kill no more nodes than may be lost; of a queue that is written down any number."""
        dead = sorted(set(range(self.count)) - set(alive))
        if dead and self.dice.random() < 0.5:
            self.nodes.restart(self.dice.choice(dead))
        elif len(alive) > 1 and (self.is_persistent or self.deaths < self.wanted - 1):
            self.deaths += not self.is_persistent
            self.nodes.kill(node)
            self.cuts = {pair for pair in self.cuts if node not in pair}

    def heal(self, one: int, other: int) -> None:
        self.cuts.discard((one, other))
        if {self.nodes.refs[one], self.nodes.refs[other]} <= self.nodes.queues.keys():
            self.nodes.heal(one, other)

    def work(self, node: int) -> None:
        try:
            lease, messages = self.nodes.take(node, limit=self.dice.choice([1, 3, 100]))
        except PoeError:
            return
        if messages and self.dice.random() < 0.9:
            self.worked += messages
            self.nodes.done(node, lease)

    def wait(self, seconds: float) -> None:
        self.shake()
        self.nodes.wait(seconds)

    def shake(self) -> None:
        """Lose some of what is under way, double some, and mix all up."""
        self.nodes.collect()
        under_way = self.nodes.under_way
        frames = [each for each in under_way if self.dice.random() >= self.loss]
        frames += [each for each in frames if self.dice.random() < self.loss]
        self.dice.shuffle(frames)
        under_way.clear()
        under_way.extend(frames)


def check(schedule: Schedule) -> None:
    nodes = schedule.nodes
    queues = list(nodes.queues.values())
    there = {token for token, queue in schedule.put_at.items() if queue in queues}
    assert there <= set(nodes.results) <= set(schedule.put)

    # All nodes know the same of what is done, and who holds what.
    for one, other in combinations(queues, 2):
        assert _of_lives(one, nodes) == _of_lives(other, nodes)
        assert _without_dead(one, nodes) == _without_dead(other, nodes)

    # What is not done is on as many nodes as are wanted; what is done is on none.
    for queue in queues:
        for stream, there in _without_dead(queue, nodes).items():
            done = queue.known("work").get(stream)
            wanted = min(schedule.wanted, len(queues))
            enough = covered(there.values(), wanted)
            assert covered(there.values(), 1) == enough
            assert done is None or not covered([done.done, enough], 2)

    # An answer tells the truth, and what was put on as many nodes as that is handed out.
    left = [message for number, ref in enumerate(nodes.refs) if ref in nodes.queues
            for message in nodes.work(number)]  # fmt: skip
    seen = set(schedule.worked) | set(left)
    every = {message for messages in schedule.put.values() for message in messages}
    assert seen <= every
    for token, result in nodes.results.items():
        assert result.made <= result.wanted
        assert (result.state == "ok") == (result.made == result.wanted)
        if result.made > schedule.deaths:
            assert set(schedule.put[token]) <= seen, token
    nodes.wait(10)
    assert sum(queue.copies.messages_count for queue in queues) == 0


def _of_lives(queue, nodes):
    """Return what is known of streams that are not over; who forgets others does so in turn."""
    lives = {StreamId(*ref) for ref in nodes.refs}
    return {stream: each for stream, each in queue.known("work").items() if stream in lives}


def _without_dead(queue, nodes):
    found = {}
    for stream, there in queue.holders().items():
        alive = {node: ranges for node, ranges in there.items() if node in nodes.queues}
        if alive:
            found[stream] = alive
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_whatever_goes_wrong_on_the_way_nothing_is_lost_and_all_come_to_the_same(part):
    for seed in range(part, SCHEDULES_COUNT, 5):
        schedule = Schedule(seed)
        print(f"schedule {seed}: {schedule.count} nodes, {schedule.wanted} copies")
        schedule.run(80)
        check(schedule)


@pytest.mark.slow
def test_the_hash_that_is_kept_of_what_is_known_is_what_would_be_reckoned_anew(monkeypatch):
    kept = StreamKnowledge.digest

    def checked(known, group, stream):
        anew = StreamKnowledge()
        for node, ranges in known.granted.items():
            for bounds in ranges:
                anew.grant(node, *bounds)
        for bounds in known.done:
            anew.finish(*bounds)
        for cause, (since_us, ranges) in known.again.items():
            for bounds in ranges:
                anew.note_again(cause, since_us, *bounds)
        assert kept(known, group, stream) == kept(anew, group, stream)
        return kept(known, group, stream)

    monkeypatch.setattr(StreamKnowledge, "digest", checked)
    for seed in range(10):
        Schedule(seed).run(60)


@pytest.mark.slow
def test_what_a_share_keeps_of_its_deadline_is_what_would_be_reckoned_anew(monkeypatch):
    kept = GroupShare.next_deadline_us

    def checked(share):
        due_us = kept(share)
        assert due_us == share._reckon_deadline_us()  # noqa: SLF001 - what it is to be equal to
        return due_us

    monkeypatch.setattr(GroupShare, "next_deadline_us", checked)
    for seed in range(10):
        Schedule(seed).run(60)
