"""The cell that stands for whoever has a name: it asks once, then passes on what it was given."""

from typing import Any

from poe.actors.actor_cell import ActorCell, LoopAddress
from poe.actors.actor_table import ActorTable
from poe.actors.call import Call
from poe.actors.message import Monitor
from poe.actors.reason import NOPROC
from poe.thespian.hosted.name_server import Lookup
from poe.thespian.hosted.packet import when_done


class NamedCell(ActorCell):
    """Used for one operation by name, or a few at the same moment; then it is dropped."""

    def __init__(self, actors: ActorTable, name: str, names: LoopAddress | None) -> None:
        """Ask the name server, whose address is `names`."""
        super().__init__(actors, None, name, actors.run_queue.queue)
        self._kept: list[tuple[Any, Any]] = []
        self._owner: ActorCell | None = None
        self.instance = self
        if names is None:
            self.end(NOPROC)
            return
        lookup = Call(Lookup(name), None, names.cell, None)
        names.cell.post(lookup)
        when_done(lookup, self._go_on)

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Pass a message on, or keep it until it is known to whom."""
        if self.instance is None:
            self.refuse(message, sender)
        elif self._owner is None:
            self._kept.append((message, sender))
        else:
            self._owner.post(message, sender)

    def drop_monitor(self, monitor: Monitor) -> None:
        """Forget a monitor, wherever it is."""
        super().drop_monitor(monitor)
        if self._owner is not None:
            self._owner.drop_monitor(monitor)

    def _go_on(self, lookup: Call) -> None:
        """Pass on what has come meanwhile, or be the dead actor that it is meant for."""
        owner = None if lookup.error is not None else lookup.value
        if owner is None:
            self.end(NOPROC)
        else:
            self._owner = owner.cell
            monitors, self.monitors = self.monitors or {}, None
            for monitor, watcher in monitors.items():
                owner.cell.accept_monitor(monitor, watcher)
        for message, sender in self._kept:
            self.deliver(message, sender)
