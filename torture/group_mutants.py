"""Ways to break groups on purpose; otherwise as `mutants.py`."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, get_args

from poe.broker.coordinator.group import Group
from poe.broker.coordinator.group_log import GroupHistory
from poe.broker.groups.dead_letters import DeadLetters
from poe.broker.groups.journal import Journal
from poe.broker.groups.lease import Lease
from poe.broker.groups.ordered import Ordered
from poe.broker.groups.ownership import Ownership
from poe.broker.groups.returned import ReturnedRanges, Why
from poe.broker.groups.shared import Shared
from poe.broker.groups.shared_image import Progress, SharedImage

_LATER_COUNT = 5

GroupMutant = Literal[
    "group-blame-all",
    "group-blame-company",
    "group-no-fence",
    "group-floor-jumps",
    "group-keep-leases",
    "group-two-owners",
    "group-same-generation",
    "group-no-places",
    "group-no-news",
    "group-keep-deleted",
    "group-no-deadline",
    "group-too-soon",
    "group-early-letters",
    "group-forget-failures",
    "group-old-life",
    "group-same-letters",
    "group-answer-first",
    "group-old-snapshot",
    "group-lease-to-two",
    "group-forget-done",
]


def _blame_all(patch: Any) -> None:
    """Count an attempt for all that a dead member held, innocent or not."""
    expire = Shared._expire

    def blame(self: Any, lease: Lease, why: Why, now_us: int) -> None:
        lease.count, lease.is_alone = 1, True
        expire(self, lease, why, now_us)

    patch(Shared, "_expire", blame)


def _blame_company(patch: Any) -> None:
    """Count an attempt for a single message, whatever its member held beside it."""
    expire = Shared._expire

    def blame(self: Any, lease: Lease, why: Why, now_us: int) -> None:
        lease.is_alone = True
        expire(self, lease, why, now_us)

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

    def finish(self: Any, _after: int, last: int) -> int:
        self.floor = max(self.floor, last)
        return 0

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


def _same_generation(patch: Any) -> None:
    """Let who gave a unit up, and may keep it after all, begin anew in the same generation."""
    heartbeat = Ownership.heartbeat

    def hear(self: Any, member: bytes, generation: int, owned: Collection[bytes]) -> Any:
        kept = self._grants[member].keys() - self._leaving.get(member, set())
        return heartbeat(self, member, generation, [*owned, *kept])

    patch(Ownership, "heartbeat", hear)


def _no_places(patch: Any) -> None:
    """Have who is granted a unit begin as if nobody had ever been there."""
    heartbeat = Ordered.heartbeat

    def forget(self: Any, *said: Any) -> Any:
        keep, revoke, granted = heartbeat(self, *said)
        told = {unit: each._replace(position=None) for unit, each in granted.items()}
        return keep, revoke, told

    patch(Ordered, "heartbeat", forget)


def _no_news(patch: Any) -> None:
    """Tell those who wait only when their time is over."""
    patch(Ownership, "take_news", lambda _: set())


def _keep_deleted(patch: Any) -> None:
    """Leave with its owner a unit that is deleted."""
    patch(Ownership, "withdraw", lambda *_: None)


def _no_deadline(patch: Any) -> None:
    """Set no alarm for what is to be tried again."""
    patch(ReturnedRanges, "next_due_us", lambda _: None)


def _too_soon(patch: Any) -> None:
    """Hand out what has failed at once."""
    give_back = Shared._give_back

    def forget_delay(self: Any, lease: Any, bounds: Any, said: Any, now_us: int) -> None:
        give_back(self, lease, bounds, (*said[:4], 0.0, said[5]), now_us)

    patch(Shared, "_give_back", forget_delay)


def _early_letters(patch: Any) -> None:
    """Count the last attempt of a message before it was made."""
    fail = Shared._fail

    def fail_early(self: Any, unit: bytes, bounds: Any, failures: Any, *rest: Any) -> None:
        is_last = failures.attempts + 1 >= self._definition.options.attempts_max
        if is_last:
            self._die(unit, bounds, failures, rest[-1])
        else:
            fail(self, unit, bounds, failures, *rest)

    patch(Shared, "_fail", fail_early)


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


def _answer_first(patch: Any) -> None:
    """Answer before a change is written, which comes when there are some."""
    write = Group._write

    def begin_later(self: Any) -> None:
        self._unwritten += self._state.take_changes()

    async def write_later(self: Any, *_: Any, **_named: Any) -> None:
        self._unwritten += self._state.take_changes()
        if len(self._unwritten) > _LATER_COUNT:
            await write(self)

    patch(Group, "_begin_write", begin_later)
    patch(Group, "_write", write_later)


def _old_snapshot(patch: Any) -> None:
    """Restore a group of the older one of its snapshots, and of what follows up to the newer."""
    restore = GroupHistory.restore

    def restore_older(self: Any) -> Any:
        if len(self._pointers) > 1:
            self.entries = [each for each in self.entries if each.pointer < self._pointers[-1]]
            self._pointers = self._pointers[:1]
        return restore(self)

    patch(GroupHistory, "restore", restore_older)


def _lease_to_two(patch: Any) -> None:
    """Hand the same messages out to whoever asks."""
    hand_out = Shared.hand_out  # `leased` calls it, too

    def lease(self: Any, want: Any, *rest: Any) -> Lease | None:
        made = hand_out(self, want, *rest)
        if made is not None and want.returned is None:
            self._progress[want.unit].next = want.after
        return made

    patch(Shared, "hand_out", lease)


def _forget_done(patch: Any) -> None:
    """Leave out of a snapshot what is done behind the floor."""
    snapshot = SharedImage.snapshot

    def forget(self: Any) -> list[Any]:
        units, letters = snapshot(self)
        return [[[name, floor, [], failures] for name, floor, _, failures in units], letters]

    patch(SharedImage, "snapshot", forget)


GROUP_MUTANTS: dict[str, Callable[[Any], None]] = {
    "group-blame-all": _blame_all,
    "group-blame-company": _blame_company,
    "group-no-fence": _no_fence,
    "group-floor-jumps": _floor_jumps,
    "group-keep-leases": _keep_leases,
    "group-two-owners": _two_owners,
    "group-same-generation": _same_generation,
    "group-no-places": _no_places,
    "group-no-news": _no_news,
    "group-keep-deleted": _keep_deleted,
    "group-no-deadline": _no_deadline,
    "group-too-soon": _too_soon,
    "group-early-letters": _early_letters,
    "group-forget-failures": _forget_failures,
    "group-old-life": _old_life,
    "group-same-letters": _same_letters,
    "group-answer-first": _answer_first,
    "group-old-snapshot": _old_snapshot,
    "group-lease-to-two": _lease_to_two,
    "group-forget-done": _forget_done,
}
assert set(GROUP_MUTANTS) == set(get_args(GroupMutant))
