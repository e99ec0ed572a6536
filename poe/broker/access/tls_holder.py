"""The TLS context of a node at the moment: what new connections are shaken hands with."""

from poe.security.server_tls import ServerContext, ServerTls


class TlsHolder:
    """Holds the context that new connections use, until another one takes its place.

    Connections keep the one they began with. Used in the event loop's thread only.

    Raises:
        SecurityFileError: on construction, when there is none to begin with.
    """

    __slots__ = ("_tls", "failed_count", "now", "shaken_count")

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self.now: ServerContext = tls.build()
        self.shaken_count = 0
        """Handshakes that were done, ever."""
        self.failed_count = 0
        """Handshakes that were begun and came to nothing, ever."""

    def build(self) -> ServerContext:
        """Return what the files hold now, for `swap`.

        Raises:
            SecurityFileError: they cannot be used.
        """
        return self._tls.build()

    def swap(self, newer: ServerContext) -> ServerContext:
        """Use another context for new connections, and return the one that was used until now."""
        older, self.now = self.now, newer
        return older
