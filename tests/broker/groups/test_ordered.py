"""A group of mode `ordered`: units have one owner each, and positions outlive everything."""

import pytest

from poe.broker.groups.membership import MemberInfo
from poe.broker.groups.state import GroupState
from poe.errors import GroupActive, GroupFenced, GroupFull, OptionError
from tests.broker.groups.work import SECOND, A, B, C, again, definition, who

UNITS = [b"t-0", b"t-1", b"t-2", b"t-3"]


def make(units=UNITS, **options):
    state = GroupState.create(definition("ordered", **options), 0)
    state.set_units({b"t": units}, 0)
    return state


def test_the_first_member_gets_all_units_at_once():
    state = make()
    granted = {unit: (b"t", number, None) for number, unit in enumerate(UNITS)}
    assert state.join(who("a"), 1) == (state.generation, 5.0, 15.0, UNITS, granted)


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


def test_who_is_granted_a_unit_is_told_where_it_begins():
    state = make()
    told = state.join(who("a"), 1)
    state.ordered.commit(A, told.generation, {b"t-1": (7, b"plan")}, 2)
    assert state.heartbeat(A, told.generation, UNITS, SECOND).granted == {}
    state.join(who("b"), SECOND)
    state.leave(A, 2 * SECOND)
    state.expire(2 * SECOND)
    assert state.heartbeat(B, 0, [b"t-0"], 2 * SECOND).granted == {
        b"t-1": (b"t", 1, (7, b"plan")),
        b"t-2": (b"t", 2, None),
        b"t-3": (b"t", 3, None),
    }


def test_what_is_not_there_any_more_is_not_granted_to_who_still_owns_it():
    state = make()
    state.join(who("a"), 1)
    state.set_units({b"t": UNITS[:1]}, 2)
    told = state.heartbeat(A, 0, [], 3)
    assert told.keep == UNITS
    assert told.granted.keys() == {b"t-0"}


def test_who_owns_what_was_deleted_is_to_begin_anew_there():
    state = make()
    told = state.join(who("a"), 1)
    state.ordered.commit(A, told.generation, dict.fromkeys(UNITS, (7, b"")), 2)
    state.forget([b"t-1"], SECOND)
    state.set_units({b"t": UNITS}, SECOND)
    assert state.ordered.positions()[b"t-1"] is None
    assert b"t-1" not in state.ordered.commit(
        A, state.generation, dict.fromkeys(UNITS, (8, b"")), SECOND
    )
    told = state.heartbeat(A, state.generation, UNITS, SECOND)
    assert told.revoke == [b"t-1"]
    told = state.heartbeat(A, told.generation, told.keep, SECOND)
    assert (told.keep, told.granted) == (UNITS, {b"t-1": (b"t", 1, None)})
    assert state.ordered.commit(A, told.generation, {b"t-1": (9, b"")}, SECOND) == {b"t-1": 9}


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


