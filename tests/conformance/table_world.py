"""The part of the differential driver's world that its `ets` sequences need: actors by name."""

from collections.abc import Mapping
from typing import Any

from poe.actors import Down, GenServer, LoopSystem, Stop
from poe.tables import TableTransfer
from poe.testing import SimulatedClock
from tests.conformance.otp_tables import Command, TablesFamily, transfer_term
from tests.testing.json_text import json_text


class Process(GenServer):
    """Owns tables, notes what it gets, and ends when told."""

    def init(self, world):
        self.world = world

    def handle_info(self, message):
        if isinstance(message, TableTransfer):
            self.world.note("msg", self.ref, transfer_term(message))

    def handle_cast(self, reason):
        return Stop(reason)


class Observer(GenServer):
    """Notes every end."""

    def init(self, world):
        self.world = world

    def handle_cast(self, ref):
        self.monitor(ref)

    def handle_info(self, message):
        assert isinstance(message, Down)
        self.world.note("exit", message.ref, message.reason)


class TableWorld:
    """Plays one sequence."""

    def __init__(self):
        self.system = LoopSystem(clock=SimulatedClock())
        self.current: dict[Any, Any] = {}
        self._names: dict[object, str] = {}
        self._events: list[Any] = []
        self._observer: Any = self.system.start(Observer, self)
        self._tables = TablesFamily(self)

    def note(self, *event):
        self._events.append(self._json(event))

    def play(self, command: Command) -> Mapping[str, Any]:
        """Carry out one command and return what the reference driver would."""
        ret = self._json(self._carry_out(command))
        events, self._events = sorted(self._events, key=json_text), []
        alive = [name for name, ref in sorted(self.current.items()) if self.system.is_alive(ref)]
        return {"ret": ret, "ev": events, "st": {"alive": alive, "links": []}}

    def _carry_out(self, command):
        name = command["p"]
        if command["op"] == "ets":
            return self._tables.command(command)
        if command["op"] == "spawn":
            self.current[name] = ref = self.system.start(Process, self)
            self._names[ref] = name
            self.system.cast(self._observer, ref)
        elif self.system.is_alive(self.current[name]):
            self.system.cast(self.current[name], command.get("reason", "normal"))
        else:
            return "not_running"
        return "ok"

    def _json(self, value):
        if isinstance(value, tuple | list):
            return [self._json(item) for item in value]
        return self._names.get(value, value) if value.__hash__ else value
