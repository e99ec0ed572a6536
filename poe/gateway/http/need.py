"""What a client must be allowed for a request, as the table of routes says it."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from poe.broker.access.permission import ANYTHING, Need
from poe.security.policy import TOPIC


class PathNeed(NamedTuple):
    """An operation on what a parameter of the path names."""

    operation: str
    """One of `poe.security.policy.OPERATIONS`."""
    kind: str
    """topic or group; the parameter is called so, too."""

    def of(self, request: Request) -> Need:
        """Return what one request needs."""
        return Need(self.operation, self.kind, unquote_to_bytes(request.path_params[self.kind]))


class Anybody(Enum):
    """Who needs no grant."""

    AT_ALL = "at all"
    """Whoever reaches the gateway."""
    KNOWN = "known"
    """Whoever has shown a valid token; the answer holds what that client may know."""


ALL_TOPICS = Need("describe", TOPIC, ANYTHING)
"""To describe all topics, for what tells of all of them."""

Needs: TypeAlias = Mapping[str, PathNeed | Need | Anybody]
"""By method."""
