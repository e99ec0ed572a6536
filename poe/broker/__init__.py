"""The broker: the supervision tree of one node, from the listener down to the appendix servers.

A put or a read passes connection, request handler and appendix server, one call a frame; the topic
registry is asked only for what the routing table does not know.
"""

import logging

from poe.broker.access.files import AccessFiles
from poe.broker.access.options import SecurityOptions
from poe.broker.access.secrets import remove_admin_token
from poe.broker.access.tls_holder import TlsHolder
from poe.broker.appendix.hybrid_clock import HybridClock
from poe.broker.appendix.message import MOVED, Next, Put, SegmentInfo
from poe.broker.appendix.scrubber import ScrubberOptions
from poe.broker.appendix.server import AppendixOptions
from poe.broker.connection.connection import ConnectionOptions
from poe.broker.connection.gatekeeper import GatekeeperParts
from poe.broker.connection.listener import (
    BoundPort,
    BoundPorts,
    ListenerOptions,
    ListenerParts,
    bind_port,
    bind_ports,
    check_ports_are_free,
)
from poe.broker.connection.local_client import LocalClient
from poe.broker.log_limit import LogLimit
from poe.broker.node_tree import NodeParts, NodeSup
from poe.broker.registry.archive_folders import ArchiveFolders
from poe.broker.registry.archiver import ArchiverParts, missing_for_spark
from poe.broker.registry.routing_table import Route, RoutingTable
from poe.broker.registry.topic_registry import RegistryOptions, RegistryParts
from poe.broker.requests.control import control
from poe.broker.requests.listing import SegmentRows, describe_all
from poe.broker.requests.local_request import LocalRequest
from poe.broker.requests.request_handler import NODE_SUP, RequestHandler
from poe.broker.requests.retry import may_repeat

__all__ = [
    "MOVED",
    "NODE_SUP",
    "AccessFiles",
    "AppendixOptions",
    "ArchiveFolders",
    "ArchiverParts",
    "BoundPort",
    "BoundPorts",
    "ConnectionOptions",
    "GatekeeperParts",
    "HybridClock",
    "ListenerOptions",
    "ListenerParts",
    "LocalClient",
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
    "SecurityOptions",
    "SegmentInfo",
    "SegmentRows",
    "TlsHolder",
    "bind_port",
    "bind_ports",
    "check_ports_are_free",
    "control",
    "describe_all",
    "may_repeat",
    "missing_for_spark",
    "remove_admin_token",
]

# All modules of the broker log to this one logger, and some do so whenever a client misbehaves.
logging.getLogger("poe.broker").addFilter(LogLimit())
