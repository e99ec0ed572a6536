"""The tables of one actor system, by name and by owner."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from poe.actors.actor_cell import ActorCell, LoopAddress
from poe.errors import TableNameTaken
from poe.tables.rows import Rows, TableKind, copied


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
    owner: ActorCell
    heir: ActorCell | None = None
    heir_data: object = None


class TableRegistry:
    """Knows the tables of a system; used under its lock.

    Invariants: a name belongs to at most one table; every table is in `_owned` under its live
    owner, so that none outlives all who could delete it.
    """

    def __init__(self, announce: Callable[[TableRecord, LoopAddress, object], None]) -> None:
        """Begin without tables; `announce(record, giver, data)` tells an actor that it owns one."""
        self._announce = announce
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

    def transfer(self, record: TableRecord, receiver: ActorCell, data: object) -> None:
        """Make another actor the owner of a table and tell it."""
        giver = record.owner
        self._disown(record)
        record.owner = receiver
        self._owned.setdefault(receiver, {})[record] = None
        self._announce(record, giver.address, data)

    def pass_on(self, owner: ActorCell) -> None:
        """Give the tables of an actor that has ended to their heirs; those without one are gone."""
        for record in list(self._owned.get(owner, ())):
            heir = record.heir
            if heir is None or heir.instance is None:
                self.remove(record)
            else:
                self.transfer(record, heir, _copied_if_possible(record.heir_data))

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


def _copied_if_possible(data: object) -> object:
    """Return a copy of what was copied before; who was to hear of an end must not wait for ever."""
    try:
        return copied(data)
    except Exception:  # noqa: BLE001 - a foreign `__deepcopy__`, or it lies too deep
        return data
