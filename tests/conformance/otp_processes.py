"""The process family: plain processes with links, monitors, signals and names.

A process is an actor that an application thread started, since the gen_server rule for a parent's
exit is not for plain processes; `spawn by` links it afterwards.

Source: otp_driver.erl, "process family".
"""

from collections.abc import Callable, Hashable
from typing import Any, cast

from poe.actors import ActorExit, ActorRef, Down, GenServer, Monitor, Stop
from poe.errors import ActorDead, NameTaken
from poe.tables import TableTransfer
from tests.conformance.otp_children import plain_exit
from tests.conformance.otp_tables import transfer_term
from tests.conformance.otp_terms import Raised, key, term
from tests.conformance.otp_world import NOT_RUNNING, Command, Die, World

BADARG = ("error", "badarg")


class Do:
    """Something that a process is to do, with what comes of it."""

    def __init__(self, action: Callable[["Process"], object]) -> None:
        self.action = action
        self.result: object = "died"


class Read:
    """A message that has come, on its way to the code that reads it.

    A process of the VM takes all its signals first: one that has ended it by then lets no message
    be read. So it takes one turn of the queue here.
    """

    def __init__(self, message: object) -> None:
        self.message = message


class Process(GenServer):
    """Does what it is told, and notes every other message."""

    def init(self, world: World, name: Hashable) -> None:
        """Trap nothing."""
        self._world = world
        self._name = name
        self.trap_exits = False
        self.monitors: dict[Monitor, Hashable] = {}

    def handle_cast(self, task: Do) -> None:
        """Do something; the result counts once the signals that it sent to itself are past."""
        result: object
        try:
            value = task.action(self)
            result = True if value is None else value
        except ActorDead as error:
            result = "error", error.reason
        self.ref.cell.post((task, result), self.ref)

    def handle_info(self, message: Any) -> Any:
        """End as told, or note what came."""
        if isinstance(message, tuple) and isinstance(message[0], Do):
            message[0].result = message[1]
            return None
        if isinstance(message, Die):
            return self._die(message.how, message.reason)
        if isinstance(message, Read):
            self._world.note("msg", self._name, self._plain(message.message))
        else:
            self.ref.cell.post(Read(message), self.ref)
        return None

    def _plain(self, message: object) -> object:
        """Return a message as OTP gives it."""
        if isinstance(message, Down):
            monitor = message.monitor
            who: object = message.ref if monitor.name is None else monitor.name
            return "DOWN", self.monitors[monitor], who, message.reason
        if isinstance(message, TableTransfer):
            return transfer_term(message)
        return plain_exit(message)

    def _die(self, how: str, reason: object) -> Stop | None:
        if how == "self_signal":
            self.exit(self.ref, reason)
            return None
        if how == "exit":
            raise ActorExit(reason)
        if how == "error":
            raise Raised(reason)
        if how == "throw":
            raise Raised(("nocatch", reason))
        return Stop("normal")


class ProcessFamily:
    """Carries out the commands on processes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._names: list[Hashable] = []
        self._monitors: dict[Hashable, Monitor] = {}

    @property
    def is_used(self) -> bool:
        """Tell whether there are processes; then the order of events is open."""
        return bool(self._names)

    def command(self, command: Command) -> Any:
        """Carry out one command and return its `ret`."""
        method = getattr(self, f"_do_{command['op']}")
        return method(command)

    def _in(self, process_id: Hashable, action: Callable[[Process], object]) -> object:
        ref = self._world.live(process_id)
        if ref is None:
            return NOT_RUNNING
        task = Do(action)
        self._world.system.cast(ref, task)
        return task.result

    def _to(
        self, command: Command, who: str, whom: str, action: Callable[[Process, ActorRef], object]
    ) -> object:
        """Let one process do something to another, which may never have been spawned."""
        target = self._world.current.get(key(command[whom]))

        def act(process: Process) -> object:
            return BADARG if target is None else action(process, target)

        return self._in(key(command[who]), act)

    def _do_spawn(self, command: Command) -> object:
        name = key(command["p"])
        starter = self._world.live(key(command["by"])) if "by" in command else None
        if "by" in command and starter is None:
            return NOT_RUNNING
        ref = cast("ActorRef", self._world.system.start(Process, self._world, name))
        if starter is not None:
            self._in(key(command["by"]), lambda process: process.link(ref))
        self._names.append(name)
        self._world.name(name, ref, str(name))
        return "ok"

    def _do_trap(self, command: Command) -> object:
        def trap(process: Process) -> bool:
            before, process.trap_exits = process.trap_exits, command["on"]
            return before

        return self._in(key(command["p"]), trap)

    def _do_link(self, command: Command) -> object:
        return self._to(command, "a", "b", Process.link)

    def _do_unlink(self, command: Command) -> object:
        return self._to(command, "a", "b", Process.unlink)

    def _do_monitor(self, command: Command) -> object:
        # To OTP a process that was never spawned is called `none`, and that may be a name.
        target = command.get("name") or self._world.current.get(key(command["b"]), "none")

        def watch(process: Process) -> str:
            monitor = process.monitor(target)
            self._monitors[command["m"]] = monitor
            process.monitors[monitor] = command["m"]
            return "ok"

        return self._in(key(command["a"]), watch)

    def _do_demonitor(self, command: Command) -> object:
        monitor = self._monitors.get(command["m"])
        if monitor is None:
            return "no_monitor"
        return self._in(key(command["a"]), lambda process: process.demonitor(monitor))

    def _do_signal(self, command: Command) -> object:
        reason = term(command["reason"])
        return self._to(command, "from", "to", lambda process, other: process.exit(other, reason))

    def _do_exit(self, command: Command) -> object:
        ref = self._world.live(key(command["p"]))
        if ref is None:
            return NOT_RUNNING
        how, reason = command.get("how", "exit"), term(command.get("reason", "normal"))
        self._world.send(ref, Die(how, reason))
        return "ok"

    def _do_send(self, command: Command) -> object:
        target = self._world.current.get(key(command["to"]))
        if target is None:
            target = self._world.system.whereis(command["to"])
        message = term(command["msg"])

        def send(process: Process) -> object:
            if target is None:
                return BADARG
            target.cell.post(message, process.ref)
            return "ok"

        return self._in(key(command["from"]), send)

    def _do_register(self, command: Command) -> object:
        def register(process: Process) -> object:
            try:
                process.register(command["name"])
            except NameTaken:
                return BADARG
            return True

        result = self._in(key(command["p"]), register)
        return BADARG if result == NOT_RUNNING else result

    def _do_unregister(self, command: Command) -> object:
        try:
            self._world.run(lambda main: main.unregister(command["name"]))
        except ActorDead:
            return BADARG
        return True

    def _do_whereis(self, command: Command) -> object:
        return self._world.system.whereis(command["name"])

    def state(self) -> dict[str, object]:
        """Return which processes live, and which are linked."""
        if not self._names:
            return {}
        live = {str(name): ref for name in self._names if (ref := self._world.live(name))}
        links = [
            (name, other)
            for name, ref in live.items()
            for cell in ref.cell.linked()
            if name <= (other := self._world.name_of(cell.address))
        ]
        return {"alive": sorted(live), "links": sorted(links)}
