"""A group of mode `shared`: what is leased is done, or comes back; each rule of the design."""

import pytest

from poe.broker.groups import shared
from poe.errors import (
    GroupFenced,
    GroupFull,
    GroupMismatch,
    GroupPaused,
    OptionError,
    RangeNotLeased,
)
from poe.protocol import leases
from tests.broker.groups.work import ALL, SECOND, A, B, C, Work, who


def held(lease):
    return (lease.unit, lease.after, lease.last, lease.count)


def test_what_is_acknowledged_moves_the_floor():
    work = Work()
    work.join("a", "b")
    first, second, third = work.take(A, 3), work.take(B, 3), work.take(A, 4)
    assert [held(each) for each in (first, second, third)] == [
        (b"t", 0, 30, 3),
        (b"t", 30, 60, 3),
        (b"t", 60, 100, 4),
    ]
    assert work.take(B) is None
    work.done(second)
    assert work.floor() == 0
    work.done(first)
    assert work.floor() == 60
    work.done(third)
    assert work.floor() == 100


def test_parts_of_a_lease_are_done_by_themselves():
    work = Work()
    work.join("a")
    lease = work.take(A)
    assert work.shared.acknowledge([(lease.id, [(20, 50), (60, 70)])], [], 0) == []
    assert work.floor() == 0
    assert work.shared.acknowledge([(lease.id, [(0, 30)])], [], 0) == []
    assert work.floor() == 50
    work.done(lease)
    assert work.floor() == 100
    assert work.shared.acknowledge([(lease.id, None)], [], 0) == [lease.id]


def test_a_lease_is_done_but_for_what_has_failed():
    work = Work()
    work.join("a")
    lease = work.take(A)
    failed = [(lease.id, 40, 50, "retry", 0, "no")]
    assert work.shared.acknowledge([(lease.id, None)], failed, 0) == []
    assert work.floor() == 40
    retried = work.take(A)
    assert (*held(retried), retried.attempts) == (b"t", 40, 50, 1, 1)
    work.done(retried)
    assert work.floor() == 100


def test_a_late_acknowledgement_is_refused_for_its_lease_alone():
    work = Work(lease_s=10)
    work.join("a")
    late = work.take(A, 5)
    work.sleep(9)
    work.beat(A)
    good = work.take(A, 5)
    work.sleep(2)
    assert [event.kind for event in work.expire()] == ["lease expired"]
    assert work.shared.acknowledge([(late.id, None), (good.id, None)], [], work.now_us) == [late.id]
    assert work.floor() == 0
    assert held(work.take(A)) == (b"t", 0, 20, 2)


def test_an_extended_lease_does_not_expire_until_the_work_has_lasted_too_long():
    work = Work(lease_s=10, work_max_s=60, session_s=100)
    work.join("a")
    lease = work.take(A)
    for _ in range(6):
        work.sleep(9)
        assert work.shared.extend(A, [lease.id], 20, work.now_us) == []
        work.expire()
    work.sleep(6)
    work.expire()
    assert work.shared.extend(A, [lease.id], 20, work.now_us) == [lease.id]
    with pytest.raises(OptionError, match="more than 0"):
        work.shared.extend(A, [], 0, work.now_us)


def test_who_asks_for_more_than_may_be_has_as_much_as_may_be():
    work = Work(lease_s=10, work_max_s=60, session_s=1000)
    work.join("a")
    lease = work.take(A)
    work.sleep(5)
    assert work.shared.extend(A, [lease.id], 3600, work.now_us) == []
    assert lease.deadline_us == lease.since_us + 60 * SECOND


def test_only_who_holds_a_lease_extends_it():
    work = Work()
    work.join("a", "b")
    lease = work.take(A)
    assert work.shared.extend(B, [lease.id], 60, 0) == [lease.id]
    assert lease.deadline_us == 30_000_000
    with pytest.raises(GroupFenced, match="not known"):
        work.shared.extend(C, [lease.id], 60, 0)


