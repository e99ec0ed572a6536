"""What a request needs, and what whoever sends it may do.

A need names no more than the request itself does, so that whether it is met tells nothing of what
there is. Requests of the node's own process may do everything: it is the node.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from poe.errors import NotAuthorized, PoeError
from poe.security.policy import GROUP, NODE, TOPIC, resource_text

ANYTHING: Final = b"\0"
"""In the name of a need: whatever may follow. No topic and no grant has it in its name, so that
only a prefix covers it."""


class Need(NamedTuple):
    """One thing that must be allowed; see `poe.security.policy`."""

    operation: str
    kind: str
    name: bytes = b""

    @classmethod
    def of_topic(cls, operation: str, name: bytes) -> "Need":
        """Return what an operation on a topic needs."""
        return cls(operation, TOPIC, name)

    @classmethod
    def of_group(cls, operation: str, name: bytes) -> "Need":
        """Return what an operation on a group needs."""
        return cls(operation, GROUP, name)

    @classmethod
    def of_node(cls, operation: str) -> "Need":
        """Return what an operation on the node needs."""
        return cls(operation, NODE)

    @property
    def shown_name(self) -> bytes:
        """Return the name for people, who write a `*` for whatever may follow."""
        return self.name.replace(ANYTHING, b"*")

    @property
    def refusal(self) -> NotAuthorized:
        """Return the error for who may not."""
        return NotAuthorized(self.operation, resource_text(self.kind, self.shown_name))


class Permissions(Protocol):
    """What somebody may do, at the moment when they are asked, and by their quota how much."""

    def may(self, need: Need) -> bool:
        """Return whether a need is met."""
        ...

    def wrote(self, size_bytes: int) -> None:
        """Count what is put for them in another way than by a put request."""

    def refusal(self, need: Need) -> PoeError | None:
        """Return the error for who may not, which is written down; None where the need is met."""
        ...


class _AllPermissions:
    def may(self, need: Need) -> bool:
        """Return that it is."""
        del need
        return True

    def wrote(self, size_bytes: int) -> None:
        """Count nothing: there is no limit."""

    def refusal(self, need: Need) -> None:
        """Return that it is met."""
        del need


ALL_PERMISSIONS: Final[Permissions] = _AllPermissions()
"""Those of the node's own process."""


def check(permissions: Permissions, needs: Iterable[Need]) -> None:
    """Refuse what is not allowed. Later needs are not even made once one is not met.

    Raises:
        NotAuthorized: names the first need that is not met.
        AuthenticationExpired: whoever asks has proved nothing that holds any more.
    """
    refusal = first_refusal(permissions, needs)
    if refusal is not None:
        raise refusal


def first_refusal(permissions: Permissions, needs: Iterable[Need]) -> PoeError | None:
    """Return the error for the first need that is not met; None where all are."""
    return next(filter(None, map(permissions.refusal, needs)), None)
