"""Which member is to have which unit: a function of units, members and what was so before.

Members that want the same topics are a class. Strategy: units go to classes so that their members
have about as much to do; within a class no member has more than one unit more than another. A unit
stays where it was unless one of these needs it to move.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

Units = Mapping[bytes, Sequence[bytes]]
"""The partition topics of each topic."""


def assign(
    units: Units, members: Mapping[bytes, frozenset[bytes]], previous: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Return the member of each unit; units that nobody wants have none.

    Args:
        units: what there is.
        members: the topics that each one wants, of those of `units`.
        previous: the members that the units had until now; they may be gone.
    """
    classes: dict[frozenset[bytes], list[bytes]] = {}
    for member, topics in members.items():
        classes.setdefault(topics, []).append(member)
    classes.pop(frozenset(), None)
    if len(classes) == 1:
        [(topics, only)] = classes.items()
        wanted = [unit for topic in units if topic in topics for unit in units[topic]]
        return _shared_out(wanted, only, previous)
    target = {}
    for part, each in zip(_parts(units, classes, previous), classes.values(), strict=True):
        target.update(_shared_out(part, each, previous))
    return target


def _shared_out(
    units: Sequence[bytes], members: Sequence[bytes], previous: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Give each member as many units as any other, or one more; move as few as that allows."""
    held: dict[bytes, list[bytes]] = {member: [] for member in members}
    free: list[bytes] = []
    for unit in units:
        held.get(previous.get(unit, b""), free).append(unit)
    least, more_count = divmod(len(units), len(members))
    # Who has the most keeps one more: a place given to another would be a move.
    by_count = sorted(held.values(), key=len, reverse=True)
    rooms = [least + (number < more_count) for number in range(len(members))]
    for kept, room in zip(by_count, rooms, strict=True):
        free += kept[room:]
        del kept[room:]
    for kept, room in zip(by_count, rooms, strict=True):
        while len(kept) < room:
            kept.append(free.pop())
    return {unit: member for member, kept in held.items() for unit in kept}


_cost = attrgetter("cost")


class _Class:
    """What one class of members has: its units by topic.

    Always: `load` is the number of all of them.
    """

    __slots__ = ("load", "size", "units")

    def __init__(self, size: int) -> None:
        self.size = size
        self.units: dict[bytes, list[bytes]] = {}
        self.load = 0

    def take(self, topic: bytes, unit: bytes) -> None:
        self.units.setdefault(topic, []).append(unit)
        self.load += 1

    def give(self, topic: bytes) -> bytes:
        self.load -= 1
        return self.units[topic].pop()

    @property
    def cost(self) -> float:
        """What one more unit costs: the growth of the sum of load²/size over all classes."""
        return (2 * self.load + 1) / self.size

    def is_relieved_by(self, other: "_Class") -> bool:
        """Return whether that sum becomes less if this one gives a unit to another."""
        return (2 * other.load + 1) * self.size < (2 * self.load - 1) * other.size


def _parts(
    units: Units,
    classes: Mapping[frozenset[bytes], Sequence[bytes]],
    previous: Mapping[bytes, bytes],
) -> list[list[bytes]]:
    """Return the units of each class, in the order of the classes."""
    parts = [_Class(len(members)) for members in classes.values()]
    homes = {
        member: part
        for part, members in zip(parts, classes.values(), strict=True)
        for member in members
    }
    takers: dict[bytes, list[_Class]] = {topic: [] for topic in units}
    for part, topics in zip(parts, classes, strict=True):
        for topic in topics:
            takers[topic].append(part)
    free = []
    for topic, there in takers.items():
        for unit in units[topic] if there else ():
            home = homes.get(previous.get(unit, b""))
            if home in there:
                home.take(topic, unit)
            else:
                free.append((topic, unit))
    for topic, unit in free:
        min(takers[topic], key=_cost).take(topic, unit)
    # Each move makes the sum of load²/size less, so there is a last one.
    while sum(_move(topic, there) for topic, there in takers.items()):
        pass
    return [[unit for each in part.units.values() for unit in each] for part in parts]


def _move(topic: bytes, classes: Sequence[_Class]) -> bool:
    """Move units of a topic to classes that have less to do; return whether there were any."""
    has_moved = False
    while givers := [each for each in classes if each.units.get(topic)]:
        giver = max(givers, key=_cost)
        taker = min(classes, key=_cost)
        if not giver.is_relieved_by(taker):
            break
        taker.take(topic, giver.give(topic))
        has_moved = True
    return has_moved
