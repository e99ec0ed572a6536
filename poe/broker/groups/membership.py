"""Who the members of a group are, and since when they were not heard of.

A member is one start of a client's process. Each has a deadline, which moves with each sign of
life.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from poe.broker.groups.deadlines import Deadlines
from poe.broker.groups.journal import Journal
from poe.broker.groups.options import (
    ID_BYTES,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    GroupDefinition,
    check_bytes,
    check_patterns,
    check_topics,
)
from poe.errors import GroupFenced, GroupFull, OptionError

_GONE_COUNT_MAX: Final = 1000
"""Members that were, of whom is known why they are no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """What a member says of itself when it joins.

    Raises:
        OptionError: on construction, saying what is not allowed.
    """

    id: bytes
    """16 bytes, which no other start of a client has."""

    name: str = ""
    """For people."""

    instance: str | None = None
    """What outlives the process: a member of the same instance is replaced by this one, which
    gets its units."""

    topics: tuple[bytes, ...] | None = None
    """Of those of the group, names or patterns; None: all."""

    metadata: bytes = b""
    """Kept, and not looked into."""

    def __post_init__(self) -> None:
        """Refuse what no member may say of itself."""
        check_bytes("member", self.id, ID_BYTES, ID_BYTES)
        check_bytes("metadata", self.metadata, 0, METADATA_BYTES_MAX)
        for key, text in (("name", self.name), ("instance", self.instance)):
            if not isinstance(text, str | None):
                raise OptionError(key, text, "text")
            if text is not None and len(text) > NAME_BYTES_MAX:
                raise OptionError(key, f"of {len(text)} characters", f"{NAME_BYTES_MAX} at most")
        if self.topics is not None:
            check_topics(self.topics)
            check_patterns(self.topics)

    def __str__(self) -> str:
        return f"{self.name!r} ({self.id.hex()[:8]})"


class Member:
    """A member as it is now; what it said of itself, and when it is one no more."""

    __slots__ = ("deadline_us", "info", "is_excused", "joined_us")

    def __init__(self, info: MemberInfo, joined_us: int, deadline_us: int) -> None:
        self.info = info
        self.joined_us = joined_us
        self.deadline_us = deadline_us
        self.is_excused = False
        """Whether it was excused, and nothing was heard of it since."""


class Membership:
    """The members of one group, in the order in which they came.

    Always: no two have the same instance.
    """

    __slots__ = (
        "_deadlines",
        "_definition",
        "_gone",
        "_instances",
        "_journal",
        "_members",
        "_session_us",
    )

    def __init__(self, definition: GroupDefinition, journal: Journal) -> None:
        self._definition = definition
        self._session_us = round(definition.options.session_s * 1e6)
        self._journal = journal
        self._members: dict[bytes, Member] = {}
        self._instances: dict[str, Member] = {}
        self._deadlines: Deadlines[Member] = Deadlines()
        self._gone: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member: bytes) -> bool:
        return member in self._members

    def get(self, member: bytes) -> Member:
        """Return a member.

        Raises:
            GroupFenced: it is none; it says why, if that is still known.
        """
        found = self._members.get(member)
        if found is None:
            raise self.fenced(member)
        return found

    def fenced(self, member: bytes) -> GroupFenced:
        """Return the error for who is no member."""
        return GroupFenced(self._definition.name, self._gone.get(member, "it is not known"))

    def hear(self, member: bytes, now_us: int) -> Member:
        """Count a sign of life of a member, and return it.

        Raises:
            GroupFenced: it is none.
        """
        found = self.get(member)
        found.deadline_us = now_us + self._session_us
        found.is_excused = False
        return found

    def excuse(self, now_us: int) -> list[bytes]:
        """Count as heard of now who was heard of since it was excused last; return who that is.

        Of the others nothing may ever be heard: they would stay as long as nobody can be.
        """
        excused = [each for each in self if not each.is_excused]
        for found in excused:
            found.deadline_us = now_us + self._session_us
            found.is_excused = True
        return [found.info.id for found in excused]

    def join(self, info: MemberInfo, now_us: int) -> bytes | None:
        """Take a member in, or what it says of itself anew; return the one that it replaces.

        Raises:
            GroupFull: there are `members_max` of them.
        """
        member = info.id
        found = self._members.get(member)
        replaced = None if info.instance is None else self._instances.get(info.instance)
        if replaced is found:
            replaced = None
        limit = self._definition.options.members_max
        if found is None and replaced is None and len(self._members) >= limit:
            raise GroupFull(self._definition.name, "members_max", limit)
        if replaced is not None:
            self._remove(replaced, "replaced", "another start of its instance has joined", now_us)
        if found is None:
            found = self._members[member] = Member(info, now_us, now_us + self._session_us)
            self._deadlines.add(found)
            self._gone.pop(member, None)
        elif found.info.instance is not None:
            del self._instances[found.info.instance]
        found.info = info
        if info.instance is not None:
            self._instances[info.instance] = found
        self.hear(member, now_us)
        self._journal.tell(now_us, "joined", f"member {info}")
        return None if replaced is None else replaced.info.id

    def leave(self, member: bytes, now_us: int) -> None:
        """Let a member go.

        Raises:
            GroupFenced: it is none.
        """
        self._remove(self.get(member), "left", "it left", now_us)

    def expire(self, now_us: int) -> list[bytes]:
        """End the members that were not heard of for a session; return them."""
        expired = []
        while (found := self._deadlines.over(now_us)) is not None:
            silent_s = (now_us - found.deadline_us) / 1e6 + self._definition.options.session_s
            self._remove(found, "expired", f"nothing was heard of it for {silent_s:.1f} s", now_us)
            expired.append(found.info.id)
        return expired

    def clear(self, why: str, now_us: int) -> list[bytes]:
        """End all of them; return them."""
        ended = list(self)
        for found in ended:
            self._remove(found, "ended", why, now_us)
        return [found.info.id for found in ended]

    def next_deadline_us(self) -> int | None:
        """Return when to look for members that have expired; None without members."""
        return self._deadlines.next_us()

    def _remove(self, found: Member, kind: str, why: str, now_us: int) -> None:
        info = found.info
        del self._members[info.id]
        self._deadlines.drop(found)
        if info.instance is not None:
            del self._instances[info.instance]
        self._gone[info.id] = why
        if len(self._gone) > _GONE_COUNT_MAX:
            del self._gone[next(iter(self._gone))]
        self._journal.tell(now_us, kind, f"member {info}: {why}")
