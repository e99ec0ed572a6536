"""TLS at its ends: contexts made of files, and what a failed handshake means.

Both ends speak TLS from the first byte and name `poe/1` (ALPN), so that neither talks to a server
or a client of something else. Files are looked at when a context is asked for, so that whoever
replaces a certificate restarts nothing.
"""

import ssl
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from poe.errors import OptionError, TlsFailed
from poe.security.binding import endpoint_binding
from poe.security.file_stamp import Stamps, stamps_of
from poe.security.pem_files import PathText, load_authorities, load_certificate, words_of

ALPN: Final = "poe/1"


@dataclass(frozen=True, slots=True)
class Tls:
    """What a client demands of TLS, and what it shows of itself: paths of PEM files.

    The server has to show a certificate for the name that the client has called, signed by an
    authority that the client knows. TLS 1.2 or newer.

    Raises:
        OptionError: on construction: no server can have such a name.
    """

    ca: PathText | None = None
    """Certificates of authorities; None: those that the system trusts."""

    certificate: PathText | None = None
    """The client's own certificate, with those that lead to the authority; None: it shows none."""

    key: PathText | None = None
    """Its key, without a password; None: it is in the file of the certificate."""

    server_name: str | None = None
    """The name in the server's certificate; None: the host that is called."""

    def __post_init__(self) -> None:
        """Refuse here the name that would fail no sooner than in the midst of connecting."""
        try:
            str.encode("" if self.server_name is None else self.server_name, "idna")
        except (TypeError, UnicodeError):
            allowed = "a name such as poe.example.com, or an address"
            raise OptionError("server_name", self.server_name, allowed) from None

    def context(self) -> ssl.SSLContext:
        """Return a context of the files as they are now; the same while none has changed.

        Raises:
            SecurityFileError: a file cannot be read, or does not hold what it should.
        """
        return _context(self, stamps_of((self.ca, self.certificate, self.key)))


def client_context(tls: Tls | ssl.SSLContext) -> ssl.SSLContext:
    """Return the context for a client's next connection; one that was given speaks `poe/1` then.

    Raises:
        SecurityFileError: as `Tls.context`.
    """
    if isinstance(tls, Tls):
        return tls.context()
    tls.set_alpn_protocols([ALPN])
    return tls


def server_hostname(tls: Tls | ssl.SSLContext, host: str) -> str:
    """Return the name that the certificate of the server at `host` has to be for."""
    return host if isinstance(tls, ssl.SSLContext) else tls.server_name or host


@lru_cache(maxsize=16)
def _context(tls: Tls, stamps: Stamps) -> ssl.SSLContext:
    del stamps  # part of what is remembered
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([ALPN])
    if tls.ca is None:
        context.load_default_certs()
    else:
        load_authorities(context, tls.ca)
    if tls.certificate is not None:
        load_certificate(context, tls.certificate, tls.key)
    return context


_UNVERIFIED: Final = {
    9: "the server's certificate is not valid yet; check the clocks of both machines",
    10: "the server's certificate has expired; renew it there",
    18: "the server's certificate is signed by itself; give it as `ca`, if it is the right one",
    19: "the server's certificate is of an authority that is not known here; give that as `ca`",
    20: "the server's certificate is of an authority that is not known here; give that as `ca`",
    23: "the server's certificate was revoked",
    62: "the server's certificate is for other names; call one of those, or give `server_name`",
    64: "the server's certificate is for other addresses; call its name, or give `server_name`",
}
"""By OpenSSL's code of why a certificate is not accepted."""

_NOT_POE: Final = "what is there speaks TLS, but is no Poe; check the address"
_REASONS: Final = {
    "NO_APPLICATION_PROTOCOL": _NOT_POE,
    "TLSV1_ALERT_NO_APPLICATION_PROTOCOL": _NOT_POE,
    "TLSV1_ALERT_PROTOCOL_VERSION": "the server wants a newer TLS than this client has",
    "UNSUPPORTED_PROTOCOL": "the server has an older TLS than 1.2",
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not know the authority of the client's certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server wants a certificate: give `certificate`",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired; renew it",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client's certificate was revoked; renew it",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the server does not accept the client's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the server does not accept the client's certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the server and this client have no cipher in common",
}

_PLAINTEXT = "what is there speaks no TLS; use the port that the server has for it (tls_port)"
_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
)


def binding_of(host: str, port: int, connection: ssl.SSLSocket | ssl.SSLObject) -> bytes:
    """Return what binds an authentication to a server whose handshake is done.

    Raises:
        TlsFailed: it is no Poe: it has not chosen our protocol.
    """
    certificate = connection.getpeercert(binary_form=True)
    if connection.selected_alpn_protocol() != ALPN or certificate is None:
        raise TlsFailed(host, port, _NOT_POE)
    return endpoint_binding(certificate)


def tls_failed(host: str, port: int, error: OSError) -> TlsFailed:
    """Return what an error of a handshake, or of what is read first behind it, means.

    Args:
        host: whom the client has called.
        port: where.
        error: what `ssl` has raised, or the socket below it.
    """
    return TlsFailed(host, port, _meaning(error))


def _meaning(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        other = f"the server's certificate is not accepted: {error.verify_message}"
        return _UNVERIFIED.get(error.verify_code, other)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return f"the server has hung up; perhaps {_PLAINTEXT}"
    reason = getattr(error, "reason", None) or ""
    return _PLAINTEXT if reason in _NO_TLS else _REASONS.get(reason, words_of(error))
