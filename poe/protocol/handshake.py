"""What a client demands of a TLS connection beyond its certificates, and why there is none."""

import contextlib
import ssl
from typing import Final

from poe.errors import ConnectFailed, TlsFailed
from poe.protocol.server import Server
from poe.security.tls import ALPN, tls_failed

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Where nothing else bounds it: who speaks no TLS may wait for more, and say nothing."""
_WRONG_PORT: Final = "; is this the port of TLS (tls_port)?"


def handshake_failure(server: Server, error: Exception) -> ConnectFailed | TlsFailed:
    """Return what it means that a handshake has failed.

    A server that was killed in the midst of one, or has too many clients, may be tried again.
    """
    if isinstance(error, TimeoutError):
        reason = f"no TLS handshake in time{_WRONG_PORT}"
        return server.unreachable(reason)
    if isinstance(error, ConnectionError | ssl.SSLEOFError | ssl.SSLZeroReturnError):
        reason = f"it hung up in the TLS handshake{_WRONG_PORT}"
        return server.unreachable(reason)
    assert isinstance(error, OSError)
    return tls_failed(server.host, server.port, error)


def client_hello() -> bytes:
    """Return what a client of TLS says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols([ALPN])
    said = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname="poe").do_handshake()
    return said.read()


def is_tls(reply: bytes) -> bool:
    """Return whether a server has answered that by TLS: by its own hello, or by an alert."""
    return reply[:2] in {b"\x16\x03", b"\x15\x03"}
