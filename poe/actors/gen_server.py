"""GenServer: an actor with OTP's callbacks, calls, exit reasons, links and monitors.

The class is what a user writes a subclass of: callbacks to override, operations to use in them.
What runs it is its cell, a `ServerCell`. A callback may be `async def`: while it awaits a call,
*this* actor's further messages wait in its mailbox, as an Erlang process's do, and nobody else
waits.

Each callback has a default that tells a programmer what is missing. What a callback returns says
what comes next: `Continue`, `IdleTimeout` and `HIBERNATE` may be returned by each of them but
`terminate`, and by `handle_call` with an answer: `Reply(value, then)`.

Source: OTP `gen_server`, `proc_lib`; differences: state is the instance's attributes, so callbacks
return only what is to happen next. A missing callback ends the actor as `undef` does, but for
`handle_info` and `terminate`, which are optional there too.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

from poe.actors.actor_cell import LoopAddress, cell_of
from poe.actors.call import Call, Response, Start, Wait
from poe.actors.message import TIMED_OUT, Cast, ExitSignal, Monitor, check_error
from poe.actors.reason import NOPROC, Reason, is_same
from poe.actors.server_cell import ServerCell, cell_of_actor
from poe.actors.timer_queue import Timer
from poe.actors.work import Work
from poe.errors import ActorDead, CallTimeout
from poe.errors.timeout import check_delay, check_timeout, limit_of

logger = logging.getLogger("poe.actors")

T = TypeVar("T")

CALL_TIMEOUT_S = 5.0
"""Default patience of `call`, as in OTP."""


class GenServer:
    """Base class of all actors of Poe.

    Override the callbacks you need (`init`, `handle_call`, `handle_cast`, `handle_info`,
    `handle_continue`, `terminate`) and use the other methods in them; keep state in attributes. At
    any time at most one callback runs. While it awaits something, messages wait in the mailbox.

    Any name is free for an attribute: the runtime keeps nothing among them. An attribute or method
    that is called as one of the methods here hides it from this class's own callbacks, and from
    nobody else; `ref`, `name` and `parent` cannot be set.

    Life: `init` - callbacks - `terminate` (if the actor stops by itself, or traps exits and its
    parent asks) - end. `terminate` does not run when the actor is killed, nor when it does not
    trap exits and gets an exit signal.
    """

    # A behaviour that must work whatever its subclasses do makes `operations_of` the actor. So
    # methods rely on the cell alone, and not on each other: a subclass may have their names.
    __slots__ = ("__cell", "__dict__", "__weakref__")

    __cell: ServerCell

    trap_exits: bool = False
    """Exit signals become `Exit` messages; the parent's one runs `terminate`."""

    mailbox_max: ClassVar[int] = 65_536
    """Messages that may wait while a callback is suspended; the sender of one more gets
    `MailboxFull`."""

    hibernate_after_s: ClassVar[float | None] = None
    """Seconds without a message after which the actor hibernates by itself; None: it does not."""

    colocated: ClassVar[bool] = False
    """On bases with a process for each actor: run in that of the actor which starts this one."""

    pinned_to_loop: ClassVar[bool] = False
    """Run in the event loop's thread only; needed by actors that own sockets."""

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 - as Python passes them
        """Refuse settings with which an actor could not work.

        Raises:
            ValueError: `mailbox_max` or `hibernate_after_s` is out of range.
        """
        super().__init_subclass__(**kwargs)
        mailbox_max: object = cls.mailbox_max
        if not (isinstance(mailbox_max, int) and mailbox_max >= 1):
            msg = f"{cls.__name__}: mailbox_max is {mailbox_max!r}; use an integer, 1 or more"
            raise ValueError(msg)
        if cls.hibernate_after_s is not None:
            check_delay(cls.hibernate_after_s, f"{cls.__name__}: hibernate_after_s")

    def init(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - may be a coroutine
        """Set up the state; override it with the parameters that `start_link` is to be given.

        Returns None, what comes next, `Stop(reason)` or `IGNORE`; after anything else the start has
        failed with reason `("bad_return_value", value)`.
        """
        if args or kwargs:
            msg = f"{type(self).__name__} has no init, so it takes no arguments"
            raise TypeError(msg)

    def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Answer a request: return the reply, `NO_REPLY`, `Reply`, `Error` or `Stop`."""
        del caller
        msg = f"{type(self).__name__} has no handle_call for {type(request).__name__}"
        raise TypeError(msg)

    def handle_cast(self, message: Any) -> Any:  # noqa: ANN401
        """Take a message that expects no answer; return None, what comes next, or `Stop`.

        Any other value is dropped, from `handle_info` too: a check would slow every message down.
        """
        msg = f"{type(self).__name__} has no handle_cast for {type(message).__name__}"
        raise TypeError(msg)

    def handle_info(self, message: Any) -> Any:  # noqa: ANN401
        """Take any other message, also `Exit`, `Down`, `TIMED_OUT`; log and drop it by default."""
        logger.warning("%s dropped an unexpected %s", self.__cell.address, type(message).__name__)

    def handle_continue(self, argument: Any) -> Any:  # noqa: ANN401
        """Go on after a callback that returned `Continue`, before any other message."""
        msg = f"{type(self).__name__} has no handle_continue for {argument!r}"
        raise TypeError(msg)

    def terminate(self, reason: Reason) -> Any:  # noqa: ANN401
        """Clean up; may be a coroutine."""

    def code_change(self, argument: Any) -> None:  # noqa: ANN401
        """Change the state of this actor, which is suspended, as `change_code` asks for.

        Whatever it raises goes to who asked; the attributes are then what they were. What they
        refer to is not copied: change no list or dict in place before all that can fail is done.
        """
        del argument
        msg = f"{type(self).__name__} has no code_change"
        raise TypeError(msg)

    def describe_role(self) -> str:
        """Say in a word or two what this actor is at present; shown by `poe.supervision.tree`.

        Called at any moment, even within another callback, so it must neither change nor send.
        """
        return ""

    def get_state(self) -> dict[str, Any]:
        """Return the attributes that are this actor's state, for inspection and tests."""
        return dict(vars(self))

    def set_state(self, state: dict[str, Any]) -> None:
        """Replace the attributes that `get_state` returns."""
        vars(self).clear()
        for name, value in state.items():
            setattr(self, name, value)

    # ---- operations: inside callbacks only ----------------------------------------------------

    @property
    def ref(self) -> LoopAddress:
        """Return this actor's own address."""
        return self.__cell.address

    @property
    def parent(self) -> LoopAddress | None:
        """Return the actor that started this one; None when an application thread did."""
        parent = self.__cell.parent
        return None if parent is None else parent.address

    @property
    def name(self) -> str | None:
        """Return the name this actor is registered under, if any."""
        return self.__cell.name

    def call(
        self, ref: LoopAddress | str, request: object, timeout_s: float | None = CALL_TIMEOUT_S
    ) -> Call:
        """Send a request; await what is returned for the reply.

        Within a coroutine, and where nothing is queued before the server, the call `is_done` on
        return.

        Raises (when awaited):
            ActorDead: the actor is not there, or ended before it answered.
            CallTimeout: no reply within `timeout_s`; the work may have been done.
        """
        if timeout_s is not None and timeout_s != CALL_TIMEOUT_S:
            timeout_s = limit_of(timeout_s)
        cell = self.__cell
        server = ref.cell if type(ref) is LoopAddress else cell.system.find(ref)
        call = Call(request, cell, server, timeout_s)
        if server is None or server is cell:
            dead = ActorDead(ref, NOPROC if server is None else "calling_self")
            cell.run_queue.hand_back(call, dead)
            return call
        if cell.blocked_by is None:
            # A plain callback goes on after this: were the server next, it could call back here,
            # into the middle of that callback. A coroutine's actor keeps such a call for later.
            server.queue.append((server, call, None))
        else:
            cell.run_queue.hand_over(server, call)
        if not call.is_done:
            cell.run_queue.unarmed.append(call)
        return call

    def cast(self, ref: LoopAddress | str, message: object) -> None:
        """Send a message that expects no answer; a dead receiver is no error.

        Raises:
            MailboxFull: as many as its `mailbox_max` wait for the receiver, which is busy or
                suspended. A receiver in another process is not asked: it drops and logs those.
        """
        cell = ref.cell if type(ref) is LoopAddress else self.__cell.system.find(ref)
        if cell is not None:
            if cell.blocked_by is not None:
                cell.admit()
            cell.queue.append((cell, Cast(message), self.__cell.address))

    async def wait_reply(self, call: Call, timeout_s: float | None = None) -> Any:  # noqa: ANN401
        """Await the reply of a call made before, for `timeout_s`; then it is given up.

        Raises:
            ActorDead: as `call` does.
            CallTimeout: no reply yet; a late one is dropped.
        """
        timeout_s = limit_of(timeout_s)
        if not call.is_done and timeout_s is not None:
            if call.timer is not None:
                call.timer.cancel()
            call.timeout_s = timeout_s
            call.timer = self.__cell.own().add_timer(timeout_s, call.expire)
        return await call

    async def wait_response(self, call: Call, timeout_s: float) -> Any:  # noqa: ANN401
        """Await the reply of a call for `timeout_s`: the reply, or `TIMED_OUT`.

        Unlike `wait_reply` it gives nothing up: the call goes on and may be waited for again.

        Raises:
            ActorDead: as `call` does.

        Source: OTP `gen_server:wait_response/2`.
        """
        return await Response(call, check_timeout(timeout_s))

    async def stop_actor(
        self, ref: LoopAddress, reason: Reason = "normal", timeout_s: float | None = None
    ) -> None:
        """Make an actor terminate with `reason`, and wait until it is gone.

        Raises:
            ActorDead: it was gone already, or ended with another reason; or it is this actor, which
                cannot wait for its own end.
            CallTimeout: it has not ended after `timeout_s`; it still will.
        """
        timeout_s = limit_of(timeout_s)
        own, cell = self.__cell, cell_of(ref)
        if cell is own:
            raise ActorDead(ref, "calling_self")
        monitor = own.own().add_monitor(cell)
        own.system.request_stop(cell, reason)
        ended_with = await _wait_down(own, monitor, timeout_s)
        if ended_with is TIMED_OUT:
            own.own().drop_monitor(monitor)
            raise CallTimeout(ref, timeout_s or 0.0)
        if not is_same(ended_with, reason):
            raise ActorDead(ref, ended_with)

    def reply(self, caller: Call, value: object) -> None:
        """Answer a call whose `handle_call` returned `NO_REPLY`."""
        caller.answer(value)

    def reply_error(self, caller: Call, error: Exception) -> None:
        """Answer such a call with an error that its caller raises.

        Raises:
            TypeError: it is no exception.
        """
        check_error(error)
        caller.fail(error)

    def start_link(
        self,
        actor_class: "type[GenServer]",
        *args: object,
        name: str | None = None,
        start_timeout_s: float | None = None,
        **kwargs: object,
    ) -> Awaitable[LoopAddress | None]:
        """Start an actor linked to this one; its parent is this one.

        Await it for the address, or None when its `init` returned `IGNORE`. An `init` that still
        waits for something after `start_timeout_s` is cut short, and the actor killed.

        Raises (when awaited):
            StartFailed: `init` raised, stopped or took too long; `reason` says why.
            NameTaken: another live actor has the name (raised at once).
        """
        if start_timeout_s is not None:
            start_timeout_s = limit_of(start_timeout_s, "start_timeout_s")
        cell = self.__cell
        child = cell.system.spawn(actor_class, cell, name)
        cell.link(child)
        call = Call(None, cell, child, None)
        start = Start(args, kwargs, call)
        if cell.blocked_by is None:
            child.queue.append((child, start, None))  # as in `call`
        else:
            cell.run_queue.hand_over(child, start)
        if start_timeout_s is not None and not call.is_done:
            call.timer = cell.run_queue.add_timer(start_timeout_s, start.expire)
        return call

    def link(self, ref: LoopAddress) -> None:
        """Tie this actor's end to another's.

        A trapping actor gets the `Exit` of one that is dead already.

        Raises:
            ActorDead: it is dead, and this actor does not trap exits.
        """
        other = cell_of(ref)
        if other.instance is None and not self.__cell.instance.trap_exits:
            raise ActorDead(ref, NOPROC)
        self.__cell.link(other)

    def unlink(self, ref: LoopAddress) -> None:
        """Undo a link; an exit of `ref` that came along it and still waits is dropped."""
        self.__cell.unlink(cell_of(ref))

    def monitor(self, ref: LoopAddress | str) -> Monitor:
        """Ask for a `Down` when `ref`, or the actor that has the name now, ends."""
        cell = self.__cell
        if type(ref) is LoopAddress:
            return cell.own().add_monitor(ref.cell)
        if not isinstance(ref, str):
            return cell.own().add_monitor(cell_of(ref))
        system = cell.system
        return cell.own().add_monitor(system.find(ref) or system.cell_of_nobody(ref), ref)

    def demonitor(self, monitor: Monitor) -> None:
        """Take a monitor back, together with a `Down` that already waits in the mailbox."""
        self.__cell.own().drop_monitor(monitor)

    async def wait_down(self, monitor: Monitor, timeout_s: float | None = None) -> Reason:
        """Await the end of a monitored actor: its reason, or `TIMED_OUT`.

        Other messages wait in the mailbox meanwhile.
        """
        return await _wait_down(self.__cell, monitor, limit_of(timeout_s))

    def sleep(self, seconds: float) -> Awaitable[object]:
        """Let time pass without serving messages; the system goes on meanwhile."""
        wait = Wait(self.__cell)
        wait.timer = self.__cell.own().add_timer(seconds, wait.expire)
        return wait

    async def run_blocking(self, function: Callable[..., T], *args: object) -> T:
        """Have a thread call a function that blocks, and await what it returns.

        This actor's other messages wait meanwhile, as behind any await; other actors go on. What
        the function raises is raised here. If the actor ends first, nobody hears of the end, and
        the function, which cannot be ended, runs on. `Work` is for an actor that goes on, too.

        Raises (when awaited):
            TooMuchWork: `Work`s of this actor that are not done are too many.
        """
        work = Work(self, partial(function, *args), is_awaited=True)
        return cast("T", await work.outcome())

    def exit(self, ref: LoopAddress, reason: Reason) -> None:
        """Send an exit signal; `"kill"` cannot be trapped."""
        cell_of(ref).post(ExitSignal(self.__cell.address, reason))

    def send_after(self, delay_s: float, message: object) -> Timer:
        """Deliver `message` to this actor's `handle_info` after `delay_s`; cancellable.

        It is cancelled when the actor ends. A full mailbox does not refuse it.
        """
        cell = self.__cell
        return cell.own().add_timer(delay_s, lambda: cell.post(message))

    def monotonic_s(self) -> float:
        """Return the system's monotonic clock (a test's own clock where one is injected)."""
        return self.__cell.run_queue.monotonic_s()

    def whereis(self, name: str) -> LoopAddress | None:
        """Return the address of the actor registered under a name, or None."""
        return self.__cell.system.whereis(name)

    def register(self, name: str) -> None:
        """Give this actor its one name.

        Raises:
            NameTaken: the name belongs to a live actor, or this actor has a name already.
        """
        self.__cell.system.register_name(name, self.__cell)

    def unregister(self, name: str) -> None:
        """Free a name, whoever has it.

        Raises:
            ActorDead: nobody has it.
        """
        self.__cell.system.unregister_name(name)


def operations_of(actor: GenServer) -> GenServer:
    """Return the operations of an actor, whatever its class has made of their names."""
    operations = GenServer()
    cell_of_actor(actor).house(operations)
    return operations


async def _wait_down(cell: ServerCell, monitor: Monitor, timeout_s: float | None) -> Reason:
    if type(monitor) is not Monitor:
        msg = f"wait_down takes what `monitor` gave, not {monitor!r}; nobody would tell of its end"
        raise TypeError(msg)
    down = cell.own().take_down(monitor)
    if down is not None:
        return down.reason
    wait = Wait(cell, monitor)
    if timeout_s is not None:
        wait.timer = cell.own().add_timer(timeout_s, wait.expire)
    return await wait
