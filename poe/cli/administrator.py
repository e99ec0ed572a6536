"""The local administrator: who may read a node's folder gets in without having been set up.

The token is shown to a server of this machine that is run by the owner of the token's file, and to
no other: any user of the machine may listen on a port that a node has left.
"""

import os
from ipaddress import ip_address
from pathlib import Path

from poe.cli.node_place import TOKEN_FILE, node_folder
from poe.errors import AuthenticationRequired, OptionError, PoeError
from poe.protocol.client import open_socket
from poe.protocol.server import Server
from poe.security.loopback import is_loopback, listeners

_TIMEOUT_S = 5.0


def administrator_token(server: Server, folder: str | None) -> Path | None:
    """Return the file of the token for a server; None: it has none that we may use or show it.

    Args:
        server: on this machine, or it has none.
        folder: the node's; None: where a node looks for its own.
    """
    if not _is_here(server.host):
        return None
    try:
        path = node_folder(folder) / TOKEN_FILE
    except OptionError:  # a file that is for nodes does not keep a client from asking
        return None
    if not os.access(path, os.R_OK):
        return None
    users = {each.user for each in listeners(server.port)}
    return path if users == {path.stat().st_uid} else None


def asks_who(server: Server) -> bool:
    """Return whether a server asks who is there; one that does not would take no token."""
    try:
        with open_socket(server, _TIMEOUT_S) as connection:
            connection.control("health")
    except AuthenticationRequired:
        return True
    except PoeError:  # what is wrong is told when it is really asked
        return False
    return False


def _is_here(host: str) -> bool:
    """Return whether who connects to a host reaches this machine alone.

    That is so of all addresses, too: a server may listen there by a variable that both read.
    """
    try:
        return host == "localhost" or is_loopback(host) or ip_address(host).is_unspecified
    except ValueError:
        return False
