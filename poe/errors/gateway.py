"""9xx: what the HTTP gateway refuses."""

from poe.errors.root import PoeError


class GatewayError(PoeError):
    """The gateway cannot do what it was asked for."""

    code = 900


class HttpMissing(GatewayError):
    """Something that the HTTP gateway needs is not installed."""

    code = 901

    def __init__(self, missing: str) -> None:
        self.missing = missing
        super().__init__(
            f"the HTTP gateway needs {missing}; install the extra poe-queue[http]: "
            "pip install '.[http]' in a checkout"
        )


class RequestRefused(GatewayError):
    """A request that is wrong, or that comes at a wrong time; nothing of it was done.

    Attributes:
        status: of HTTP: 4xx or 5xx.
    """

    code = 902

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)