def test_attempts_survive_a_restart_and_lead_to_the_dead_letters():
    work = Work(attempts_max=3)
    for attempt in range(3):
        work.join("a")
        lease = work.take(A, 1)
        assert (lease.last, lease.attempts) == (10, attempt)
        work.fail(lease)
        work.restart()
    dying = work.shared.next_dying()
    assert (dying.unit, dying.after, dying.last, dying.attempts) == (b"t", 0, 10, 3)
    work.restart()
    assert work.shared.next_dying() == dying
    work.join("a")
    assert work.take(A, 1).after == 10
    work.shared.buried(dying)
    assert work.shared.next_dying() is None
    assert work.floor() == 10


def test_what_failed_while_the_clock_was_years_ahead_is_not_waited_for_until_then():
    work = Work()
    work.join("a")
    work.sleep(10 * 365 * 24 * 3600)
    work.join("a")
    work.fail(work.take(A, 1), delay_s=60)
    work.now_us = 0
    work.restart()
    work.join("a")
    lease = work.take(A, 1)
    assert (lease.last, lease.attempts) == (10, 1)


def test_dead_letters_have_numbers_that_no_other_life_has_used():
    work = Work()
    work.join("a")
    for lease in [work.take(A, 1), work.take(A, 1)]:
        work.fail(lease, "dead")
    first = work.shared.next_dying()
    work.shared.buried(first)
    second = work.shared.next_dying()
    assert (second.epoch, second.sequence) == (first.epoch, first.sequence + 1)
    work.restart()
    work.join("a")
    work.fail(work.take(A, 1), "dead")
    assert work.shared.next_dying() == second
    work.shared.buried(second)
    third = work.shared.next_dying()
    assert third.epoch > second.epoch
    assert third.sequence == 0


def test_dead_letters_that_are_numbered_anew_are_so_after_a_restart():
    work = Work()
    work.join("a")
    for lease in [work.take(A, 1), work.take(A, 1), work.take(A, 1)]:
        work.fail(lease, "dead")
    first = work.shared.next_dying()
    work.shared.buried(first)
    work.shared.renumber_dying(0)
    second, third = work.shared.dying()
    assert second.epoch == third.epoch > first.epoch
    assert [second.sequence, third.sequence] == [0, 1]
    work.restart()
    assert work.shared.dying() == [second, third]


def test_what_is_to_be_dropped_has_no_dead_letter():
    work = Work(on_dead="drop")
    work.join("a")
    work.fail(work.take(A), "dead")
    assert work.shared.next_dying() is None
    assert work.floor() == 100
    assert [event.kind for event in work.state.events][-1] == "dropped"


def test_what_is_returned_unfinished_was_not_tried():
    work = Work()
    work.join("a", "b")
    work.fail(work.take(A, 5), "release")
    assert work.take(B).attempts == 0
    work.state.leave(B, 0)
    lease = work.take(A)
    assert (*held(lease), lease.attempts) == (b"t", 0, 50, 5, 0)


def test_a_restart_counts_nothing():
    work = Work()
    work.join("a")
    work.take(A, 4)
    last = work.take(A, 4)
    work.done(last)
    work.restart()
    with pytest.raises(GroupFenced):
        work.take(A)
    work.join("a")
    lease = work.take(A)
    assert (*held(lease), lease.attempts) == (b"t", 0, 40, 4, 0)
    assert work.take(A).after == 80


def test_a_lease_of_another_life_is_not_held():
    work = Work()
    work.join("a")
    old = work.take(A, 1)
    work.restart()
    work.join("a")
    new = work.take(A, 1)
    assert new.id != old.id
    assert work.shared.acknowledge([(old.id, None)], [], 0) == [old.id]
    assert work.floor() == 0


def test_what_a_silent_member_held_is_halved_and_counts_nobody():
    work = Work(counts={b"t": 8}, session_s=10)
    work.join("a")
    work.take(A)
    for count in (4, 2, 1):
        work.sleep(11)
        work.expire()
        work.join("a")
        while (lease := work.take(A)).after > 0:
            work.done(lease)
        assert (lease.count, lease.attempts, lease.failures.attempts) == (count, 1, 0)


def test_a_suspect_is_handed_to_a_member_that_holds_nothing_and_gets_nothing_more():
    work = Work(session_s=10)
    work.join("a", "b")
    for _ in range(2):
        work.take(A, 1)
    work.sleep(11)
    work.expire()
    work.join("b", "c")
    work.counts[b"t"] = 10
    other, mine = work.take(B, 1), work.take(C, 1)
    assert sorted([other.after, mine.after]) == [0, 10]
    assert work.take(B, 1) is None
    work.done(other)
    assert work.take(B, 1).after == 20


