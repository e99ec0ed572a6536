"""Whom a put asks first: nobody who was slower than others of late, except to see how it is now."""

import random
from itertools import pairwise

import pytest

from poe.cluster.batch import Batch
from poe.cluster.frames import Store, decode
from poe.cluster.identity import StreamId
from poe.cluster.queue.spread import (
    DRAW_US,
    HEDGE_BYTES_MAX,
    HEDGE_MIN_US,
    PATIENCE_US,
    SLOWER_FIRST_US,
    SLOWER_MAX_US,
    SLOWER_US,
    Candidates,
    Spread,
)
from tests.cluster.queue.wired import Wired, node_ref

A, B, C = map(node_ref, range(3))
LONG_US = 4 * SLOWER_US


def candidates(*nodes, seed=0):
    """Return candidates without zones."""
    made = Candidates("", random.Random(seed))
    for node in nodes:
        made.add(node, "")
    return made


def firsts(made, begin_us, end_us):
    """Return whom a draw begins with, at each draw within a time."""
    return [made.draw(now_us)[0] for now_us in range(begin_us, end_us, DRAW_US)]


def test_a_node_that_takes_much_longer_than_another_is_asked_last():
    for seed in range(20):
        made = candidates(A, B, seed=seed)
        made.took(B, 300, 0)
        made.took(A, LONG_US, 0)
        assert list(made.draw(0)) == [B, A]


def test_one_that_was_never_asked_is_tried_before_one_that_takes_long():
    made = candidates(A, B, C)
    made.took(A, LONG_US, 0)
    assert made.draw(0)[-1] == A


def test_nodes_that_all_take_long_are_asked_like_any():
    made = candidates(A, B)
    for node in (A, B):
        made.took(node, LONG_US, 0)
        made.took(node, LONG_US, SLOWER_FIRST_US)
    assert set(firsts(made, 2 * SLOWER_FIRST_US, 2 * SLOWER_FIRST_US + 50 * DRAW_US)) == {A, B}


def test_little_more_than_another_is_not_slower():
    made = candidates(A, B)
    made.took(B, 300, 0)
    made.took(A, SLOWER_US - 1, 0)
    assert set(firsts(made, 0, 50 * DRAW_US)) == {A, B}


def test_one_that_stays_slower_is_tried_more_and_more_seldom():
    made = candidates(A, B)
    now_us, tries = 0, []
    while now_us < 300_000_000:
        first = made.draw(now_us)[0]
        made.took(first, LONG_US if first == A else 300, now_us)
        tries += [now_us] * (first == A)
        now_us += 100_000
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert min(waits) >= SLOWER_FIRST_US
    assert min(waits[6:]) >= SLOWER_MAX_US
    assert len(waits) >= 10  # it is not forgotten either


def test_one_that_is_quick_again_is_asked_like_any():
    made = candidates(A, B)
    made.took(B, 300, 0)
    made.took(A, LONG_US, 0)
    made.took(A, 300, SLOWER_FIRST_US)
    assert set(firsts(made, SLOWER_FIRST_US, SLOWER_FIRST_US + 50 * DRAW_US)) == {A, B}


def test_many_late_answers_at_once_count_as_one():
    made = candidates(A, B)
    for _ in range(20):
        made.took(A, LONG_US, 0)
    later_us = SLOWER_FIRST_US + 1
    assert A in firsts(made, later_us, later_us + 50 * DRAW_US)[:10]


def test_zones_come_before_who_is_quicker():
    made = Candidates("x", random.Random(0))
    made.add(A, "x")
    made.add(B, "y")
    made.took(A, 300, 0)
    made.took(B, LONG_US, 0)
    assert list(made.draw(0)) == [B, A]


@pytest.mark.slow
def test_a_put_goes_elsewhere_once_a_holder_was_seen_to_be_slower():
    """A link that is full: its node answers, though late, and is not called slow for that."""
    for seed in range(10):
        nodes = Wired(3, seed)
        for number in range(100):
            nodes.put(0, [b"x"], number)
            nodes.collect()
            asked = [to for _, to, body in nodes.under_way if isinstance(decode(body), Store)]
            is_slower = asked == [nodes.refs[2]]
            nodes.now_us += 40_000 if is_slower else 300
            nodes.settle()
            nodes.now_us += 10_000
        assert {result.state for result in nodes.results.values()} == {"ok"}
        # In a little more than a second: one, and one more when it is tried again.
        assert nodes[2].copies.messages_count <= 2


