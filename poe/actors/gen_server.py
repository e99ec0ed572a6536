"""GenServer: an actor with OTP's callbacks, calls, exit reasons, links and monitors.

It turns the messages of its cell into callbacks, one at a time and in order. A callback may be
`async def`: while it awaits a call, *this* actor's further messages wait in its mailbox, as an
Erlang process's do, and nobody else waits. An exception ends the actor with that exception as its
reason; Thespian's habit of running the message again never applies.

Source: OTP `gen_server`, `proc_lib`; differences: state is the instance's attributes, so callbacks
return only what is to happen next.
"""

import logging
from collections.abc import Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, cast

from thespian.actors import Actor, ActorExitRequest, Thespian_StatusReq

from poe.actors.call import Call, Wait
from poe.actors.gen_server_callbacks import GenServerCallbacks
from poe.actors.idle_time import IdleTime, become_idle
from poe.actors.mailbox import Mailbox
from poe.actors.message import (
    HIBERNATE,
    IGNORE,
    NO_REPLY,
    REPLY,
    Cast,
    Continue,
    Down,
    Error,
    Exit,
    ExitSignal,
    IdleTimeout,
    Reply,
    Start,
    Stop,
    SystemRequest,
    Token,
)
from poe.actors.reason import (
    CRASHES,
    KILL,
    KILLED,
    NORMAL,
    SHUTDOWN,
    ActorExit,
    Reason,
    is_orderly,
    is_word,
    reason_of,
)
from poe.actors.reports import report_crash
from poe.actors.system_request import Inspector, serve
from poe.errors import ActorDead, StartFailed

logger = logging.getLogger("poe.actors")

_DIRECTIVES = frozenset({CoroutineType, Token, Stop, Continue, IdleTimeout, Reply, Error})
"""Types of results that are more than a plain reply; one look-up keeps the usual call fast."""

_THEN = frozenset({Token, Continue, IdleTimeout})
"""Types of what comes after a `Reply`."""

_ENVELOPES = frozenset({Cast, ExitSignal, Start, ActorExitRequest, Thespian_StatusReq})
"""Types that `_dispatch` opens; any other message but a call goes to `handle_info` as it is."""


