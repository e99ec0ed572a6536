"""What a GenServer can do to others: call, cast, start, link, monitor, exit, timers.

Everything goes through the actor's cell, so these methods hold no state of their own.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from poe.actors.address import LoopAddress, cell_of
from poe.actors.call import Call, Response, Wait
from poe.actors.message import TIMED_OUT, Cast, ExitSignal, Monitor, Start
from poe.actors.reason import NOPROC, Reason, is_same
from poe.actors.server_cell import ServerCell
from poe.actors.work import Work
from poe.errors import ActorDead, CallTimeout
from poe.errors.timeout import check_timeout, limit_of

if TYPE_CHECKING:
    from poe.actors.gen_server import GenServer
    from poe.actors.timer_queue import Timer

T = TypeVar("T")

CALL_TIMEOUT_S = 5.0
"""Default patience of `call`, as in OTP."""


class GenServerOperations:
    """The operations of `GenServer`; may be used inside its callbacks only.

    They rely on `_myRef` alone, and not on each other: a subclass may have attributes and methods
    of their names. A behaviour that must work whatever its subclasses do makes `operations_of` the
    actor, an object that has nothing else.
    """

    _myRef: ServerCell  # noqa: N815 - Thespian's name

    @property
    def ref(self) -> LoopAddress:
        """Return this actor's own address."""
        return self._myRef.address

    @property
    def parent(self) -> LoopAddress | None:
        """Return the actor that started this one; None when an application thread did."""
        parent = self._myRef.parent
        return None if parent is None else parent.address

    @property
    def name(self) -> str | None:
        """Return the name this actor is registered under, if any."""
        return self._myRef.name

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
        cell = self._myRef
        server = ref.cell if type(ref) is LoopAddress else cell.system.find(ref)
        call = Call(request, cell, server, timeout_s)
        if server is None or server is cell:
            call.fail(ActorDead(ref, NOPROC if server is None else "calling_self"))
            return call
        if cell.blocked_by is None:
            # A plain callback goes on after this: were the server next, it could call back here,
            # into the middle of that callback. A coroutine's actor keeps such a call for later.
            server.queue.append((server, call, None))
        else:
            cell.system.hand_over(server, call)
        if not call.is_done:
            cell.system.unarmed.append(call)
        return call

    def call_leaf(self, ref: LoopAddress, request: object) -> Call:
        """Send a request to a server that calls nobody itself, without a time-out.

        Unlike that of `call`, it `is_done` on return within a plain callback, too, where nothing is
        queued before the server. A server that calls back would do so into the middle of it.

        Raises (when awaited):
            ActorDead: as `call`.
        """
        cell, server = self._myRef, ref.cell
        call = Call(request, cell, server, None)
        cell.system.hand_over(server, call)
        if not call.is_done:
            cell.system.unarmed.append(call)
        return call

    def cast(self, ref: LoopAddress | str, message: object) -> None:
        """Send a message that expects no answer; a dead receiver is no error.

        Raises:
            MailboxFull: as many as its `mailbox_max` wait for the receiver, which is busy or
                suspended. A receiver in another process is not asked: it drops and logs those.
        """
        cell = ref.cell if type(ref) is LoopAddress else self._myRef.system.find(ref)
        if cell is not None:
            if cell.blocked_by is not None:
                cell.admit()
            cell.queue.append((cell, Cast(message), self._myRef.address))

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
            call.timer = self._myRef.own().add_timer(timeout_s, call.expire)
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
            ActorDead: it was gone already, or ended with another reason.
            CallTimeout: it has not ended after `timeout_s`; it still will.
        """
        timeout_s = limit_of(timeout_s)
        own, cell = self._myRef, cell_of(ref)
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
        """Answer such a call with an error that its caller raises."""
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
        start_timeout_s = limit_of(start_timeout_s, "start_timeout_s")
        cell = self._myRef
        child = cell.system.spawn(actor_class, cell, name)
        cell.link(child)
        call = Call(None, cell, child, None)
        start = Start(args, kwargs, call)
        if cell.blocked_by is None:
            child.queue.append((child, start, None))  # as in `call`
        else:
            cell.system.hand_over(child, start)
        if start_timeout_s is not None and not call.is_done:
            call.timer = cell.system.add_timer(start_timeout_s, start.expire)
        return call

    def link(self, ref: LoopAddress) -> None:
        """Tie this actor's end to another's.

        A trapping actor gets the `Exit` of one that is dead already.

        Raises:
            ActorDead: it is dead, and this actor does not trap exits.
        """
        other = cell_of(ref)
        if other.instance is None and not self._myRef.instance.trap_exits:
            raise ActorDead(ref, NOPROC)
        self._myRef.link(other)

    def unlink(self, ref: LoopAddress) -> None:
        """Undo a link; an exit of `ref` that came along it and still waits is dropped."""
        self._myRef.unlink(cell_of(ref))

    def monitor(self, ref: LoopAddress | str) -> Monitor:
        """Ask for a `Down` when `ref`, or the actor that has the name now, ends."""
        cell = self._myRef
        if type(ref) is LoopAddress:
            return cell.own().add_monitor(ref.cell)
        if not isinstance(ref, str):
            return cell.own().add_monitor(cell_of(ref))
        system = cell.system
        return cell.own().add_monitor(system.find(ref) or system.cell_of_nobody(ref), ref)

    def demonitor(self, monitor: Monitor) -> None:
        """Take a monitor back, together with a `Down` that already waits in the mailbox."""
        self._myRef.own().drop_monitor(monitor)

    async def wait_down(self, monitor: Monitor, timeout_s: float | None = None) -> Reason:
        """Await the end of a monitored actor: its reason, or `TIMED_OUT`.

        Other messages wait in the mailbox meanwhile.
        """
        return await _wait_down(self._myRef, monitor, limit_of(timeout_s))

    def sleep(self, seconds: float) -> Awaitable[object]:
        """Let time pass without serving messages; the system goes on meanwhile."""
        wait = Wait(self._myRef)
        wait.timer = self._myRef.own().add_timer(seconds, wait.expire)
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
        cell_of(ref).post(ExitSignal(self._myRef.address, reason))

    def send_after(self, delay_s: float, message: object) -> "Timer":
        """Deliver `message` to this actor's `handle_info` after `delay_s`; cancellable.

        It is cancelled when the actor ends. A full mailbox does not refuse it.
        """
        cell = self._myRef
        return cell.own().add_timer(delay_s, lambda: cell.post(message))

    def monotonic_s(self) -> float:
        """Return the system's monotonic clock (a test's own clock where one is injected)."""
        return self._myRef.system.monotonic_s()

    def whereis(self, name: str) -> LoopAddress | None:
        """Return the address of the actor registered under a name, or None."""
        return self._myRef.system.whereis(name)

    def register(self, name: str) -> None:
        """Give this actor its one name.

        Raises:
            NameTaken: the name belongs to a live actor, or this actor has a name already.
        """
        self._myRef.system.register_name(name, self._myRef)

    def unregister(self, name: str) -> None:
        """Free a name, whoever has it.

        Raises:
            ActorDead: nobody has it.
        """
        self._myRef.system.unregister_name(name)


def operations_of(actor: GenServerOperations) -> GenServerOperations:
    """Return the operations of an actor, whatever its class has made of their names."""
    operations = GenServerOperations()
    operations._myRef = actor._myRef  # noqa: SLF001 - of the same class
    return operations


async def _wait_down(cell: ServerCell, monitor: Monitor, timeout_s: float | None) -> Reason:
    down = cell.own().take_down(monitor)
    if down is not None:
        return down.reason
    wait = Wait(cell, monitor)
    if timeout_s is not None:
        wait.timer = cell.own().add_timer(timeout_s, wait.expire)
    return await wait
