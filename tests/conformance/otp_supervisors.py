"""The supervisor family: commands carried out on real supervisors.

Source: otp_driver.erl, "supervisor family".
"""

from collections.abc import Hashable
from typing import Any, cast

from poe.actors import ActorRef
from poe.actors.message import SystemRequest
from poe.errors import (
    ActorDead,
    ChildRequestRefused,
    ChildStartFailed,
    InvalidChildSpec,
    PoeError,
    StartFailed,
)
from poe.supervision import (
    ChildCounts,
    ChildInfo,
    ChildSpec,
    CountChildren,
    DeleteChild,
    GetChildSpec,
    Refusal,
    RestartChild,
    StartChild,
    StartDynamicChild,
    Started,
    TerminateChild,
    WhichChildren,
)
from tests.conformance.otp_children import Children, as_otp_names
from tests.conformance.otp_terms import invalid, key, term
from tests.conformance.otp_world import (
    LIMIT_S,
    Action,
    Command,
    Event,
    World,
    exit_reason,
    sort_events,
)

GATE_WAIT_S = 0.1
UNLINK_WAIT_S = 6.1
"""The reference driver looks 3 000 times for links to go away, 2 ms apart."""

Ret = Any


class NoSuchName(Exception):
    """A command names a dynamic child that was never started."""


def map_of(spec: ChildSpec) -> dict[str, object]:
    """Return a child spec as OTP shows it, without what starts the child."""
    shutdown = spec.shutdown_s
    if isinstance(shutdown, float | int):
        shutdown = round(shutdown * 1000)
    return {
        "id": spec.id,
        "restart": str(spec.restart),
        "shutdown": shutdown,
        "significant": spec.significant,
        "type": str(spec.kind),
    }