def test_one_member_finishes_what_it_holds_for_a_suspect_while_others_go_on():
    work = Work(session_s=10)
    work.join("a", "b", "c")
    busy = [work.take(B, 1), work.take(C, 1)]
    work.take(A, 2)
    work.sleep(9)
    work.beat(B, C)
    work.sleep(2)
    work.expire()
    assert work.take(B, 1) is None
    assert work.take(B, 1) is None
    assert work.take(C, 1).after == 40
    work.done(busy[0])
    assert work.take(B, 1).after == 20


def test_poison_among_many_kills_one_message_alone():
    work = Work(counts={b"t": 1000}, session_s=10, retry_s=0)
    poison = 10 * 617
    handed = dict.fromkeys(range(10, 10_001, 10), 0)
    letters = []
    for _ in range(100):
        work.join("a")
        while (lease := work.take(A, 256)) is not None:
            pointers = [each for each in handed if lease.after < each <= lease.last]
            for pointer in pointers:
                handed[pointer] += 1
            if poison in pointers:
                break
            work.done(lease)
        if lease is None:
            break
        work.sleep(11)
        work.expire()
        while (dying := work.shared.next_dying()) is not None:
            letters.append((dying.after, dying.last))
            work.shared.buried(dying)
    assert letters == [(poison - 10, poison)]
    assert work.floor() == 10_000
    del handed[poison]
    assert max(handed.values()) <= 1 + 9


def test_a_crash_with_many_single_messages_in_hand_blames_none_of_the_innocent():
    work = Work(counts={b"t": 8}, session_s=10, retry_s=0, attempts_max=2)
    poison = 50
    letters = []
    for _ in range(40):
        work.join("a")
        leases = []
        while (lease := work.take(A, 1)) is not None:
            leases.append(lease)
            if lease.last == poison or len(leases) == 8:
                break
        if not leases:
            break
        if any(each.last == poison for each in leases):
            work.sleep(11)
            work.expire()
        else:
            work.done(*leases)
        while (dying := work.shared.next_dying()) is not None:
            letters.append(dying.last)
            work.shared.buried(dying)
    assert letters == [poison]
    assert work.floor() == 80


def test_no_member_takes_more_than_its_share():
    work = Work(counts={b"t": 1000}, lease_messages_max=100)
    work.join("a", "b")
    assert work.take(A).count == 50
    assert work.take(A) is None
    assert work.take(B).count == 50
    why = work.shared.why_nothing(A)
    assert isinstance(why, GroupFull)
    assert why.maximum == 100


def test_a_group_without_members_is_not_full():
    told = Work(counts={b"t": 1}).state.describe()
    assert (told["state"], told["full"]) == ("ok", None)


def test_what_is_full_says_so_and_who_holds_it():
    work = Work(counts={b"t": 1000}, leases_max=2)
    work.join("a", "b")
    work.take(A, 1)
    assert work.take(A, 1) is None
    assert "share" in work.shared.why_nothing(A).limit
    work.take(B, 1)
    told = work.state.describe()
    assert (told["state"], told["full"]) == ("full", ["leases_max", 2])
    assert [each["leases"] for each in told["members"]] == [1, 1]
    assert told["units"][0]["oldest_lease_us"] == 0


def test_too_many_holes_keep_new_messages_back_until_some_are_filled():
    work = Work(counts={b"t": 1000}, holes_max=3)
    work.join("a")
    leases = [work.take(A, 1) for _ in range(8)]
    work.done(*leases[1::2][:3])
    assert work.take(A, 1) is None
    assert work.shared.why_nothing(A).limit == "holes_max"
    work.done(leases[0])
    assert work.take(A, 1).after == 80


def test_nothing_is_handed_out_of_a_paused_group():
    work = Work()
    work.join("a")
    lease = work.take(A, 1)
    work.state.pause(0)
    assert work.take(A, 1) is None
    assert isinstance(work.shared.why_nothing(A), GroupPaused)
    work.done(lease)
    work.restart()
    work.join("a")
    assert work.take(A, 1) is None
    work.state.resume(0)
    assert work.take(A, 1).after == 10


