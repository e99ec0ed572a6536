"""How far a group of mode `ordered` is: a position in each unit, which its owner tells.

A position outlives owners, members and restarts; it goes with its topic or its group, never by
time. A unit that never had one is told apart from one whose position is 0.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from poe.broker.groups.assignment import Units
from poe.broker.groups.journal import Journal
from poe.broker.groups.membership import MemberInfo, Membership
from poe.broker.groups.options import POINTER_MAX, GroupDefinition, check_bytes
from poe.broker.groups.ownership import Ownership
from poe.errors import GroupFenced, OptionError

COMMIT_BYTES_MAX: Final = 1024
"""What a caller may keep with a position."""

Position = tuple[int, bytes]
"""The pointer of the last message that is done, and the caller's bytes."""


class Granted(NamedTuple):
    """A unit that a member may begin to work on."""

    topic: bytes
    partition: int
    position: Position | None
    """How far the group is in it; None where it never had a position."""


class Ordered:
    """Owners and positions of the units of one group."""

    def __init__(self, definition: GroupDefinition, journal: Journal, members: Membership) -> None:
        self._definition = definition
        self._journal = journal
        self._members = members
        self._ownership = Ownership(journal)
        self._positions: dict[bytes, Position] = {}
        self._places: dict[bytes, tuple[bytes, int]] = {}
        """The topic of each unit, and which partition of it that is."""

    def commit(
        self, member: bytes, generation: int, positions: Mapping[bytes, Position], now_us: int
    ) -> dict[bytes, int]:
        """Take how far a member is; return the pointers that were taken.

        What is not among them is not the member's own any more, or is so only since a later
        generation than it knows of, or was of a topic that is deleted: nothing is changed there.

        Raises:
            GroupFenced: it is no member, or not of this life of the group.
            OptionError: a pointer or the bytes are not allowed; nothing was taken.
        """
        self._members.get(member)
        if generation > self._journal.generation:
            raise GroupFenced(self._definition.name, f"it is of generation {generation}, to come")
        for pointer, note in positions.values():
            check_pointer(pointer)
            check_bytes("bytes of a position", note, 0, COMMIT_BYTES_MAX)
        self._members.hear(member, now_us)
        grants = self._ownership.grants(member)
        never = generation + 1
        taken = {
            unit: position
            for unit, position in positions.items()
            if grants.get(unit, never) <= generation and not self._ownership.is_withdrawn(unit)
        }
        self._take(taken)
        return {unit: pointer for unit, (pointer, _) in taken.items()}

    def positions(self) -> dict[bytes, Position | None]:
        """Return how far each unit is; None for one that never had a position."""
        return dict.fromkeys(self._places) | self._positions

    def floor(self, unit: bytes) -> int | None:
        """Return the pointer up to which all of a unit is done; None where nobody said so."""
        position = self._positions.get(unit)
        return None if position is None else position[0]

    def set_units(self, units: Units, now_us: int) -> None:
        """Say which units there are; positions of those that are not there stay."""
        self._places = {
            unit: (topic, partition)
            for topic, each in units.items()
            for partition, unit in enumerate(each)
        }
        self._ownership.set_units(units, now_us)

    def add(self, info: MemberInfo, replaced: bytes | None, now_us: int) -> None:
        """Take a member in, perhaps with the units of the one that it replaces."""
        if replaced is not None:
            self._ownership.replace(replaced, info.id, now_us)
        wishes = info.topics
        if wishes is not None and set(wishes) == set(self._definition.topics):
            wishes = None
        self._ownership.add(info.id, wishes, now_us)

    def leave(self, member: bytes, now_us: int) -> None:
        """Let go of a member, and of all that it owned."""
        self._ownership.remove(member, now_us)

    def lose(self, member: bytes, now_us: int) -> None:
        """Let go of a member of which nothing is heard."""
        self.leave(member, now_us)

    def heartbeat(
        self, member: bytes, generation: int, owned: Collection[bytes]
    ) -> tuple[list[bytes], list[bytes], dict[bytes, Granted]]:
        """Return what a member may own, what it is to give up, and where the new ones begin."""
        keep, revoke = self._ownership.heartbeat(member, generation, owned)
        # One whose topic is gone is about to be taken away again.
        new = set(keep).difference(owned) & self._places.keys()
        granted = {
            unit: Granted(*self._places[unit], self._positions.get(unit)) for unit in sorted(new)
        }
        return keep, revoke, granted

    def take_news(self) -> set[bytes]:
        """Return the members that would be told something new; each one once."""
        return self._ownership.take_news()

    def settle(self, now_us: int) -> None:
        """Do what time has brought."""
        self._ownership.settle(now_us)

    def next_deadline_us(self) -> int | None:
        """Return when there is something to settle."""
        return self._ownership.next_deadline_us()

    def pause(self, now_us: int, *, is_paused: bool) -> None:
        """Have all units given up, or owned again."""
        self._ownership.pause(now_us, is_paused=is_paused)

    def reset(self, positions: Mapping[bytes, int]) -> None:
        """Go on behind these pointers; nobody is a member now."""
        self._take({unit: (pointer, b"") for unit, pointer in positions.items()})

    def forget(self, units: Collection[bytes], now_us: int) -> None:
        """Drop the positions of units that were deleted; who owns one is to begin anew there."""
        self._ownership.withdraw(units, now_us)
        gone = [unit for unit in units if self._positions.pop(unit, None) is not None]
        if gone:
            self._journal.note(["forgotten", gone])

    def describe(self) -> dict[str, Any]:
        """Return what is to be told of the units; of those that are gone, no topic any more."""
        gone = None, None
        return {
            "state": "ok",
            "units": [
                {
                    "unit": unit,
                    "topic": self._places.get(unit, gone)[0],
                    "partition": self._places.get(unit, gone)[1],
                    "position": None if position is None else position[0],
                    "owner": self._ownership.owner(unit),
                }
                for unit, position in sorted(self.positions().items())
            ],
        }

    def describe_member(self, member: bytes) -> dict[str, Any]:
        """Return what a member owns."""
        return {"units": sorted(self._ownership.grants(member))}

    def snapshot(self) -> list[Any]:
        """Return all that is durable."""
        return [[unit, *position] for unit, position in sorted(self._positions.items())]

    def restore(self, snapshot: list[Any]) -> None:
        """Take over what `snapshot` has returned."""
        self._positions = {unit: (pointer, note) for unit, pointer, note in snapshot}

    def restored_units(self) -> Iterable[Any]:
        """Return the units of which something was restored, whatever those are."""
        return self._positions

    def apply(self, change: list[Any]) -> None:
        """Make a change again."""
        kind, items = change
        if kind == "positions":
            self._positions |= {unit: (pointer, note) for unit, pointer, note in items}
        elif kind == "forgotten":
            for unit in items:
                self._positions.pop(unit, None)

    def restart(self, now_us: int, *, is_paused: bool) -> None:
        """Begin a new life: who owned what is not known any more."""
        self._ownership.pause(now_us, is_paused=is_paused)

    def _take(self, positions: Mapping[bytes, Position]) -> None:
        if positions:
            self._positions |= positions
            changed = [[unit, *position] for unit, position in positions.items()]
            self._journal.note(["positions", changed])


def check_pointer(pointer: object) -> None:
    """Refuse what is no pointer.

    Raises:
        OptionError: says what is one.
    """
    is_pointer = isinstance(pointer, int) and not isinstance(pointer, bool)
    if not is_pointer or not 0 <= pointer <= POINTER_MAX:  # type: ignore[operator]  # it is a number
        raise OptionError("pointer", pointer, "0 to 2^56 - 1")
