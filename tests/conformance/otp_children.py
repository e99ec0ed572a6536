"""Children and supervisors of the driver: their specs, and start functions that fail as planned.

A *plan* says what the next starts of a child come to: it starts, is ignored, or fails in one of the
ways that a start function can fail.

Source: otp_driver.erl, "start functions" and "callbacks".
"""

from collections.abc import Hashable
from typing import Any, cast

from poe.actors import NO_REPLY, ActorExit, ActorRef, Call, Exit, GenServer, LoopAddress, Stop
from poe.errors import InvalidChildSpec, StartFailed, UnknownRequest
from poe.supervision import (
    AutoShutdown,
    ChildKind,
    ChildSpec,
    Restart,
    Started,
    Strategy,
    Supervisor,
    SupervisorFlags,
)
from poe.supervision.child_spec import check_combination
from tests.conformance.otp_terms import Raised, StartExited, StartThrew, key, raise_error, term
from tests.conformance.otp_world import Command, Die, Event, World


class Worker(GenServer):
    """A child: ends as it is told, and does in `terminate` what its spec says."""

    def init(self, world: World, behaviour: Command, fail: tuple[str, object] | None) -> Any:
        """Start, or fail in one of two ways."""
        self._world = world
        self.trap_exits = bool(behaviour.get("trap", False))
        self._term = term(behaviour.get("term", "ok"))
        self._is_told = False
        if fail is None:
            return None
        how, reason = fail
        if how == "crash":
            raise Raised(reason)
        return Stop(reason)

    def handle_call(self, request: object, caller: Call) -> object:
        """Crash: a worker that took the id of a supervisor is asked what it cannot answer."""
        del caller
        raise UnknownRequest(type(request).__name__)

    def handle_info(self, message: object) -> Any:
        """End by itself, or note what came."""
        if isinstance(message, Die):
            self._is_told = True
            return end_as_told(message)
        self._world.note("info", self.ref, plain_exit(message))
        return None

    async def terminate(self, reason: object) -> None:
        """Clean up as the spec says."""
        self._world.note("term", self.ref, reason)
        if self._term == "hang":
            if not self._is_told:
                await self.call(self._world.silence, "end", None)
        elif isinstance(self._term, tuple):
            end_in_terminate(*self._term)


class Gate(GenServer):
    """Holds the start functions that enter it until they are let through."""

    def init(self) -> None:
        """Hold nobody."""
        self._held: list[Call] = []

    def handle_call(self, request: object, caller: Call) -> object:
        """Hold a caller, or tell whether somebody is held, or let all through."""
        if request == "enter":
            self._held.append(caller)
            return NO_REPLY
        return bool(self._held)

    def handle_cast(self, message: object) -> None:
        """Let all through."""
        del message
        for caller in self._held:
            self.reply(caller, None)
        self._held = []


class DrivenSupervisor(Supervisor):
    """A supervisor whose configuration is what the last command said of it."""

    strict = True

    def configure(self, children: "Children", sup_id: Hashable) -> Any:
        """Look it up."""
        definition, given = children.definitions[sup_id]
        flags = flags_of(definition)
        specs = []
        for child in given:
            try:
                specs.append(children.spec_of(child))
            except InvalidChildSpec as error:
                raise as_otp_names(error, child, definition) from error
            # OTP looks at one child after the other, also for what depends on the flags.
            check_combination(specs[-1], flags.auto_shutdown)
        return flags, specs


_CHECKED_LATER = frozenset({("restart", "significant"), "kind", "shutdown_s"})


def as_otp_names(error: InvalidChildSpec, child: Command, flags: Command) -> InvalidChildSpec:
    """Return the error of a spec, where it breaks two rules by the one that OTP looks at first."""
    is_never = "auto_shutdown" not in flags and child.get("significant") is True
    if is_never and error.key in _CHECKED_LATER:
        return InvalidChildSpec(str(error), ("auto_shutdown", "significant"), ("never", True))
    return error


def end_as_told(message: Die) -> Stop:
    """Do in a callback what ends a process in the way that was asked for."""
    if message.how == "error":
        raise_error(message.reason)
    if message.how == "exit":
        raise ActorExit(message.reason)
    # A thrown value counts as returned: OTP has no use for it, and says so.
    return Stop(("bad_return_value", message.reason) if message.how == "throw" else message.reason)


def end_in_terminate(how: str, reason: object) -> None:
    """End a `terminate` in the way that was asked for; OTP swallows what is thrown there."""
    if how == "exit":
        raise ActorExit(reason)
    if how == "error":
        raise_error(reason)


def plain_exit(message: object) -> object:
    """Return an `Exit` as the message that OTP gives."""
    return ("EXIT", message.ref, message.reason) if isinstance(message, Exit) else message


def flags_of(flags: Command) -> SupervisorFlags:
    """Return the flags that a command gives."""
    names = {"strategy": Strategy, "auto_shutdown": AutoShutdown}
    fields = {name: _member(names.get(name), value) for name, value in flags.items()}
    if "period" in fields:
        fields["period_s"] = fields.pop("period")
    return SupervisorFlags(**fields)


def _member(enum: Any, value: Any) -> Any:
    return enum(value) if enum is not None and value in set(enum) else value