def test_who_asks_again_gets_what_another_has_not_got():
    work = Work()
    work.join("a", "b")
    wants = [work.shared.want(each, 5, ALL, 0) for each in (A, B)]
    assert work.shared.leased(wants[0], 50, 5, 5, 0) is not None
    assert work.shared.leased(wants[1], 50, 5, 5, 0) is None
    assert work.take(B).after == 50


def test_what_has_expired_from_the_topic_is_done():
    work = Work()
    work.join("a")
    work.fail(work.take(A, 5))
    want = work.shared.want(A, 5, ALL, 0)
    work.shared.nothing(want)
    assert work.floor() == 50


def test_a_unit_without_news_is_left_alone_until_something_arrives():
    work = Work(counts={b"t": 1, b"u": 1})
    work.join("a")
    assert [work.take(A).unit for _ in range(2)] == [b"t", b"u"]
    assert work.take(A) is None
    assert work.shared.want(A, 1, 1, 0) is None
    work.counts[b"u"] = 2
    work.shared.arrived(b"u")
    assert work.take(A).unit == b"u"


def test_a_retry_waits_longer_each_time_and_wakes_by_itself():
    work = Work(retry_s=2, attempts_max=9)
    work.join("a")
    waits = []
    for _ in range(3):
        work.fail(work.take(A, 1), delay_s=None)
        assert work.shared.want(A, 1, 1, work.now_us).after == 10
        due_us = work.shared.next_deadline_us()
        waits.append((due_us - work.now_us) / SECOND)
        work.now_us = due_us
    for wait, least in zip(waits, (2, 4, 8), strict=True):
        assert least <= wait <= 1.5 * least


def test_a_reset_begins_again_and_needs_an_idle_group_or_force():
    work = Work()
    work.join("a")
    work.done(work.take(A, 5))
    lease = work.take(A, 2)
    with pytest.raises(Exception, match="1 member;"):
        work.state.reset({b"t": 20}, 0)
    work.state.reset({b"t": 20}, 0, force=True)
    assert work.floor() == 20
    assert work.shared.acknowledge([(lease.id, None)], [], 0) == [lease.id]
    with pytest.raises(GroupFenced, match="reset"):
        work.take(A)
    work.restart()
    work.join("a")
    assert held(work.take(A)) == (b"t", 20, 100, 8)


def test_what_is_dying_survives_a_reset_and_is_handed_out_again():
    work = Work()
    work.join("a")
    work.fail(work.take(A, 1), "dead")
    work.state.leave(A, 0)
    work.state.reset({b"t": 0}, 0)
    work.restart()
    work.join("a")
    lease = work.take(A, 1)
    work.shared.buried(work.shared.next_dying())
    assert work.floor() == 0
    work.done(lease)
    assert work.floor() == 10


def test_units_that_are_away_keep_what_is_known_of_them():
    work = Work(counts={b"t": 5, b"u": 5})
    work.join("a")
    leases = [work.take(A), work.take(A)]
    work.state.set_units({b"t": [b"t"]}, 0)
    for lease in leases:
        work.fail(lease)
    assert work.take(A).unit == b"t"
    assert work.take(A) is None
    work.state.set_units({b"t": [b"t", b"u"]}, 0)
    assert work.take(A).unit == b"u"


def test_what_was_deleted_is_forgotten():
    work = Work(counts={b"t": 5, b"u": 5})
    work.join("a")
    lease, other = work.take(A), work.take(A)
    work.done(other)
    work.state.forget([b"t"], work.now_us)
    assert work.floor(b"t") is None
    assert work.shared.acknowledge([(lease.id, None)], [], 0) == [lease.id]
    work.restart()
    assert work.floor(b"u") == 50


@pytest.mark.parametrize("bounds", [(0, 60), (10, 10), (20, 10), (-1, 10)])
def test_what_is_not_of_the_lease_cannot_be_acknowledged(bounds):
    work = Work()
    work.join("a")
    lease = work.take(A, 5)
    whole = work.take(A, 5)
    for done, failed in (
        ([(whole.id, None), (lease.id, [bounds])], []),
        ([(whole.id, None)], [(lease.id, *bounds, "retry", None, "")]),
    ):
        with pytest.raises(RangeNotLeased):
            work.shared.acknowledge(done, failed, 0)
    assert work.state.take_changes() == []
    assert work.floor() == 0


