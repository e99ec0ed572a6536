"""310 to 316: who gets in, and what they may do; 104: the files that say so."""

from typing import Self

from poe.errors.config import ConfigError
from poe.errors.root import PoeError


class SecurityError(PoeError):
    """A connection that is not safe, or a request that is not allowed."""

    code = 310


class AuthenticationRequired(SecurityError):
    """A request came before the client has said who it is; nothing was done."""

    code = 311

    def __init__(self) -> None:
        super().__init__("authenticate first: give `credentials`, or log in by `poe login`")


class AuthenticationFailed(SecurityError):
    """The credentials are wrong. The sentence is the same whatever is wrong with them.

    Attributes:
        reason: for the server's own log. No argument of the constructor, so that no frame carries
            it; clients have an empty one.
    """

    code = 312
    reason = ""

    def __init__(self) -> None:
        super().__init__("authentication failed")

    @classmethod
    def because(cls, reason: str) -> Self:
        """Return the error with the reason for the log."""
        error = cls()
        error.reason = reason
        return error


class AuthenticationExpired(SecurityError):
    """The credentials of this connection were valid and are no longer; connect with new ones."""

    code = 313
    retriable = True

    def __init__(self) -> None:
        super().__init__("the credentials of this connection have expired; connect with new ones")


_VERBS = {"admin": "administer", "authorize": "ask what others may do at"}


class NotAuthorized(SecurityError):
    """No grant allows it. Whether the topic or group exists makes no difference; nothing was done.

    Args:
        operation: one of `poe.security.policy.OPERATIONS`.
        resource: what it was to be done with, as people read it: `topic 'orders'`, `the node`.
    """

    code = 314

    def __init__(self, operation: str, resource: str) -> None:
        self.operation = operation
        self.resource = resource
        super().__init__(
            f"not authorized to {_VERBS.get(operation, operation)} {resource}; "
            "who administers the node can grant it"
        )


class TlsFailed(SecurityError):
    """No TLS connection came about; nothing was sent.

    Args:
        host: name or address of the server.
        port: its port.
        reason: what went wrong, and what helps.
    """

    code = 315

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(f"no TLS connection to {host}:{port}: {reason}")


class SecurityMissing(SecurityError):
    """Something that security needs is not installed."""

    code = 316

    def __init__(self, missing: str) -> None:
        self.missing = missing
        super().__init__(
            f"this needs {missing}; install the extra poe-queue[tls]: "
            "pip install '.[tls]' in a checkout"
        )


class SecurityFileError(ConfigError):
    """A file of users, grants, certificates or secrets cannot be used; nothing of it holds.

    Attributes:
        line: from 1; None where no line is to blame.
    """

    code = 104

    def __init__(self, path: str, line: int | None, why: str) -> None:
        self.path = path
        self.line = line
        self.why = why
        place = path if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {why}")
