"""The supervision tree of one node, as child specs.

    poe_sup                    one_for_one, intensity 10 in 1 s
    ├── appendix_sup           simple_one_for_one, temporary children, shutdown 5 s
    ├── topic_registry         recovers all topics before its start is done
    ├── scrubber               re-reads closed segments
    ├── pipelines              keeps what pipelines tell of themselves
    ├── events                 knows who waits for the next event
    ├── groups_sup             one_for_one
    │   ├── group_sup          simple_one_for_one, temporary children: a group each
    │   ├── groups             knows all groups, and starts those that are asked for
    │   └── delayer            puts messages when they are due
    ├── archiver_sup           only with `archive_dir`
    ├── gatekeeper             only with `users` or `tls_port`: owns who may do what
    ├── cluster_sup            only with `cluster`; see `poe/cluster/tree.py`
    ├── log_sup                only with an engine for it; see `poe/cluster/log/tree.py`
    └── listener_sup           rest_for_one; started last, absent without a port

Source: poe_sup.erl, appendix_sup.erl.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from poe.broker.access.access import GATEKEEPER
from poe.broker.appendix.scrubber import Scrubber, ScrubberOptions
from poe.broker.appendix.server import REGISTRY, AppendixServer
from poe.broker.connection.gatekeeper import Gatekeeper, GatekeeperParts
from poe.broker.connection.listener import ListenerParts, ListenerSup
from poe.broker.coordinator.group_floors import GroupFloors
from poe.broker.coordinator.registry import GroupParts
from poe.broker.coordinator.tree import groups_spec
from poe.broker.registry.appendix_servers import APPENDIX_SUP
from poe.broker.registry.archiver import ARCHIVER_SUP, ArchiverParts, ArchiverSup
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.registry.topic_registry import RegistryParts, TopicRegistry
from poe.broker.requests.events import EVENTS, Events
from poe.broker.requests.pipelines import PIPELINES, Pipelines
from poe.storage import Clock
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
    dynamic_supervisor,
)


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What a node's tree is built from."""

    registry: RegistryParts
    listener: ListenerParts
    scrubber: ScrubberOptions
    archiver: ArchiverParts | None = None
    """None: segments expire without being archived."""
    gatekeeper: GatekeeperParts | None = None
    """None: whoever connects may do everything."""
    cluster: ChildSpec | None = None
    """The node's part in its cluster; None: it is in none."""
    log: ChildSpec | None = None
    """Its part in the replicated log; None: it has none."""
    wall: Clock | None = None
    """What the machine's clock says now; None: the same as the node's own."""


class NodeSup(Supervisor):
    """poe_sup: the root of the tree."""

    def configure(self, parts: NodeParts) -> Any:  # noqa: ANN401 - flags and specs
        """Describe the children in start order."""
        floors = GroupFloors(parts.registry.routes)
        routes = parts.registry.routes
        routes.is_own_group = floors.may_know
        routes.topics_of_group = partial(_topics_of_group, routes, floors)
        registry = replace(parts.registry, unread_floor=partial(_unread_floor, routes, floors))
        groups = GroupParts(
            registry.routes,
            registry.clock,
            registry.store.check_sizes,
            floors,
            topics_max=registry.options.topics_max,
            wall=parts.wall,
        )
        template = ChildSpec(id="appendix_server", actor=AppendixServer, restart=Restart.TEMPORARY)
        children = [
            dynamic_supervisor(APPENDIX_SUP, template),
            ChildSpec(
                id=REGISTRY,
                actor=TopicRegistry,
                args=(registry,),
                name=REGISTRY,
            ),
            ChildSpec(
                id="scrubber",
                actor=Scrubber,
                args=(registry.store, parts.scrubber, registry.routes.counters.scrub),
                name="scrubber",
            ),
            ChildSpec(id=PIPELINES, actor=Pipelines, name=PIPELINES),
            ChildSpec(id=EVENTS, actor=Events, args=(registry.routes.events,), name=EVENTS),
            groups_spec(groups),
        ]
        if parts.archiver is not None:
            archiver = ChildSpec(
                id=ARCHIVER_SUP,
                actor=ArchiverSup,
                args=(parts.archiver,),
                kind=ChildKind.SUPERVISOR,
                name=ARCHIVER_SUP,
            )
            children.append(archiver)
        if parts.gatekeeper is not None:
            gatekeeper = ChildSpec(
                id=GATEKEEPER, actor=Gatekeeper, args=(parts.gatekeeper,), name=GATEKEEPER
            )
            children.append(gatekeeper)
        if parts.cluster is not None:
            children.append(parts.cluster)
        if parts.log is not None:
            children.append(parts.log)
        if parts.listener.is_needed:
            listener = ChildSpec(
                id="listener_sup",
                actor=ListenerSup,
                args=(parts.listener,),
                kind=ChildKind.SUPERVISOR,
                name="listener_sup",
            )
            children.append(listener)
        flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ONE, intensity=10, period_s=1)
        return flags, children


def _topics_of_group(routes: RoutingTable, floors: GroupFloors, group: str) -> tuple[bytes, ...]:
    """Return the topics of a group, of this node or of replicated topics.

    Raises:
        CorruptGroup: nobody knows them any more.
    """
    found = floors.topics(group)
    return found or (() if routes.log_groups is None else routes.log_groups.topics(group))


def _unread_floor(
    routes: RoutingTable, floors: GroupFloors, group: str, topic: bytes
) -> int | None:
    """Return up to which pointer a group is done with a partition; see `UnreadFloor`."""
    found = floors.floor(group, topic)
    if found is None and routes.log_groups is not None:
        return routes.log_groups.floor(group, topic)
    return found
