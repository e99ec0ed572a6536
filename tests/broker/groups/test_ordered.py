"""A group of mode `ordered`: units have one owner each, and positions outlive everything."""

import pytest

from poe.broker.groups.state import GroupState
from poe.errors import GroupFenced
from tests.broker.groups.work import SECOND, A, B, C, again, definition, who

UNITS = [b"t-0", b"t-1", b"t-2", b"t-3"]


def make(units=UNITS, **options):
    state = GroupState.create(definition("ordered", **options), 0)
    state.set_units({b"t": units}, 0)
    return state


def test_the_first_member_gets_all_units_at_once():
    joined = make().join(who("a"), 1)
    assert joined == (2, 5.0, 15.0, UNITS)


def test_a_unit_moves_only_when_its_owner_has_released_it():
    state = make()
    first = state.join(who("a"), 1)
    second = state.join(who("b"), SECOND)
    assert second.units == []
    assert state.heartbeat(B, second.generation, [], SECOND).keep == []
    told = state.heartbeat(A, first.generation, UNITS, SECOND)
    assert len(told.keep) == len(told.revoke) == 2
    again_told = state.heartbeat(A, told.generation, UNITS, SECOND)
    assert again_told == told
    assert state.heartbeat(A, told.generation, told.keep, SECOND).revoke == []
    granted = state.heartbeat(B, second.generation, [], SECOND)
    assert granted.keep == told.revoke
    assert granted.generation > first.generation


def test_a_position_is_taken_from_the_owner_alone():
    state = make()
    joined = state.join(who("a"), 1)
    assert state.ordered.positions() == dict.fromkeys(UNITS)
    assert state.ordered.commit(A, joined.generation, {b"t-0": (7, b"plan")}, 2) == {b"t-0": 7}
    assert state.ordered.positions()[b"t-0"] == (7, b"plan")
    state.join(who("b"), SECOND)
    told = state.heartbeat(A, joined.generation, UNITS, SECOND)
    state.heartbeat(A, told.generation, told.keep, SECOND)
    lost, kept = told.revoke[0], told.keep[0]
    assert state.ordered.commit(A, told.generation, {lost: (9, b""), kept: (9, b"")}, SECOND) == {
        kept: 9
    }
    with pytest.raises(GroupFenced, match="not known"):
        state.ordered.commit(C, 1, {kept: (9, b"")}, SECOND)


def test_what_was_committed_is_there_after_a_restart():
    state = make()
    snapshot = state.snapshot()
    joined = state.join(who("a"), 1)
    state.ordered.commit(A, joined.generation, {b"t-3": (5, b"")}, 2)
    copy = again(state, snapshot, state.take_changes())
    copy.restarted(3)
    assert copy.generation > state.generation
    assert copy.ordered.positions() == {b"t-3": (5, b"")}
    with pytest.raises(GroupFenced):
        copy.heartbeat(A, joined.generation, UNITS, 3)


def test_what_a_member_leaves_or_loses_is_granted_to_others():
    state = make()
    a = state.join(who("a"), 1)
    state.join(who("b"), SECOND)
    state.leave(A, 2 * SECOND)
    assert state.heartbeat(B, a.generation, [], 2 * SECOND).keep == UNITS
    with pytest.raises(GroupFenced, match="it left"):
        state.heartbeat(A, a.generation, UNITS, 2 * SECOND)
    state.join(who("c"), 10 * SECOND)
    assert state.next_deadline_us() <= 17 * SECOND
    assert [event.kind for event in state.expire(17 * SECOND)][:1] == ["expired"]
    assert state.heartbeat(C, 0, [], 17 * SECOND).keep == UNITS
