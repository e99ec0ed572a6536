"""The broker: the supervision tree of one node, from the listener down to the appendix servers.

A put or a read passes connection, request handler and appendix server, one call a frame; the topic
registry is asked only for what the routing table does not know.
"""

import logging

from poe.broker.appendix_message import MOVED, Next, Put, SegmentInfo
from poe.broker.appendix_server import AppendixOptions
from poe.broker.archive_folders import ArchiveFolders
from poe.broker.archiver import ArchiverParts, missing_for_spark
from poe.broker.connection import ConnectionOptions
from poe.broker.control_operations import control
from poe.broker.hybrid_clock import HybridClock
from poe.broker.listener import (
    BoundPort,
    ListenerOptions,
    ListenerParts,
    bind_port,
    check_port_is_free,
)
from poe.broker.listing import SegmentRows, describe_all
from poe.broker.local_request import LocalRequest
from poe.broker.log_limit import LogLimit
from poe.broker.node_tree import NodeParts, NodeSup
from poe.broker.request_handler import NODE_SUP, RequestHandler
from poe.broker.retry import may_repeat
from poe.broker.routing_table import Route, RoutingTable
from poe.broker.scrubber import ScrubberOptions
from poe.broker.topic_registry import RegistryOptions, RegistryParts

__all__ = [
    "MOVED",
    "NODE_SUP",
    "AppendixOptions",
    "ArchiveFolders",
    "ArchiverParts",
    "BoundPort",
    "ConnectionOptions",
    "HybridClock",
    "ListenerOptions",
    "ListenerParts",
    "LocalRequest",
    "Next",
    "NodeParts",
    "NodeSup",
    "Put",
    "RegistryOptions",
    "RegistryParts",
    "RequestHandler",
    "Route",
    "RoutingTable",
    "ScrubberOptions",
    "SegmentInfo",
    "SegmentRows",
    "bind_port",
    "check_port_is_free",
    "control",
    "describe_all",
    "may_repeat",
    "missing_for_spark",
]

# All modules of the broker log to this one logger, and some do so whenever a client misbehaves.
logging.getLogger("poe.broker").addFilter(LogLimit())
