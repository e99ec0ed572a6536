"""The TLS context of a node at the moment: what new connections are shaken hands with."""

from typing import Any, NamedTuple

from poe.actors import ActorRef
from poe.security.expiry import ExpiryWarning
from poe.security.server_tls import ServerContext, ServerTls


class Shown(NamedTuple):
    """What a client has shown."""

    connection: ActorRef
    certificate: bytes
    """As DER."""

    expires_s: float | None = None
    """When that expires, in seconds since the epoch."""


class TlsHolder:
    """Holds the context that new connections use, until another one takes its place.

    Connections keep the one they began with. Used in the event loop's thread only.

    Raises:
        SecurityFileError: on construction, when there is none to begin with.
    """

    __slots__ = ("_expiry", "_tls", "failed_count", "now", "shaken_count", "shown")

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._expiry = ExpiryWarning()
        self.now: ServerContext = tls.build()
        self.shaken_count = 0
        """Handshakes that were done, ever."""
        self.failed_count = 0
        """Handshakes that were begun and came to nothing, ever."""
        self.shown: dict[object, Shown] = {}
        """The certificates that clients have shown, by whatever tells these apart."""

    def build(self) -> ServerContext:
        """Return what the files hold now, for `swap`.

        Raises:
            SecurityFileError: they cannot be used.
        """
        return self._tls.build(self.now)

    def swap(self, newer: ServerContext) -> list[ActorRef]:
        """Use another context for new connections.

        Return the connections of clients whose certificates are not trusted any more.
        """
        before, self.now = self.now, newer
        return [
            each.connection
            for each in self.shown.values()
            if self.has_lost(before, each.certificate)
        ]

    def has_lost(self, before: ServerContext, certificate: bytes) -> bool:
        """Return whether a client's certificate, which an earlier context trusted, is no longer."""
        trust = before.client_trust
        if trust is None or before is self.now:
            return False
        return trust.has_lost(certificate, self.now.client_trust)

    def expired(self, now_s: float) -> list[ActorRef]:
        """Return the connections of clients whose certificates have expired since they came."""
        return [
            each.connection
            for each in self.shown.values()
            if each.expires_s is not None and each.expires_s <= now_s
        ]

    def warning(self, now_s: float) -> str | None:
        """Return what is to be said of the certificate's end now; None: nothing, or it was said."""
        return self._expiry.sentence(self._tls.certificate, self.now.expires_s, now_s)

    def as_map(self) -> dict[str, Any]:
        """Return what an administrator may want to know."""
        return {
            "handshakes_count": self.shaken_count,
            "handshakes_failed_count": self.failed_count,
            "certificate_expires_s": self.now.expires_s,
        }

    def forget(self, client: object) -> None:
        """Forget a client that is gone, whether or not it has shown a certificate."""
        self.shown.pop(client, None)
