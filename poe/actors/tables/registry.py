"""The tables of one actor system, by name and by owner."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from poe.actors.tables.rows import Rows, TableKind
from poe.errors import TableNameTaken

if TYPE_CHECKING:
    from poe.actors.actor_cell import ActorCell


class TableAccess(StrEnum):
    """What actors other than the owner may do with a table."""

    PRIVATE = "private"
    """Nothing."""
    PROTECTED = "protected"
    """Read."""
    PUBLIC = "public"
    """Read and write, and delete the table too."""


@dataclass(slots=True, eq=False)
class TableRecord:
    """One table, whoever looks at it; `rows` is None once it is gone."""

    name: str | None
    kind: TableKind
    access: TableAccess
    rows: Rows | None
    owner: "ActorCell"
    heir: "ActorCell | None" = None
    heir_data: object = None


class TableRegistry:
    """Knows the tables of a system; used under its lock.

    Invariants: a name belongs to at most one table; every table is in `_owned` under its live
    owner, so that none outlives all who could delete it.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, TableRecord] = {}
        self._owned: dict[ActorCell, dict[TableRecord, None]] = {}

    def add(self, record: TableRecord) -> None:
        """Take a new table in.

        Raises:
            TableNameTaken: another table has its name.
        """
        self.set_name(record, record.name)
        self._owned.setdefault(record.owner, {})[record] = None

    def find(self, name: str) -> TableRecord | None:
        """Return the table of a name, or None."""
        return self._by_name.get(name)

    def set_name(self, record: TableRecord, name: str | None) -> None:
        """Give a table another name.

        Raises:
            TableNameTaken: a table has it.
        """
        if name is not None:
            if name in self._by_name:
                raise TableNameTaken(name)
            self._by_name[name] = record
        if record.name is not None and record.name != name:
            del self._by_name[record.name]
        record.name = name

    def set_owner(self, record: TableRecord, owner: "ActorCell") -> None:
        """Give a table to another actor."""
        self._disown(record)
        record.owner = owner
        self._owned.setdefault(owner, {})[record] = None

    def remove(self, record: TableRecord) -> None:
        """Forget a table and its rows."""
        self._disown(record)
        if record.name is not None:
            del self._by_name[record.name]
        record.rows = None

    def _disown(self, record: TableRecord) -> None:
        owned = self._owned[record.owner]
        del owned[record]
        if not owned:
            del self._owned[record.owner]

    def has_owner(self, cell: "ActorCell") -> bool:
        """Tell whether an actor owns tables."""
        return cell in self._owned

    def owned_by(self, owner: "ActorCell") -> list[TableRecord]:
        """Return an actor's tables, oldest first."""
        return list(self._owned.get(owner, ()))
