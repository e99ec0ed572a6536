"""Which member owns which unit now, and how units pass from one to another.

Strategy: a target says what is to be whose. A unit whose owner is to give it up stays the owner's
until that says that it has done so, or is no member any more; then it is granted to the next one,
in a generation that is greater than that of any grant before. Targets are not made for each member
that comes: what comes within a short while of the last one waits for the next.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from poe.broker.groups.assignment import Units, assign
from poe.broker.groups.journal import Journal
from poe.broker.groups.options import matches

PAUSE_US: Final = 20_000
"""From one target to the next, at least."""

_PAUSE_FACTOR = 10
"""A target takes about a microsecond for each unit and member, for each topic of each wish, and for
each topic that is compared with a pattern: a tenth of the time then."""

_KEPT_COUNT_MAX = 20_000
"""Wishes and patterns whose topics are kept, of members that have left, too."""


class Ownership:
    """The owners of the units of one group, and those that are to be.

    Always: a unit has one owner or none; the generations of its grants grow.
    """

    __slots__ = (
        "_causes",
        "_compared_count",
        "_due_us",
        "_free_us",
        "_grants",
        "_is_paused",
        "_journal",
        "_leaving",
        "_matches",
        "_news",
        "_owners",
        "_target",
        "_topics",
        "_units",
        "_wishes",
        "_withdrawn",
    )

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._units: Units = {}
        self._matches: dict[bytes, frozenset[bytes]] = {}
        """The topics of each pattern; forgotten when there are other ones."""
        self._topics: dict[tuple[bytes, ...] | None, frozenset[bytes]] = {}
        """Of each wish, likewise."""
        self._compared_count = 0
        """How often a topic was compared with a pattern."""
        self._wishes: dict[bytes, tuple[bytes, ...] | None] = {}
        self._grants: dict[bytes, dict[bytes, int]] = {}
        self._leaving: dict[bytes, set[bytes]] = {}
        self._owners: dict[bytes, bytes] = {}
        self._target: dict[bytes, bytes] = {}
        self._withdrawn: set[bytes] = set()
        """Units that their owners are to give up, whoever is to have them then."""
        self._is_paused = False
        self._free_us = 0
        self._due_us: int | None = None
        self._news: set[bytes] = set()
        self._causes: Counter[str] = Counter()
        """What the next target is made for, and how often it has happened."""

    def set_units(self, units: Units, now_us: int) -> None:
        """Say which units there are."""
        if units != self._units:
            self._units = units
            self._matches.clear()
            self._topics.clear()
            self._change("units", now_us)

    def pause(self, now_us: int, *, is_paused: bool) -> None:
        """Have all units given up, or have them owned again."""
        self._is_paused = is_paused
        self._change("paused" if is_paused else "resumed", now_us)

    def add(self, member: bytes, wishes: tuple[bytes, ...] | None, now_us: int) -> None:
        """Take a member in, which wants some topics, by names or patterns; None: all of them."""
        is_known = member in self._wishes and self._wishes[member] == wishes
        self._wishes[member] = wishes
        self._grants.setdefault(member, {})
        if not is_known:
            self._change("joined", now_us)

    def remove(self, member: bytes, now_us: int) -> None:
        """Let go of a member, and of all that it owned."""
        del self._wishes[member]
        self._leaving.pop(member, None)
        self._news.discard(member)
        for unit in self._grants.pop(member):
            self._release(unit)
        self._change("left", now_us)

    def withdraw(self, units: Iterable[bytes], now_us: int) -> None:
        """Have units given up by who owns them, who may get them anew."""
        withdrawn = self._owners.keys() & set(units)
        if withdrawn:
            self._withdrawn |= withdrawn
            self._change("withdrawn", now_us)

    def is_withdrawn(self, unit: bytes) -> bool:
        """Return whether the owner of a unit is to give it up, and not to say how far it is."""
        return unit in self._withdrawn

    def replace(self, old: bytes, new: bytes, now_us: int) -> None:
        """Let a member, which is new or not, have what another one had, which goes."""
        inherited = [*self._grants[old]]
        for unit, member in self._target.items():
            if member == old:
                self._target[unit] = new
        self._wishes[new] = self._wishes[old]
        self._grants.setdefault(new, {})
        self.remove(old, now_us)
        self._grant((unit, self._target[unit]) for unit in inherited if unit in self._target)

    def grants(self, member: bytes) -> Mapping[bytes, int]:
        """Return the units that a member owns, and in which generation it got each."""
        return self._grants[member]

    def owner(self, unit: bytes) -> bytes | None:
        """Return the member that owns a unit."""
        return self._owners.get(unit)

    def settle(self, now_us: int) -> None:
        """Make a new target, if one is due."""
        if self._due_us is None or now_us < self._due_us:
            return
        self._due_us, self._compared_count = None, 0
        wanted = {} if self._is_paused else self._wanted()
        self._target = assign(self._units, wanted, self._target)
        if self._wishes:
            topics_count = len(self._units) + sum(map(len, set(wanted.values())))
            work_count = len(self._owners) + len(self._wishes) + topics_count
            work_count += self._compared_count
            self._free_us = now_us + max(PAUSE_US, _PAUSE_FACTOR * work_count)
        leaving: dict[bytes, set[bytes]] = {}
        for unit, owner in self._owners.items():
            if self._target.get(unit) != owner or unit in self._withdrawn:
                leaving.setdefault(owner, set()).add(unit)
        changed = self._leaving.keys() | leaving.keys()
        self._news |= {each for each in changed if self._leaving.get(each) != leaving.get(each)}
        self._leaving = leaving
        self._tell(now_us)
        self._grant(each for each in self._target.items() if each[0] not in self._owners)

    def next_deadline_us(self) -> int | None:
        """Return when the next target is due; None where nothing has changed."""
        return self._due_us

    def heartbeat(
        self, member: bytes, generation: int, owned: Collection[bytes]
    ) -> tuple[list[bytes], list[bytes]]:
        """Take what a member says that it owns; return what it may own, and what it is to give up.

        What it does not name any more is not its own from now on, unless it was granted in a later
        generation than the member knows of. Where it is to have that all the same, it is granted
        anew: it may have been told to give it up, and begins where others might have been.
        """
        claimed = set(owned)
        grants = self._grants[member]
        leaving = self._leaving.get(member, set())
        released = [
            unit for unit, since in grants.items() if unit not in claimed and since <= generation
        ]
        for unit in released:
            del grants[unit]
            self._release(unit)
            leaving.discard(unit)
        if not leaving:
            self._leaving.pop(member, None)
        self._grant((unit, self._target[unit]) for unit in released if unit in self._target)
        self._news.discard(member)
        keep = [unit for unit in grants if unit not in leaving]
        return sorted(keep), sorted(leaving | claimed - grants.keys())

    def take_news(self) -> set[bytes]:
        """Return the members whose next heartbeat would tell them something new; each one once."""
        news = self._news
        self._news = set()
        return news

    def _tell(self, now_us: int) -> None:
        """Tell what is about to change, and why."""
        free_count = sum(unit not in self._owners for unit in self._target)
        moving_count = sum(map(len, self._leaving.values()))
        causes = ", ".join(f"{times} {cause}" for cause, times in sorted(self._causes.items()))
        self._causes.clear()
        if free_count or moving_count:
            text = f"{free_count} units are granted, {moving_count} to be given up ({causes})"
            self._journal.tell(now_us, "assigned", text)

    def _change(self, cause: str, now_us: int) -> None:
        """Have a new target made: now, or a while after the last one."""
        self._causes[cause] += 1
        if self._due_us is None:
            self._due_us = max(now_us, self._free_us)

    def _release(self, unit: bytes) -> None:
        """Have a unit owned by nobody."""
        del self._owners[unit]
        self._withdrawn.discard(unit)

    def _grant(self, grants: Iterable[tuple[bytes, bytes]]) -> None:
        """Give units that nobody owns to members, all in one new generation."""
        pairs = sorted((unit, member) for unit, member in grants if member in self._grants)
        if not pairs:
            return
        generation = self._journal.advance()
        for unit, member in pairs:
            self._owners[unit] = member
            self._grants[member][unit] = generation
            self._news.add(member)

    def _wanted(self) -> dict[bytes, frozenset[bytes]]:
        """Return the topics that each member wants."""
        if len(self._topics) + len(self._matches) > _KEPT_COUNT_MAX:
            self._topics.clear()
            self._matches.clear()
        wanted = {}
        for member, wishes in self._wishes.items():
            if wishes not in self._topics:
                self._topics[wishes] = self._topics_of(wishes)
            wanted[member] = self._topics[wishes]
        return wanted

    def _topics_of(self, wishes: tuple[bytes, ...] | None) -> frozenset[bytes]:
        """Return the topics that a wish stands for."""
        if wishes is None:
            return frozenset(self._units)
        return frozenset().union(*map(self._matching, wishes))

    def _matching(self, pattern: bytes) -> frozenset[bytes]:
        """Return the topics that a pattern stands for, or that has this name."""
        if b"*" not in pattern:
            return frozenset([pattern] if pattern in self._units else ())
        if pattern not in self._matches:
            found = frozenset(topic for topic in self._units if matches(pattern, topic))
            self._matches[pattern] = found
            self._compared_count += len(self._units)
        return self._matches[pattern]
