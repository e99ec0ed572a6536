"""Groups agree with obvious models: ranges with sets, assignments with counting, work with lists.

The worlds of `torture/simulated_group.py` are the models of whole groups; there a scenario walks
through them at random, here Hypothesis looks for the shortest way to a contradiction.
"""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from poe.broker.groups.assignment import assign
from poe.broker.groups.options import matches
from poe.broker.groups.ranges import RangeMap, RangeSet
from torture.simulated_group import OrderedWorld, SharedWorld

CLIENTS = st.integers(0, 3)
SECONDS = st.sampled_from([0.001, 0.02, 1.0, 5.0, 11.0, 21.0])
LOST_COUNTS = st.sampled_from([0, 0, 1, 3, 20])
"""Changes that the end of a node takes with it."""
UNITS = {b"t": [b"t-0", b"t-1", b"t-2"], b"u": [b"u"], b"v": [b"v-0", b"v-1"]}
WISHES = st.sampled_from([None, (b"t",), (b"u", b"v*"), (b"nowhere",)])
INSTANCES = st.sampled_from([None, None, "i"])
TOPICS = list(UNITS)


class Ranges(RuleBasedStateMachine):
    """A set and a map of ranges against the integers that they hold."""

    def __init__(self):
        super().__init__()
        self.ranges = RangeSet()
        self.values: RangeMap[int] = RangeMap()
        self.held = set()
        self.valued = {}

    @rule(after=st.integers(0, 60), count=st.integers(1, 20))
    def add(self, after, count):
        new = set(range(after, after + count)) - self.held
        for number in new:
            self.ranges.add(number, number + 1)
        self.held |= new

    @rule(after=st.integers(0, 60), count=st.integers(1, 20))
    def remove(self, after, count):
        parts = self.ranges.within(after, after + count)
        gone = {number for part in parts for number in range(*part)}
        assert gone == self.held & set(range(after, after + count))
        for part in parts:
            assert self.ranges.holds(*part)
            self.ranges.remove(*part)
        self.held -= gone

    @rule()
    def take_first(self):
        first = min(self.held, default=0)
        last = self.ranges.take_first(first)
        assert not self.held or last > first
        self.held -= set(range(first, last))
        assert last not in self.held

    @rule(after=st.integers(0, 60), count=st.integers(1, 20), value=st.sampled_from([None, 1, 2]))
    def set_value(self, after, count, value):
        self.values.set(after, after + count, value)
        for number in range(after, after + count):
            self.valued.pop(number, None)
            if value is not None:
                self.valued[number] = value

    @invariant()
    def they_agree(self):
        ranges = list(self.ranges)
        assert len(ranges) == len(self.ranges)
        assert [number for each in ranges for number in range(*each)] == sorted(self.held)
        assert all(before[1] < each[0] for before, each in itertools.pairwise(ranges))
        values = list(self.values)
        found = {number: value for after, last, value in values for number in range(after, last)}
        assert found == self.valued
        for before, each in itertools.pairwise(values):
            assert before[1] < each[0] or (before[1] == each[0] and before[2] != each[2])


@given(
    counts=st.tuples(*[st.integers(0, 12) for _ in TOPICS]),
    wishes=st.lists(st.sets(st.sampled_from(TOPICS)), max_size=8),
    before=st.lists(st.integers(0, 9), min_size=36, max_size=36),
)
def test_an_assignment_is_even_in_each_class_and_whole(counts, wishes, before):
    units = {
        topic: [topic + b"%d" % number for number in range(count)]
        for topic, count in zip(TOPICS, counts, strict=True)
    }
    members = {b"%d" % number: frozenset(each) for number, each in enumerate(wishes)}
    everything = [unit for each in units.values() for unit in each]
    previous = {unit: b"%d" % who for unit, who in zip(everything, before, strict=False)}
    target = assign(units, members, previous)
    wanted = frozenset().union(*members.values())
    assert target.keys() == {unit for topic in wanted for unit in units[topic]}
    for unit, member in target.items():
        assert unit[:1] in members[member]
    counted = Counter(target.values())
    for topics in set(members.values()):
        loads = [counted[each] for each in members if members[each] == topics]
        assert max(loads) - min(loads) <= 1
    assert assign(units, members, target) == target


@given(
    units_count=st.integers(0, 30),
    members_count=st.integers(1, 8),
    before=st.lists(st.integers(0, 10), min_size=30, max_size=30),
)
def test_no_more_units_move_than_must(units_count, members_count, before):
    units = [b"%d" % number for number in range(units_count)]
    members = {b"m%d" % number: frozenset([b"t"]) for number in range(members_count)}
    previous = {unit: b"m%d" % who for unit, who in zip(units, before, strict=False)}
    target = assign({b"t": units}, members, previous)
    held = sorted((sum(each == m for each in previous.values()) for m in members), reverse=True)
    least, more_count = divmod(units_count, members_count)
    most = sum(min(n, least + (at < more_count)) for at, n in enumerate(held))
    assert sum(previous.get(unit) == member for unit, member in target.items()) == most


@given(pattern=st.text("ab*", max_size=8), topic=st.text("ab", max_size=8))
def test_a_pattern_means_what_it_says(pattern, topic):
    def means(pattern, topic):
        if not pattern:
            return not topic
        if pattern[0] == "*":
            return means(pattern[1:], topic) or (bool(topic) and means(pattern, topic[1:]))
        return bool(topic) and pattern[0] == topic[0] and means(pattern[1:], topic[1:])

    assert matches(pattern.encode(), topic.encode()) == means(pattern, topic)


