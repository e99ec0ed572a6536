"""Other ways to a node than its own socket: so far, Thespian's `ask`."""

from poe.gateway.thespian_service import NODE_CAPABILITY, SERVICE_NAME, ThespianService

__all__ = [
    "NODE_CAPABILITY",
    "SERVICE_NAME",
    "ThespianService",
]
