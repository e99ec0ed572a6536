"""Tables that actors share: read without a message, owned by one actor, inherited by another.

A `Table` is one actor's view of a table; the rows are shared by all views. Every operation is done
when it returns, since only one thread runs actors at a time, and it is checked against what the
view's actor may do. Nothing waits for the owner, which may be busy or suspended.

Source: OTP `ets`. Differences: positions count from 0, keys are hashable values, errors say what is
wrong where ETS says `badarg`, and there are no match specifications but `match`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from poe.actors.actor_cell import ActorCell, LoopAddress, System
from poe.actors.gen_server import GenServer
from poe.errors import InvalidTableArgument, TableAccessDenied, TableGone
from poe.tables.registry import TableAccess, TableRecord, TableRegistry
from poe.tables.rows import Row, Rows, TableKind, copied, make_rows, matching


@dataclass(frozen=True, slots=True)
class TableTransfer:
    """In `handle_info`: this actor owns the table from now on, as a gift or as its heir."""

    table: "Table"
    sender: LoopAddress
    """Who gave it, or whose end left it."""
    data: object
    """What went with the gift, or with the setting of the heir."""


@dataclass(frozen=True, slots=True)
class CounterStep:
    """One change of a counter: add `increment`; past `limit` the counter becomes `reset_to`."""

    index: int
    """Position of the counter in its row, from 0."""
    increment: int = 1
    limit: int | None = None
    """The greatest value, or with a negative increment the least; None: there is none."""
    reset_to: int = 0

    def __post_init__(self) -> None:
        """Refuse what would leave no counter behind.

        Raises:
            InvalidTableArgument: one of them is no integer.
        """
        for name in ("index", "increment", "limit", "reset_to"):
            value = getattr(self, name)
            if not (isinstance(value, int) or (value is None and name == "limit")):
                raise InvalidTableArgument(name, value, "an integer")


class Table:
    """One actor's view of a table; make it with `new`, `find` or `as_seen_by`.

    Two views are equal if they are views of the same table, whoever looks.

    Raises (any operation):
        TableGone: the table was deleted, or its owner has ended without a live heir.
        TableAccessDenied: this actor may not do that.
    """

    __slots__ = ("_cell", "_record")

    def __init__(self, record: TableRecord, cell: ActorCell) -> None:
        self._record = record
        self._cell = cell

    @classmethod
    def new(  # noqa: PLR0913 - each may be set on its own
        cls,
        owner: GenServer,
        name: str | None = None,
        *,
        kind: TableKind = TableKind.SET,
        access: TableAccess = TableAccess.PROTECTED,
        key_index: int = 0,
        heir: LoopAddress | None = None,
        heir_data: object = None,
    ) -> Self:
        """Make an empty table, owned by the actor that asks for it.

        It ends with its owner, unless `heir` is alive then: that gets it, and a `TableTransfer`.

        Raises:
            TableNameTaken: another table has the name.
            InvalidTableArgument: `key_index` is negative, there is no such kind or access, or the
                heir is no actor of the owner's system.
        """
        index: object = key_index
        if not (isinstance(index, int) and index >= 0):
            raise InvalidTableArgument("key_index", key_index, "0 or more")
        for argument, value, choices in ("kind", kind, TableKind), ("access", access, TableAccess):
            if value not in list(choices):
                raise InvalidTableArgument(argument, value, ", ".join(choices))
        cell = owner.ref.cell
        rows = make_rows(TableKind(kind), key_index)
        record = TableRecord(name, TableKind(kind), TableAccess(access), rows, cell)
        record.heir, record.heir_data = _heir_in(cell.system, heir), copied(heir_data)
        _tables_of(cell).add(record)
        return cls(record, cell)

    @classmethod
    def find(cls, actor: GenServer, name: str) -> Self:
        """Return an actor's view of the table with a name.

        Raises:
            TableGone: there is none.
        """
        cell = actor.ref.cell
        record = _tables_of(cell).find(name)
        if record is None:
            raise TableGone(name)
        return cls(record, cell)

    def as_seen_by(self, actor: GenServer) -> "Table":
        """Return another actor's view, for instance of a table that came in a message.

        Raises:
            InvalidTableArgument: the actor lives in another system, which runs beside this one.
        """
        cell = actor.ref.cell
        if cell.system is not self._cell.system:
            raise InvalidTableArgument("actor", actor, "an actor of the table's system")
        return Table(self._record, cell)

    def __repr__(self) -> str:
        return f"<table {self._record.name or hex(id(self._record))}>"

    def __eq__(self, other: object) -> bool:
        """Return whether both are views of the same table."""
        return isinstance(other, Table) and other._record is self._record

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
        """Return whether the table was deleted or has ended with its owner."""
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
        _tables_of(self._cell).set_name(self._record, name)

    def drop(self) -> None:
        """Delete the table."""
        self._writable()
        _tables_of(self._cell).remove(self._record)

    def set_heir(self, heir: LoopAddress | None, data: object = None) -> None:
        """Say who gets the table when its owner ends; None: nobody. Only the owner may.

        Raises:
            InvalidTableArgument: the heir is no actor of the owner's system.
        """
        self._owned()
        own_heir = _heir_in(self._cell.system, heir)
        self._record.heir, self._record.heir_data = own_heir, copied(data)

    def give_away(self, receiver: LoopAddress, data: object = None) -> None:
        """Make another live actor the owner; it gets a `TableTransfer`. Only the owner may.

        Raises:
            InvalidTableArgument: the receiver has ended, lives in another system, or owns the table
                already.
        """
        self._owned()
        cell = getattr(receiver, "cell", None)
        if cell not in self._cell.system.alive or cell is self._cell:
            allowed = "another actor of this system that is alive"
            raise InvalidTableArgument("receiver", receiver, allowed)
        _tables_of(self._cell).transfer(self._record, cell, copied(data))

    # ---- rows ---------------------------------------------------------------------------------

    def insert(self, *rows: Row) -> None:
        """Add rows, all or none; in a set a row replaces the one with its key.

        Raises:
            InvalidTableArgument: a row is no tuple, too short, or its key is none; nothing is
                added then.
        """
        table = self._writable()
        for row in [table.check(row) for row in rows]:
            table.put(row)

    def insert_new(self, *rows: Row) -> bool:
        """Add rows if none of their keys is there yet, and tell whether they were added.

        Raises:
            InvalidTableArgument: as `insert`.
        """
        table = self._writable()
        checked = [table.check(row) for row in rows]
        if any(table.has(row[table.key_index]) for row in checked):
            return False
        for row in checked:
            table.put(row)
        return True

    def lookup(self, key: object) -> list[Row]:
        """Return the rows of a key, in a bag in the order they came; none: an empty list."""
        return self._readable().get(key)

    def element(self, key: object, index: int) -> Any:  # noqa: ANN401 - whatever was stored
        """Return one element of the row of a key; of a bag the list of those of all its rows.

        Raises:
            InvalidTableArgument: the key is not there, or a row has no such element.
        """
        table = self._readable()
        rows = table.get(key)
        if not rows:
            raise InvalidTableArgument("key", key, "a key that is in the table")
        found = [_element_at(row, index) for row in rows]
        return found if table.is_bag else found[0]

    def __contains__(self, key: object) -> bool:
        """Return whether a key has a row."""
        return self._readable().has(key)

    def rows(self) -> list[Row]:
        """Return all rows, in the order of their keys if the table has one."""
        return list(self._readable())

    def match(self, pattern: Row) -> list[Row]:
        """Return the rows that are like a pattern, in which `ANY` stands for anything."""
        return matching(self._readable(), pattern)

    def take(self, key: object) -> list[Row]:
        """Remove the rows of a key and return them."""
        table = self._writable()
        rows = table.get(key)
        table.remove(key)
        return rows

    def delete(self, key: object) -> None:
        """Remove the rows of a key; none is no error."""
        self._writable().remove(key)

    def delete_row(self, row: Row) -> None:
        """Remove all rows that match a row, part by part; none is no error."""
        table = self._writable()
        table.remove_row(table.check(row))

    def clear(self) -> None:
        """Remove all rows."""
        self._writable().clear()

    def update_counter(
        self, key: object, step: CounterStep | int = 1, *, default: Row | None = None
    ) -> int:
        """Change one counter of the row of a key and return its new value.

        Args:
            key: whose row.
            step: what to change; a number is added to the element after the key.
            default: the row to begin with where there is none; its key is replaced by `key`.

        Raises:
            InvalidTableArgument: as `update_counters`.
        """
        if not isinstance(step, CounterStep):
            step = CounterStep(self._rows().key_index + 1, step)
        return self.update_counters(key, [step], default=default)[0]

    def update_counters(
        self, key: object, steps: Sequence[CounterStep], *, default: Row | None = None
    ) -> list[int]:
        """Change counters of the row of a key, one after the other, and return their new values.

        Raises:
            InvalidTableArgument: the key is not there, a counter is no integer or the key itself,
                or the table is a bag; nothing is changed then.
        """
        table = self._writable_set()
        rows = table.get(key)
        if not rows and default is None:
            raise InvalidTableArgument("key", key, "a key that is in the table, or a default")
        row = list(rows[0] if rows else table.check(default))
        if not rows:
            row[table.key_index] = key
        values = [_step_counter(row, step, table.key_index) for step in steps]
        table.put(table.check(tuple(row)))
        return values

    def update_element(self, key: object, index: int, value: object) -> bool:
        """Change one element of the row of a key; False when there is no row.

        Raises:
            InvalidTableArgument: there is no such element, it is the key, or the table is a bag.
        """
        table = self._writable_set()
        rows = table.get(key)
        if not rows:
            return False
        row = list(rows[0])
        _element_at(rows[0], index)
        if index == table.key_index:
            raise InvalidTableArgument("index", index, "the index of an element but the key")
        row[index] = copied(value)
        table.put(tuple(row))
        return True

    # ---- keys in order ------------------------------------------------------------------------

    def first(self) -> Any:  # noqa: ANN401 - a key
        """Return the least key; in a table without order, any. `END_OF_TABLE`: there is none."""
        return self._readable().end(is_last=False)

    def last(self) -> Any:  # noqa: ANN401 - a key
        """Return the greatest key; in a table without order, the same as `first`."""
        return self._readable().end(is_last=True)

    def next(self, key: object) -> Any:  # noqa: ANN401 - a key
        """Return the least key after another, or `END_OF_TABLE`.

        Raises:
            InvalidTableArgument: the table has no order, and the key is not there.
        """
        return self._readable().neighbour(key, is_before=False)

    def previous(self, key: object) -> Any:  # noqa: ANN401 - a key
        """Return the greatest key before another, or `END_OF_TABLE`.

        Raises:
            InvalidTableArgument: as `next`; without order it is the same as `next`.
        """
        return self._readable().neighbour(key, is_before=True)

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


def _tables_of(cell: ActorCell) -> TableRegistry:
    """Return the tables of an actor's system, which has them from the first one on."""
    system = cell.system
    if system.estate is None:
        system.estate = TableRegistry(_announce)
    assert isinstance(system.estate, TableRegistry)
    return system.estate


