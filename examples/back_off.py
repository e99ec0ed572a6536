"""A crash-looping child under back-off: its supervisor waits longer before each new try.

Time is simulated here, so that nobody has to wait; with `LoopSystem()` it is real.
"""

import logging

from poe.actors import Call, Continue, GenServer
from poe.supervision import Backoff, ChildSpec, Supervisor, SupervisorFlags, render_tree, tree
from poe.testing import SimulatedSystem

BACK_AT_S = 60


class Reader(GenServer):
    """Reads from a database that is down for the first minute."""

    def init(self) -> Continue:
        """Do not connect here: a supervisor whose child fails at its first start does not start."""
        return Continue("connect")

    def handle_continue(self, argument: str) -> None:
        """Connect; a failure is the supervisor's business."""
        now_s = self.monotonic_s()
        print(f"{now_s:5.1f} s: {'refused' if now_s < BACK_AT_S else 'connected'}")
        if now_s < BACK_AT_S:
            raise ConnectionRefusedError

    def handle_call(self, request: str, caller: Call) -> str:
        """Answer."""
        return f"{request}? 42"


logging.getLogger("poe").addHandler(logging.NullHandler())
reader = ChildSpec(id="reader", actor=Reader, name="reader", backoff=Backoff(first_s=2, max_s=30))
with SimulatedSystem() as system:
    # The budget counts as without back-off: more than 10 restarts in ten minutes are too many.
    root = system.start(Supervisor, SupervisorFlags(intensity=10, period_s=600), [reader])
    system.advance(20)
    assert root is not None
    print(*render_tree(tree(root)), sep="\n")
    system.advance(60)
    print(system.call("reader", "the answer"))
