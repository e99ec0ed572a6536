"""A deadline for replies that one actor waits for, one after the other, with one timer for many.

A timer for each call would cost as much as everything else that a call costs that waits.
"""

from typing import Any

from poe.actors.call import Call
from poe.actors.timer_queue import Timer
from poe.errors import CallTimeout


class ReplyDeadline:
    """Fails calls that are not answered in `timeout_s`; None lets them wait for ever.

    Always: a timer is set while a call is waited for.
    """

    __slots__ = ("_call", "_due_s", "_timeout_s", "_timer")

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._timer: Timer | None = None
        self._call: Call | None = None
        self._due_s = 0.0

    async def wait(self, call: Call) -> Any:  # noqa: ANN401 - a reply is whatever the server gives
        """Wait for the reply of an actor's call; one at a time.

        Raises:
            CallTimeout: it takes too long.
            Exception: whatever the call failed of.
        """
        caller = call.caller
        if self._timeout_s is None or caller is None or call.is_done:
            return await call
        self._call = call
        self._due_s = caller.run_queue.monotonic_s() + self._timeout_s
        if self._timer is None:
            self._timer = caller.own().add_timer(self._timeout_s, self._ring)
        try:
            return await call
        finally:
            # The timer runs on, and through the call it would keep what was put, maybe many MiB.
            self._call = None

    def _ring(self) -> None:
        """Look whether the call of now is late; it may have begun long after the timer."""
        self._timer = None
        call = self._call
        if call is None or call.caller is None or self._timeout_s is None:
            return
        rest_s = self._due_s - call.caller.run_queue.monotonic_s()
        if rest_s > 0:
            self._timer = call.caller.own().add_timer(rest_s, self._ring)
        else:
            server = call.server.address if call.server is not None else None
            call.fail(CallTimeout(server, self._timeout_s))