class GenServer(GenServerCallbacks, Actor):  # type: ignore[misc]  # Thespian is untyped
    """Base class of all actors of Poe.

    Override the callbacks you need (`init`, `handle_call`, `handle_cast`, `handle_info`,
    `handle_continue`, `terminate`) and use the other methods in them; keep state in attributes. At
    any time at most one callback runs. While it awaits something, messages wait in the mailbox.

    Life: `init` - callbacks - `terminate` (if the actor stops by itself, or traps exits and its
    parent asks) - end. `terminate` does not run when the actor is killed, nor when it does not
    trap exits and gets an exit signal.
    """

    _coroutine: Coroutine[Any, Any, object] | None = None
    _awaited: Call | Wait | None = None
    _handling: Call | Start | None = None
    _mailbox: Mailbox | None = None
    _unanswered: dict[Call, None] | None = None
    _stop: Stop | None = None
    _idle_time: IdleTime | None = None
    _inspector: Inspector | None = None

    # ---- the way in ---------------------------------------------------------------------------

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: ANN401, N802
        """Take one message from the system base; every entry of the run queue ends here."""
        if self._coroutine is None and not self._is_suspended:
            if type(message) is Call:
                if sender is not REPLY:
                    request = message.request
                    if type(request) is SystemRequest:
                        self._serve_system(message)
                    else:
                        self._handle(message, self.handle_call, request, message)
            elif type(message) in _ENVELOPES:
                self._dispatch(message, sender)
            elif type(message) is not Wait:
                self._handle(None, self.handle_info, message)
        elif sender is REPLY:
            if message is self._awaited and self._awaited is not None:
                self._resume(self._awaited)
        else:
            self._receive_while_busy(message, sender)

    def _handle(self, origin: Call | Start | None, callback: Any, *args: Any) -> None:  # noqa: ANN401
        """Run one callback and do as its result says."""
        try:
            result = callback(*args)
        except BaseException as error:
            self._handling = origin
            if not isinstance(error, CRASHES):
                raise  # whoever runs actors aborts this one
            self._crash(error)
            return
        kind = type(result)
        if kind is CoroutineType:
            self._handling = origin
            self._coroutine = result
            then = self._step(result, None)
        elif kind in _DIRECTIVES:
            self._handling = origin
            then = self._obey(result)
        else:
            if origin is not None:
                origin.answer(result)
            return
        if then is not None:
            self._go_on(then)

    def _go_on(self, then: Continue | None) -> None:
        """Run `handle_continue` while callbacks ask for it; a loop, so that they may for ever."""
        while then is not None:
            try:
                result = self.handle_continue(then.argument)
            except CRASHES as error:
                self._crash(error)
                return
            then = self._obey(result) if type(result) in _DIRECTIVES else None

    def _obey(self, result: Any) -> Continue | None:  # noqa: ANN401
        """Do what a callback's result asks for; return the `Continue` that comes next."""
        kind = type(result)
        if kind is CoroutineType:
            self._coroutine = result
            return self._step(result, None)
        if self._stop is not None:
            self._end(self._stop.reason)
            return None
        if kind is Stop:
            self._stop_with(result)
            return None
        origin = self._handling
        if _is_misplaced(result, origin):
            self._stop_with(_bad_return(result))
            return None
        self._handling = None
        value = _reply_of(result)
        if kind is Error:
            origin.fail(result.error)  # type: ignore[union-attr]  # checked above
        elif result is IGNORE and type(origin) is Start:
            self._myRef.end_unstarted(NORMAL)
            origin.call.answer(None)
        elif value is NO_REPLY and type(origin) is Call:
            self._unanswered = _remember(origin, self._unanswered)
        elif origin is not None:
            origin.answer(value)
        then = result.then if kind is Reply else result
        become_idle(self, then)
        return then if type(then) is Continue else None

    def _dispatch(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Open an envelope that holds no call, while no callback is suspended."""
        kind = type(message)
        if kind is Cast:
            self._handle(None, self.handle_cast, message.message)
        elif kind is ExitSignal:
            self._receive_signal(message)
        elif kind is Start:
            init = partial(self.init, **message.kwargs) if message.kwargs else self.init
            self._handle(message, init, *message.args)
        elif kind is ActorExitRequest:
            if message.isRecursive:
                self._myRef.exit_children()
            self._stop_with(Stop(SHUTDOWN))
        else:
            self._myRef.system.send_status(self._myRef, sender)

    # ---- suspended callbacks ------------------------------------------------------------------

    def _step(
        self, coroutine: Coroutine[Any, Any, object], value: Call | Wait | None
    ) -> Continue | None:
        """Run the suspended callback up to its next await, or its end and what that asks for."""
        try:
            awaited = coroutine.send(value)
        except StopIteration as stop:
            self._coroutine = None
            if type(stop.value) in _DIRECTIVES or self._stop is not None:
                return self._obey(stop.value)
            origin, self._handling = self._handling, None
            if origin is not None:
                origin.answer(stop.value)
        except CRASHES as error:
            self._coroutine = None
            self._crash(error)
        else:
            if type(awaited) is Call or type(awaited) is Wait:
                self._awaited = awaited
            else:
                self._refuse_awaited(awaited)
        return None

    def _refuse_awaited(self, awaited: object) -> None:
        """Crash rather than wait for ever for something that cannot resume an actor."""
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            _close(coroutine)
        kind = type(awaited).__name__
        self._crash(TypeError(f"an actor awaits calls, wait_down and sleep, not {kind}"))

    def _resume(self, awaited: Call | Wait) -> None:
        """Give the suspended callback what it awaited, then serve what came meanwhile."""
        self._awaited = None
        coroutine = self._coroutine
        if coroutine is not None:
            then = self._step(coroutine, awaited)
            if then is not None:
                self._go_on(then)
            if self._mailbox:
                self._serve_mailbox()

    def _serve_mailbox(self) -> None:
        mailbox = self._mailbox
        while mailbox and self._coroutine is None and not self._is_suspended:
            message, sender = mailbox.popleft()
            self._myRef.deliver(message, sender)

    def _receive_while_busy(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Keep a message for later, unless it ends the wait or the actor."""
        kind = type(message)
        if kind is ExitSignal and not self._may_wait(message):
            self._receive_signal(message)
            return
        awaited = self._awaited
        if kind is Down and type(awaited) is Wait and awaited.monitor is message.monitor:
            awaited.finish(message.reason)
            return
        if self._coroutine is None and kind is Call and type(message.request) is SystemRequest:
            self._serve_system(message)
            return
        if self._mailbox is None:
            self._mailbox = Mailbox(self._myRef, self.mailbox_max)
        self._mailbox.put(message, sender)

    def _serve_system(self, call: Call) -> None:
        """Serve a request of the runtime itself: the state, or a stop in good order."""
        request = cast("SystemRequest", call.request)
        if request.op == "stop":
            self._stop_with(Stop(request.argument))
            return
        try:
            answer = serve(self, request)
        except Exception as error:  # noqa: BLE001 - the request failed, the actor goes on
            call.fail(error)
            return
        call.answer(answer)
        if request.op == "resume":
            self._serve_mailbox()

    # ---- signals and the end ------------------------------------------------------------------

    def _may_wait(self, signal: ExitSignal) -> bool:
        """Tell whether a signal is handled in turn: a trapping actor sees it as a message.

        A suspended actor still obeys its parent.
        """
        sender = signal.ref.cell if signal.ref is not None else None
        if self._coroutine is None and sender is self._myRef.parent:
            return False
        return self.trap_exits and (signal.linked or not is_word(signal.reason, KILL))

    def _receive_signal(self, signal: ExitSignal) -> None:
        """Obey, trap or ignore an exit signal (OTP's rules, `spec/otp.md` §2.5 and §3)."""
        cell = self._myRef
        sender = signal.ref.cell if signal.ref is not None else None
        if signal.linked and (sender is None or not cell.cut(sender)):
            return  # unlinked while the signal was on its way
        if is_word(signal.reason, KILL) and not signal.linked:
            self._end(KILLED)
        elif not self.trap_exits:
            if not is_word(signal.reason, NORMAL) or sender is cell:
                self._end(signal.reason)
        elif sender is cell.parent:
            self._stop_with(Stop(signal.reason))
        else:
            self._handle(None, self.handle_info, Exit(signal.ref, signal.reason))

    def _crash(self, error: BaseException) -> None:
        """End because a callback raised; a failing `init` or `terminate` ends at once."""
        if type(error) is RuntimeError and error.args == ("no running event loop",):
            error.add_note("an actor is no asyncio task; use `await self.sleep(seconds)` here")
        reason = reason_of(error)
        if self._stop is not None or type(self._handling) is Start:
            if self._stop is not None and not is_orderly(reason):
                report_crash(self, reason, error)
            self._end(reason)
            return
        self._stop_with(Stop(reason), error)

    def _stop_with(self, stop: Stop, error: BaseException | None = None) -> None:
        """Run `terminate`, then send the reply that goes with the stop, then end."""
        if type(self._handling) is Start:
            self._end(stop.reason)
            return
        if not is_orderly(stop.reason):
            report_crash(self, stop.reason, None if type(error) is ActorExit else error)
        self._stop = stop
        if self._idle_time is not None:
            self._idle_time.end()
        try:
            result = self.terminate(stop.reason)
        except CRASHES as failure:
            self._crash(failure)
            return
        if type(result) is CoroutineType:
            self._coroutine = result
            self._step(result, None)
        else:
            self._end(stop.reason)

    def _end(self, reason: Reason) -> None:
        """Leave the system; whoever still waits for an answer learns the reason."""
        coroutine, self._coroutine = self._coroutine, None
        handling, self._handling = self._handling, None
        if coroutine is not None:
            _close(coroutine)
            awaited = self._awaited
            # It would keep this actor in memory until it rings.
            if type(awaited) is Wait and awaited.timer is not None:
                awaited.timer.cancel()
        if self._idle_time is not None:
            self._idle_time.end()
        cell = self._myRef
        if type(handling) is Start:
            cell.end_unstarted(reason)
            handling.call.fail(StartFailed(reason))
        else:
            stop = self._stop
            if type(handling) is Call and stop is not None and stop.reply is not NO_REPLY:
                handling.answer(stop.reply)
            cell.end(reason)
        dead = ActorDead(cell.address, reason)
        if type(handling) is Call:
            handling.fail(dead)
        for call in list(self._unanswered or ()):
            call.fail(dead)
        if self._mailbox is not None:
            self._mailbox.give_up(dead)


def _is_misplaced(result: Any, origin: Call | Start | None) -> bool:  # noqa: ANN401
    """Tell whether a result has a meaning, but not in the callback that returned it."""
    if result is IGNORE:
        return type(origin) is not Start
    if result is NO_REPLY:
        return type(origin) is Start
    if type(result) is Reply and type(result.then) not in _THEN:
        return True
    return type(result) in {Reply, Error} and type(origin) is not Call


def _bad_return(result: object) -> Stop:
    """End an actor whose callback returned what makes no sense there.

    The reason names the type only: reasons are shown in logs, and the result may hold a payload.
    """
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


def _close(coroutine: Coroutine[Any, Any, object]) -> None:
    """End a suspended callback; what its `finally` blocks raise or await is too late to matter."""
    try:
        coroutine.close()
    except CRASHES:
        logger.warning("a callback that was ended did not end cleanly", exc_info=True)
