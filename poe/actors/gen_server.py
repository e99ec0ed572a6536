"""GenServer: an actor with OTP's callbacks, calls, exit reasons, links and monitors.

It turns the messages of its cell into callbacks, one at a time and in order. A callback may be
`async def`: while it awaits a call, *this* actor's further messages wait in its mailbox, as an Erlang
process's do, and nobody else waits. An exception ends the actor with that exception as its reason;
Thespian's habit of running the message again never applies.

Source: OTP `gen_server`, `proc_lib`; differences: state is the instance's attributes, so callbacks
return only what is to happen next.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, ClassVar

from thespian.actors import Actor, ActorExitRequest, Thespian_StatusReq

from poe.actors.actor_cell import ActorCell
from poe.actors.call import Call, Wait
from poe.actors.gen_server_operations import GenServerOperations
from poe.actors.message import (
    IGNORE,
    NO_REPLY,
    REPLY,
    Cast,
    Continue,
    Down,
    Error,
    Exit,
    ExitSignal,
    Reply,
    Start,
    Stop,
    SystemRequest,
    Token,
)
from poe.actors.reason import KILL, KILLED, NORMAL, SHUTDOWN, Reason, is_orderly
from poe.errors import ActorDead, MailboxFull, StartFailed

logger = logging.getLogger("poe.actors")

_DIRECTIVES = frozenset({CoroutineType, Token, Stop, Continue, Reply, Error})
"""Types of results that are more than a plain reply; one look-up keeps the usual call fast."""

_RUNTIME_NAMES = frozenset(
    {
        "_awaited",
        "_coroutine",
        "_handling",
        "_is_suspended",
        "_mailbox",
        "_myRef",
        "_stop",
        "_unanswered",
    }
)
"""Attributes that belong to the runtime and not to the state."""


class GenServer(GenServerOperations, Actor):  # type: ignore[misc]  # Thespian is untyped
    """Base class of all actors of Poe.

    Override the callbacks you need; keep state in attributes. At any time at most one callback
    runs: `_coroutine` is the one that is suspended, if any, and then `_mailbox` holds what came
    since, never more than `mailbox_max` messages.

    Life: `init` - callbacks - `terminate` (if the actor stops by itself, or traps exits and its
    parent asks) - end. `terminate` does not run when the actor is killed, nor when it does not
    trap exits and gets an exit signal.
    """

    trap_exits: bool = False
    """Exit signals become `Exit` messages; the parent's one runs `terminate`."""

    mailbox_max: ClassVar[int] = 65_536
    """Messages that may wait while a callback is suspended; more are refused to their sender."""

    pinned_to_loop: ClassVar[bool] = False
    """Run in the event loop's thread only; needed by actors that own sockets."""

    _myRef: ActorCell
    _coroutine: Coroutine[Any, Any, object] | None = None
    _awaited: Call | Wait | None = None
    _handling: Call | Start | None = None
    _mailbox: deque[tuple[Any, Any]] | None = None
    _unanswered: dict[Call, None] | None = None
    _stop: Stop | None = None
    _is_suspended = False

    # ---- callbacks --------------------------------------------------------------------------

    def init(self) -> Any:  # noqa: ANN401 - may be a coroutine
        """Set up the state. Takes the arguments given to `start_link`.

        Returns None, `Continue`, `Stop(reason)` or `IGNORE`.
        """

    def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Answer a request: return the reply, `NO_REPLY`, `Reply`, `Error` or `Stop`."""
        del caller
        msg = f"{type(self).__name__} has no handle_call for {type(request).__name__}"
        raise TypeError(msg)

    def handle_cast(self, message: Any) -> Any:  # noqa: ANN401
        """Take a message that expects no answer; return None, `Continue` or `Stop`."""
        msg = f"{type(self).__name__} has no handle_cast for {type(message).__name__}"
        raise TypeError(msg)

    def handle_info(self, message: Any) -> Any:  # noqa: ANN401
        """Take any other message, `Exit` and `Down` among them; log and drop it by default."""
        logger.warning("%s dropped an unexpected %s", self.ref, type(message).__name__)

    def handle_continue(self, argument: Any) -> Any:  # noqa: ANN401
        """Go on after a callback that returned `Continue`, before any other message."""
        msg = f"{type(self).__name__} has no handle_continue for {argument!r}"
        raise TypeError(msg)

    def terminate(self, reason: Reason) -> Any:  # noqa: ANN401
        """Clean up; may be a coroutine."""

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
            elif type(message) is not Wait:
                self._dispatch(message, sender)
        elif sender is REPLY:
            if message is self._awaited:
                self._resume(message)
        else:
            self._receive_while_busy(message, sender)

    def _handle(self, origin: Call | Start | None, callback: Any, *args: Any) -> None:  # noqa: ANN401
        """Run one callback and do as its result says."""
        try:
            result = callback(*args)
        except Exception as error:  # noqa: BLE001 - an exception is this actor's exit
            self._handling = origin
            self._crash(error)
            return
        if type(result) in _DIRECTIVES:
            self._handling = origin
            self._obey(result)
        elif origin is not None:
            self._conclude(origin, result)

    def _conclude(self, origin: Call | Start, result: object) -> None:
        if type(origin) is Start:
            origin.call.answer(self._myRef.address)
        else:
            origin.answer(result)  # type: ignore[union-attr]  # it is a Call then

    def _obey(self, result: Any) -> None:  # noqa: ANN401
        """Do what a callback's result asks for."""
        kind = type(result)
        origin = self._handling
        if kind is CoroutineType:
            self._coroutine = result
            self._step(result.send, None)
            return
        if self._stop is not None:
            self._end(self._stop.reason)
            return
        if kind is Stop:
            self._stop_with(result)
            return
        self._handling = None
        if kind is Continue or kind is Reply:
            if origin is not None:
                self._conclude(origin, result.value if kind is Reply else None)
            then = result.then if kind is Reply else result
            self._handle(None, self.handle_continue, then.argument)
        elif kind is Error:
            origin.fail(result.error)  # type: ignore[union-attr]  # only calls have answers
        elif result is IGNORE and type(origin) is Start:
            self._end(NORMAL)
            origin.call.answer(None)
        elif result is NO_REPLY and type(origin) is Call:
            self._remember_unanswered(origin)
        elif origin is not None:
            self._conclude(origin, result)

    def _remember_unanswered(self, call: Call) -> None:
        """Keep a call that is answered later, so that it fails if this actor ends before."""
        if not call.is_done:
            self._unanswered = self._unanswered if self._unanswered is not None else {}
            self._unanswered[call] = None
            unanswered = self._unanswered
            call.forget = lambda done: unanswered.pop(done, None)

    def _dispatch(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Take a message that is no call while no callback is suspended."""
        kind = type(message)
        if kind is Cast:
            self._handle(None, self.handle_cast, message.message)
        elif kind is ExitSignal:
            self._receive_signal(message)
        elif kind is Start:
            self._handle(message, partial(self.init, *message.args, **message.kwargs))
        elif kind is ActorExitRequest:
            self._stop_with(Stop(SHUTDOWN))
        elif kind is Thespian_StatusReq:
            self._myRef.system.send_status(self._myRef, sender)
        else:
            self._handle(None, self.handle_info, message)

    # ---- suspended callbacks ------------------------------------------------------------------

    def _step(self, advance: Callable[[Any], Any], value: Any) -> None:  # noqa: ANN401
        """Run the suspended callback up to its next await or its end."""
        try:
            self._awaited = advance(value)
        except StopIteration as stop:
            self._coroutine = None
            if type(stop.value) in _DIRECTIVES or self._stop is not None:
                self._obey(stop.value)
            else:
                origin, self._handling = self._handling, None
                if origin is not None:
                    self._conclude(origin, stop.value)
        except Exception as error:  # noqa: BLE001 - an exception is this actor's exit
            self._coroutine = None
            self._crash(error)

    def _resume(self, awaited: Call | Wait) -> None:
        """Give the suspended callback what it awaited, then serve what came meanwhile."""
        self._awaited = None
        coroutine = self._coroutine
        if coroutine is not None:
            self._step(coroutine.send, awaited)
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
        if kind is Call and type(message.request) is SystemRequest:
            self._serve_system(message)
            return
        if self._mailbox is None:
            self._mailbox = deque()
        if len(self._mailbox) < self.mailbox_max:
            self._mailbox.append((message, sender))
        elif kind is Call:
            message.fail(MailboxFull(self.ref, self.mailbox_max))
        else:
            logger.error("%s refused a message: mailbox_max of %d", self.ref, self.mailbox_max)
            if sender is not None:
                self._myRef.actor_send(sender, MailboxFull(self.ref, self.mailbox_max))

    def _serve_system(self, call: Call) -> None:
        """Serve a request of the runtime itself: the state, or a stop in good order."""
        request = call.request
        if request.op == "stop":
            self._handling = None
            self._stop_with(Stop(request.argument))
            return
        if request.op in {"suspend", "resume"}:
            self._is_suspended = request.op == "suspend"
        elif request.op == "replace_state":
            try:
                self.set_state(request.argument(self.get_state()))
            except Exception as error:  # noqa: BLE001 - the caller's function failed, not the actor
                call.fail(error)
                return
        call.answer(self.get_state() if request.op.endswith("_state") else None)
        if request.op == "resume":
            self._serve_mailbox()

    def get_state(self) -> dict[str, Any]:
        """Return the attributes that are this actor's state, for inspection and tests."""
        return {name: value for name, value in vars(self).items() if name not in _RUNTIME_NAMES}

    def set_state(self, state: dict[str, Any]) -> None:
        """Replace the attributes that `get_state` returns."""
        for name in self.get_state():
            delattr(self, name)
        vars(self).update(state)

    # ---- signals and the end ------------------------------------------------------------------

    def _may_wait(self, signal: ExitSignal) -> bool:
        """Tell whether a signal is handled in turn: a trapping actor sees it as a message.

        A suspended actor still obeys its parent.
        """
        sender = signal.ref.cell if signal.ref is not None else None
        if self._coroutine is None and sender is self._myRef.parent:
            return False
        return self.trap_exits and (signal.linked or signal.reason != KILL)

    def _receive_signal(self, signal: ExitSignal) -> None:
        """Obey, trap or ignore an exit signal (OTP's rules, `spec/otp.md` §2.5 and §3)."""
        cell = self._myRef
        sender = signal.ref.cell if signal.ref is not None else None
        if signal.linked:
            if sender is None or cell.links is None or sender not in cell.links:
                return  # unlinked while the signal was on its way
            cell.links.discard(sender)
        if signal.reason == KILL and not signal.linked:
            self._end(KILLED)
        elif not self.trap_exits:
            if signal.reason != NORMAL or sender is cell:
                self._end(signal.reason)
        elif sender is cell.parent:
            self._stop_with(Stop(signal.reason))
        else:
            self._handle(None, self.handle_info, Exit(signal.ref, signal.reason))

    def _crash(self, error: BaseException) -> None:
        """End because a callback raised; a failing `init` or `terminate` ends at once."""
        if self._stop is not None or type(self._handling) is Start:
            self._end(error)
            return
        logger.error(
            "%s crashed: %s",
            self.ref,
            type(error).__name__,
            exc_info=error,
            extra={"actor": str(self.ref), "reason": repr(error)},
        )
        self._stop_with(Stop(error))

    def _stop_with(self, stop: Stop) -> None:
        """Run `terminate`, then send the reply that goes with the stop, then end."""
        if type(self._handling) is Start:
            self._end(stop.reason)
            return
        self._stop = stop
        try:
            result = self.terminate(stop.reason)
        except Exception as error:  # noqa: BLE001 - terminate's own exception becomes the reason
            self._end(error)
            return
        if type(result) is CoroutineType:
            self._coroutine = result
            self._step(result.send, None)
        else:
            self._end(stop.reason)

    def _end(self, reason: Reason) -> None:
        """Leave the system; whoever still waits for an answer learns the reason."""
        cell = self._myRef
        coroutine, self._coroutine = self._coroutine, None
        handling, self._handling = self._handling, None
        if coroutine is not None:
            coroutine.close()
        if type(handling) is Start:
            # The starter gets the reason as an error; an exit signal on top would be a second one.
            if cell.parent is not None:
                cell.unlink(cell.parent)
            cell.end(reason)
            handling.call.fail(StartFailed(reason))
            return
        if type(handling) is Call and self._stop is not None and self._stop.reply is not NO_REPLY:
            handling.answer(self._stop.reply)
        cell.end(reason)
        dead = ActorDead(cell.address, reason)
        if type(handling) is Call:
            handling.fail(dead)
        for call in list(self._unanswered or ()):
            call.fail(dead)
        for message, sender in self._mailbox or ():
            if type(message) is Call and sender is not REPLY:
                message.fail(dead)
        if not is_orderly(reason):
            logger.debug("%s ended: %r", cell.address, reason)
