"""Ways to break groups on purpose; otherwise as `mutants.py`."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from poe.broker.groups.dead_letters import DeadLetters
from poe.broker.groups.journal import Journal
from poe.broker.groups.lease import Lease
from poe.broker.groups.ordered import Ordered
from poe.broker.groups.ownership import Ownership
from poe.broker.groups.shared import Shared
from poe.broker.groups.shared_image import Progress

GroupMutant = Literal[
    "group-blame-all",
    "group-blame-company",
    "group-no-fence",
    "group-floor-jumps",
    "group-keep-leases",
    "group-two-owners",
    "group-forget-failures",
    "group-old-life",
    "group-same-letters",
]


def _blame_all(patch: Any) -> None:
    """Count an attempt for all that a dead member held, innocent or not."""
    expire = Shared._expire

    def blame(self: Any, lease: Lease, now_us: int) -> None:
        lease.count, lease.is_alone = 1, True
        expire(self, lease, now_us)

    patch(Shared, "_expire", blame)


def _blame_company(patch: Any) -> None:
    """Count an attempt for a single message, whatever its member held beside it."""
    expire = Shared._expire

    def blame(self: Any, lease: Lease, now_us: int) -> None:
        lease.is_alone = True
        expire(self, lease, now_us)

    patch(Shared, "_expire", blame)


def _no_fence(patch: Any) -> None:
    """Take positions of whoever sends them."""

    def commit(
        self: Any, _member: bytes, _generation: int, positions: Mapping[bytes, Any], _now_us: int
    ) -> dict[bytes, int]:
        self._take(positions)
        return {unit: pointer for unit, (pointer, _) in positions.items()}

    patch(Ordered, "commit", commit)


def _floor_jumps(patch: Any) -> None:
    """Take what is acknowledged last for done up to there."""

    def finish(self: Any, _after: int, last: int) -> None:
        self.floor = max(self.floor, last)

    patch(Progress, "finish", finish)


def _keep_leases(patch: Any) -> None:
    """Leave with a member what it held when it left."""
    patch(Shared, "leave", lambda self, member, _now_us: self._let_go(member))


def _two_owners(patch: Any) -> None:
    """Grant a unit to the next owner before the last one has released it."""
    settle = Ownership.settle

    def settle_at_once(self: Any, now_us: int) -> None:
        settle(self, now_us)
        for owner, units in self._leaving.items():
            for unit in units:
                del self._grants[owner][unit], self._owners[unit]
        self._leaving = {}
        self._grant(each for each in self._target.items() if each[0] not in self._owners)

    patch(Ownership, "settle", settle_at_once)


def _forget_failures(patch: Any) -> None:
    """Keep attempts in memory alone."""
    note = Journal.note

    def forget(self: Any, change: list[Any]) -> None:
        if change[0] != "failed":
            note(self, change)

    patch(Journal, "note", forget)


def _old_life(patch: Any) -> None:
    """Count lives by what is left of the log alone, of which a power cut has taken the end."""

    def begin(self: Any, _now_us: int) -> None:
        self.advance()

    patch(Journal, "begin_life", begin)


def _same_letters(patch: Any) -> None:
    """Number dead letters by what is left of the log alone."""
    add = DeadLetters.add

    def go_on(self: Any, *args: Any) -> None:
        life_us, self._journal.life_us, self._last_us = self._journal.life_us, 0, args[-1]
        add(self, *args)
        self._journal.life_us = life_us

    patch(DeadLetters, "add", go_on)


GROUP_MUTANTS: dict[str, Callable[[Any], None]] = {
    "group-blame-all": _blame_all,
    "group-blame-company": _blame_company,
    "group-no-fence": _no_fence,
    "group-floor-jumps": _floor_jumps,
    "group-keep-leases": _keep_leases,
    "group-two-owners": _two_owners,
    "group-forget-failures": _forget_failures,
    "group-old-life": _old_life,
    "group-same-letters": _same_letters,
}
assert set(GROUP_MUTANTS) == set(get_args(GroupMutant))
