"""Turn what happens to groups into messages of the topic `poe.groups`, and back.

Each message is of one group. Its state is the newest snapshot and the changes behind that one; a
snapshot before it is kept, should the newest be damaged.

Layout (msgpack):
    array of 5:
        kind     1 snapshot, 2 changes, 3 deleted; 4 a claim to coordinate, where nodes do so
        name     str
        id       bin, 16 bytes: of a group that was deleted and made anew, another one
        number   of changes: how many the group had before the first of them; of a claim: the time
                 at its node, in microseconds; else 0
        content  a map, an array of changes, or nil; of a claim the name of its node
"""

import contextlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.broker.groups.options import GroupDefinition
from poe.broker.groups.state import GroupState
from poe.errors import CorruptGroup, GroupMismatch, PoeError

GROUPS_TOPIC: Final = b"poe.groups"
DAMAGED: Final = "damaged"
"""In place of the mode of a group that cannot be read."""


_NOTED_US: Final = 60_000_000
"""A change is noted sooner after it was made."""

_SENSELESS = (PoeError, ValueError, TypeError, LookupError, ArithmeticError)
"""What comes of values that no group has written."""
_pack = msgpack.Packer().pack
"""Actors of one loop share it: one that is made for each message costs as much as the packing."""


class Kind(IntEnum):
    """What a message of the log holds."""

    SNAPSHOT = 1
    CHANGES = 2
    DELETED = 3
    CLAIM = 4
    """Of no group."""


class Entry(NamedTuple):
    """A message of the log, whose content is not decoded yet."""

    pointer: int
    kind: int
    name: str
    id: bytes
    number: int
    content: bytes

    @classmethod
    def decode(cls, pointer: int, message: bytes | memoryview) -> "Entry | None":
        """Return the entry that a message holds; None where it is none that we know."""
        try:
            kind, name, group_id, number, content = msgpack.unpackb(message)
        except (TypeError, ValueError, msgpack.UnpackException):
            return None
        if (type(name), type(group_id), type(number), type(content)) != (str, bytes, int, bytes):
            return None
        return cls(pointer, kind, name, group_id, number, content)


def encode(kind: Kind, name: str, group_id: bytes, content: Any, number: int = 0) -> bytes:  # noqa: ANN401 - any msgpack value
    """Return the message that holds something of a group."""
    message: bytes = _pack((int(kind), name, group_id, number, _pack(content)))
    return message


class GroupHistory:
    """The entries of one group that still count: its newest two snapshots, and what follows them.

    Always: `entries` begins with a snapshot, unless the log has lost that; or is empty: of a group
    whose actor has run, which writes on by itself, only the pointers of its snapshots are kept, and
    of one that was deleted nothing.
    """

    __slots__ = ("_pointers", "_summary", "entries")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._pointers: list[int] = []  # of the snapshots, two at most
        self._summary: dict[str, Any] = {}

    @property
    def first_pointer(self) -> int:
        """The pointer of the oldest entry that still counts."""
        return self._pointers[0] if self._pointers else self.entries[0].pointer

    @property
    def is_deleted(self) -> bool:
        """Whether the log says that there is no such group any more."""
        return not (self.entries or self._pointers)

    def add(self, entry: Entry) -> None:
        """Take the next entry of the group; one that a snapshot follows means nothing."""
        if entry.kind == Kind.DELETED:
            self.entries, self._pointers, self._summary = [], [], {}
            return
        is_snapshot = entry.kind == Kind.SNAPSHOT
        if self.entries and entry.id != self.entries[0].id:
            if not is_snapshot:
                return  # of a group that was deleted
            self.entries, self._pointers = [], []
        if is_snapshot:
            self._summary = {}
            self.note_snapshot(entry.pointer)
        self.entries.append(entry)

    def note_snapshot(self, pointer: int) -> None:
        """Keep no more than the snapshot before this one, and what follows it."""
        self._pointers = [*self._pointers[-1:], pointer]
        first = self._pointers[0]
        self.entries = [each for each in self.entries if each.pointer >= first]

    def forget_entries(self) -> None:
        """Let the entries go, since the group's own actor knows them."""
        self.summary()
        self.entries = []

    def summary(self) -> dict[str, Any]:
        """Return name, mode and topics of the group; where it cannot be read, mode `damaged`."""
        if not self._summary:
            self._summary = {"group": self.entries[0].name, "mode": DAMAGED, "topics": []}
            for entry in self.entries:
                if entry.kind == Kind.SNAPSHOT:
                    with contextlib.suppress(*_SENSELESS):
                        self._summary |= _definition(entry)
        return self._summary

    def topics(self) -> tuple[bytes, ...]:
        """Return the topics of the group; none as long as it is being made.

        Raises:
            CorruptGroup: nobody knows them.
        """
        if not (self.entries or self._summary):
            return ()
        has = self.summary()
        if has["mode"] == DAMAGED:
            raise CorruptGroup(has["group"])
        return tuple(has["topics"])

    def check(self, mode: str, topics: tuple[bytes, ...]) -> None:
        """Refuse what somebody takes the group for, if it is not that.

        Raises:
            CorruptGroup: nobody knows.
            GroupMismatch: names both values.
        """
        has = self.summary()
        if has["mode"] == DAMAGED:
            raise CorruptGroup(has["group"])
        if mode != has["mode"]:
            raise GroupMismatch(has["group"], "mode", mode, has["mode"])
        if topics and sorted(topics) != sorted(has["topics"]):
            raise GroupMismatch(has["group"], "topics", list(topics), has["topics"])

    def restore(self, now_us: int = 0, behind_us: int = 0) -> GroupState:
        """Return the state of the group: by the newest snapshot, or else by the one before it.

        Args:
            now_us: the time, where the clock was set back.
            behind_us: how far it is behind the log.

        Raises:
            CorruptGroup: neither can be read.
        """
        for pointer in reversed(self._pointers):
            with contextlib.suppress(*_SENSELESS):
                entries = (each for each in self.entries if each.pointer >= pointer)
                return _replay(entries, now_us, behind_us)
        raise CorruptGroup(self.entries[0].name if self.entries else "")


def _definition(snapshot: Entry) -> dict[str, Any]:
    definition = GroupDefinition.from_map(_unpacked(snapshot)["definition"])
    return {"mode": definition.mode, "topics": list(definition.topics)}


def _unpacked(entry: Entry) -> Any:  # noqa: ANN401 - any msgpack value
    return msgpack.unpackb(entry.content, strict_map_key=False)


def _replay(entries: Iterable[Entry], now_us: int, behind_us: int) -> GroupState:
    """Return what a snapshot and the changes behind it come to; a later snapshot adds nothing."""
    first, *others = entries
    state = GroupState.restore(_unpacked(first))
    for entry in others:
        if entry.kind == Kind.CHANGES:
            changes = _unpacked(entry)
            if behind_us and entry.pointer > now_us:
                changes = [_set_back(each, entry.pointer, behind_us) for each in changes]
            state.replay(entry.number, changes)
    state.check_restored()
    return state


def _set_back(change: list[Any], noted_us: int, behind_us: int) -> list[Any]:
    """Return a change such that it is due when it is by a clock that was set back since.

    What is due long before it was noted was noted by that clock: the log was ahead of it already.
    Only what has a longer pause than the log is ahead is taken for older, and is due sooner. What a
    snapshot holds stays as it is.
    """
    match change:
        case ["failed", unit, after, last, attempts, limit, due_us, reason] if (
            due_us > noted_us - _NOTED_US
        ):
            return ["failed", unit, after, last, attempts, limit, due_us - behind_us, reason]
    return change
