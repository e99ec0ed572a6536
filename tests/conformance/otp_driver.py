"""Plays command sequences on our actors: `python -m tests.conformance.otp_driver`.

One JSON command per line of standard input, one JSON observation per line of standard output, in
the language that the head of `otp_driver.erl` defines; the two drivers' outputs are compared line
by line. It holds no model of what should happen: it only translates.
"""

import json
import logging
import sys
from typing import Any

from poe.errors import PoeError
from tests.conformance.otp_processes import ProcessFamily
from tests.conformance.otp_servers import ServerFamily
from tests.conformance.otp_supervisors import NoSuchName, SupervisorFamily
from tests.conformance.otp_tables import TablesFamily
from tests.conformance.otp_world import Command, Event, World, exit_reason, sort_events

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
        self._tables = TablesFamily(self._world)

    def play(self, command: Command) -> dict[str, Any]:
        """Carry out one command and return what is observed."""
        operation = command["op"]
        if operation == "reset":
            self._world.close()
            self._begin()
            self._index = 0
            ret: Any = "ok"
        else:
            ret = self._carry_out(operation, command)
        terms = self._world.terms
        state = self._supervisors.state() | self._processes.state()
        events = self._order(command, self._world.take_events())
        observation = {
            "i": self._index,
            "op": operation,
            "ret": terms.json(ret),
            "ev": terms.json(events),
            "st": terms.json(state),
        }
        self._index += 1
        return observation

    def _carry_out(self, operation: str, command: Command) -> Any:
        try:
            if operation == "ets":
                return self._tables.command(command)
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
