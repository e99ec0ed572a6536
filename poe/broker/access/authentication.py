"""The steps by which one peer proves who it is: data of the wire in and out, no sockets, no clock.

Whatever is wrong, the peer is told the same; why stands in the error, for the node's own log.
"""

import hmac
import socket
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, NoReturn, Protocol, Self

from poe.broker.access.identity import (
    AdministratorToken,
    BearerToken,
    Identity,
    Password,
    PeerCertificate,
)
from poe.broker.access.secrets import Secrets
from poe.errors import AuthenticationFailed
from poe.security.entry import BEARER, EXTERNAL
from poe.security.loopback import is_loopback
from poe.security.names import ADMINISTRATOR
from poe.security.scram import SCRAM, SCRAM_PLUS, ScramServer
from poe.security.token import split_token
from poe.security.users import Users

MECHANISMS: Final = frozenset({SCRAM, SCRAM_PLUS, BEARER, EXTERNAL})

_NO_DIGEST: Final = "0" * 64


class Known(Protocol):
    """What a node knows of who there is."""

    users: Users

    @property
    def secrets(self) -> Secrets:
        """What the node keeps to itself."""
        ...


@dataclass(frozen=True, slots=True)
class Channel:
    """How a peer is connected, as far as it matters for who it is."""

    address: str
    """Where it comes from, for the log."""

    is_local: bool
    """Whether that is this machine."""

    is_encrypted: bool = False
    binding: bytes | None = None
    """`endpoint_binding` of the certificate that was shown to the peer."""

    certificate: PeerCertificate | None = None
    """What the peer has shown, and TLS has verified."""

    certificate_expires_s: float | None = None

    @classmethod
    def of(cls, client: socket.socket) -> Self:
        """Return what is known of a client without TLS."""
        address = _address(client)
        return cls(address, is_loopback(address))

    def encrypted(self, binding: bytes, names: tuple[str, ...], expires_s: float | None) -> Self:
        """Return it as it is by TLS; `names` are those of the client's certificate, none without.

        `binding` is `endpoint_binding` of the one that it was shown.
        """
        certificate = PeerCertificate(names) if names else None
        return replace(
            self,
            is_encrypted=True,
            binding=binding,
            certificate=certificate,
            certificate_expires_s=expires_s,
        )


class Answer(NamedTuple):
    """What to answer to one message; with the last one, who the peer is."""

    data: bytes | None
    identity: Identity | None = None


class _Begun(NamedTuple):
    mechanism: str
    scram: ScramServer


class Authentication:
    """One peer's attempts to prove who it is; a message after the other."""

    __slots__ = ("_begun", "_channel", "_known")

    def __init__(self, known: Known, channel: Channel) -> None:
        self._known = known
        self._channel = channel
        self._begun: _Begun | None = None

    def take(self, mechanism: str, data: bytes, now_s: float) -> Answer:
        """Take a message of the peer's.

        Raises:
            AuthenticationFailed: it proves nothing; the attempt is over.
        """
        begun, self._begun = self._begun, None
        if begun is not None and begun.mechanism != mechanism:
            refuse("another mechanism in the midst of one")
        if begun is not None:
            return self._finish(begun, data)
        if mechanism in {SCRAM, SCRAM_PLUS}:
            return self._begin(mechanism, data)
        if mechanism not in MECHANISMS:
            refuse("there is no such mechanism")
        is_token = mechanism == BEARER
        return Answer(None, self._bearer(data, now_s) if is_token else self._external(now_s))

    def _begin(self, mechanism: str, data: bytes) -> Answer:
        if (mechanism == SCRAM_PLUS) != data.startswith(b"p="):
            refuse("what binds it is not as its mechanism says")
        known = self._known
        scram = ScramServer(known.users.scram_keys, known.secrets.salt, self._channel.binding)
        told = scram.first(data)
        self._begun = _Begun(mechanism, scram)
        return Answer(told)

    def _finish(self, begun: _Begun, data: bytes) -> Answer:
        told, user = begun.scram.final(data)
        assert begun.scram.proved is not None
        identity = Identity(user, begun.mechanism, Password(begun.scram.proved))
        if identity.renewed(self._known.users) is None:
            refuse("the password was changed since the first step")
        return Answer(told, identity)

    def _bearer(self, data: bytes, now_s: float) -> Identity:
        if not (self._channel.is_encrypted or self._channel.is_local):
            refuse("a token without TLS")
        text = data.decode("ascii", "replace")
        found = split_token(text)
        admin_digest = self._known.secrets.admin_digest
        is_admin = found is not None and hmac.compare_digest(found[1], admin_digest)
        if is_admin and self._channel.is_local:
            return Identity(ADMINISTRATOR, BEARER, AdministratorToken())
        return bearer(self._known.users, text, now_s)

    def _external(self, now_s: float) -> Identity:
        certificate = self._channel.certificate
        if certificate is None:
            refuse("no certificate")
        user = self._known.users.by_certificate(certificate.names)
        if user is None:
            refuse(f"certificate {certificate.id[:200]!r} is nobody's, or that of several")
        expires_s = self._channel.certificate_expires_s
        identity = Identity(user.name, EXTERNAL, certificate, expires_s)
        if identity.is_expired(now_s):
            refuse("the certificate has expired")
        return identity


def bearer(users: Users, token: str, now_s: float) -> Identity:
    """Return whose token this is.

    Raises:
        AuthenticationFailed: it is nobody's.
    """
    found = split_token(token)
    if found is None:
        refuse("no token")
    token_id, digest = found
    user, entry = users.by_token(token_id) or (None, None)
    # As long for a token that there is not.
    is_same = hmac.compare_digest(digest, _NO_DIGEST if entry is None else entry.sha256)
    if user is None or entry is None or not is_same:
        refuse(f"token {token_id} is unknown, or another one")
    identity = Identity(user.name, BEARER, BearerToken(token_id, digest), entry.expires_s)
    if identity.is_expired(now_s):
        refuse(f"token {token_id} has expired")
    return identity


def _address(client: socket.socket) -> str:
    try:
        return str(client.getpeername()[0])
    except OSError:  # it has gone already
        return "0.0.0.0"  # noqa: S104 - nobody's


def refuse(reason: str) -> NoReturn:
    """Refuse to believe a peer; the reason is for the log alone.

    Raises:
        AuthenticationFailed: always.
    """
    raise AuthenticationFailed.because(reason)
