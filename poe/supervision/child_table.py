"""The children of one supervisor in start order, each with its spec and its slot; plain data.

A slot says how the child is: a ref (running), None (specified, not running) or `RESTARTING` (a
restart failed and another try is queued). The table finds a child by key and by ref in constant
time, so that a supervisor of many children handles an exit as fast as one of three. It never looks
into a ref.

Invariant: `by_ref` holds exactly the keys whose slot is a ref.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from poe.supervision.child_spec import ChildSpec


class SlotState(Enum):
    """What a slot holds that has neither an actor nor nothing."""

    RESTARTING = "restarting"


RESTARTING: Final = SlotState.RESTARTING
"""In place of a ref: a restart of the child failed, and another try is queued."""

Ref = Hashable
"""The address of a child; opaque to everything that decides."""

Slot = Ref | SlotState | None


@dataclass(slots=True)
class CrashRecord:
    """What a supervisor remembers of the crashes of one child, or of all its children together."""

    restarts: int = 0
    """How often it was started again, alone or with its group."""
    last_reason: str = ""
    """Why it last ended or did not start, as in a report; empty before the first time."""


@dataclass(slots=True)
class Child:
    """One row: what the user asked for, and how it is now."""

    spec: ChildSpec
    slot: Slot = None
    crashes: CrashRecord = field(default_factory=CrashRecord)

    @property
    def is_running(self) -> bool:
        """Return whether the slot holds a ref; its actor may have ended a moment ago."""
        return self.slot is not None and self.slot is not RESTARTING


class ChildTable:
    """Children by the key of their id, in start order; changed only through its methods."""

    def __init__(self, specs: Iterable[ChildSpec] = ()) -> None:
        self._by_key: dict[Hashable, Child] = {spec.key: Child(spec) for spec in specs}
        self._by_ref: dict[Ref, Hashable] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Child]:
        return iter(self._by_key.values())

    def __getitem__(self, key: Hashable) -> Child:
        return self._by_key[key]

    def get(self, key: Hashable) -> Child | None:
        """Return the child with this key, or None."""
        return self._by_key.get(key)

    def find_ref(self, ref: Ref) -> Child | None:
        """Return the running child with this ref, or None."""
        return self._by_key[self._by_ref[ref]] if ref in self._by_ref else None

    def ids(self) -> list[Hashable]:
        """Return the keys of all ids in start order."""
        return list(self._by_key)

    def add(self, spec: ChildSpec, slot: Slot) -> None:
        """Append a child as the last in start order; its id must be free."""
        assert spec.key not in self._by_key
        self._by_key[spec.key] = Child(spec)
        self.set_slot(spec.key, slot)

    def set_slot(self, key: Hashable, slot: Slot) -> None:
        """Record how a child is from now on."""
        child = self._by_key[key]
        if child.is_running:
            del self._by_ref[child.slot]
        child.slot = slot
        if child.is_running:
            self._by_ref[slot] = key

    def merge(self, specs: Iterable[ChildSpec]) -> None:
        """Take new specs, in their order; children they do not name stay, behind them.

        A child that is named keeps its slot; a new one is not running.
        """
        old = self._by_key
        new = {
            spec.key: replace(old[spec.key], spec=spec) if spec.key in old else Child(spec)
            for spec in specs
        }
        self._by_key = new | {key: child for key, child in old.items() if key not in new}

    def remove(self, key: Hashable) -> None:
        """Forget a child and its spec."""
        self.set_slot(key, None)
        del self._by_key[key]
