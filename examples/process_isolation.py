"""An operating system process under a supervisor: killed with SIGKILL, and there again.

The process is this file, started with an argument: it says that it is ready, and waits.
"""

import logging
import os
import signal
import sys
from queue import SimpleQueue

from poe.actors import GetPid, LoopSystem, OsProcess, Reason, end_with_parent, report_ready
from poe.supervision import (
    ChildSpec,
    Supervisor,
    SupervisorFlags,
    WhichChildren,
    call_supervisor,
)

# Supervisors report each death to the log; here the output tells the story.
logging.getLogger("poe").addHandler(logging.NullHandler())


def work() -> None:
    """Be the process, until a signal comes."""
    end_with_parent()
    report_ready()
    signal.pause()


def supervise() -> None:
    """Kill the process three times, and see that another one is there each time."""
    command = [sys.executable, __file__, "work"]
    worker = ChildSpec(
        id="worker", actor=OsProcess, args=(command,), kwargs={"ready_timeout_s": 30}
    )
    system = LoopSystem()
    sup = system.start(Supervisor, SupervisorFlags(intensity=3, period_s=60), [worker])
    assert sup is not None
    pids = set()
    ends: SimpleQueue[Reason] = SimpleQueue()
    for number in range(1, 4):
        # A supervisor that restarts a child answers when the child is ready.
        [child] = call_supervisor(system, sup, WhichChildren())
        pids.add(pid := system.call(child.ref, GetPid()))
        system.when_ended(child.ref, ends.put)
        os.kill(pid, signal.SIGKILL)
        print(f"kill {number}: the process ended with {ends.get()}")
    [child] = call_supervisor(system, sup, WhichChildren())
    pids.add(system.call(child.ref, GetPid()))
    print(f"{len(pids)} processes, one after the other; the last one runs")
    system.stop(sup)
    print("stopped")
    system.shutdown()


work() if len(sys.argv) > 1 else supervise()
