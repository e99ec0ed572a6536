"""Turns the certificate files of a server into a TLS context that is known to work.

A context is never changed: where files have changed, a new one is built, and takes the place of the
old one for new connections. (A trusted authority, once loaded, could not be unloaded.) Before it is
used a context shakes hands with a client of its own, so that a key that does not fit, or a
certificate that nobody would accept, is refused while the old one still serves.
"""

import logging
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from poe.errors import SecurityFileError
from poe.security.client_trust import ClientTrust, certificates_in
from poe.security.file_stamp import Stamps, stamps_of
from poe.security.pem_files import load_authorities, load_certificate, read_trusted, words_of
from poe.security.tls import ALPN

logger = logging.getLogger("poe.security")

_MINIMUM = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CIPHERS_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Those of TLS 1.2 that are as good as all of TLS 1.3."""
_STEPS_MAX = 10
_NAMES_MAX = 3
_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python has no name for."""


class ServerSide(ssl.SSLObject):
    """The server's end of a connection, for event loops: they take other errors for their own."""

    def getpeercert(self, binary_form: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - as it is
        """Return the client's certificate.

        Raises:
            ConnectionAbortedError: nobody can read what is in it.
        """
        try:
            return super().getpeercert(binary_form)
        except UnicodeDecodeError:
            msg = "its certificate has a name that is no text"
            raise ConnectionAbortedError(msg) from None


@dataclass(frozen=True, slots=True)
class ServerContext:
    """A context that works, and what is to be known of it."""

    context: ssl.SSLContext
    certificate: bytes
    """The server's own, as DER."""

    expires_s: float
    """When that expires, in seconds since 1970."""

    client_trust: ClientTrust | None
    """Whose certificates clients may have; None: they are not asked for one."""

    own_stamps: Stamps
    """Of the files of the server's own certificate and key, before they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """Which files a server's TLS is made of."""

    certificate: Path
    """PEM: the server's certificate, then those between it and its authority."""

    key: Path | None = None
    """PEM; None: it is in the file of the certificate."""

    client_ca: Path | None = None
    """PEM: authorities whose certificates clients may have."""

    client_crl: Path | None = None
    """PEM: what is revoked: a list, not expired, of each authority from a client's up to its
    root; where one is missing, all of its clients are refused."""

    minimum: Literal["1.2", "1.3"] = "1.3"

    protocol: str = ALPN
    """What is spoken inside, as ALPN names it."""

    is_certificate_needed: bool = True
    """With `client_ca`: whether a client without a certificate is refused by TLS itself."""

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that it is made of."""
        every = (self.certificate, self.key, self.client_ca, self.client_crl)
        return tuple(each for each in every if each is not None)

    def build(self, before: ServerContext | None = None) -> ServerContext:
        """Return a new context from what the files hold now.

        A certificate that `before` has already, and that has expired since, is as good as it was:
        it must not keep in those whom the other files shut out.

        Raises:
            SecurityFileError: it names the file that cannot be used, and why.
        """
        try:
            return self._built(before)
        except OSError as error:
            # Each was looked at; somebody is about to put another one in its place.
            why = f"it changes, or what belongs to it ({words_of(error)}); try again"
            raise SecurityFileError(str(self.certificate), None, why) from error

    def _built(self, before: ServerContext | None) -> ServerContext:
        own_stamps = stamps_of((self.certificate, self.key))
        is_new = before is None or before.own_stamps != own_stamps
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _MINIMUM[self.minimum]
        context.set_ciphers(_CIPHERS_1_2)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
        # It saves 4 to 10 % of a connection, and would let in who has been revoked since.
        context.num_tickets = 0
        context.set_alpn_protocols([self.protocol])
        context.sslobject_class = ServerSide
        load_certificate(context, self.certificate, self.key)
        key = self.key or self.certificate
        if key.stat().st_mode & stat.S_IROTH:
            logger.warning("the key %s can be read by everybody on this machine: chmod 600", key)
        own, expires_s = self._shake_hands(context, is_new=is_new)
        trust = None if self.client_ca is None else self._trust_clients(context, self.client_ca)
        return ServerContext(context, own, expires_s, trust, own_stamps)

    def _shake_hands(self, context: ssl.SSLContext, *, is_new: bool) -> tuple[bytes, float]:
        """Connect a client to the context, and return its certificate and when that expires.

        Of one that is not new it does not matter whether that is over.
        """
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        # The certificate itself is trusted, whoever has signed it.
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if not is_new:
            trusting.verify_flags |= _NO_CHECK_TIME
        trusting.load_verify_locations(self.certificate)
        trusting.set_alpn_protocols([self.protocol])
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting.wrap_bio(to_client, to_server)
        server = context.wrap_bio(to_server, to_client, server_side=True)
        waiting = [client, server]
        try:
            for _ in range(_STEPS_MAX):
                waiting = [each for each in waiting if not _is_shaken(each)]
        except ssl.SSLCertVerificationError as error:
            why = f"no client would accept it: {error.verify_message}"
            raise SecurityFileError(str(self.certificate), None, why) from None
        except ssl.SSLError as error:
            why = f"no client could connect with it: {words_of(error)}"
            raise SecurityFileError(str(self.certificate), None, why) from None
        try:
            known, own = client.getpeercert(), client.getpeercert(binary_form=True)
        except UnicodeDecodeError:
            why = "it has a name that is no text"
            raise SecurityFileError(str(self.certificate), None, why) from None
        assert known is not None
        assert own is not None
        return own, ssl.cert_time_to_seconds(str(known["notAfter"]))

    def _trust_clients(self, context: ssl.SSLContext, authorities: Path) -> ClientTrust:
        trusted = read_trusted(authorities)
        load_authorities(context, authorities)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        of_authorities = anchors = frozenset(context.get_ca_certs(binary_form=True))
        if not anchors:
            why = "it holds certificates, but none of an authority"
            raise SecurityFileError(str(authorities), None, why)
        try:
            # OpenSSL tells of authorities alone, and lets in who shows one of the others, too.
            anchors |= certificates_in(trusted)
        except ValueError as error:
            raise SecurityFileError(str(authorities), None, str(error)) from None
        revoked = b""
        if self.client_crl is not None:
            revoked = read_trusted(self.client_crl)
            try:
                trust = ClientTrust.of(anchors, revoked)
                context.load_verify_locations(cadata=None, cafile=self.client_crl)
            except (ValueError, ssl.SSLError) as error:
                why = f"it holds no revocation lists in PEM form, and nothing else ({error})"
                raise SecurityFileError(str(self.client_crl), None, why) from None
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
            if names := trust.unlisted(of_authorities):
                # OpenSSL wants one of each; their clients would only be told so one by one.
                told = "; ".join(names[:_NAMES_MAX])
                logger.warning(
                    "%s has no list of %d of the authorities in %s, whose clients are refused: %s",
                    self.client_crl,
                    len(names),
                    authorities,
                    f"{told}; …" if names[_NAMES_MAX:] else told,
                )
        else:
            trust = ClientTrust.of(anchors)
        needed = ssl.CERT_REQUIRED if self.is_certificate_needed else ssl.CERT_OPTIONAL
        context.verify_mode = needed
        return trust


def _is_shaken(side: ssl.SSLObject) -> bool:
    """Go on with a handshake, and return whether it is done."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
