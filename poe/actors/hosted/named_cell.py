"""The cell that stands for whoever has a name: it asks once, then passes on what it was given."""

from typing import TYPE_CHECKING, Any, cast

from poe.actors.actor_cell import ActorCell
from poe.actors.call import Call
from poe.actors.hosted.name_server import Lookup
from poe.actors.hosted.packet import when_done
from poe.actors.message import Monitor
from poe.actors.reason import NOPROC

if TYPE_CHECKING:
    from poe.actors.hosted.host_system import HostSystem
    from poe.actors.loop_base import LoopSystemBase


class NamedCell(ActorCell):
    """Used for one operation by name, or a few at the same moment; then it is dropped."""

    def __init__(self, home: "HostSystem", name: str) -> None:
        super().__init__(cast("LoopSystemBase", home), None, name, home.run_queue)
        self._kept: list[tuple[Any, Any]] = []
        self.instance = self
        self.deliver = self._keep
        names = home.names
        if names is None:
            self.end(NOPROC)
            return
        lookup = Call(Lookup(name), None, names.cell, None)
        names.cell.post(lookup)
        when_done(lookup, self._go_on)

    def _keep(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        self._kept.append((message, sender))

    def _go_on(self, lookup: Call) -> None:
        """Pass on what has come meanwhile, or be the dead actor that it is meant for."""
        owner = None if lookup.error is not None else lookup.value
        if owner is None:
            self.end(NOPROC)
        else:
            self.deliver = owner.cell.post
            monitors: list[tuple[Monitor, ActorCell]] = self.monitors or []
            for monitor, watcher in monitors:
                owner.cell.accept_monitor(monitor, watcher)
            self.monitors = owner.cell.monitors  # `demonitor` looks for them here
        for message, sender in self._kept:
            self.deliver(message, sender)
