"""Which paths there are, who answers them, and what a client must be allowed: a row for each path.

The names of the methods of a row are the keys of its needs, so that there is no request without a
need. Paths are matched as they were sent, percent-encoded.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from poe.broker.access.permission import Need
from poe.gateway.http.admission import Endpoint
from poe.gateway.http.groups import GroupRoutes
from poe.gateway.http.health import HealthRoutes
from poe.gateway.http.need import ALL_TOPICS, Anybody, Needs, PathNeed
from poe.gateway.http.produce import ProduceRoutes
from poe.gateway.http.properties import PropertyRoutes
from poe.gateway.http.queues import QueueRoutes
from poe.gateway.http.read import ReadRoutes
from poe.security.policy import NODE


class Handlers(NamedTuple):
    """Those who answer."""

    produce: ProduceRoutes
    read: ReadRoutes
    properties: PropertyRoutes
    groups: GroupRoutes
    queues: QueueRoutes
    health: HealthRoutes
    document: Endpoint
    page: Endpoint


class Row(NamedTuple):
    """One path."""

    path: str
    needs: Needs
    """By method, before a body is received; its handler looks at what a body names."""
    endpoint: Callable[[Handlers], Endpoint]


def _on(kind: str, **operations: str) -> Needs:
    return {method: PathNeed(each, kind) for method, each in operations.items()}


_MEMBER = "/groups/{group}/members/{member}"
_WRITE = _on("topic", POST="write")
_OF_MEMBER = _on("group", POST="read")
_OF_GROUP = _on("group", POST="write")
_KNOWN: Needs = {"GET": Anybody.KNOWN}
_OF_ALL: Needs = {"GET": ALL_TOPICS}

ROUTES: Final = (
    Row("/async/{topic}", _WRITE, lambda to: to.produce.post_async),
    Row("/batch/async/{topic}", _WRITE, lambda to: to.produce.post_batch_async),
    Row("/sync/{topic}", _WRITE, lambda to: to.produce.post_sync),
    Row("/batch/sync/{topic}", _WRITE, lambda to: to.produce.post_batch_sync),
    Row("/topics", _KNOWN, lambda to: to.read.get_topics),
    Row("/topics/{topic}", _on("topic", GET="read"), lambda to: to.read.get_messages),
    Row(
        "/topics/{topic}/properties",
        _on("topic", GET="describe", PUT="create", PATCH="create"),
        lambda to: to.properties.serve,
    ),
    Row("/groups", _KNOWN, lambda to: to.groups.get_groups),
    Row(
        "/groups/{group}",
        _on("group", GET="describe", PUT="create", DELETE="delete"),
        lambda to: to.groups.at_group,
    ),
    Row("/groups/{group}/lag", _on("group", GET="describe"), lambda to: to.groups.get_lag),
    Row("/groups/{group}/positions", _on("group", GET="read"), lambda to: to.groups.get_positions),
    Row("/groups/{group}/pause", _OF_GROUP, lambda to: to.groups.post_pause),
    Row("/groups/{group}/resume", _OF_GROUP, lambda to: to.groups.post_resume),
    Row("/groups/{group}/reset", _OF_GROUP, lambda to: to.groups.post_reset),
    Row("/groups/{group}/members", _OF_MEMBER, lambda to: to.groups.post_members),
    Row(_MEMBER, _on("group", DELETE="read"), lambda to: to.groups.at_member),
    Row(f"{_MEMBER}/heartbeat", _OF_MEMBER, lambda to: to.groups.post_heartbeat),
    Row(f"{_MEMBER}/read", _OF_MEMBER, lambda to: to.groups.post_read),
    Row(f"{_MEMBER}/commit", _OF_MEMBER, lambda to: to.groups.post_commit),
    Row(f"{_MEMBER}/lease", _OF_MEMBER, lambda to: to.groups.post_lease),
    Row(f"{_MEMBER}/acknowledge", _OF_MEMBER, lambda to: to.groups.post_acknowledge),
    Row(f"{_MEMBER}/extend", _OF_MEMBER, lambda to: to.groups.post_extend),
    Row("/queues", _KNOWN, lambda to: to.queues.get_queues),
    Row("/queues/{topic}", _WRITE, lambda to: to.queues.post),
    Row("/cluster", {"GET": Need("admin", NODE)}, lambda to: to.queues.get_cluster),
    Row("/healthz", {"GET": Anybody.AT_ALL}, lambda to: to.health.get_healthz),
    Row("/readyz", _KNOWN, lambda to: to.health.get_readyz),
    Row("/metrics", _OF_ALL, lambda to: to.health.get_metrics),
    Row("/disco", _OF_ALL, lambda to: to.health.get_disco),
    Row("/openapi.json", _KNOWN, lambda to: to.document),
    Row("/docs", _KNOWN, lambda to: to.page),
)

OPEN_PATHS: Final = frozenset(row.path for row in ROUTES if Anybody.AT_ALL in row.needs.values())
