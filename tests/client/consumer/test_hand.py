"""What a consumer has in hand: how much of it was handed out."""

from collections.abc import Callable, Iterator
from operator import length_hint

from poe.client.consumer.hand import Hand
from poe.client.consumer.source import Fetched, Received


class Pointers(list[int]):
    """Pointers, of which something is done while somebody asks how many are left."""

    def __init__(self, count: int, when_asked: Callable[[], object]):
        super().__init__(range(1, count + 1))
        self._when_asked = when_asked

    def __iter__(self) -> "Asked":
        return Asked(super().__iter__(), self._when_asked)


class Asked(Iterator[int]):
    def __init__(self, items: Iterator[int], when_asked: Callable[[], object]):
        self._items = items
        self._when_asked = when_asked

    def __next__(self) -> int:
        return next(self._items)

    def __length_hint__(self) -> int:
        left_count = length_hint(self._items)
        self._when_asked()
        return left_count


def test_what_another_thread_takes_as_the_rest_is_withdrawn_was_handed_out():
    """Else a group would give it to another member as well, though it was committed before."""
    hand, taken = Hand(b"t"), list[Received]()

    def take():
        if not taken:
            taken.extend([next(rest)])

    values = [b"a", b"b", b"c"]
    hand.put(Fetched(0, Pointers(3, take), range(3), values))
    rest = hand.each()
    hand.withdraw()
    assert [each.value for each in taken] == [b"a"]
    assert hand.count == 1
    assert list(rest) == []
