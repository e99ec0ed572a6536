"""The cell of a GenServer: runs its callbacks, one at a time and in order, and keeps their state.

It turns messages into callbacks of the instance, and what they return into what happens next.
Nothing of it is kept in the instance: whatever attributes a user's class has, the actor can be
called, stopped and looked at. An exception ends the actor with that exception as its reason;
Thespian's habit of running the message again never applies.

Source: OTP `gen_server` (of its end: terminate/10), `proc_lib`, `sys`; Erlang reference manual,
"Processes"; `spec/otp.md` §2.5, §2.6 and §3. `gen_server.py` names the differences.
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from operator import attrgetter
from types import CoroutineType
from typing import Any, Final, Protocol, cast

from thespian.actors import ActorExitRequest, Thespian_StatusReq

from poe.actors.actor_cell import ActorCell, LoopAddress
from poe.actors.actor_status import ActorStatus, Inspector
from poe.actors.belongings import Belongings
from poe.actors.call import Call, Start, Wait
from poe.actors.idle_time import IdleTime
from poe.actors.mailbox import Mailbox
from poe.actors.message import (
    HIBERNATE,
    IGNORE,
    NO_REPLY,
    REPLY,
    SUSPENDED,
    Cast,
    Continue,
    Down,
    DownSignal,
    Error,
    Exit,
    ExitSignal,
    IdleTimeout,
    Monitor,
    Reply,
    Stop,
    SystemRequest,
    Token,
)
from poe.actors.reason import (
    KILL,
    KILLED,
    NORMAL,
    SHUTDOWN,
    ActorExit,
    Reason,
    is_for_program,
    is_orderly,
    is_word,
    reason_of,
)
from poe.actors.reports import report_crash
from poe.errors import ActorDead, NotSuspended, StartFailed
from poe.errors.tracebacks import drop_tracebacks

logger = logging.getLogger("poe.actors")

_DIRECTIVES = frozenset({CoroutineType, Token, Stop, Continue, IdleTimeout, Reply, Error, type})
"""Types of results that are more than a plain reply; one look-up keeps the usual call fast."""

_ANSWERED = frozenset({Call, Start})

_THEN = frozenset({Token, Continue, IdleTimeout})
"""Types of what comes after a `Reply`."""

_ENVELOPES = frozenset({ExitSignal, DownSignal, Start, ActorExitRequest, Thespian_StatusReq})
"""Types that `_dispatch` opens; what is neither these nor call or cast is for `handle_info`."""


_CELL: Final = "_GenServer__cell"
"""Where a GenServer keeps its cell. By Python's rule for private names it is out of the way of all
names that a user's class may have."""

cell_of_actor: Callable[[object], "ServerCell"] = attrgetter(_CELL)
"""Return the cell that runs a GenServer, whatever names its class has."""