class SupervisorFamily:
    """Carries out the commands on supervisors."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._children = Children(world)

    # ---- commands -----------------------------------------------------------------------------

    def command(self, command: Command) -> Ret:
        """Carry out one command and return its `ret`."""
        self._world.clock.begin_command()
        operation = command["op"]
        method = getattr(self, f"_do_{operation}", None)
        ret = self._ask(command) if method is None else method(command)
        self._settle()
        return ret

    def _settle(self) -> None:
        """Let time pass until nothing happens, looking at every supervisor meanwhile."""
        event_count = -1
        while event_count != self._world.event_count:
            event_count = self._world.event_count
            self._look()
            self._world.settle()

    def _do_start_sup(self, command: Command) -> Ret:
        sup_id = key(command["sup"])
        if self._world.live(sup_id) is not None:
            return ("already",)
        self._children.define(sup_id, command)
        try:
            return "ok", self._world.run(lambda main: self._children.start_supervisor(main, sup_id))
        except StartFailed as error:
            return "error", error.reason

    def _do_plan(self, command: Command) -> Ret:
        self._children.plans[key(command["child"])] = command["plan"]
        return "ok"

    def _do_advance(self, command: Command) -> Ret:
        self._world.clock.count(command["s"])
        return "ok"

    def _do_crash(self, command: Command) -> Ret:
        return self._crash(key(command["child"]), command)

    def _crash(self, child_id: Hashable, command: Command) -> str:
        how, reason = command.get("how", "stop"), term(command.get("reason", "boom"))
        return self._world.end(self._world.live(child_id), how, reason)

    def _do_crash_many(self, command: Command) -> Ret:
        supervisor = self._supervisor(command)
        ids = [key(child) for child in command["children"]]
        linked = {self._world.live(child_id) for child_id in ids} - {None}
        self._world.call(supervisor, SystemRequest("suspend"))
        rets = [self._crash(child_id, command) for child_id in ids]
        if any(ref is not None and self._world.system.is_alive(ref) for ref in linked):
            self._world.system.advance(UNLINK_WAIT_S)
        self._world.call(supervisor, SystemRequest("resume"))
        return rets

    def _do_crash_gated(self, command: Command) -> Ret:
        supervisor = self._supervisor(command)
        gate_id = key(command["gate"])
        gated = ["gate", command["outcome"]]
        self._children.plans[gate_id] = [gated, *self._children.plans.get(gate_id, [])]
        self._crash(key(command["child"]), command)
        self._world.wait_until(self._is_gate_reached, GATE_WAIT_S)
        if not self._is_gate_reached():
            if self._children.plans[gate_id][:1] == [gated]:
                self._children.plans[gate_id] = self._children.plans[gate_id][1:]
            return False, ()
        calls = [(self._send(supervisor, call), call["op"]) for call in command["calls"]]
        self._world.system.cast(self._children.gate, "open")
        return True, [self._answer(action, operation) for action, operation in calls]

    def _is_gate_reached(self) -> bool:
        return cast("bool", self._world.system.call(self._children.gate, "held"))

    def _do_exit_sup(self, command: Command) -> Ret:
        supervisor, reason = self._supervisor(command), term(command["reason"])
        if command.get("from", "parent") == "parent":
            self._world.run(lambda main: main.exit(supervisor, reason))
        else:
            self._world.as_stranger(lambda stranger: stranger.exit(supervisor, reason))
        return "ok"

    def _do_send_sup(self, command: Command) -> Ret:
        supervisor = self._supervisor(command)
        if command["kind"] == "call":
            return self._answer(lambda main: main.call(supervisor, "unexpected", LIMIT_S), "")
        if command["kind"] == "cast":
            self._world.run(lambda main: main.cast(supervisor, "unexpected"))
        else:
            self._world.send(supervisor, "unexpected")
        return "ok"

    def _do_change_code(self, command: Command) -> Ret:
        supervisor = self._supervisor(command)
        self._children.define(key(command["sup"]), command)
        self._world.call(supervisor, SystemRequest("suspend"))
        try:
            self._world.call(supervisor, SystemRequest("change_code"))
        except InvalidChildSpec as error:
            return "error", ("error", invalid(error))
        finally:
            self._world.call(supervisor, SystemRequest("resume"))
        return "ok"

    def _ask(self, command: Command) -> Ret:
        """Send a request of the child API to a supervisor, and return the answer."""
        return self._answer(self._send(self._supervisor(command), command), command["op"])

    def _send(self, supervisor: ActorRef, command: Command) -> Action:
        """Send a request of the child API, and return what waits for the answer."""
        try:
            request = self._request(command)
        except InvalidChildSpec as error:
            # It was refused where it was made; OTP refuses it in the supervisor.
            flags, _ = self._children.definitions[key(command["sup"])]
            answer = StartFailed(invalid(as_otp_names(error, command["spec"], flags)))
            return lambda _: _fail(answer)
        (call,) = self._world.run(lambda main: [main.call(supervisor, request, LIMIT_S)])
        return lambda main: main.wait_reply(call)

    def _supervisor(self, command: Command) -> ActorRef:
        ref = self._world.live(key(command["sup"]))
        if ref is None:
            raise ActorDead(command["sup"], "noproc")
        return ref

    def _request(self, command: Command) -> object:
        operation = command["op"]
        if operation == "start_child":
            return self._start_request(command)
        if operation == "which_children":
            return WhichChildren()
        if operation == "count_children":
            return CountChildren()
        child = key(command["child"])
        if self._children.is_dynamic(key(command["sup"])) and "by" not in command:
            if child not in self._world.current:
                raise NoSuchName
            child = self._world.current[child]
        requests = {
            "terminate_child": TerminateChild,
            "restart_child": RestartChild,
            "delete_child": DeleteChild,
            "get_childspec": GetChildSpec,
        }
        return requests[operation](child)

    def _start_request(self, command: Command) -> object:
        if "spec" in command:
            self._children.declare(command["spec"])
            return StartChild(self._children.spec_of(command["spec"]))
        name = key(command["name"])
        if "plan" in command:
            self._children.plans[name] = command["plan"]
        return StartDynamicChild(({**command, "id": name},))

    # ---- answers ------------------------------------------------------------------------------

    def _answer(self, action: Action, operation: str) -> Ret:
        """Ask from the main actor and return what OTP's function of that name would."""
        try:
            answer = self._world.run(action)
        except ChildRequestRefused as error:
            if error.why is Refusal.ALREADY_STARTED:
                return "error", (error.why, error.ref)
            return "error", error.why
        except (ChildStartFailed, StartFailed) as error:
            return "error", error.reason
        except InvalidChildSpec as error:
            return "error", invalid(error)
        except PoeError as error:
            return "exit", exit_reason(error)
        is_bare = operation in ("terminate_child", "delete_child")
        return "ok" if is_bare else self._shape(answer)

    def _shape(self, answer: object) -> Ret:
        if isinstance(answer, list):
            return self.which(answer)
        if isinstance(answer, ChildCounts):
            return count(answer)
        if isinstance(answer, ChildSpec):
            return "ok", map_of(answer)
        if isinstance(answer, Started):
            return "ok", answer.ref, answer.info
        return ("ok", answer)

    def which(self, children: list[ChildInfo]) -> list[Event]:
        """Return the children as OTP lists them; those without an order by name."""
        rows: list[Event] = [
            tuple(self._world.terms.json((child.id, child.ref, child.kind))) for child in children
        ]
        is_dynamic = any(row[0] is None for row in rows)
        return sorted(rows, key=lambda row: cast("str", row[1])) if is_dynamic else rows

    # ---- what is seen -------------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        """Return the children of each live supervisor."""
        return self._look()

    def _look(self) -> dict[str, object]:
        seen: dict[str, object] = {}
        for sup_id in sorted(self._children.definitions, key=str):
            ref = self._world.live(sup_id)
            if ref is None:
                continue
            try:
                which = self.which(self._world.call(ref, WhichChildren(), None))
                counts = count(self._world.call(ref, CountChildren(), None))
            except ActorDead:
                seen[str(sup_id)] = None
            else:
                seen[str(sup_id)] = {"which": which, "count": counts}
        return seen

    def order(self, command: Command, events: list[Event]) -> list[Event]:
        """Take the order that OTP leaves open out of the events of one command."""
        is_kill = "kill" in (command.get("how"), command.get("reason"))
        if is_kill and (command["op"] == "exit_sup" or any(map(self._is_end_of_one, events))):
            return sort_events(events)
        ordered: list[Event] = []
        run: list[Event] = []
        for event in events:
            if _is_end_of_dynamic(event):
                run.append(event)
                continue
            ordered += [*_sort_run(run), event]
            run = []
        return ordered + _sort_run(run)

    def _is_end_of_one(self, event: Event) -> bool:
        return event[0] == "exit" and event[1].split("#")[0] in self._children.definitions


def _is_end_of_dynamic(event: Event) -> bool:
    return event[0] in ("term", "exit") and event[1].startswith("d")


def _sort_run(run: list[Event]) -> list[Event]:
    return sorted(run, key=lambda event: (event[1], event[0] == "exit"))


def _fail(error: Exception) -> object:
    raise error


def count(counts: ChildCounts) -> list[int]:
    """Return the counts in OTP's order."""
    return [counts.specs, counts.active, counts.supervisors, counts.workers]
