"""Why an actor ended: the exit reasons of OTP as Python values.

A reason is `"normal"`, `"shutdown"`, a tuple `("shutdown", term)`, `"killed"`, `"noproc"`, any
other value given to `Stop` or `exit`, or the exception that ended the actor.

Source: Erlang/OTP reference manual, "Processes"; `spec/otp.md` §1.4 and §3.
"""

import functools
import signal
import threading
import traceback
from types import CodeType
from typing import Final

from poe.errors import PoeError
from poe.errors.short_text import short_repr

Reason = object
"""Any value, also one that cannot be compared or shown."""

NORMAL: Final = "normal"
"""The actor's work is done; no link and no transient child takes it for a failure."""
SHUTDOWN: Final = "shutdown"
"""The supervisor asked, or gives up; as orderly as `NORMAL`, but it spreads along links."""
KILL: Final = "kill"
"""Sent as an exit signal it cannot be trapped, and the receiver ends as `KILLED`."""
KILLED: Final = "killed"
"""How an actor ends that was sent `KILL`."""
NOPROC: Final = "noproc"
"""There is no such actor."""
TIMEOUT: Final = "timeout"
"""`init` took longer than its starter allowed."""

REASON_LENGTH_MAX: Final = 200
"""Characters of a reason's text."""


class ActorExit(Exception):
    """Raised in a callback it ends the actor with `reason`, as OTP's `exit(Reason)` does.

    In `terminate` it replaces the reason that the actor was about to end with.
    """

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(f"the actor ends: {short_repr(reason)}")


def reason_of(error: BaseException) -> Reason:
    """Return the exit reason of an actor whose callback raised `error`."""
    return error.reason if isinstance(error, ActorExit) else error


def is_for_program(error: BaseException) -> bool:
    """Return whether an exception in a callback is meant for the program, and not for the actor.

    So is Ctrl-C in the main thread, and whatever a signal handler raises there: `SystemExit`, or
    the time limit of a job. It ends the actor, too, and goes on to whoever runs actors. Anything
    else ends the actor alone: a `sys.exit()` in a callback must not end the thread that runs all
    actors.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    return isinstance(error, KeyboardInterrupt) or _is_raised_by_signal_handler(error)


def _is_raised_by_signal_handler(error: BaseException) -> bool:
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: object) -> CodeType | None:
    """Return the code that runs when a handler is called; None where that is not Python's."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__"):
        handler = getattr(handler, "__call__", None)  # noqa: B004 - of an object, to look into it
    return getattr(handler, "__code__", None)


def is_orderly(reason: Reason) -> bool:
    """Return whether an ending is no failure: normal, shutdown or ("shutdown", term)."""
    if isinstance(reason, tuple) and len(reason) == 2:  # noqa: PLR2004 - OTP's pair
        return is_word(reason[0], SHUTDOWN)
    return is_word(reason, NORMAL, SHUTDOWN)


def is_word(reason: Reason, *words: str) -> bool:
    """Return whether a reason is one of OTP's words, such as `KILL`.

    Any other value is not asked: its `==` may raise, or give no truth value.
    """
    return isinstance(reason, str) and str.__str__(reason) in words


def is_same(reason: Reason, other: Reason) -> bool:
    """Return whether two reasons are equal; those that cannot be compared are not."""
    try:
        return reason is other or bool(reason == other)
    except Exception:  # noqa: BLE001 - a foreign __eq__
        return False


def reason_text(reason: object) -> str:
    """Return a short text for an exit reason that is safe to log.

    Exceptions that are not ours are named by their type only: their text may hold a message's
    payload.
    """
    if isinstance(reason, PoeError):
        try:
            text = str(reason)
        except Exception:  # noqa: BLE001 - a foreign subclass may do whatever it does
            text = type(reason).__name__
    elif isinstance(reason, BaseException):
        return type(reason).__name__
    elif type(reason) is str:  # OTP's words, and other people's
        text = repr(reason[:REASON_LENGTH_MAX])
    else:
        text = short_repr(reason)
    return text if len(text) <= REASON_LENGTH_MAX else text[: REASON_LENGTH_MAX - 1] + "…"
