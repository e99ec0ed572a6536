"""Which partition a message goes to: a class for each strategy, behind one function.

The partitions are those of the topic in ascending order, all of them, reachable or not: what a key
chooses must not change with the weather. Their numbers need not begin with 0 or be without gaps.

Threads may share a partitioner. Two that ask at the same time may both get the same turn.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from poe.client.producer.murmur2 import murmur2, murmur2_of_all
from poe.client.producer.payload import Message
from poe.client.producer.producer_options import Picker, Strategy, TopicOptions
from poe.errors import PickerFailed, PoeError
from poe.errors.short_text import short_repr

_POSITIVE = 0x7FFFFFFF


class Split(NamedTuple):
    """Where the messages of a keyed payload go, by their places in it."""

    places: dict[int, list[int]]
    """Places by partition, ascending."""

    failed: dict[int, PoeError]
    """Errors by place."""


class Partitioner(ABC):
    """Chooses partitions for one topic."""

    @abstractmethod
    def pick(self, key: bytes | None, partitions: Sequence[int], size: int = 1) -> int:
        """Return the partition of one call without keys, or of one message.

        Args:
            key: of the message, if it has one.
            partitions: at least one.
            size: how many messages the call is about; with 0 it is a look, which takes no turn.

        Raises:
            PickerFailed: the user's function raised, or returned no partition.
        """

    def split(self, messages: Sequence[Message], partitions: Sequence[int]) -> Split:
        """Return the partition of each message of a keyed payload: each is a call of its own."""
        split = Split(defaultdict(list), {})
        for place, message in enumerate(messages):
            try:
                split.places[self.pick(message.key, partitions)].append(place)
            except PickerFailed as error:
                split.failed[place] = error
        return split


class RandomPartitioner(Partitioner):
    """Any partition, for each call."""

    def __init__(self, rng: Random) -> None:
        self._choice = rng.choice

    def pick(self, key: bytes | None, partitions: Sequence[int], size: int = 1) -> int:
        """Return any."""
        del key, size
        return self._choice(partitions)


class StrictRoundRobin(Partitioner):
    """The next partition for each call."""

    def __init__(self) -> None:
        self._turn = 0

    def pick(self, key: bytes | None, partitions: Sequence[int], size: int = 1) -> int:
        """Return the next."""
        del key
        turn = self._turn
        self._turn += size > 0
        return partitions[turn % len(partitions)]


class StickyRoundRobin(Partitioner):
    """The same partition for `sticky_count` messages, then the next.

    A call is not torn: the one that reaches the count goes where those before it went. (ekaf counts
    calls, and goes on to any worker.)
    """

    def __init__(self, sticky_count: int) -> None:
        self._sticky_count = sticky_count
        self._turn = 0
        self._sent_count = 0

    def pick(self, key: bytes | None, partitions: Sequence[int], size: int = 1) -> int:
        """Return the current one, or the next if that has had its share."""
        del key
        if self._sent_count >= self._sticky_count:
            self._turn += 1
            self._sent_count = 0
        self._sent_count += size
        return partitions[self._turn % len(partitions)]


class KeyHash(StickyRoundRobin):
    """The partition that the key's hash says, as Java's producer; without a key as sticky."""

    def pick(self, key: bytes | None, partitions: Sequence[int], size: int = 1) -> int:
        """Return the key's."""
        if key is None:
            return super().pick(key, partitions, size)
        return partitions[(murmur2(key) & _POSITIVE) % len(partitions)]

    def split(self, messages: Sequence[Message], partitions: Sequence[int]) -> Split:
        """Return the partition of each message, all keys hashed at once."""
        keys = [key for _, key, _ in messages if key is not None]
        if len(keys) < len(messages):
            return super().split(messages, partitions)
        turns = (murmur2_of_all(keys) & _POSITIVE) % len(partitions)
        places = {
            partitions[turn]: (turns == turn).nonzero()[0].tolist() for turn in set(turns.tolist())
        }
        return Split(places, {})


class PickerPartitioner(Partitioner):
    """The partition that the user's function says."""

    def __init__(self, topic: bytes, picker: Picker) -> None:
        self._topic = topic
        self._picker = picker

    def pick(self, key: bytes | None, partitions: Sequence[int], size: int = 1) -> int:
        """Return what the function does."""
        del size
        try:
            picked = self._picker(self._topic, key, partitions)
        except BaseException as error:  # `sys.exit`, too: a thread that serves others may call it
            raise PickerFailed(self._topic, f"raised {short_repr(error)}") from error
        if type(picked) is not int or picked not in partitions:
            raise PickerFailed(self._topic, f"returned {short_repr(picked)}")
        return picked


def partitioner(topic: bytes, options: TopicOptions, rng: Random | None = None) -> Partitioner:
    """Return the partitioner that the options of a topic ask for.

    Args:
        topic: its name, for the picker.
        options: `strategy`, `sticky_count` and `picker`, which wins.
        rng: for the strategy `random`.
    """
    if options.picker is not None:
        return PickerPartitioner(topic, options.picker)
    strategy: Strategy = options.strategy
    match strategy:
        case "random":
            return RandomPartitioner(rng or Random())  # noqa: S311 - no secret
        case "sticky_round_robin":
            return StickyRoundRobin(options.sticky_count)
        case "strict_round_robin":
            return StrictRoundRobin()
        case "custom":
            return KeyHash(options.sticky_count)
