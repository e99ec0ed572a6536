"""The names of one hosted system: asked by hosts before a start, and after an end.

A name belongs to at most one live actor. It is given before `init` runs, and free before anyone
hears of the end of its actor: the host of that actor tells the name server first.
"""

from dataclasses import dataclass

from poe.actors.actor_cell import LoopAddress
from poe.actors.call import Call
from poe.actors.gen_server import GenServer
from poe.actors.message import Down, Error, Monitor
from poe.errors import NameTaken
from poe.thespian.hosted.remote_actors import RemoteCell


@dataclass(frozen=True, slots=True)
class Register:
    """Give `ref` the name. Answered with None, or the error `NameTaken`."""

    name: str
    ref: LoopAddress


@dataclass(frozen=True, slots=True)
class Unregister:
    """Free the name if it is that of `ref`."""

    name: str
    ref: LoopAddress


@dataclass(frozen=True, slots=True)
class Lookup:
    """Answered with the address of who has the name, or None."""

    name: str


class NameServer(GenServer):
    """Owns the names; hears of the end of those that had no time to tell."""

    def init(self) -> None:
        """Begin without names."""
        self._monitors: dict[str, Monitor] = {}
        self._names: dict[Monitor, str] = {}

    def handle_call(self, request: Register | Unregister | Lookup, caller: Call) -> object:
        """Give, free or look up a name."""
        del caller
        name = request.name
        ref = self._monitors[name].ref if name in self._monitors else None
        if isinstance(request, Lookup):
            return ref
        if isinstance(request, Unregister):
            if ref is request.ref:
                self._free(name)
            return None
        if ref is not None:
            if not _is_gone(ref):
                return Error(NameTaken(name, ref))
            self._free(name)
        self._monitors[name] = monitor = self.monitor(request.ref)
        self._names[monitor] = name
        return None

    def handle_info(self, message: object) -> None:
        """Free the name of an actor that was killed."""
        if isinstance(message, Down) and message.monitor in self._names:
            self._free(self._names[message.monitor])

    def _free(self, name: str) -> None:
        monitor = self._monitors.pop(name)
        del self._names[monitor]
        self.demonitor(monitor)


def _is_gone(ref: LoopAddress) -> bool:
    """Return whether an actor was killed a moment ago, so that nobody has told yet."""
    cell = ref.cell
    return cell.instance is None or (
        isinstance(cell, RemoteCell) and cell.home.has_process_ended(cell)
    )