def test_no_more_ranges_of_a_lease_are_done_than_it_has_messages_for():
    """Each would be kept, and be handed out again: one lease could hold everybody up for hours."""
    work = Work()
    work.join("a")
    lease = work.take(A, 2)
    ranges = [(number, number + 1) for number in range(0, 20, 2)]
    with pytest.raises(RangeNotLeased):
        work.shared.acknowledge([(lease.id, ranges)], [], 0)
    with pytest.raises(RangeNotLeased):
        work.shared.acknowledge([(lease.id, [each]) for each in ranges], [], 0)
    failed = [(lease.id, *each, "retry", None, "") for each in ranges]
    with pytest.raises(RangeNotLeased):
        work.shared.acknowledge([], failed, 0)
    with pytest.raises(RangeNotLeased):
        work.shared.acknowledge([(lease.id, ranges[3:6])], failed[:3], 0)
    for each in failed[:5]:
        assert work.shared.acknowledge([], [each], 0) == []
    with pytest.raises(RangeNotLeased):
        work.shared.acknowledge([], [failed[5]], 0)
    work.done(lease)


def test_what_is_told_twice_of_a_lease_is_taken_once_in_as_many_ranges_as_it_has_messages():
    work = Work()
    work.join("a")
    lease = work.take(A)
    for ranges in ([(at, at + 10) for at in range(begin, 100, 20)] for begin in (0, 10)):
        told = [(lease.id, ranges)]
        assert work.shared.acknowledge(told, [], 0) == []
        if not lease.is_over:
            assert work.shared.acknowledge(told, [], 0) == []
    assert work.floor() == 100


def test_a_wait_that_the_client_lets_pass_the_group_does_too():
    assert shared.RETRY_S_MAX == leases.RETRY_S_MAX


def test_unknown_outcomes_and_delays_are_refused():
    work = Work()
    work.join("a")
    lease = work.take(A)
    with pytest.raises(OptionError, match="release"):
        work.fail(lease, "maybe")
    with pytest.raises(OptionError, match="delay_s"):
        work.fail(lease, delay_s=-1)
    assert work.take(A) is None


def test_a_replaced_instance_s_work_is_another_s():
    work = Work()
    work.state.join(who("a", instance="one"), 0)
    work.take(A, 4)
    work.state.join(who("b", instance="one"), 0)
    assert held(work.take(B)) == (b"t", 0, 20, 2)


def test_modes_have_their_own_parts():
    work = Work()
    with pytest.raises(GroupMismatch, match="'shared', not 'ordered'"):
        _ = work.state.ordered


def test_what_is_dying_is_not_handed_out_after_a_restart_from_a_snapshot():
    work = Work()
    work.join("a")
    work.fail(work.take(A, 1), "dead")
    work.compact()
    work.restart()
    work.join("a")
    assert work.take(A, 1).after == 10


def test_leases_have_numbers_of_their_own_however_many_there_are_and_in_whichever_life():
    work = Work()
    numbers = set()
    for count in (5000, 10):
        work.join("a")
        for _ in range(count):
            lease = work.take(A, 1)
            numbers.add(lease.id)
            work.fail(lease, "release")
        work.restart()  # within no time
    assert len(numbers) == 5010


def test_a_life_that_a_power_cut_has_erased_leaves_numbers_that_are_not_used_again():
    work = Work()
    work.now_us = 1_790_000_000 * SECOND
    for _ in range(4):
        work.state.reset({b"t": 0}, work.now_us)
    work.compact()
    leases, letters = set(), set()
    for _ in range(3):
        work.sleep(2)
        work.changes = []
        work.restart()
        work.changes = []
        work.join("a")
        first, second = work.take(A, 1), work.take(A, 1)
        work.fail(second, "dead")
        leases |= {first.id, second.id}
        letters.add(work.shared.next_dying()[3:5])
        work.state = type(work.state).restore(work.start)
    assert len(leases) == 6
    assert len(letters) == 3


def test_who_could_not_be_heard_has_work_no_longer_than_it_may_last():
    work = Work(lease_s=10, work_max_s=15, session_s=1000)
    work.join("a")
    lease = work.take(A)
    work.sleep(8)
    work.shared.excuse([A], work.now_us)
    assert lease.deadline_us == lease.since_us + 15 * SECOND