def test_a_generation_that_a_power_cut_has_taken_is_not_used_again():
    begin_us = 1_790_000_000 * SECOND
    state = GroupState.create(definition("ordered"), begin_us)
    snapshot = state.snapshot()
    state.set_units({b"t": UNITS}, begin_us)
    for number in range(9):
        old = state.join(who("a"), begin_us + number * SECOND // 10)
        state.leave(A, begin_us + number * SECOND // 10)
    now_us = begin_us + 2 * SECOND
    copy = GroupState.restore(snapshot)
    copy.restarted(now_us)
    copy.set_units({b"t": UNITS}, now_us)
    new = copy.join(who("a"), now_us)
    assert new.units == old.units == UNITS
    assert new.generation > old.generation
    assert copy.ordered.commit(A, old.generation, {b"t-0": (7, b"")}, now_us) == {}


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


def test_a_restarted_instance_keeps_its_units_and_the_old_one_is_fenced():
    state = make()
    state.join(who("a", instance="one"), 1)
    state.join(who("b"), SECOND)
    told = state.heartbeat(A, state.generation, UNITS, SECOND)
    told = state.heartbeat(A, told.generation, told.keep, SECOND)
    again = state.join(who("c", instance="one"), 2 * SECOND)
    assert again.units == told.keep
    assert again.generation > told.generation
    with pytest.raises(GroupFenced, match="instance"):
        state.ordered.commit(A, told.generation, {told.keep[0]: (1, b"")}, 2 * SECOND)
    assert state.members_count == 2


def test_a_late_commit_is_refused_for_its_unit_alone_and_costs_nobody_membership():
    state = make()
    joined = state.join(who("a"), 1)
    state.join(who("b"), SECOND)
    told = state.heartbeat(A, joined.generation, UNITS, SECOND)
    state.heartbeat(A, told.generation, told.keep, SECOND)
    assert state.ordered.commit(A, told.generation, {told.revoke[0]: (5, b"")}, SECOND) == {}
    assert state.heartbeat(A, told.generation, told.keep, SECOND).keep == told.keep


def test_what_was_granted_in_an_answer_that_got_lost_is_not_taken_for_released():
    state = make()
    state.join(who("a"), 1)
    state.join(who("b"), SECOND)
    told = state.heartbeat(A, 0, [], SECOND)
    assert len(told.revoke) == 2
    assert state.heartbeat(B, 0, [], SECOND).keep == []
    state.heartbeat(A, told.generation, told.keep, SECOND)
    assert state.heartbeat(B, 0, [], SECOND).keep == told.revoke


def test_a_unit_that_nobody_gives_up_moves_with_the_session_of_its_owner():
    state = make(session_s=10)
    state.join(who("a"), 1)
    state.join(who("b"), SECOND)
    state.heartbeat(B, 0, [], 9 * SECOND)
    assert [event.kind for event in state.expire(10 * SECOND + 1)] == ["expired", "assigned"]
    assert state.take_news() == {B}
    assert state.heartbeat(B, 0, [], 10 * SECOND + 1).keep == UNITS


def test_a_paused_group_has_its_units_given_up_and_takes_what_was_done():
    state = make()
    joined = state.join(who("a"), 1)
    state.pause(SECOND)
    assert state.describe()["state"] == "paused"
    told = state.heartbeat(A, joined.generation, UNITS, SECOND)
    assert (told.keep, told.revoke) == ([], UNITS)
    assert state.ordered.commit(A, told.generation, {b"t-1": (3, b"")}, SECOND) == {b"t-1": 3}
    state.heartbeat(A, told.generation, [], SECOND)
    state.resume(2 * SECOND)
    assert state.heartbeat(A, told.generation, [], 2 * SECOND).keep == UNITS


def test_who_gave_up_what_it_may_keep_after_all_is_granted_that_in_a_new_generation():
    """Whoever numbers what it puts by unit and generation would use its numbers twice."""
    state = make()
    told = state.join(who("a"), 1)
    state.pause(SECOND)
    assert state.heartbeat(A, told.generation, UNITS, SECOND).revoke == UNITS
    state.resume(2 * SECOND)
    state.expire(2 * SECOND)
    begun = state.heartbeat(A, told.generation, [], 2 * SECOND)
    assert begun.keep == UNITS
    assert begun.granted.keys() == set(UNITS)
    assert begun.generation > told.generation
    # What is put under the old one is late, and so is its commit.
    assert state.ordered.commit(A, told.generation, {b"t-1": (3, b"")}, 2 * SECOND) == {}
    assert state.ordered.commit(A, begun.generation, {b"t-1": (3, b"")}, 2 * SECOND) == {b"t-1": 3}
    again = state.heartbeat(A, told.generation, [], 2 * SECOND)  # that answer was lost
    assert (again.keep, again.generation) == (begun.keep, begun.generation)


def test_who_joins_again_begins_in_a_new_generation():
    state = make()
    first = state.join(who("a"), 1)
    second = state.join(who("a"), 2)
    assert second.units == first.units == UNITS
    assert second.generation > first.generation
    assert state.ordered.commit(A, first.generation, {b"t-1": (3, b"")}, 3) == {}


def test_positions_of_topics_that_are_away_stay_until_they_are_forgotten():
    state = make()
    snapshot = state.snapshot()
    joined = state.join(who("a"), 1)
    state.ordered.commit(A, joined.generation, {b"t-3": (5, b"")}, 2)
    state.set_units({}, SECOND)
    assert state.ordered.positions() == {b"t-3": (5, b"")}
    state.forget([b"t-3", b"t-9"], 2)
    assert state.ordered.positions() == {}
    again(state, snapshot, state.take_changes())


def test_a_reset_is_refused_while_there_are_members_and_ends_them_with_force():
    state = make()
    joined = state.join(who("a"), 1)
    state.ordered.commit(A, joined.generation, dict.fromkeys(UNITS, (5, b"")), 2)
    with pytest.raises(GroupActive, match="1 member;"):
        state.reset({b"t-0": 2}, 3)
    state.reset({b"t-0": 2}, 3, force=True)
    with pytest.raises(GroupFenced, match="reset"):
        state.ordered.commit(A, joined.generation, {b"t-0": (9, b"")}, 4)
    assert state.floor(b"t-0") == 2
    assert state.floor(b"t-1") == 5


@pytest.mark.parametrize("position", [(-1, b""), (1 << 56, b""), (True, b""), (1, bytes(1025))])
def test_positions_that_are_refused_change_nothing(position):
    state = make()
    joined = state.join(who("a"), 1)
    state.take_changes()
    with pytest.raises(OptionError):
        state.ordered.commit(A, joined.generation, {b"t-0": (7, b""), b"t-1": position}, 2)
    assert state.take_changes() == []
    assert state.floor(b"t-0") is None


def test_members_that_come_and_go_for_ever_leave_nothing():
    state = make(members_max=3)
    for number in range(3000):
        state.join(MemberInfo(id=b"%016d" % number, instance=f"{number}"), number)
        state.leave(b"%016d" % number, number)
    state.join(who("a"), SECOND)
    assert state.next_deadline_us() is not None
    assert len(state.events) <= 200
    for letter in "bc":
        state.join(who(letter), SECOND)
    with pytest.raises(GroupFull, match="members_max of 3"):
        state.join(who("d"), SECOND)


def test_a_thousand_members_in_a_second_are_few_targets():
    state = make(units=[b"t-%d" % number for number in range(1000)])
    owned = {}
    for number in range(1000):
        member = b"%016d" % number
        joined = state.join(MemberInfo(id=member), number * 1000)
        owned[member] = (joined.generation, joined.units)
    assert sum(event.kind == "assigned" for event in state.events) <= 60
    for round_number in range(3):
        now_us = SECOND + 100_000 * round_number
        state.expire(now_us)
        for _ in range(2):
            for member, (generation, units) in owned.items():
                told = state.heartbeat(member, generation, units, now_us)
                owned[member] = (told.generation, told.keep)
    assert {len(units) for _, units in owned.values()} == {1}


def test_patterns_that_take_long_to_compare_are_compared_a_tenth_of_the_time():
    """A member may come with other ones whenever it likes, and all others wait meanwhile."""
    units = {b"web.%d" % number: [b"web.%d" % number] for number in range(1000)}
    state = GroupState.create(definition("ordered"), 0)
    state.set_units(units, 0)
    state.join(who("a", topics=tuple(b"*.%d*" % number for number in range(100))), SECOND)
    state.join(who("b"), SECOND)
    compared_count = 100 * len(units)
    assert state.next_deadline_us() == SECOND + 10 * (compared_count + 2 * len(units) + 1)
    state.expire(3 * SECOND)
    state.join(who("c", topics=(b"*",)), 3 * SECOND)
    due_us = state.next_deadline_us()
    assert due_us is not None
    assert due_us < 3 * SECOND + 50_000, "as all others it wants what there is"


def test_the_more_members_want_different_topics_the_more_of_them_wait_for_one_target():
    state = GroupState.create(definition("ordered"), 0)
    topics = [b"%d" % number for number in range(1000)]
    state.set_units({topic: [topic] for topic in topics}, 0)
    for number in range(50):
        info = MemberInfo(id=b"%016d" % number, topics=tuple(topics[number : 900 + number]))
        state.join(info, 0)
    state.expire(SECOND)
    state.join(who("a"), SECOND)
    assert state.next_deadline_us() == SECOND + 10 * (900 + 50 + 1000 + 50 * 900)


def test_a_member_of_some_topics_gets_units_of_those_alone():
    state = GroupState.create(definition("ordered"), 0)
    state.set_units({b"web.a": [b"web.a"], b"web.b": [b"web.b"], b"db": [b"db"]}, 0)
    assert state.join(who("a", topics=(b"web.*",)), 1).units == [b"web.a", b"web.b"]
    state.join(who("b", topics=(b"db", b"gone")), SECOND)
    assert state.heartbeat(B, 0, [], SECOND).keep == [b"db"]


def test_what_is_of_a_later_version_is_not_read():
    snapshot = make().snapshot()
    with pytest.raises(OptionError, match="version"):
        GroupState.restore(snapshot | {"version": 2})


def test_an_answer_that_was_held_back_is_no_sign_of_life():
    state = make(session_s=10)
    state.join(who("a"), 0)
    assert state.tell(A, 0, [], 9 * SECOND).keep == UNITS
    assert [event.kind for event in state.expire(10 * SECOND)] == ["expired"]
    with pytest.raises(GroupFenced):
        state.tell(A, 0, [], 10 * SECOND)