class OrderedGroup(RuleBasedStateMachine):
    """Units have one owner at a time, positions are those that owners told last."""

    @initialize()
    def begin(self):
        self.world = OrderedWorld(UNITS)

    @rule(number=CLIENTS, wishes=WISHES, is_lost=st.booleans(), instance=INSTANCES)
    def join(self, number, wishes, is_lost, instance):
        self.world.join(number, wishes, is_lost=is_lost, instance=instance)

    @rule(number=CLIENTS)
    def leave(self, number):
        self.world.leave(number)

    @rule(number=CLIENTS, obeys=st.booleans(), is_lost=st.booleans(), may_wait=st.booleans())
    def beat(self, number, obeys, is_lost, may_wait):
        self.world.beat(number, obeys=obeys, is_lost=is_lost, may_wait=may_wait)

    @rule(number=CLIENTS)
    def commit(self, number):
        self.world.commit(number)

    @rule(seconds=SECONDS)
    def sleep(self, seconds):
        self.world.sleep(seconds)

    @rule(count=st.integers(1, 6))
    def set_units(self, count):
        self.world.set_units({**UNITS, b"t": [b"t-%d" % number for number in range(count)]})

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic):
        self.world.delete(topic)

    @rule(unit=st.sampled_from([b"t-0", b"u"]))
    def reset(self, unit):
        self.world.reset(unit)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused):
        self.world.pause(is_paused=is_paused)

    @rule(lost_count=LOST_COUNTS)
    def end_node(self, lost_count):
        self.world.end_node(lost_count)

    @rule()
    def compact(self):
        self.world.compact()

    @invariant()
    def it_keeps_its_word(self):
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self):
        if hasattr(self, "world"):
            self.world.finish()


class SharedGroup(RuleBasedStateMachine):
    """Each message is done once it is acknowledged, and handed to one member at a time before."""

    @initialize(
        counts=st.tuples(st.integers(1, 12), st.integers(1, 12)),
        budget=st.sampled_from([4, 1000]),
        attempts_max=st.integers(1, 3),
    )
    def begin(self, counts, budget, attempts_max):
        pointers = {
            unit: list(range(7, 7 + 3 * count, 3))
            for unit, count in zip([b"a", b"b"], counts, strict=True)
        }
        self.world = SharedWorld(
            pointers, lease_messages_max=budget, attempts_max=attempts_max, retry_s=0.5
        )

    def held(self, age):
        return self.world.held[-1 - age % len(self.world.held)]

    @rule(number=CLIENTS)
    def join(self, number):
        self.world.join(number)

    @rule(number=CLIENTS)
    def leave(self, number):
        self.world.leave(number)

    @rule(number=CLIENTS)
    def beat(self, number):
        self.world.beat(number)

    @rule(number=CLIENTS, limit=st.sampled_from([1, 2, 5, 100]))
    def take(self, number, limit):
        self.world.take(number, limit)

    @precondition(lambda self: self.world.held)
    @rule(age=st.integers(0, 4))
    def finish_all(self, age):
        self.world.acknowledge(self.held(age), None, is_failed=False)

    @precondition(lambda self: self.world.held)
    @rule(age=st.integers(0, 4), low=st.integers(0, 9), count=st.integers(1, 4), bad=st.booleans())
    def finish_part(self, age, low, count, bad):
        self.world.acknowledge(self.held(age), slice(low, low + count), is_failed=bad)

    @precondition(lambda self: self.world.held)
    @rule(age=st.integers(0, 4))
    def release(self, age):
        self.world.release(self.held(age))

    @precondition(lambda self: self.world.held)
    @rule(age=st.integers(0, 4), seconds=st.sampled_from([1, 30]))
    def extend(self, age, seconds):
        self.world.extend(self.held(age), seconds)

    @rule(seconds=SECONDS)
    def sleep(self, seconds):
        self.world.sleep(seconds)

    @rule(unit=st.sampled_from([b"a", b"b"]), place=st.integers(0, 12))
    def reset(self, unit, place):
        self.world.reset(unit, ([0, *self.world.pointers[unit]] * 13)[place])

    @rule(unit=st.sampled_from([b"a", b"b"]))
    def delete(self, unit):
        self.world.delete(unit)

    @rule(away=st.sampled_from([b"a", b"nothing"]))
    def set_units(self, away):
        self.world.set_units({b"a", b"b"} - {away})

    @rule(is_paused=st.booleans())
    def pause(self, is_paused):
        self.world.pause(is_paused=is_paused)

    @rule(is_buried=st.booleans())
    def put_letter(self, is_buried):
        self.world.put_letter(is_buried=is_buried)

    @rule(lost_count=LOST_COUNTS)
    def end_node(self, lost_count):
        self.world.end_node(lost_count)

    @rule()
    def compact(self):
        self.world.compact()

    @invariant()
    def it_keeps_its_word(self):
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self):
        if hasattr(self, "world"):
            self.world.finish()


TestRanges = Ranges.TestCase
TestOrderedGroup = OrderedGroup.TestCase
TestSharedGroup = SharedGroup.TestCase
