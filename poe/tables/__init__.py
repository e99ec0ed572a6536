"""Tables in memory that the actors of a system share, with ETS's rules.

    class Sessions(GenServer):
        def init(self) -> None:
            self.sessions = Table.new(self, "sessions")      # others may read

        def handle_call(self, request, caller):
            self.sessions.insert((request.user, request.token))

    class Door(GenServer):
        def handle_call(self, user, caller):
            return Table.find(self, "sessions").lookup(user)  # no message to the owner

An application thread reads through an actor, or with `LoopSystem.run_outside`.
"""

from poe.tables.registry import TableAccess
from poe.tables.rows import ANY, END_OF_TABLE, Row, TableKind
from poe.tables.table import CounterStep, Table, TableTransfer

__all__ = [
    "ANY",
    "END_OF_TABLE",
    "CounterStep",
    "Row",
    "Table",
    "TableAccess",
    "TableKind",
    "TableTransfer",
]
