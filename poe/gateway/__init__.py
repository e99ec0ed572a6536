"""Other ways to topics than the node's own socket; `poe.gateway.http` is HTTP."""