def _heir_in(system: System, heir: object) -> ActorCell | None:
    """Return the cell of an heir, which may have ended; in another system nobody hears of ends.

    Raises:
        InvalidTableArgument: it is no actor of this system.
    """
    if heir is None:
        return None
    cell: Any = getattr(heir, "cell", None)
    is_actor = isinstance(cell, ActorCell) and (cell.instance is None or cell in system.alive)
    if not (is_actor and cell.system is system):
        raise InvalidTableArgument("heir", heir, "the ref of an actor of this system, or None")
    return cell  # type: ignore[no-any-return]  # it is one


def _announce(record: TableRecord, giver: LoopAddress, data: object) -> None:
    record.owner.post(TableTransfer(Table(record, record.owner), giver, data))


def _element_at(row: Row, index: int) -> Any:  # noqa: ANN401 - whatever was stored
    if not 0 <= index < len(row):
        raise InvalidTableArgument("index", index, f"0 to {len(row) - 1}")
    return row[index]


def _step_counter(row: list[Any], step: CounterStep, key_index: int) -> int:
    index = step.index
    if index == key_index or not 0 <= index < len(row) or type(row[index]) is not int:
        raise InvalidTableArgument("index", index, "the index of an integer but the key")
    value = int(row[index] + step.increment)
    limit = step.limit
    if limit is not None and (value < limit if step.increment < 0 else value > limit):
        value = int(step.reset_to)
    row[index] = value
    return value
