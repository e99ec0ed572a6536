"""The `ets` commands of the differential tests, carried out on real tables of real actors.

Each command runs as its actor would run it, under the system's lock, so that any actor may own the
tables. JSON positions count from 1, ours from 0; whatever ETS calls `badarg` is a `TableError`.

Source: otp_driver.erl, `tab_/4`.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, cast

from poe.actors import ActorRef, GenServer, LoopSystem
from poe.errors import InvalidTableArgument, TableError, TableGone
from poe.tables import (
    ANY,
    END_OF_TABLE,
    CounterStep,
    Row,
    Table,
    TableAccess,
    TableKind,
    TableTransfer,
)

Command = Mapping[str, Any]
"""One decoded command."""

Operation = Callable[[GenServer, str, Any], Any]
"""Carries out one function of a command: who, the table's name, and its arguments as terms."""


class ActorsByName(Protocol):
    """What the family needs of a driver: the system, and who is called what."""

    @property
    def system(self) -> LoopSystem:
        """Return the system whose tables are used."""

    @property
    def current(self) -> Mapping[Hashable, ActorRef]:
        """Return the last actor of each name, dead or alive."""


class TablesFamily:
    """Carries out the commands on tables."""

    def __init__(self, world: ActorsByName) -> None:
        self._world = world
        self._operations: dict[str, Operation] = {
            name.removeprefix("_do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("_do_")
        }

    def command(self, command: Command) -> Any:
        """Carry out one command and return its `ret` as a term; actors in it are refs."""
        ref = self._world.current.get(command["p"])
        if ref is None or not self._world.system.is_alive(ref):
            return "not_running"
        actor = cast("GenServer", ref.cell.instance)
        arguments = [_term(argument) for argument in command.get("args", ())]
        answers: list[Any] = []

        def carry_out() -> None:
            try:
                if command["f"] == "new":
                    answers.append(self._new(actor, command["t"], command.get("opts", {})))
                else:
                    operation = self._operations[command["f"]]
                    answers.append(operation(actor, command["t"], arguments))
            except TableError:
                answers.append(("error", "badarg"))

        self._world.system.run_outside(carry_out)
        return answers[0]

    def _new(self, actor: GenServer, name: str, options: Command) -> str:
        heir, data = options.get("heir", (None, None))
        Table.new(
            actor,
            name,
            kind=TableKind(options.get("type", "set")),
            access=TableAccess(options.get("access", "protected")),
            key_index=options.get("keypos", 1) - 1,
            heir=None if heir is None else self._actor(heir),
            heir_data=_term(data),
        )
        return name

    def _actor(self, name: Hashable) -> ActorRef:
        """Return the actor of a name, dead or alive."""
        if name not in self._world.current:
            raise InvalidTableArgument("actor", name, "a name that was started")
        return self._world.current[name]

    # ---- rows ---------------------------------------------------------------------------------

    def _do_insert(self, actor: GenServer, name: str, arguments: Any) -> bool:
        table = Table.find(actor, name)
        table.insert(*_rows(table, arguments[0]))
        return True

    def _do_insert_new(self, actor: GenServer, name: str, arguments: Any) -> bool:
        table = Table.find(actor, name)
        return table.insert_new(*_rows(table, arguments[0]))

    def _do_lookup(self, actor: GenServer, name: str, arguments: Any) -> list[Row]:
        return Table.find(actor, name).lookup(arguments[0])

    def _do_member(self, actor: GenServer, name: str, arguments: Any) -> bool:
        return arguments[0] in Table.find(actor, name)

    def _do_delete(self, actor: GenServer, name: str, arguments: Any) -> bool:
        Table.find(actor, name).delete(arguments[0])
        return True

    def _do_delete_object(self, actor: GenServer, name: str, arguments: Any) -> bool:
        Table.find(actor, name).delete_row(arguments[0])
        return True

    def _do_delete_all(self, actor: GenServer, name: str, _: object) -> bool:
        Table.find(actor, name).clear()
        return True

    def _do_take(self, actor: GenServer, name: str, arguments: Any) -> list[Row]:
        return Table.find(actor, name).take(arguments[0])

    def _do_update_counter(self, actor: GenServer, name: str, arguments: Any) -> int:
        key, step, *default = arguments
        if isinstance(step, tuple):
            position, increment, *limit = step
            step = CounterStep(position - 1, increment, *limit)
        return Table.find(actor, name).update_counter(key, step, default=(*default, None)[0])

    def _do_update_element(self, actor: GenServer, name: str, arguments: Any) -> bool:
        key, (position, value) = arguments
        return Table.find(actor, name).update_element(key, position - 1, value)

    def _do_lookup_element(self, actor: GenServer, name: str, arguments: Any) -> object:
        key, position = arguments
        return Table.find(actor, name).element(key, position - 1)

    def _do_tab2list(self, actor: GenServer, name: str, _: object) -> list[Row]:
        table = Table.find(actor, name)
        rows = table.rows()
        return rows if table.kind is TableKind.ORDERED_SET else _sorted(rows)

    def _do_match_object(self, actor: GenServer, name: str, arguments: Any) -> list[Row]:
        return _sorted(Table.find(actor, name).match(_pattern(arguments[0])))

    # ---- keys in order ------------------------------------------------------------------------

    def _do_first(self, actor: GenServer, name: str, _: object) -> object:
        return _key(Table.find(actor, name).first())

    def _do_last(self, actor: GenServer, name: str, _: object) -> object:
        return _key(Table.find(actor, name).last())

    def _do_next(self, actor: GenServer, name: str, arguments: Any) -> object:
        return _key(Table.find(actor, name).next(arguments[0]))

    def _do_prev(self, actor: GenServer, name: str, arguments: Any) -> object:
        return _key(Table.find(actor, name).previous(arguments[0]))

    # ---- the table itself ---------------------------------------------------------------------

    def _do_delete_table(self, actor: GenServer, name: str, _: object) -> bool:
        Table.find(actor, name).drop()
        return True

    def _do_size(self, actor: GenServer, name: str, _: object) -> int | None:
        try:
            return len(Table.find(actor, name))
        except TableGone:
            return None

    def _do_owner(self, actor: GenServer, name: str, _: object) -> ActorRef | None:
        try:
            return Table.find(actor, name).owner
        except TableGone:
            return None

    def _do_give_away(self, actor: GenServer, name: str, arguments: Any) -> bool:
        Table.find(actor, name).give_away(self._actor(arguments[0]), arguments[1])
        return True

    def _do_set_heir(self, actor: GenServer, name: str, arguments: Any) -> bool:
        heir = None if arguments[0] == "none" else self._actor(arguments[0])
        Table.find(actor, name).set_heir(heir, *arguments[1:])
        return True

    def _do_rename(self, actor: GenServer, name: str, arguments: Any) -> str:
        Table.find(actor, name).rename(arguments[0])
        return str(arguments[0])


def transfer_term(transfer: TableTransfer) -> tuple[object, ...]:
    """Return the message that OTP sends to the new owner of a table."""
    return "ETS-TRANSFER", transfer.table.name, transfer.sender, transfer.data


def _term(value: Any) -> Any:
    return tuple(_term(item) for item in value) if isinstance(value, list | tuple) else value


def _rows(table: Table, term: Any) -> list[Row]:
    if term[0] != "many":
        return [term]
    # The rows of one list have no order in time, and OTP 25 puts the last into a bag first.
    return list(reversed(term[1])) if table.kind is TableKind.BAG else list(term[1])


def _pattern(term: Any) -> Any:
    if term == "_":
        return ANY
    return tuple(map(_pattern, term)) if isinstance(term, tuple) else term


def _key(key: object) -> object:
    return "$end_of_table" if key is END_OF_TABLE else key


def _sorted(rows: list[Row]) -> list[Row]:
    """Sort as the reference driver sorts what has no order: by the text of its JSON."""
    return sorted(rows, key=lambda row: json.dumps(row, separators=(",", ":")).encode())