class Observer(Protocol):
    """Whatever sees each message before its actor does."""

    def see(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Look at a message."""


class ServerCell(ActorCell):
    """The place of one GenServer in its system, and the one who runs it.

    `blocked_by` says why the next message has to wait: None - it does not; a coroutine - a callback
    awaits something, `awaited`; a `Continue` - `handle_continue` comes first, when it is its turn;
    `SUSPENDED`; once the actor has ended it is left alone. `handling` is the call or start that the
    running callback is to answer. `belongings` is what ends with the actor: timers, monitors that
    it has of others, calls that it waits for.
    """

    __slots__ = (
        "awaited",
        "behaviour",
        "belongings",
        "handling",
        "mailbox",
        "observers",
        "stop",
        "unanswered",
    )

    def __init__(self, *args: Any) -> None:  # noqa: ANN401 - those of `ActorCell`
        super().__init__(*args)
        self.awaited: Call | Wait | Continue | None = None
        self.behaviour: Any = None
        """What a behaviour built on GenServer keeps, such as the children of a supervisor."""
        self.belongings: Belongings | None = None
        self.handling: Call | Start | None = None
        self.mailbox: Mailbox | None = None
        self.observers: tuple[Observer, ...] | None = None
        self.stop: Stop | None = None
        self.unanswered: dict[Call, None] | None = None

    def house(self, actor: object) -> None:
        """Become the cell of a GenServer, as far as that knows."""
        object.__setattr__(actor, _CELL, self)

    def call_leaf(self, ref: LoopAddress, request: object) -> Call:
        """Call, on behalf of this actor, a server that calls nobody itself, without a time-out.

        Unlike what `GenServer.call` makes, it `is_done` on return within a plain callback, too,
        where nothing is queued before the server. A server that calls back would do so into the
        middle of that callback.

        Raises (when awaited):
            ActorDead: as `GenServer.call`.
        """
        server, run_queue = ref.cell, self.run_queue
        call = Call(request, self, server, None)
        run_queue.hand_over(server, call)
        if not call.is_done:
            run_queue.unarmed.append(call)
        return call

    def cast_from_outside(self, message: object) -> None:
        """Cast to this actor from a thread that runs no actors.

        Raises:
            MailboxFull: as `GenServer.cast`.
        """
        self.run_queue.send_from_outside(self, Cast(message), None)

    # ---- the way in ---------------------------------------------------------------------------

    # In one piece: every message passes here, and each frame would cost it 5 %.
    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401, C901, PLR0912
        """Take one message; every entry of the run queue for this actor ends here."""
        try:
            if self.observers is not None:
                for observer in self.observers:
                    observer.see(message, sender)
            if self.blocked_by is None:
                kind = type(message)
                if kind is Call:
                    if sender is not REPLY:
                        request = message.request
                        if type(request) is SystemRequest:
                            self._serve_system(message)
                        else:
                            self.handle(message, self.instance.handle_call, request, message)
                elif kind is Cast:
                    self.handle(None, self.instance.handle_cast, message.message)
                elif kind in _ENVELOPES:
                    self._dispatch(message, sender)
                elif kind is not Wait:
                    self.handle(None, self.instance.handle_info, message)
            elif sender is REPLY:
                if message is self.awaited and self.awaited is not None:
                    self._resume(self.awaited)
            elif self.instance is None:
                self.refuse(message, sender)
            else:
                self._receive_while_blocked(message, sender)
        except BaseException:
            # A user's object has raised where no callback runs. Who waits is to hear of the end.
            if self.handling is None and sender is not REPLY and type(message) in _ANSWERED:
                self.handling = message
            raise

    def handle(self, origin: Call | Start | None, callback: Any, *args: Any) -> None:  # noqa: ANN401
        """Run one callback and do as its result says."""
        try:
            result = callback(*args)
        except BaseException as error:
            self.handling = origin
            if is_for_program(error):
                raise  # whoever runs actors aborts this one
            self._crash(error)
            return
        kind = type(result)
        if kind is CoroutineType:
            self.handling = origin
            self.blocked_by = result
            self._step(result, None)
            if self.mailbox is not None and self.blocked_by is None:
                self.mailbox.coming_count = 0  # as in `_serve_mailbox`
        elif kind in _DIRECTIVES:
            self.handling = origin
            self._obey(result)
        elif origin is not None:
            origin.answer(result)

    def _obey(self, result: Any) -> None:  # noqa: ANN401
        """Do what a callback's result asks for."""
        kind = type(result)
        if kind is CoroutineType:
            self.blocked_by = result
            self._step(result, None)
            return
        if self.stop is not None:
            self._end_now(self.stop.reason)
            return
        if kind is Stop:
            self._stop_with(result)
            return
        origin = self.handling
        if _is_misplaced(result, origin):
            self._stop_with(_bad_return(result))
            return
        self.handling = None
        value = _reply_of(result)
        if kind is Error:
            origin.fail(result.error)  # type: ignore[union-attr]  # checked above
        elif result is IGNORE and type(origin) is Start:
            self.end_unstarted(NORMAL)
            origin.call.answer(None)
        elif value is NO_REPLY and type(origin) is Call:
            self.unanswered = _remember(origin, self.unanswered)
        elif origin is not None:
            origin.answer(value)
        then = result.then if kind is Reply else result
        if self.instance is not None:  # unless the start was refused
            self._go_on(then)

    def _go_on(self, then: object) -> None:
        """Do what is to be done between a callback and the next message."""
        if type(then) is Continue:
            # Through the queue: an actor that goes on for ever must not keep others waiting, nor
            # the signal that ends it.
            self.blocked_by = self.awaited = then
            self.queue.append((self, then, REPLY))
        else:
            self.become_idle(then)

    def _dispatch(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Open an envelope that holds neither call nor cast."""
        kind = type(message)
        if kind is ExitSignal:
            self._receive_signal(message)
        elif kind is DownSignal:
            if not self.is_void(message):
                del self.own()[message.monitor]
                down = Down(message.ref, message.reason, message.monitor)
                self.handle(None, self.instance.handle_info, down)
        elif kind is Start:
            init = self.instance.init
            if message.kwargs:
                init = partial(init, **message.kwargs)
            self.handle(message, init, *message.args)
        elif kind is ActorExitRequest:
            self._stop_with(Stop(SHUTDOWN))
        else:
            self.system.tell_status(self, sender)

    # ---- suspended callbacks ------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Return whether a callback awaits something."""
        return type(self.blocked_by) is CoroutineType

    @property
    def is_suspended(self) -> bool:
        """Return whether messages wait until the actor is resumed."""
        return self.blocked_by is SUSPENDED

    def _step(self, coroutine: Coroutine[Any, Any, object], value: Call | Wait | None) -> None:
        """Run the suspended callback up to its next await, or its end and what that asks for."""
        try:
            awaited = coroutine.send(value)
            if type(awaited) is not Call and type(awaited) is not Wait:
                awaited = self._refuse_awaited(coroutine, awaited)
        except StopIteration as stop:
            self.blocked_by = None
            if type(stop.value) in _DIRECTIVES or self.stop is not None:
                self._obey(stop.value)
                return
            origin, self.handling = self.handling, None
            if origin is not None:
                origin.answer(stop.value)
        except BaseException as error:
            if is_for_program(error):
                raise
            self.blocked_by = None
            self._crash(error)
        else:
            self.awaited = awaited

    def _refuse_awaited(
        self, coroutine: Coroutine[Any, Any, object], awaited: object
    ) -> Call | Wait:
        """Raise where something is awaited that cannot resume an actor.

        Whoever awaits a foreign function there may catch it, as a supervisor does. A callback that
        goes on to await such things is ended.
        """
        kind = type(awaited).__name__
        error = TypeError(f"an actor awaits calls, wait_down and sleep, not {kind}")
        awaited = coroutine.throw(error)
        if type(awaited) is Call or type(awaited) is Wait:
            return awaited
        _close(coroutine)
        raise error

    def _resume(self, awaited: Call | Wait | Continue) -> None:
        """Go on with what the actor was at, then serve what came meanwhile."""
        self.awaited = None
        if type(awaited) is Continue:
            self.blocked_by = None
            self.handle(None, self.instance.handle_continue, awaited.argument)
        else:
            self._step(self.blocked_by, awaited)  # type: ignore[arg-type]  # it is that coroutine
        if self.mailbox is not None:
            self._serve_mailbox()

    def _serve_mailbox(self) -> None:
        mailbox = self.mailbox
        while mailbox and self.blocked_by is None:
            message, sender = mailbox.popleft()
            self.deliver(message, sender)
        if mailbox is not None and self.blocked_by is None:
            mailbox.coming_count = 0  # they come to an actor that does not let them wait

    def _receive_while_blocked(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Keep a message for later, unless it ends the wait or the actor."""
        kind = type(message)
        if kind is ExitSignal and not self._may_wait(message):
            self._receive_signal(message)
            return
        if kind is DownSignal:
            if self.is_void(message):
                return
            monitor: Monitor = message.monitor
            awaited = self.awaited
            # A wait whose time is over has given up, although its actor does not know yet.
            if type(awaited) is Wait and awaited.monitor is monitor and not awaited.is_done:
                del self.own()[monitor]
                awaited.finish(message.reason)
                return
            self.own()[monitor] = message  # for a `wait_down` that comes later
        elif kind is Call and type(message.request) is SystemRequest and self.is_suspended:
            self._serve_system(message)
            return
        self.open_mailbox().put(message, sender)

    def open_mailbox(self) -> Mailbox:
        """Return the mailbox, which an actor has from the first message that had to wait."""
        if self.mailbox is None:
            self.mailbox = Mailbox(self, type(self.instance).mailbox_max)
        return self.mailbox

    def admit(self) -> None:
        """Let a message that is about to be sent come to a blocked actor.

        Raises:
            MailboxFull: there are as many already, in the mailbox or on their way to it.
        """
        if self.instance is not None:
            self.open_mailbox().admit()

    def become_idle(self, then: object) -> None:
        """Do what a callback's result asks for until the next message, if it asks for something."""
        if type(then) is IdleTimeout:
            IdleTime(self, then.after_s).start()
        elif then is HIBERNATE:
            # With messages waiting it would wake at once.
            self.mailbox = self.mailbox or None
            self.unanswered = self.unanswered or None
            self.belongings = self.belongings or None

    # ---- requests of the runtime itself, in any state: OTP's `sys` ----------------------------

    def _serve_system(self, call: Call) -> None:
        request = cast("SystemRequest", call.request)
        if request.op == "stop":
            self._stop_with(Stop(request.argument))
            return
        try:
            answer = self._serve(request)
        except Exception as error:  # noqa: BLE001 - the request failed, the actor goes on
            call.fail(error)
            return
        call.answer(answer)
        if request.op == "resume":
            self._serve_mailbox()
        elif request.op == "suspend":
            self._look_through_mailbox()

    def _look_through_mailbox(self) -> None:
        """Take once more what came while the actor was busy: not all of it waits for `resume`.

        What does comes into a new mailbox, in its order.
        """
        before, self.mailbox = self.mailbox, None
        try:
            while before:
                self.deliver(*before.popleft())
        finally:
            if before and self.instance is not None:  # cut short: who waits hears of the end
                self.open_mailbox().extend(before)

    def _serve(self, request: SystemRequest) -> object:
        """Carry out a request and return its answer; what it raises goes to who asked."""
        match request.op:
            case "suspend":
                self.blocked_by = SUSPENDED
                return None
            case "resume":
                self.blocked_by = None
                return None
            case "get_status":
                return self._status()
            case "inspect":
                self._inspect(request.argument)
                return None
            case "replace_state" | "change_code":
                self._change_state(request)
        return self.instance.get_state() if request.op.endswith("_state") else None

    def _change_state(self, request: SystemRequest) -> None:
        """Replace the state, or change the code; whatever fails leaves the attributes as they were.

        What they refer to is not copied: it may be large, or a socket.
        """
        actor = self.instance
        is_code = request.op == "change_code"
        if is_code and not self.is_suspended:
            raise NotSuspended(self.address)
        before = actor.get_state()
        try:
            if is_code:
                actor.code_change(request.argument)
            else:
                actor.set_state(request.argument(actor.get_state()))
        except Exception:
            actor.set_state(before)
            raise

    def _status(self) -> ActorStatus:
        inspector = self._inspector()
        return ActorStatus(
            actor_class=type(self.instance).__name__,
            name=self.name,
            parent=None if self.parent is None else self.parent.address,
            is_suspended=self.is_suspended,
            is_busy=self.is_busy,
            mailbox_length=len(self.mailbox or ()),
            unanswered_count=len(self.unanswered or ()),
            links=frozenset(other.address for other in self.linked()),
            monitors_count=len(self.monitors or ()),
            messages_in=None if inspector is None else inspector.messages_in,
            log=() if inspector is None else tuple(inspector.log),
        )

    def _inspector(self) -> Inspector | None:
        found = [each for each in self.observers or () if isinstance(each, Inspector)]
        return found[0] if found else None

    def _inspect(self, log_max: int | None) -> None:
        before = self._inspector()
        after = None if log_max is None else Inspector(self, log_max)
        if before is not None:
            self.observe_no_more(before)
        if after is not None:
            self.observe_by(after)

    # ---- what ends with the actor, and who looks on -------------------------------------------

    def own(self) -> Belongings:
        """Return what ends with this actor, to put something in."""
        if self.belongings is None:
            self.belongings = Belongings(self)
        return self.belongings

    def observe_by(self, observer: Observer) -> None:
        """Show each message to an observer from now on, before the actor gets it."""
        self.observers = (*(self.observers or ()), observer)

    def observe_no_more(self, observer: Observer) -> None:
        """Undo `observe_by`; nothing happens when it was none."""
        left = tuple(each for each in self.observers or () if each is not observer)
        self.observers = left or None

    # ---- exit signals -------------------------------------------------------------------------

    def is_void(self, message: object) -> bool:
        """Return whether nothing comes of a notice or a signal: taken back, or no real one.

        The monitor or the link may have been undone while it was on its way, or waited.
        """
        if type(message) is DownSignal:
            return self.belongings is None or message.monitor not in self.belongings
        if type(message) is not ExitSignal:
            return False
        sender = _sender_of(message)
        if sender is None:
            return message.linked or message.ref is not None
        return message.linked and (sender.instance is not None or not self.is_linked(sender))

    def _may_wait(self, signal: ExitSignal) -> bool:
        """Return whether a signal is handled in turn: a trapping actor sees it as a message.

        A suspended actor still obeys its parent.
        """
        if self.is_suspended and _sender_of(signal) is self.parent:
            return False
        is_kill = is_word(signal.reason, KILL) and not signal.linked
        return bool(self.instance.trap_exits) and not is_kill

    def _receive_signal(self, signal: ExitSignal) -> None:
        """Obey, trap or ignore an exit signal."""
        if self.is_void(signal):
            return
        sender = _sender_of(signal)
        if signal.linked and sender is not None:
            self.cut(sender)
        if is_word(signal.reason, KILL) and not signal.linked:
            self._end_now(KILLED)
        elif not self.instance.trap_exits:
            if not is_word(signal.reason, NORMAL) or sender is self:
                self._end_now(signal.reason)
        elif sender is self.parent:
            self._stop_with(Stop(signal.reason))
        else:
            self.handle(None, self.instance.handle_info, Exit(signal.ref, signal.reason))

    # ---- the end: by an exception, by a wish to stop, or at once -----------------------------

    def _crash(self, error: BaseException) -> None:
        """End because a callback raised; a failing `init` or `terminate` ends at once."""
        if type(error) is RuntimeError and error.args == ("no running event loop",):
            error.add_note("an actor is no asyncio task; use `await self.sleep(seconds)` here")
        _skip_own_frames(error)
        reason = reason_of(error)
        if self.stop is None and type(self.handling) is not Start:
            self._stop_with(Stop(reason), error)
        else:
            if self.stop is not None and not is_orderly(reason):
                report_crash(self, self.mailbox or (), reason, error)
            self._end_now(reason)
        drop_tracebacks(error)

    def _stop_with(self, stop: Stop, error: BaseException | None = None) -> None:
        """Run `terminate`, then send the reply that goes with the stop, then end."""
        if type(self.handling) is Start:
            self._end_now(stop.reason)
            return
        if not is_orderly(stop.reason):
            shown = None if type(error) is ActorExit else error
            report_crash(self, self.mailbox or (), stop.reason, shown)
        self.stop = stop
        self.blocked_by = None  # it may have been suspended
        try:
            result = self.instance.terminate(stop.reason)
        except BaseException as failure:
            if is_for_program(failure):
                raise
            self._crash(failure)
            return
        if type(result) is CoroutineType:
            self.blocked_by = result
            self._step(result, None)
        else:
            self._end_now(stop.reason)

    def _end_now(self, reason: Reason) -> None:
        """Leave the system; whoever still waits for an answer learns the reason."""
        if self.instance is None:
            return
        blocked_by, self.blocked_by = self.blocked_by, None
        handling, self.handling = self.handling, None
        self.awaited = None
        if type(blocked_by) is CoroutineType:
            _close(blocked_by)
        if type(handling) is Start:
            self.end_unstarted(reason)
            handling.call.fail(StartFailed(reason))
        else:
            stop = self.stop
            if type(handling) is Call and stop is not None and stop.reply is not NO_REPLY:
                handling.answer(stop.reply)
            self.end(reason)
        waiting = [handling] if type(handling) is Call else []
        waiting += self.unanswered or ()
        mailbox, self.mailbox, self.unanswered = self.mailbox, None, None
        if waiting or mailbox is not None:
            dead = ActorDead(self.address, reason)
            for call in waiting:
                call.fail(dead)
            if mailbox is not None:
                mailbox.give_up(dead)

    def end(self, reason: Reason) -> None:
        """Take the actor out of the system, and with it all that is its own."""
        if self.instance is not None:
            belongings, self.belongings = self.belongings, None
            if belongings is not None:
                belongings.release()
            self.observers = self.behaviour = None
            super().end(reason)

    def abort(self, reason: Reason) -> None:
        """End wherever the actor stands; whoever waits for an answer of it learns the reason."""
        self._end_now(reason)


def _sender_of(signal: ExitSignal) -> ActorCell | None:
    """Return who sent a signal; None for an application thread, and for what is no address."""
    return getattr(signal.ref, "cell", None)


def _skip_own_frames(error: BaseException) -> None:
    """Let a traceback begin with the callback: what runs it says nothing, and holds the call."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_globals["__name__"] == __name__:
        traceback = traceback.tb_next
    error.__traceback__ = traceback


def _close(coroutine: Coroutine[Any, Any, object]) -> None:
    """End a suspended callback; what its `finally` blocks raise or await is too late to matter."""
    try:
        coroutine.close()
    except BaseException as error:
        if is_for_program(error):
            raise
        logger.warning("a callback that was ended did not end cleanly", exc_info=True)


def _is_misplaced(result: Any, origin: Call | Start | None) -> bool:  # noqa: ANN401
    """Return whether a result has a meaning, but not in the callback that returned it."""
    if result is IGNORE:
        return type(origin) is not Start
    if result is NO_REPLY:
        return type(origin) is Start
    if type(result) is type:
        return result in _DIRECTIVES  # `return Stop`, where `Stop(reason)` is meant
    if type(result) is Reply and type(result.then) not in _THEN:
        return True
    return type(result) in {Reply, Error} and type(origin) is not Call


def _bad_return(result: object) -> Stop:
    """End an actor whose callback returned what makes no sense there.

    The reason names the type only: reasons are shown in logs, and the result may hold a payload.
    """
    if type(result) is type:
        return Stop(
            ("bad_return_value", f"the class {result.__name__}; return {result.__name__}(…)")
        )
    return Stop(("bad_return_value", result if type(result) is Token else type(result).__name__))


def _remember(call: Call, unanswered: dict[Call, None] | None) -> dict[Call, None] | None:
    """Keep a call that is answered later, so that it fails if its actor ends before."""
    if call.is_done:
        return unanswered
    kept = unanswered or {}
    kept[call] = None
    call.forget = lambda done: kept.pop(done, None)
    return kept


def _reply_of(result: Any) -> Any:  # noqa: ANN401
    """Return what the caller gets for a callback's directive."""
    kind = type(result)
    if kind is Reply:
        return result.value
    return None if kind is Continue or kind is IdleTimeout or result is HIBERNATE else result
