"""One actor's view of a table: whose it is, what it is called, and what this actor may do."""

from typing import TYPE_CHECKING, Self

from poe.actors.address import LoopAddress
from poe.actors.tables.registry import TableAccess, TableRecord
from poe.actors.tables.rows import Rows, TableKind, copied
from poe.errors import InvalidTableArgument, TableAccessDenied, TableGone

if TYPE_CHECKING:
    from poe.actors.actor_cell import ActorCell


class TableView:
    """Everything of a `Table` but its rows.

    Two views are equal if they are views of the same table, whoever looks.
    """

    __slots__ = ("_cell", "_record")

    def __init__(self, record: TableRecord, cell: "ActorCell") -> None:
        self._record = record
        self._cell = cell

    def __repr__(self) -> str:
        return f"<table {self._record.name or hex(id(self._record))}>"

    def __eq__(self, other: object) -> bool:
        """Tell whether both are views of the same table."""
        return isinstance(other, TableView) and other._record is self._record

    def __hash__(self) -> int:
        return hash(self._record)

    def __deepcopy__(self, memo: object) -> Self:
        """Return this view: a table in a row or message is named, not copied."""
        return self

    @property
    def name(self) -> str | None:
        """Return the name, or None; of a table that is gone the last one."""
        return self._record.name

    @property
    def owner(self) -> LoopAddress | None:
        """Return who owns the table; None when it is gone."""
        return None if self._record.rows is None else self._record.owner.address

    @property
    def kind(self) -> TableKind:
        """Return the kind of the table."""
        return self._record.kind

    @property
    def is_gone(self) -> bool:
        """Tell whether the table was deleted or has ended with its owner."""
        return self._record.rows is None

    def __len__(self) -> int:
        """Count the rows; whoever may not read them may do so."""
        return len(self._rows())

    def __bool__(self) -> bool:
        """Return True: an empty table is still a table."""
        return True

    def rename(self, name: str) -> None:
        """Give the table another name.

        Raises:
            TableNameTaken: a table has it.
        """
        self._writable()
        self._cell.system.tables.set_name(self._record, name)

    def drop(self) -> None:
        """Delete the table."""
        self._writable()
        self._cell.system.tables.remove(self._record)

    def set_heir(self, heir: LoopAddress | None, data: object = None) -> None:
        """Say who gets the table when its owner ends; None: nobody. Only the owner may."""
        self._owned()
        self._record.heir, self._record.heir_data = heir and heir.cell, copied(data)

    # ---- who may ------------------------------------------------------------------------------

    def _rows(self) -> Rows:
        rows = self._record.rows
        if rows is None:
            raise TableGone(self._record.name)
        return rows

    def _readable(self) -> Rows:
        record = self._record
        if record.access is TableAccess.PRIVATE and record.owner is not self._cell:
            raise self._denied("read")
        return self._rows()

    def _writable(self) -> Rows:
        record = self._record
        if record.access is not TableAccess.PUBLIC and record.owner is not self._cell:
            raise self._denied("write")
        return self._rows()

    def _writable_set(self) -> Rows:
        rows = self._writable()
        if rows.is_bag:
            raise InvalidTableArgument("table", self, "a table with one row a key")
        return rows

    def _owned(self) -> Rows:
        if self._record.owner is not self._cell:
            raise self._denied("own")
        return self._rows()

    def _denied(self, operation: str) -> TableAccessDenied | TableGone:
        record = self._record
        if record.rows is None:
            return TableGone(record.name)
        return TableAccessDenied(record.name, str(record.access), operation)
