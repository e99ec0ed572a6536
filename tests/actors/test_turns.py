"""Who has much to do takes turns; a round of the event loop is short."""

import time
from collections.abc import Callable

from poe.actors.turns import Turns


def test_turns_are_taken_in_order_and_a_long_one_ends_the_round():
    rounds: list[Callable[[], None]] = []
    done: list[object] = []
    turns = Turns(rounds.append)
    turns.add(lambda: done.append(1))

    def take_long():
        time.sleep(0.002)
        done.append(2)

    turns.add(take_long)
    turns.add(lambda: done.append(3))
    assert len(rounds) == 1
    assert done == []
    rounds.pop()()
    assert done == [1, 2]
    rounds.pop()()
    assert done == [1, 2, 3]
    assert rounds == []


def test_who_comes_again_in_its_turn_has_the_next_one_behind_the_others():
    rounds: list[Callable[[], None]] = []
    done: list[str] = []
    turns = Turns(rounds.append)

    def again():
        done.append("first")
        if len(done) < 3:
            turns.add(again)

    turns.add(again)
    turns.add(lambda: done.append("second"))
    while rounds:
        rounds.pop(0)()
    assert done == ["first", "second", "first"]
