"""Other ways to topics than the node's own socket: Thespian's `ask`; `poe.gateway.http` is HTTP."""

from poe.gateway.thespian_service import NODE_CAPABILITY, SERVICE_NAME, ThespianService

__all__ = [
    "NODE_CAPABILITY",
    "SERVICE_NAME",
    "ThespianService",
]