def waits_beside_a_frozen_node(seed, messages, usual_us=300):
    """Return how long each put takes while a third node says nothing, and nobody calls it slow."""
    nodes = Wired(3, seed)
    for number in range(50):
        nodes.put(0, messages, f"before {number}")
        nodes.now_us += usual_us
        nodes.settle()
    nodes.cut |= {frozenset((nodes.refs[2], other)) for other in nodes.refs[:2]}
    waits = []
    for number in range(100):
        nodes.put(0, messages, number)
        begin_us = nodes.now_us
        while number not in nodes.results:
            nodes.now_us += usual_us
            nodes.wait(0.0001)
        waits.append(nodes.now_us - begin_us)
        nodes.wait(0.01)
    assert {result[:2] for result in nodes.results.values()} == {("ok", 2)}
    return waits


@pytest.mark.slow
def test_a_put_waits_for_a_node_that_says_nothing_no_longer_than_a_few_times_what_is_usual():
    for seed in range(10):
        waits = sorted(waits_beside_a_frozen_node(seed, [b"x"]))
        assert waits[-1] <= HEDGE_MIN_US + 1000
        # It is asked last then: once a second or so, a put waits for it at all.
        assert waits[-4] <= 1000


@pytest.mark.slow
def test_what_is_usual_is_learned_from_each_node():
    waits = [max(waits_beside_a_frozen_node(seed, [b"x"], 4000)) for seed in range(10)]
    assert 8000 < max(waits) <= 8000 + HEDGE_MIN_US + 2 * 4000


@pytest.mark.slow
def test_many_bytes_are_not_sent_to_one_more_node_for_a_short_silence():
    batch = [bytes(1000)] * (HEDGE_BYTES_MAX // 1000 + 1)
    waits = [max(waits_beside_a_frozen_node(seed, batch)) for seed in range(10)]
    assert max(waits) >= PATIENCE_US


def test_a_node_of_another_zone_is_waited_for_since_one_of_this_zone_is_no_match_for_it():
    nodes = Wired(3, zones="xxy")
    nodes.put(0, [b"x"])
    nodes.lose()
    nodes.wait(PATIENCE_US / 1e6 - 0.001)
    assert nodes.results == {}
    nodes.wait(0.002)
    assert nodes.results["put"][:2] == ("ok", 2)


def test_a_long_wait_before_makes_nobody_wait_for_long():
    made = candidates(A, B)
    made.took(A, 200_000, 0)
    assert made.hedge_us(A) == PATIENCE_US
    for _ in range(100):
        made.took(A, 300, 0)
    assert made.hedge_us(A) == HEDGE_MIN_US


def test_where_nobody_else_is_left_a_node_is_asked_again_when_patience_is_over_and_not_before():
    nodes = Wired(2)
    nodes.put(0, [b"x"])
    nodes.lose()
    nodes.wait(PATIENCE_US / 1e6 - 0.001)
    assert nodes[1].copies.messages_count == 0
    nodes.wait(0.002)
    assert nodes.results["put"].state == "ok"


def test_at_its_deadline_a_put_asks_nobody_any_more():
    nodes = Wired(3)
    nodes.put(0, [b"x"], deadline_s=HEDGE_MIN_US / 1e6 / 2)
    nodes.lose()
    nodes.now_us += HEDGE_MIN_US
    nodes[0].tick(nodes.now_us)
    nodes.collect()
    assert nodes.results["put"][:2] == ("under", 1)
    assert not [body for _, _, body in nodes.under_way if isinstance(decode(body), Store)]


def test_who_answers_late_has_a_copy_more_and_it_does_not_count():
    nodes = Wired(3)
    nodes.put(0, [b"x"])
    nodes.collect()
    (late,) = [each for each in nodes.under_way if isinstance(decode(each[2]), Store)]
    nodes.under_way.clear()
    nodes.wait((HEDGE_MIN_US + 1000) / 1e6)
    assert nodes.results["put"][:3] == ("ok", 2, 2)
    nodes.under_way.append(late)
    nodes.wait(1)
    assert [queue.copies.messages_count for queue in nodes.queues.values()] == [1, 1, 1]
    nodes.make_group(0)
    assert nodes.work(0) == [b"x"]
    nodes.wait(1)
    assert [queue.copies.messages_count for queue in nodes.queues.values()] == [0, 0, 0]


def test_one_that_was_asked_twice_and_is_full_once_may_hold_them_all_the_same():
    """Its first answer came late, and by the second time it had room."""
    batch = Batch.encode([b"x"], 0, 1)
    spread = Spread(StreamId(A.id, 1), batch, 1, 10 * PATIENCE_US, lambda *_: None)
    assert spread.next_nodes(candidates(B), 0) == [B]
    spread.heard(B, "full")
    assert spread.state() == "busy"
    again = Spread(StreamId(A.id, 1), batch, 1, 10 * PATIENCE_US, lambda *_: None)
    for now_us in (0, PATIENCE_US):
        assert again.next_nodes(candidates(B), now_us) == [B]
    again.heard(B, "full")
    assert again.is_over(PATIENCE_US)
    assert again.state() == "none"
