"""Who has much to do takes turns; a round of the event loop is short."""

from collections.abc import Callable

import pytest

from poe.actors.turns import Turns


class Loop:
    """An event loop of which a test calls the rounds, and whose time passes by its turns alone."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.now_s = 0.0
        self.done: list[object] = []

    def turns(self, round_s: float, share: float = 0.0) -> Turns:
        return Turns(self.due.append, round_s, share, lambda: self.now_s)

    def turn(self, name: object, takes_s: float) -> Callable[[], None]:
        def take() -> None:
            self.now_s += takes_s
            self.done.append(name)

        return take

    def round(self) -> list[object]:
        """Call what is due, as a loop does before it looks at its sockets; return what was done."""
        due, self.due[:] = list(self.due), []
        self.done.clear()
        for serve in due:
            serve()
        return list(self.done)


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_turns_are_taken_in_order_and_a_long_one_ends_the_round(loop):
    turns = loop.turns(round_s=1)
    turns.add(loop.turn("short", 0.5))
    turns.add(loop.turn("long", 5))
    turns.add(loop.turn("last", 0.5))
    assert loop.done == []
    assert loop.round() == ["short", "long"]
    assert loop.round() == ["last"]
    assert loop.due == []


def test_who_comes_again_in_its_turn_has_the_next_one_behind_the_others(loop):
    turns = loop.turns(round_s=1)

    def again() -> None:
        loop.done.append("first")
        turns.add(loop.turn("again", 0))

    turns.add(again)
    turns.add(loop.turn("second", 0))
    assert loop.round() == ["first", "second"]
    assert loop.round() == ["again"]
    assert loop.due == []


def test_between_two_rounds_the_loop_looks_at_everybody_else_whoever_comes_again(loop):
    """Asked for twice, two rounds would follow each other, then four, as long as somebody comes."""
    turns = loop.turns(round_s=1)

    def again() -> None:
        loop.now_s += 1
        loop.done.append("again")
        turns.add(again)

    turns.add(again)
    turns.add(again)
    for _ in range(5):
        assert loop.round() == ["again"]
        assert len(loop.due) == 1


def test_a_share_of_what_others_take_is_theirs_however_much_that_is(loop):
    turns = loop.turns(round_s=1, share=0.5)
    for number in range(9):
        turns.add(loop.turn(number, 1))
    assert loop.round() == [0]
    loop.now_s += 8
    assert loop.round() == [1, 2, 3, 4]
    loop.now_s += 1
    assert loop.round() == [5]


def test_what_others_took_while_nobody_was_in_line_is_not_shared(loop):
    turns = loop.turns(round_s=1, share=0.5)
    loop.now_s += 100
    for number in range(3):
        turns.add(loop.turn(number, 1))
    assert loop.round() == [0]


def test_a_turn_that_is_cut_short_costs_the_others_none(loop):
    turns = loop.turns(round_s=1)

    def interrupted() -> None:
        raise KeyboardInterrupt

    turns.add(interrupted)
    turns.add(loop.turn("second", 0))
    with pytest.raises(KeyboardInterrupt):
        loop.round()
    turns.add(loop.turn("third", 0))
    assert loop.round() == ["second", "third"]
