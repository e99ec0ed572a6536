"""A supervision tree of one's own that heals: no topic, no file, only actors.

`Divider` catches no error. What breaks it ends it, and its supervisor starts a new one.
"""

import logging
from collections import Counter

from poe.actors import ActorDead, Call, GenServer, LoopSystem
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Supervisor,
    SupervisorFlags,
    WhichChildren,
    call_supervisor,
)


class Divider(GenServer):
    """Divides two numbers; a division by zero is the end of it."""

    def init(self, starts: Counter[str]) -> None:
        """Count this start."""
        starts["divider"] += 1

    def handle_call(self, request: tuple[int, int], caller: Call) -> float:
        """Return the quotient."""
        return request[0] / request[1]


# Supervisors report each crash to the log; here the output tells the story.
logging.getLogger("poe").addHandler(logging.NullHandler())

# The first healing takes these lines.
starts: Counter[str] = Counter()
divider = ChildSpec(id="divider", actor=Divider, args=(starts,), name="divider")
flags = SupervisorFlags(intensity=2, period_s=60)
math_sup = ChildSpec(
    id="math", actor=Supervisor, args=(flags, [divider]), kind=ChildKind.SUPERVISOR
)
system = LoopSystem()
root = system.start(Supervisor, SupervisorFlags(intensity=1, period_s=60), [math_sup])
assert root is not None
print("6 / 3 =", system.call("divider", (6, 3)))
for crash in range(1, 10):
    [before] = call_supervisor(system, root, WhichChildren())
    try:
        system.call("divider", (1, 0))
    except ActorDead as dead:
        print(f"crash {crash}: {type(dead.reason).__name__}, ", end="")
    # `math` survives 2 crashes in 60 s. At the third it gives up, and the root starts it anew with
    # all that it looks after; once. After that the root gives up as well.
    if not system.is_alive(root):
        break
    [after] = call_supervisor(system, root, WhichChildren())
    healer = "math" if after.ref == before.ref else "root"
    print(f"healed by {healer}: 8 / 2 = {system.call('divider', (8, 2))}")
print("too often even for the root; the divider was started", starts["divider"], "times")
system.shutdown()
