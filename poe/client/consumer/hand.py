"""What a consumer has fetched, how much of that was handed out, and how much is dealt with."""

import os
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice, repeat
from operator import length_hint
from weakref import WeakSet

from poe.client.consumer.source import Fetched, Received

# As `Received._make`, without a Python function for each message: half the time.
_received = partial(tuple.__new__, Received)
_NOTHING = Fetched(0, (), (), ())
_hands: "WeakSet[Hand]" = WeakSet()


class Hand:
    """The messages of one fetch, on their way to whoever reads.

    A thread may take messages while the thread of the event loop does the rest. Always:

        dealt_count <= count, those handed out <= messages that were fetched
    """

    def __init__(self, topic: bytes) -> None:
        self._topic = topic
        self.fetched = _NOTHING
        self._left = iter(_NOTHING.pointers)
        self._rest: Iterator[Received] = iter(())
        self._withdrawn_count = 0
        # None while they are taken one at a time: then all but the last one are.
        self._dealt_count: int | None = 0
        _hands.add(self)

    def put(self, fetched: Fetched) -> None:
        """Let these messages be handed out, and those before no more."""
        self.withdraw()
        self.fetched = fetched
        # The pointers come to their end first, so that their iterator tells what is left.
        self._left = iter(fetched.pointers)
        self._withdrawn_count = 0
        self._dealt_count = 0
        columns = (
            repeat(self._topic if fetched.topic is None else fetched.topic),
            repeat(fetched.partition),
            self._left,
            fetched.keys or repeat(None),
            fetched.values,
            fetched.headers or repeat(None),
            fetched.ordinals,
        )
        self._rest = map(_received, zip(*columns, strict=False))

    def clear(self) -> None:
        """Have nothing any more."""
        self.put(_NOTHING)

    def withdraw(self) -> None:
        """Let nothing more be handed out of what was fetched."""
        left = self._left
        left_count = length_hint(left)
        self._withdrawn_count += left_count
        self._left = iter(())
        # Ends an iteration that another thread is in; what that has just taken was handed out.
        self._withdrawn_count -= left_count - len(list(left))

    @property
    def has_some(self) -> bool:
        """Whether something is there to be handed out."""
        return length_hint(self._left) > 0

    @property
    def count(self) -> int:
        """How many messages were handed out."""
        return len(self.fetched.pointers) - self._withdrawn_count - length_hint(self._left)

    @property
    def dealt_count(self) -> int:
        """How many of these are dealt with: those handed out before the last time of asking."""
        return max(0, self.count - 1) if self._dealt_count is None else self._dealt_count

    def settle(self) -> None:
        """Count all that was handed out as dealt with."""
        self._dealt_count = self.count

    def each(self) -> Iterator[Received]:
        """Return what is left, one at a time; whoever takes from it, it is handed out."""
        self._dealt_count = None
        return self._rest

    def take(self, count_max: int) -> list[Received]:
        """Hand out some messages."""
        self.settle()
        return list(islice(self._rest, count_max))

    def take_columns(self) -> Fetched:
        """Hand out all that is left, side by side."""
        self.settle()
        fetched, begin = self.fetched, self.count
        deque(self._left, maxlen=0)
        if not begin:
            return fetched
        keys, headers = fetched.keys and fetched.keys[begin:], fetched.headers
        return fetched._replace(
            pointers=fetched.pointers[begin:],
            ordinals=fetched.ordinals[begin:],
            values=fetched.values[begin:],
            keys=keys,
            headers=headers and headers[begin:],
        )


def _withdraw_all() -> None:
    """Leave all that was fetched to the other process; a loop there was asks here for no more."""
    for each in _hands:
        each.withdraw()


os.register_at_fork(after_in_child=_withdraw_all)