class Children:
    """Knows what the commands have said of each child, and starts it so."""

    def __init__(self, world: World) -> None:
        self.definitions: dict[Hashable, tuple[Command, list[Command]]] = {}
        self.plans: dict[Hashable, list[Any]] = {}
        self.gate = cast("ActorRef", world.system.start(Gate))
        self._world = world

    def define(self, sup_id: Hashable, command: Command) -> None:
        """Take over what a command says of a supervisor."""
        flags, children = command.get("flags", {}), command.get("children", [])
        self.definitions[sup_id] = flags, children
        for child in children:
            self.declare(child)

    def declare(self, child: Command) -> None:
        """Take over the plans and nested definitions of a spec that is handed over."""
        child_id = key(child.get("id"))
        if "plan" in child:
            self.plans[child_id] = child["plan"]
        if "flags" in child:
            self.define(child_id, child)

    def is_dynamic(self, sup_id: Hashable) -> bool:
        """Tell whether the children of a supervisor have names and no ids."""
        flags, _ = self.definitions.get(sup_id, ({}, []))
        return flags.get("strategy") == "simple_one_for_one"

    def spec_of(self, child: Command) -> ChildSpec:
        """Return the spec that a command gives.

        Raises:
            InvalidChildSpec: as `ChildSpec`, and for a field that is left out.
        """
        child_id = key(child.get("id"))
        fields: dict[str, Any] = {"id": child_id}
        if "flags" in child:
            fields.update(actor=DrivenSupervisor, start=self._start_nested, args=(child_id,))
        else:
            fields.update(actor=Worker, start=self._start_worker, args=(child,))
        if "restart" in child:
            fields["restart"] = _member(Restart, child["restart"])
        if "type" in child:
            fields["kind"] = _member(ChildKind, child["type"])
        if "significant" in child:
            fields["significant"] = child["significant"]
        if "shutdown" in child:
            shutdown = child["shutdown"]
            is_time = isinstance(shutdown, int) and shutdown >= 0
            fields["shutdown_s"] = shutdown / 1000 if is_time else shutdown
        if "omit" in child:
            # Python itself refuses a spec without them.
            (name,) = child["omit"]
            msg = f"a child spec without {name}"
            raise InvalidChildSpec(msg, f"missing_{name}")
        return ChildSpec(**fields)

    async def _start_nested(
        self, starter: GenServer, actor: type[GenServer], sup_id: Hashable, *, name: None
    ) -> ActorRef | Started | None:
        del actor, name
        return await self.start_supervisor(starter, sup_id)

    async def start_supervisor(self, starter: GenServer, sup_id: Hashable) -> Any:
        """Start a supervisor from the main actor, as from another supervisor."""
        return await self._start(starter, sup_id, DrivenSupervisor, (self, sup_id))

    async def _start_worker(
        self,
        starter: GenServer,
        actor: type[GenServer],
        behaviour: Command,
        more: Command | None = None,
        *,
        name: None,
    ) -> ActorRef | Started | None:
        del name
        if more is not None:
            behaviour = {"trap": False, "term": "ok", **more}
        arguments = self._world, behaviour, None
        return cast(
            "ActorRef | Started | None",
            await self._start(starter, key(behaviour.get("id")), actor, arguments),
        )

    async def _start(
        self, starter: GenServer, child_id: Hashable, actor: type[GenServer], arguments: Event
    ) -> Any:
        """Carry out the next outcome of a child's plan, and note what came of it."""
        plan = self.plans.get(child_id) or ["ok"]
        self.plans[child_id] = plan[1:]
        outcome = plan[0]
        if isinstance(outcome, list) and outcome[0] == "gate":
            await starter.call(self.gate, "enter", None)
            outcome = outcome[1]
        try:
            ref, info = await self._outcome(starter, actor, arguments, outcome)
        except StartFailed as error:
            self._world.note("start", child_id, None, ("error", error.reason))
            raise
        except Raised as error:
            kind = "throw" if isinstance(error, StartThrew) else "exit"
            self._world.note("start", child_id, None, (kind, error.reason))
            raise
        if not isinstance(ref, LoopAddress):
            self._world.note("start", child_id, None, "ignore" if ref is None else ref)
            return ref
        told = "ok" if info is None else ("extra", info[0])
        self._world.note("start", child_id, self._world.register(child_id, ref), told)
        return ref if info is None else Started(ref, info[0])

    async def _outcome(
        self, starter: GenServer, actor: type[GenServer], arguments: Event, outcome: str | list[Any]
    ) -> tuple[Any, tuple[object] | None]:
        """Return what the start function returns, and what it tells besides."""
        kind, value = (outcome, None) if isinstance(outcome, str) else map(term, outcome)
        if kind == "ignore":
            return None, None
        if kind == "ret":
            return value, None
        if kind == "error":
            raise StartFailed(value)
        if kind in ("throw", "exit"):
            raise StartThrew(value) if kind == "throw" else StartExited(value)
        if kind in ("stop", "crash"):
            actor, arguments = Worker, (self._world, {}, (kind, value))
        ref = await starter.start_link(actor, *arguments)
        return ref, (value,) if kind == "extra" else None
