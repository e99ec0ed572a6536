"""Who a peer has proved to be, by what, and whether that still holds."""

import math
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

from poe.security.names import ADMINISTRATOR
from poe.security.scram import ScramKeys
from poe.security.users import Users


@dataclass(frozen=True, slots=True)
class Password:
    """The peer knows what these keys were made of."""

    keys: ScramKeys = field(repr=False)

    @property
    def id(self) -> str:
        """Return what the log calls it."""
        return "password"


@dataclass(frozen=True, slots=True)
class BearerToken:
    """The peer has a token."""

    id: str
    sha256: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The peer has the key of a certificate with these names, which TLS has verified."""

    names: tuple[str, ...]

    @property
    def id(self) -> str:
        """Return what the log calls it."""
        return " ".join(self.names)


@dataclass(frozen=True, slots=True)
class AdministratorToken:
    """The peer may read the file in the node's own folder."""

    @property
    def id(self) -> str:
        """Return what the log calls it."""
        return "admin.token"


Proof: TypeAlias = Password | BearerToken | PeerCertificate | AdministratorToken


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a peer is, until when, and what has proved it."""

    principal: str
    mechanism: str
    proof: Proof
    expires_s: float | None = None
    """Seconds since the epoch; None: never by itself."""

    def is_expired(self, now_s: float) -> bool:
        """Return whether its time is over."""
        return self.expires_s is not None and now_s >= self.expires_s

    def left_s(self, now_s: float) -> float:
        """Return the seconds until its time is over."""
        return math.inf if self.expires_s is None else max(0.0, self.expires_s - now_s)

    def renewed(self, users: Users) -> Self | None:
        """Return what it is by another file of users; None: its proof proves nothing any more."""
        user = users.find(self.principal)
        is_known, expires_s = False, self.expires_s
        match self.proof:
            case AdministratorToken():
                is_known = self.principal == ADMINISTRATOR
            case Password(keys):
                is_known = user is not None and keys in user.scram
            case BearerToken(token_id, sha256):
                found = users.by_token(token_id)
                if user is not None and found is not None and found[0] is user:
                    is_known, expires_s = found[1].sha256 == sha256, found[1].expires_s
            case PeerCertificate(names):
                is_known = user is not None and users.by_certificate(names) is user
        if not is_known:
            return None
        return self if expires_s == self.expires_s else replace(self, expires_s=expires_s)
