"""Plays command sequences on poe.supervision and poe.actors: `python -m poe.testing.otp_driver`.

One JSON command per line of standard input, one JSON observation per line of standard output, in
the language that the head of `otp_driver.erl` defines; the two drivers' outputs are compared line
by line. It holds no model of what should happen: it only translates.
"""

import importlib
import json
import logging
import sys
from typing import Any, Protocol

from poe.errors import PoeError
from poe.testing.otp_processes import ProcessFamily
from poe.testing.otp_servers import ServerFamily
from poe.testing.otp_supervisors import NoSuchName, SupervisorFamily
from poe.testing.otp_world import Command, Event, World, exit_reason, sort_events

PROCESS_OPERATIONS = frozenset(
    {
        "spawn",
        "trap",
        "link",
        "unlink",
        "monitor",
        "demonitor",
        "signal",
        "exit",
        "send",
        "register",
        "unregister",
        "whereis",
    }
)


class Tables(Protocol):
    """The family of ETS tables, which has processes of its own."""

    def command(self, command: Command) -> dict[str, Any]:
        """Carry out one command of a sequence and return its `ret`, `ev` and `st`."""


class Driver:
    """Plays one sequence after the other; `reset` begins the next."""

    def __init__(self) -> None:
        self._index = 0
        self._begin()

    def _begin(self) -> None:
        self._world = World()
        self._supervisors = SupervisorFamily(self._world)
        self._processes = ProcessFamily(self._world)
        self._servers = ServerFamily(self._world)
        self._played: list[Command] = []
        self._tables: Tables | None = None

    def play(self, command: Command) -> dict[str, Any]:
        """Carry out one command and return what is observed."""
        operation = command["op"]
        if operation == "reset":
            self._world.close()
            self._begin()
            self._index = 0
            ret: Any = "ok"
        else:
            if operation == "ets" and self._tables is None:
                self._begin_tables()
            if self._tables is not None:
                return self._observation(operation, self._tables.command(command))
            self._played.append(command)
            ret = self._carry_out(operation, command)
        terms = self._world.terms
        state = self._supervisors.state() | self._processes.state()
        events = self._order(command, self._world.take_events())
        parts = {"ret": terms.json(ret), "ev": terms.json(events), "st": terms.json(state)}
        return self._observation(operation, parts)

    def _observation(self, operation: str, parts: dict[str, Any]) -> dict[str, Any]:
        observation = {"i": self._index, "op": operation, **parts}
        self._index += 1
        return observation

    def _begin_tables(self) -> None:
        """Let the tables' own processes catch up: only now is the sequence known as theirs."""
        self._tables = importlib.import_module("poe.testing.otp_tables").TablesFamily()
        for command in self._played:
            self._tables.command(command)

    def _carry_out(self, operation: str, command: Command) -> Any:  # noqa: ANN401 - any term
        try:
            if operation in PROCESS_OPERATIONS:
                return self._processes.command(command)
            if operation in ("sys", "sleep") or operation.startswith("gs_"):
                return self._servers.command(command)
            return self._supervisors.command(command)
        except NoSuchName:
            return "exit", "no_such_name"
        except PoeError as error:
            return "exit", exit_reason(error)

    def _order(self, command: Command, events: list[Event]) -> list[Event]:
        if self._processes.is_used:
            return sort_events(events)
        return self._supervisors.order(command, events)


def main() -> None:
    """Play what standard input says."""
    logging.disable(logging.CRITICAL)
    driver = Driver()
    for line in sys.stdin:
        if line.strip():
            sys.stdout.write(json.dumps(driver.play(json.loads(line))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
