"""The HTTP gateway: posts become messages of a producer, gets read topics; see docs/gateway.md.

Everything but the options and the edit hook needs the extra `http`, and is loaded when asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from poe.gateway.http.edit import Answer, Post, Rejection
from poe.gateway.http.options import GatewayOptions

if TYPE_CHECKING:
    from poe.gateway.http.application import Gateway
    from poe.gateway.http.server import serve

__all__ = ["Answer", "Gateway", "GatewayOptions", "Post", "Rejection", "serve"]

_LATE = {"Gateway": "poe.gateway.http.application", "serve": "poe.gateway.http.server"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of any type, as a module's names are
    """Load what needs the extra."""
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
