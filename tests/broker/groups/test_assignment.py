"""Who gets which units; `properties/test_groups.py` has what holds for all groups."""

from collections import Counter

from poe.broker.groups.assignment import assign

T = frozenset([b"t"])


def units(count):
    return {b"t": [b"t-%d" % number for number in range(count)]}


def test_a_new_member_gets_its_part_and_nothing_else_moves():
    before = assign(units(6), {b"a": T, b"b": T}, {})
    after = assign(units(6), {b"a": T, b"b": T, b"c": T}, before)
    moved = [unit for unit in before if before[unit] != after[unit]]
    assert len(moved) == 2
    assert Counter(after.values()) == {b"a": 2, b"b": 2, b"c": 2}


def test_what_a_member_had_that_left_goes_to_others_and_nothing_else_moves():
    before = assign(units(6), {b"a": T, b"b": T, b"c": T}, {})
    after = assign(units(6), {b"a": T, b"c": T}, before)
    assert all(after[unit] == member for unit, member in before.items() if member != b"b")
    assert Counter(after.values()) == {b"a": 3, b"c": 3}


def test_members_beyond_the_units_have_none():
    target = assign(units(2), {b"%d" % number: T for number in range(5)}, {})
    assert len(set(target.values())) == 2


def test_who_wants_one_topic_alone_gets_more_of_it():
    there = {b"t": units(4)[b"t"], b"u": [b"u-%d" % number for number in range(4)]}
    target = assign(there, {b"a": T, b"b": frozenset([b"t", b"u"])}, {})
    assert Counter(target.values()) == {b"a": 4, b"b": 4}
    assert {unit for unit, member in target.items() if member == b"a"} == set(there[b"t"])


def test_what_nobody_wants_is_nobody_s():
    assert assign({b"t": [b"t"], b"u": [b"u"]}, {b"a": T}, {}) == {b"t": b"a"}
    assert assign({b"u": [b"u"]}, {b"a": frozenset()}, {b"u": b"a"}) == {}
    assert assign(units(3), {}, {b"t-0": b"gone"}) == {}
