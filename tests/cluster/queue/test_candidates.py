"""Whom a put asks first: nobody who was slower than others of late, except to see how it is now."""

import random
from itertools import pairwise

from poe.cluster.frames import Store, decode
from poe.cluster.queue.spread import (
    DRAW_US,
    SLOWER_FIRST_US,
    SLOWER_MAX_US,
    SLOWER_US,
    Candidates,
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
