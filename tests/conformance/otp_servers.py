"""The gen_server family: what a callback does and returns is part of the command.

Source: otp_driver.erl, "gen_server family" and "callbacks".
"""

from collections.abc import Callable, Hashable
from typing import Any, cast

from poe.actors import (
    HIBERNATE,
    IGNORE,
    NO_REPLY,
    TIMED_OUT,
    ActorExit,
    ActorRef,
    Call,
    Continue,
    GenServer,
    IdleTimeout,
    Reply,
    Stop,
)
from poe.actors.message import SystemRequest
from poe.errors import ActorError, NameTaken, NotSuspended, StartFailed
from tests.conformance.otp_children import end_in_terminate, plain_exit
from tests.conformance.otp_terms import key, raise_error, term
from tests.conformance.otp_world import LIMIT_S, Command, World, exit_reason

COMMAND_S = 0.0005
"""A real command takes some time, so that two waits of 20 ms and one of 40 ms are not a tie."""

Action = dict[str, Any]


class RefusedChange(Exception):
    """The new code does not want the old state."""


class Act:
    """A message that says what the callback is to do."""

    def __init__(self, action: Action) -> None:
        self.action = action


class Thrown(Exception):
    """A thrown value; OTP takes it for what the callback returned."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(value)


class Server(GenServer):
    """Does in its callbacks what the messages say; its state is `v`."""

    def init(self, world: World, name: Hashable, action: Action, *, trap: bool) -> Any:
        """Start as the action says."""
        self.trap_exits = trap
        self._world = world
        self.v: object = 0
        self._callers: dict[str, Call] = {}
        self._term: object = None
        world.register(name, self.ref)
        world.note("init", self.ref)
        return self._prepared(action, self._begin)

    def _begin(self, action: Action) -> Any:
        if action.get("ret") == "ignore":
            return IGNORE
        if "bad" in action:
            return NO_REPLY
        if "stop" in action:
            return Stop(term(action["stop"]))
        return _then(action)

    def handle_call(self, request: Act, caller: Call) -> Any:
        """Act on a call."""
        self._world.note("call", self.ref, self.v)
        return self._prepared(request.action, lambda action: self._act(action, caller))

    def handle_cast(self, message: Act) -> Any:
        """Act on a cast."""
        self._world.note("cast", self.ref, self.v)
        return self._prepared(message.action, self._act)

    def handle_info(self, message: Any) -> Any:
        """Act on a message, or note it."""
        if isinstance(message, Act):
            self._world.note("info", self.ref, "action")
            return self._prepared(message.action, self._act)
        if message is TIMED_OUT or message == "timeout":
            self._world.note("timeout", self.ref)
        else:
            self._world.note("info", self.ref, plain_exit(message))
        return None

    def handle_continue(self, action: Action) -> Any:
        """Act on a continuation."""
        self._world.note("continue", self.ref, self.v)
        return self._prepared(action, self._act)

    def terminate(self, reason: object) -> None:
        """Note it, and end as the last action with `term` wanted."""
        self._world.note("term", self.ref, reason)
        if isinstance(self._term, tuple):
            end_in_terminate(*self._term)

    def code_change(self, argument: object) -> None:
        """Take the argument for the state, or refuse."""
        if argument == "fail":
            raise RefusedChange
        self.v = argument

    def _prepared(self, action: Action, then: Callable[[Action], Any]) -> Any:
        """Do what every action may ask for, and go on with `then`, at once or after a sleep."""
        if "sleep" in action:
            return self._after_sleep(action, then)
        return self._finish(action, then)

    async def _after_sleep(self, action: Action, then: Callable[[Action], Any]) -> Any:
        await self.sleep(action["sleep"] / 1000)
        return self._finish(action, then)

    def _finish(self, action: Action, then: Callable[[Action], Any]) -> Any:
        try:
            self._do(action)
        except Thrown as thrown:
            return Stop(("bad_return_value", thrown.value))
        return then(action)

    def _do(self, action: Action) -> None:
        # A callback that raises, or returns what it must not, has not returned a new state.
        if not {"raise", "bad"} & action.keys():
            self.v = term(action.get("set", self.v))
            self._term = term(action.get("term", self._term))
        if "send_self" in action:
            self.ref.cell.post(term(action["send_self"]), self.ref)
        if action.get("reply_to") in self._callers:
            self.reply(self._callers[action["reply_to"]], term(action.get("v")))
        if "raise" in action:
            kind, reason = term(action["raise"])
            if kind == "error":
                raise_error(reason)
            raise ActorExit(reason) if kind == "exit" else Thrown(reason)

    def _act(self, action: Action, caller: Call | None = None) -> Any:
        """Return what the callback is to return."""
        if "bad" in action:
            return IGNORE
        is_reply = caller is not None and "reply" in action
        if "stop" in action:
            reply = term(action["reply"]) if is_reply else NO_REPLY
            return Stop(term(action["stop"]), reply)
        then = _then(action)
        if caller is None:
            return then
        value: object = NO_REPLY
        if is_reply:
            value = term(action["reply"])
        elif "defer" in action:
            self._callers[action["defer"]] = caller
        return value if then is None else Reply(value, then)


def _then(action: Action) -> Any:
    if "continue" in action:
        return Continue(action["continue"])
    if "timeout" in action:
        return IdleTimeout(action["timeout"] / 1000)
    return HIBERNATE if action.get("hibernate") else None


class ServerFamily:
    """Carries out the commands on servers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._calls: dict[str, Call] = {}

    def command(self, command: Command) -> Any:
        """Carry out one command and return its `ret`."""
        if command["op"] not in ("gs_start", "gs_wait", "sleep"):
            server = self._world.current.get(key(command["s"]))
            if server is None:
                return "exit", "no_such_server"
        method = getattr(self, f"_do_{command['op']}")
        ret = method(command)
        self._world.system.advance(COMMAND_S)
        return ret

    def _server(self, command: Command) -> ActorRef:
        return self._world.current[key(command["s"])]

    def _reply(self, action: Callable[[Any], Any]) -> object:
        try:
            return "reply", self._world.run(action)
        except ActorError as error:
            return "exit", exit_reason(error)

    def _do_gs_start(self, command: Command) -> object:
        arguments = self._world, key(command["s"]), command.get("init", {})
        keywords = {"trap": command.get("trap", False), "name": command.get("name")}
        try:
            if command.get("via", "start_link") == "start":
                ref = self._world.system.start(Server, *arguments, **keywords)
            else:
                ref = self._world.run(lambda main: main.start_link(Server, *arguments, **keywords))
        except NameTaken as error:
            return "error", ("already_started", error.ref)
        except StartFailed as error:
            return "error", error.reason
        return "ignore" if ref is None else ("ok", ref)

    def _do_gs_call(self, command: Command) -> object:
        server, act = self._server(command), Act(command["a"])
        return self._reply(lambda main: main.call(server, act, _timeout_s(command)))

    def _do_gs_acall(self, command: Command) -> object:
        server, act = self._server(command), Act(command["a"])
        self._calls[command["tag"]] = self._world.run(lambda main: [main.call(server, act, None)])[
            0
        ]
        return "ok"

    def _do_gs_wait(self, command: Command) -> object:
        call = self._calls.pop(command["tag"], None)
        if call is None:
            return "no_request"
        ret = self._reply(lambda main: main.wait_reply(call, command["ms"] / 1000))
        return "timeout" if ret == ("exit", "timeout") else ret

    def _do_gs_cast(self, command: Command) -> object:
        self._world.system.cast(self._server(command), Act(command["a"]))
        return "ok"

    def _do_gs_info(self, command: Command) -> object:
        message = Act(command["a"]) if "a" in command else term(command["msg"])
        self._world.send(self._server(command), message)
        return "ok"

    def _do_gs_stop(self, command: Command) -> object:
        server, reason = self._server(command), term(command.get("reason", "normal"))
        ret = self._reply(lambda main: main.stop_actor(server, reason, _timeout_s(command)))
        return "ok" if ret == ("reply", None) else ret

    def _do_gs_exit(self, command: Command) -> object:
        server, reason = self._server(command), term(command["reason"])
        sender = command.get("from", "parent")
        if sender == "parent":
            self._world.run(lambda main: main.exit(server, reason))
        elif sender == "linked":
            self._world.as_stranger(lambda stranger: stranger.link(server) or reason)
        else:
            self._world.as_stranger(lambda stranger: stranger.exit(server, reason))
        return "ok"

    def _do_sys(self, command: Command) -> object:
        server, operation, value = self._server(command), command["f"], term(command.get("v"))
        argument = value
        if operation == "terminate":
            operation = "stop"
        elif operation == "replace_state":
            argument = _with_v(value)
        try:
            answer = self._world.call(server, SystemRequest(operation, argument), LIMIT_S)
        except NotSuspended:
            return "error", "not_suspended"
        except RefusedChange:
            return "error", ("error", "refused")
        except ActorError as error:
            reason = exit_reason(error)
            return "ok" if operation == "stop" and reason == value else ("exit", reason)
        return cast("dict[str, object]", answer)["v"] if operation.endswith("_state") else "ok"

    def _do_sleep(self, command: Command) -> object:
        self._world.run(lambda main: main.sleep(command["ms"] / 1000))
        return "ok"


def _with_v(value: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda state: {**state, "v": value}


def _timeout_s(command: Command) -> float | None:
    timeout = command.get("timeout", LIMIT_S * 1000)
    return None if timeout == "infinity" else timeout / 1000
