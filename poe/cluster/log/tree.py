"""The supervisors of a node's part in the replicated log, as child specs.

    log_sup                  one_for_one
    ├── log_server_sup       only where the node starts its engine itself: see `nats_server.py`
    │   ├── log_server
    │   └── log_server_watch starts that anew where it runs and stores nothing
    ├── copies_sup           one_for_all
    │   ├── replica_sup      simple_one_for_one, temporary children: a partition each
    │   ├── comparer_sup     likewise: a comparison of a partition with other nodes each
    │   ├── logs             owns the way to the engine, knows all replicated topics, and starts
    │   │                    their replicas
    │   ├── clocks           compares this node's clock with those of the others
    │   └── engine_leaver    leaves the engine when all this ends, before anybody else is stopped
    └── log_groups_sup       one_for_all: the node's part in coordinating their groups
        ├── coordination_sup         runs what coordinates, while this node does
        ├── log_group_answers_sup    a question of another node each
        └── log_groups               knows who coordinates, asks it, and claims to

The engine may end and be started again: what is read goes on, and puts wait for it.
"""

from pathlib import Path
from typing import Final

from poe.broker.coordinator.group_floors import GroupFloors
from poe.broker.coordinator.registry import GroupParts
from poe.broker.registry.copy_messages import CLOCKS
from poe.broker.registry.log_groups_table import LogGroupsTable
from poe.broker.requests.log_groups import LOG_GROUPS
from poe.broker.requests.log_messages import LOGS
from poe.cluster.log.clocks import Clocks
from poe.cluster.log.comparing import COMPARER_SUP, Comparer
from poe.cluster.log.engine import LogEngine
from poe.cluster.log.engine_door import EngineLeaver
from poe.cluster.log.log_groups import LogGroupParts, log_groups_spec
from poe.cluster.log.logs import REPLICA_SUP, LogParts, Logs
from poe.cluster.log.replica import Replica
from poe.cluster.options import ClusterOptions
from poe.errors import LogEngineUnfit
from poe.supervision import (
    ChildSpec,
    Restart,
    Strategy,
    SupervisorFlags,
    dynamic_supervisor,
    supervisor_spec,
)

LOG_SUP: Final = "log_sup"
COPIES_SUP: Final = "copies_sup"


def open_engine(
    options: ClusterOptions, folder: Path, name: str
) -> tuple[LogEngine, ChildSpec | None]:
    """Return the engine of a node, and what runs its server, where that is the node's own.

    Raises:
        LogEngineMissing, LogEngineUnfit: there is none that promises can be kept with.
    """
    from poe.cluster.log.nats_engine import NatsEngine  # noqa: PLC0415 - loads the library
    from poe.cluster.log.nats_server import NatsServer  # noqa: PLC0415
    from poe.cluster.log.nats_target import OutsideServers  # noqa: PLC0415

    assert options.cluster is not None
    if options.log_urls:
        return NatsEngine(name, options.cluster, OutsideServers(options)), None
    try:
        server = NatsServer.prepare(options, folder, name)
    except OSError as error:
        why = f"its folder cannot be written ({error.strerror or error})"
        raise LogEngineUnfit(why, f"make {folder / 'log'} writable") from error
    return NatsEngine(name, options.cluster, server), server.spec()


def log_spec(parts: LogParts, server: ChildSpec | None = None) -> ChildSpec:
    """Return the spec of the supervisor; `server` runs an engine of the node's own."""
    routes = parts.routes
    table = routes.log_groups = LogGroupsTable(lambda: routes.properties)
    groups = GroupParts(routes, parts.clock, parts.check_sizes, GroupFloors(routes))
    part = LogGroupParts(parts.engine, parts.me, parts.claims, groups, table)
    template = ChildSpec(id="replica", actor=Replica, restart=Restart.TEMPORARY)
    comparer = ChildSpec(id="comparer", actor=Comparer, restart=Restart.TEMPORARY)
    children = [
        dynamic_supervisor(REPLICA_SUP, template),
        dynamic_supervisor(COMPARER_SUP, comparer),
        ChildSpec(id=LOGS, actor=Logs, args=(parts,), name=LOGS),
        ChildSpec(id=CLOCKS, actor=Clocks, args=(parts,), name=CLOCKS),
        ChildSpec(id="engine_leaver", actor=EngineLeaver, args=(parts.engine,)),
    ]
    flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ALL, intensity=5, period_s=10)
    copies = supervisor_spec(COPIES_SUP, flags, children)
    flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ONE, intensity=5, period_s=10)
    children = [copies, log_groups_spec(part, LOG_GROUPS)]
    if server is not None:
        children.insert(0, server)
    return supervisor_spec(LOG_SUP, flags, children)
