"""The supervisor of a node's part in its cluster, as child specs.

    cluster_sup          one_for_all
    ├── members          who belongs to the cluster, and who lives
    ├── …                the fabric, and what sends to each peer
    ├── queue_sup        simple_one_for_one, temporary children: a queue each
    └── queues           knows all queues, and starts them

They know of each other what none can tell another twice, so that they begin anew together. What the
node holds of queues outlives them, on its `Shelf`; a queue that crashes is started by `queues`.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poe.broker.log_limit import LogLimit
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.queue_messages import QUEUES
from poe.cluster.actor_messages import MEMBERS
from poe.cluster.identity import INCARNATION_BYTES, PROTOCOL, Peer, take_identity
from poe.cluster.members_actor import MembersActor, MembersParts, read_members
from poe.cluster.options import ClusterOptions
from poe.cluster.queue_actor import QueueActor
from poe.cluster.queues import QUEUE_SUP, Queues, QueuesParts
from poe.cluster.shelf import Shelf
from poe.errors import SecurityFileError
from poe.security.server_tls import ServerTls
from poe.storage import Clock, Files, RealFiles
from poe.supervision import (
    ChildSpec,
    Restart,
    Strategy,
    SupervisorFlags,
    dynamic_supervisor,
    supervisor_spec,
)

CLUSTER_SUP = "cluster_sup"

# Other nodes may misbehave as often as clients do.
logger = logging.getLogger("poe.cluster")
logger.addFilter(LogLimit())


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """What a node's part in its cluster is built from."""

    options: ClusterOptions
    me: Peer
    files: Files
    routes: RoutingTable
    clock: Clock

    @classmethod
    def of(
        cls, options: ClusterOptions, folder: Path, routes: RoutingTable, clock: Clock
    ) -> "ClusterParts":
        """Begin another life of the node of a folder, which is open, and nobody else's.

        Raises:
            ForeignCluster: the folder is that of a node of another cluster.
            CorruptIdentity: a file of it is damaged.
            StorageError: it cannot be read or written.
        """
        assert options.cluster is not None
        files = RealFiles.at(folder)
        # The others know the newest life by their tables, also where the file is an older copy.
        known = read_members(files, options.cluster)
        newest = max((each.epoch for each in known), default=0)
        ref = take_identity(files, max(clock.now_us(), newest + 1), os.urandom)
        me = Peer(
            ref,
            options.name,
            options.zone or "",
            PROTOCOL,
            os.urandom(INCARNATION_BYTES),
            options.locator,
        )
        there = (each.locator for each in known if each.state != "forgotten")
        return cls(options.with_known(there), me, files, routes, clock)


def cluster_spec(parts: ClusterParts, fabric: Sequence[ChildSpec]) -> ChildSpec:
    """Return the spec of the supervisor; `fabric` are those of the network."""
    shelf = Shelf()
    options, me, files, clock = parts.options, parts.me, parts.files, parts.clock
    members = MembersParts(
        options.cluster or "", me, files, clock, shelf, options.seeds, _expires_s(options)
    )
    queues = QueuesParts(options, me, parts.routes, files, clock, shelf)
    template = ChildSpec(id="queue", actor=QueueActor, restart=Restart.TEMPORARY)
    children = [
        ChildSpec(id=MEMBERS, actor=MembersActor, args=(members,), name=MEMBERS),
        *fabric,
        dynamic_supervisor(QUEUE_SUP, template),
        # Its end waits for what it is at, which may take all of the time that the node has to stop;
        # to leave takes a moment. Who has not left by then is seen to be down.
        ChildSpec(id=QUEUES, actor=Queues, args=(queues,), name=QUEUES, shutdown_s=1.0),
    ]
    flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ALL, intensity=5, period_s=10)
    return supervisor_spec(CLUSTER_SUP, flags, children)


def _expires_s(options: ClusterOptions) -> float | None:
    """Return when the node's certificate expires, which zenoh reads as it opens its session.

    None without one, and where something is wrong with it.
    """
    if options.cluster_certificate is None:
        return None
    try:
        tls = ServerTls(certificate=options.cluster_certificate, key=options.cluster_key)
        return tls.build().expires_s
    except SecurityFileError as error:
        logger.warning("cluster_certificate: %s", error)
        return None
