"""One group: who its members are, and how far they are with what is theirs.

Each method raises a `PoeError` before it changes anything, or answers; what of that must outlive
the node is in `take_changes()`. A snapshot, and the changes that were taken behind it, make the
same group again. Nothing here waits, sends, or reads a clock: times are microseconds, arguments.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from poe.broker.groups.assignment import Units
from poe.broker.groups.deadlines import earliest
from poe.broker.groups.journal import GroupEvent, Journal
from poe.broker.groups.membership import MemberInfo, Membership
from poe.broker.groups.options import GroupDefinition
from poe.broker.groups.ordered import Granted, Ordered, check_pointer
from poe.broker.groups.shared import Shared
from poe.errors import GroupActive, GroupFenced, GroupMismatch, OptionError

SNAPSHOT_VERSION: Final = 1


class Joined(NamedTuple):
    """What a member is told that has joined."""

    generation: int
    heartbeat_s: float
    session_s: float
    units: Sequence[bytes]
    """What it owns at once; more may follow with its heartbeats."""
    granted: Mapping[bytes, Granted]
    """All of these."""


class Heartbeat(NamedTuple):
    """What a member is told that is there."""

    generation: int
    keep: Sequence[bytes]
    """All that it may own now, what was granted since the last time included."""
    revoke: Sequence[bytes]
    """What it is to give up, and to leave out of what it says that it owns."""
    granted: Mapping[bytes, Granted]
    """What of `keep` it does not say that it owns: it may begin there."""


class GroupState:
    """The whole of one group but for messages, files and clocks.

    Life cycle: `create`, or `restore`, any number of `apply`, and `restarted`; then the rest.
    """

    def __init__(self, definition: GroupDefinition, generation: int) -> None:
        self.definition = definition
        self.is_paused = False
        self._journal = Journal(generation)
        self._members = Membership(definition, self._journal)
        kind = Ordered if definition.mode == "ordered" else Shared
        self._progress: Ordered | Shared = kind(definition, self._journal, self._members)

    @classmethod
    def create(cls, definition: GroupDefinition, now_us: int, generation: int = 0) -> Self:
        """Make a new group; its snapshot is what is to be written of that.

        Its generations are greater than `generation`, and not before the time.
        """
        state = cls(definition, generation)
        state._journal.begin_life(now_us)
        state.take_changes()
        state._journal.tell(now_us, "created", f"in mode {definition.mode}")
        return state

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any]) -> Self:
        """Make a group of what `snapshot` has returned.

        Raises:
            OptionError: it is of a later version, or holds what no group may be.
        """
        if snapshot["version"] != SNAPSHOT_VERSION:
            raise OptionError("version", snapshot["version"], f"{SNAPSHOT_VERSION}")
        definition = GroupDefinition.from_map(snapshot["definition"])
        state = cls(definition, snapshot["generation"])
        state.is_paused = snapshot["is_paused"]
        state._journal.taken_count = snapshot["changes_count"]
        state._progress.restore(snapshot["progress"])
        return state

    def replay(self, number: int, changes: Sequence[list[Any]]) -> None:
        """Make changes again that were taken together, the first as the `number`th; each one once.

        They may be told twice, where whoever wrote them was not told that they were written.
        """
        known_count = max(0, self.changes_count - number)
        self._journal.taken_count = max(self.changes_count, number)  # some before may be lost
        for change in changes[known_count:]:
            self.apply(change)

    def apply(self, change: list[Any]) -> None:
        """Make a change again that was taken behind the snapshot, and was not made yet."""
        self._journal.taken_count += 1
        match change:
            case ["generation", generation]:
                self._journal.generation = generation
            case ["paused", is_paused]:
                self.is_paused = is_paused
            case _:
                self._progress.apply(change)

    def check_restored(self) -> None:
        """Refuse units whose names are none: no group has written them.

        Raises:
            TypeError: there is one.
        """
        for unit in self._progress.restored_units():
            if type(unit) is not bytes:
                raise TypeError(unit)

    def restarted(self, now_us: int, generation: int = 0) -> None:
        """Begin a new life, after a start: nobody is a member, and nothing is held.

        Its generations are greater than `generation`, as for `create`.
        """
        self._journal.generation = max(self.generation, generation)
        self._journal.begin_life(now_us)
        self._progress.restart(now_us, is_paused=self.is_paused)
        self._journal.tell(now_us, "restarted", f"in generation {self.generation}")

    def snapshot(self) -> dict[str, Any]:
        """Return all that is durable of the group, as msgpack can hold it.

        All changes must have been taken.
        """
        return {
            "version": SNAPSHOT_VERSION,
            "definition": self.definition.as_map(),
            "generation": self._journal.generation,
            "is_paused": self.is_paused,
            "changes_count": self.changes_count,
            "progress": self._progress.snapshot(),
        }

    def take_changes(self) -> list[list[Any]]:
        """Return what has changed since the last time, to be written before it is answered."""
        return self._journal.take_changes()

    @property
    def changes_count(self) -> int:
        """Return how many changes were taken in all: the number of the next one."""
        return self._journal.taken_count

    @property
    def generation(self) -> int:
        """Return the number that grows with each change of who owns what, and with each start."""
        return self._journal.generation

    @property
    def events(self) -> Sequence[GroupEvent]:
        """Return the last things that happened, oldest first."""
        return list(self._journal.events)

    @property
    def members_count(self) -> int:
        """Return how many members there are."""
        return len(self._members)

    @property
    def ordered(self) -> Ordered:
        """Return what only groups of mode `ordered` have.

        Raises:
            GroupMismatch: this one is not.
        """
        if not isinstance(self._progress, Ordered):
            raise GroupMismatch(self.definition.name, "mode", "ordered", self.definition.mode)
        return self._progress

    @property
    def shared(self) -> Shared:
        """Return what only groups of mode `shared` have.

        Raises:
            GroupMismatch: this one is not.
        """
        if not isinstance(self._progress, Shared):
            raise GroupMismatch(self.definition.name, "mode", "shared", self.definition.mode)
        return self._progress

    def set_units(self, units: Units, now_us: int) -> None:
        """Say which partition topics each topic of the group has now.

        How far the group is on those that are not there any more stays, until they are forgotten.
        Those that were forgotten are there again.
        """
        self._progress.set_units(dict(units), now_us)
        self._progress.settle(now_us)

    def forget(self, units: Collection[bytes], now_us: int) -> None:
        """Drop what is known of units that were deleted; then say which there are."""
        self._progress.forget(units, now_us)

    def join(self, info: MemberInfo, now_us: int) -> Joined:
        """Take a member in; or, of one that is there and begins anew, what it says of itself now.

        Raises:
            GroupFull: there are `members_max` of them.
        """
        replaced = self._members.join(info, now_us)
        self._progress.add(info, replaced, now_us)
        self._progress.settle(now_us)
        options = self.definition.options
        # One that was there before has dropped what it had.
        units, _, granted = self._progress.heartbeat(info.id, self.generation, ())
        return Joined(self.generation, options.beat_s, options.session_s, units, granted)

    def heartbeat(
        self, member: bytes, generation: int, owned: Collection[bytes], now_us: int
    ) -> Heartbeat:
        """Count a sign of life; tell a member what it may own, and what it is to give up.

        Args:
            member: who it is.
            generation: the newest one that it was told; 0 where it was told none.
            owned: the units that it works on.
            now_us: the time.

        Raises:
            GroupFenced: it is no member, or not of this life of the group.
        """
        told = self.tell(member, generation, owned, now_us)
        self._members.hear(member, now_us)
        return told

    def tell(
        self, member: bytes, generation: int, owned: Collection[bytes], now_us: int
    ) -> Heartbeat:
        """As `heartbeat`, which was sent before: it is no sign that the member lives still.

        Raises:
            GroupFenced: as there.
        """
        self._members.get(member)
        if not 0 <= generation <= self.generation:
            raise GroupFenced(self.definition.name, f"there is no generation {generation} yet")
        self._progress.settle(now_us)
        told = self._progress.heartbeat(member, generation, owned)
        return Heartbeat(self.generation, *told)

    def hear(self, member: bytes, now_us: int) -> None:
        """Count a sign of life that is no heartbeat.

        Raises:
            GroupFenced: it is no member.
        """
        self._members.hear(member, now_us)

    def excuse(self, now_us: int) -> None:
        """Count members as heard of, and what they hold as worked on: nobody could be heard.

        Not those of whom nothing was heard since the last time.
        """
        members = self._members.excuse(now_us)
        if isinstance(self._progress, Shared):
            self._progress.excuse(members, now_us)

    def leave(self, member: bytes, now_us: int) -> None:
        """Let a member go; what it had is handed on at once.

        Raises:
            GroupFenced: it is none.
        """
        self._members.leave(member, now_us)
        self._progress.leave(member, now_us)
        self._progress.settle(now_us)

    def expire(self, now_us: int) -> list[GroupEvent]:
        """Do what time has brought: end silent members, hand on what is due; tell what it was."""
        told_count = self._journal.told_count
        for member in self._members.expire(now_us):
            self._progress.lose(member, now_us)
        self._progress.settle(now_us)
        return self._journal.since(told_count)

    def next_deadline_us(self) -> int | None:
        """Return when to call `expire` next; None: not before something else was called."""
        return earliest(self._members.next_deadline_us(), self._progress.next_deadline_us())

    def take_news(self) -> set[bytes]:
        """Return the members whose next heartbeat would tell them something new; each one once.

        For those who hold back the answer to a heartbeat until there is something to say.
        """
        return self._progress.take_news()

    def reset(self, positions: Mapping[bytes, int], now_us: int, *, force: bool = False) -> None:
        """Go on behind these pointers, wherever the units were; other units stay as they are.

        With `force` all members are ended, and have to join anew.

        Raises:
            GroupActive: there are members, and no force.
            OptionError: one is no pointer.
        """
        for pointer in positions.values():
            check_pointer(pointer)
        if len(self._members) and not force:
            raise GroupActive(self.definition.name, len(self._members))
        for member in self._members.clear("the group was reset", now_us):
            self._progress.leave(member, now_us)
        self._journal.advance()
        self._progress.reset(positions)
        self._progress.settle(now_us)
        self._journal.tell(now_us, "reset", f"{len(positions)} units")

    def pause(self, now_us: int) -> None:
        """Hand nothing out from now on; what is held may be finished."""
        self._pause(now_us, is_paused=True)

    def resume(self, now_us: int) -> None:
        """Go on after a pause."""
        self._pause(now_us, is_paused=False)

    def floor(self, unit: bytes) -> int | None:
        """Return the pointer up to which all of a unit is done; None where nothing is known."""
        return self._progress.floor(unit)

    def describe(self) -> dict[str, Any]:
        """Return what is to be told of the group, as msgpack can hold it; times, not ages.

        Its id is told to nobody: who puts under it would pass for the group, and have its dead
        letters refused.
        """
        defined = self.definition.as_map()
        del defined["id"]
        return {
            **defined,
            "generation": self.generation,
            **self._progress.describe(),
            **({"state": "paused"} if self.is_paused else {}),
            "members": [
                {
                    "id": member.info.id,
                    "name": member.info.name,
                    "instance": member.info.instance,
                    "topics": list(member.info.topics or self.definition.topics),
                    "joined_us": member.joined_us,
                    **self._progress.describe_member(member.info.id),
                }
                for member in self._members
            ],
            "events": [list(event) for event in self._journal.events],
        }

    def _pause(self, now_us: int, *, is_paused: bool) -> None:
        if self.is_paused == is_paused:
            return
        self.is_paused = is_paused
        self._journal.note(["paused", is_paused])
        self._journal.tell(now_us, "paused" if is_paused else "resumed", "")
        self._progress.pause(now_us, is_paused=is_paused)
        self._progress.settle(now_us)
