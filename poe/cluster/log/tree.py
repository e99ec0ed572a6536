"""The supervisor of a node's part in the replicated log, as child specs.

log_sup              one_for_all
├── replica_sup      simple_one_for_one, temporary children: a partition each
└── logs             owns the engine, knows all replicated topics, and starts their replicas
"""

from typing import Final

from poe.broker.requests.log_messages import LOGS
from poe.cluster.log.logs import REPLICA_SUP, LogParts, Logs
from poe.cluster.log.replica import Replica
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
)

LOG_SUP: Final = "log_sup"


def log_spec(parts: LogParts) -> ChildSpec:
    """Return the spec of the supervisor."""
    template = ChildSpec(id="replica", actor=Replica, restart=Restart.TEMPORARY)
    children = [
        ChildSpec(
            id=REPLICA_SUP,
            actor=Supervisor,
            args=(SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE), [template]),
            kind=ChildKind.SUPERVISOR,
            name=REPLICA_SUP,
        ),
        ChildSpec(id=LOGS, actor=Logs, args=(parts,), name=LOGS),
    ]
    flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ALL, intensity=5, period_s=10)
    return ChildSpec(
        id=LOG_SUP,
        actor=Supervisor,
        args=(flags, children),
        kind=ChildKind.SUPERVISOR,
        name=LOG_SUP,
    )
