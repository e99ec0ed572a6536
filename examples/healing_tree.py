"""A supervision tree of one's own that heals: no topic, no file, only actors.

`Divider` catches no error. What breaks it ends it, and its supervisor starts a new one: the
error is repaired in one place, and not at every line where it may happen.
"""

import logging
from collections import Counter

from poe.actors import ActorDead, Call, GenServer, LoopSystemBase
from poe.supervision import ChildKind, ChildSpec, Supervisor, SupervisorFlags


class Divider(GenServer):
    """Divides two numbers; a division by zero is the end of it."""

    def init(self, starts: Counter[str]) -> None:
        """Count this start."""
        starts["divider"] += 1

    def handle_call(self, request: tuple[int, int], caller: Call) -> float:
        """Return the quotient."""
        dividend, divisor = request
        return dividend / divisor


# Supervisors report each crash to the log; here the output tells the story.
logging.getLogger("poe").addHandler(logging.NullHandler())

# The first healing takes these lines.
starts: Counter[str] = Counter()
divider = ChildSpec(id="divider", actor=Divider, args=(starts,), name="divider")
system = LoopSystemBase()
supervisor = system.start(Supervisor, SupervisorFlags(intensity=2, period_s=60), [divider])
print("6 / 3 =", system.call("divider", (6, 3)))
try:
    system.call("divider", (1, 0))
except ActorDead as dead:
    print("1 / 0 ended the divider:", repr(dead.reason))
print("8 / 2 =", system.call("divider", (8, 2)), "- starts so far:", starts["divider"])
system.stop(supervisor)

# A tree: `math_sup` survives 2 restarts in 60 s. The next crash is more than it can repair, so it
# gives up, and its own supervisor starts it again together with all that it looks after.
starts.clear()
flags = SupervisorFlags(intensity=2, period_s=60)
kind = ChildKind.SUPERVISOR
math_sup = ChildSpec(
    id="math_sup", actor=Supervisor, args=(flags, [divider]), kind=kind, name="math"
)
root = system.start(Supervisor, SupervisorFlags(intensity=1, period_s=60), [math_sup])
for crash in range(1, 7):
    try:
        system.call("divider", (1, 0))
    except ActorDead:
        print(
            f"crash {crash}: divider started {starts['divider']} times, root runs:",
            system.is_alive(root),
        )
system.shutdown()
