"""OsProcess: an actor that owns an operating system process, so that a supervisor looks after it.

The actor lives as long as the process: it ends when the process does, with a reason that tells how,
and ends the process when it is told to end.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from poe.actors.call import Call
from poe.actors.gen_server import GenServer
from poe.actors.message import Stop
from poe.actors.process_watch import PROCESS_ENDED, ProcessWatch
from poe.actors.reason import Reason
from poe.errors import ProcessStartFailed
from poe.errors.timeout import check_timeout

logger = logging.getLogger("poe.actors")


@dataclass(frozen=True, slots=True)
class GetPid:
    """Ask an `OsProcess` for the pid of its process."""


class OsProcess(GenServer):
    """Owns one process, which leads a group of its own: Ctrl-C at a terminal does not reach it.

    Exit reasons: `"normal"` for exit status 0, `("exit_status", 3)`, `("signal", "SIGKILL")`. What
    the process leaves in its group is killed with it. A process that calls `end_with_parent` ends
    with this program however that ends; another one outlives a SIGKILL of it.
    """

    trap_exits = True
    pinned_to_loop: ClassVar[bool] = True

    async def init(
        self,
        command: Sequence[str],
        *,
        ready_timeout_s: float | None = None,
        grace_s: float = 4.0,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start the process, and wait until it says that it is ready.

        Args:
            command: the program and its arguments; no shell reads them.
            ready_timeout_s: how long it may take until it calls `report_ready`; None: nobody
                waits for that.
            grace_s: how long it may take to end after SIGTERM, before SIGKILL; to be less than the
                `shutdown_s` of the child spec.
            descriptors: open files that it inherits, under the same numbers.

        Raises:
            ProcessStartFailed: it cannot be run, has ended, or is not ready in time.
            InvalidTimeout: one of the times is none.
        """
        self._grace_s = check_timeout(grace_s, "grace_s")
        ready_wait_s = check_timeout(ready_timeout_s, "ready_timeout_s")
        self._watch = watch = ProcessWatch(self, command, descriptors)
        logger.info("%s runs as process %d", self.name or command[0], watch.pid)
        if ready_timeout_s is not None:
            await watch.wait_change(ready_wait_s)
            if not watch.is_ready:
                why = watch.end or f"not ready after {ready_timeout_s} s"
                await self._end_process()
                raise ProcessStartFailed(
                    command[0], why, watch.report.decode("utf-8", "backslashreplace")
                )

    def handle_call(self, request: GetPid, caller: Call) -> int:
        """Return the pid."""
        del request, caller
        return self._watch.pid

    def handle_info(self, message: object) -> Stop | None:
        """End with the process."""
        if message is PROCESS_ENDED:
            return Stop(self._watch.end)
        super().handle_info(message)
        return None

    async def terminate(self, reason: Reason) -> None:
        """End the process."""
        del reason
        await self._end_process()

    async def _end_process(self) -> None:
        if self._watch.end is None:
            self._watch.terminate()
            await self._watch.wait_change(self._grace_s)
        self._watch.close()
