"""A group of which a node finds something that it does not understand, at its next start."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.broker.appendix.message import Put
from poe.broker.coordinator.group_log import GROUPS_TOPIC, Kind
from poe.node import Node


def damage_group(node: Node, name: str) -> None:
    """Write a snapshot of a group into the log, behind at least one group that was made."""
    entry = [int(Kind.SNAPSHOT), name, bytes(16), 0, msgpack.packb({"version": 99})]
    writer = node._routes[GROUPS_TOPIC].writer  # noqa: SLF001 - nobody else may put there
    node.system.call(writer, Put([msgpack.packb(entry)]))
