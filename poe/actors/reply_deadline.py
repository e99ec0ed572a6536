"""A deadline for replies that one actor waits for, one after the other, with one timer for many.

A timer for each call would cost as much as everything else that a call costs that waits.
"""

from typing import TYPE_CHECKING

from poe.actors.call import Call
from poe.errors import CallTimeout

if TYPE_CHECKING:
    from poe.actors.timer_queue import Timer


class ReplyDeadline:
    """Fails calls that are not answered in `timeout_s`; None lets them wait for ever.

    Always: a timer is set while the call that is watched may become late.
    """

    __slots__ = ("_call", "_due_s", "_timeout_s", "_timer")

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._timer: Timer | None = None
        self._call: Call | None = None
        self._due_s = 0.0

    def watch(self, call: Call) -> Call:
        """Return the call, which fails with `CallTimeout` if it takes too long.

        It is an actor's, and not watched any more as soon as another one is.
        """
        caller = call.caller
        if self._timeout_s is not None and caller is not None and not call.is_done:
            system = caller.system
            self._call = call
            self._due_s = system.monotonic_s() + self._timeout_s
            if self._timer is None:
                self._timer = system.add_timer(self._timeout_s, self._ring)
        return call

    def _ring(self) -> None:
        """Look whether the call of now is late; it may have begun long after the timer."""
        self._timer = None
        call, self._call = self._call, None
        if call is None or call.is_done or call.caller is None or self._timeout_s is None:
            return
        system = call.caller.system
        rest_s = self._due_s - system.monotonic_s()
        if rest_s > 0:
            self._call = call
            self._timer = system.add_timer(rest_s, self._ring)
        else:
            server = call.server.address if call.server is not None else None
            call.fail(CallTimeout(server, self._timeout_s))
