"""Certificates for tests, and sockets that are connected by TLS."""

import contextlib
import datetime as dt
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from poe import Node
from poe.broker.connection.peer import Peer, PlainPeer, TlsPeer
from poe.errors import SecurityFileError
from poe.protocol import FrameReader
from poe.security.server_tls import ServerTls
from tests.scenarios.clients import RawClient, SecureAddress

ALPN = "poe/1"

_GARBLED_NAME = b"\x30\x05\x82\x03m\xfcn"
"""A DNS name in Latin-1, as DER."""

BOTH = ("plain", "tls")
"""The `TRANSPORTS` of a module whose tests are played in plaintext and by TLS."""


@dataclass(frozen=True)
class Certificates:
    """A certificate authority, and what it has signed, as files."""

    authority: trustme.CA
    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "Certificates":
        """Make an authority, and a server for this machine."""
        authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        made = cls(authority, folder)
        authority.cert_pem.write_to_path(folder / "ca.pem")
        made.issue("server", "localhost", "127.0.0.1", "::1")
        return made

    @classmethod
    def between(cls, root: "Certificates", folder: Path) -> "Certificates":
        """Make an authority that another one has certified, which has it as `between`."""
        folder = folder / "between"
        folder.mkdir()
        made = cls(root.authority.create_child_ca(key_type=trustme.KeyType.ECDSA), folder)
        for path in (made.file("ca.pem"), root.file("between.pem")):
            made.authority.cert_pem.write_to_path(path)
        return made

    def issue(self, name: str, *identities: str, **options) -> Path:
        """Make a certificate and its key as NAME.pem and NAME.key, and return the former."""
        leaf = self.authority.issue_cert(*identities, key_type=trustme.KeyType.ECDSA, **options)
        return self.write(name, leaf)

    def issue_garbled(self, name: str) -> Path:
        """Make a certificate with an alternative name that is no text."""
        issuer = x509.load_pem_x509_certificate(self.file("ca.pem").read_bytes())
        key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
        san = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, _GARBLED_NAME)
        making = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(san, critical=False)
            .add_extension(_key_id(issuer), critical=False)
        )
        made = making.sign(self._key(), hashes.SHA256())
        path, key_path = self.file(f"{name}.pem"), self.file(f"{name}.key")
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        key_path.chmod(0o600)
        return path

    def write(self, name: str, leaf: trustme.LeafCert) -> Path:
        """Write a certificate and its key."""
        path = self.folder / f"{name}.pem"
        path.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
        key = self.folder / f"{name}.key"
        leaf.private_key_pem.write_to_path(key)
        key.chmod(0o600)
        return path

    def revoke(self, *names: str) -> Path:
        """Make a revocation list of the authority, and return where it is."""
        now = dt.datetime.now(dt.UTC)
        issuer = x509.load_pem_x509_certificate(self.file("ca.pem").read_bytes())
        making = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
        making = making.last_update(now).next_update(now + dt.timedelta(days=1))
        for name in names:
            leaf = x509.load_pem_x509_certificate(self.file(f"{name}.pem").read_bytes())
            revoked = x509.RevokedCertificateBuilder().serial_number(leaf.serial_number)
            making = making.add_revoked_certificate(revoked.revocation_date(now).build())
        path = self.file("revoked.pem")
        made = making.sign(self._key(), hashes.SHA256())
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return path

    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.authority.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key

    def der(self, name: str) -> bytes:
        """Return a certificate as it is sent."""
        pem = self.file(f"{name}.pem").read_bytes()
        leaf = x509.load_pem_x509_certificate(pem)
        return leaf.public_bytes(serialization.Encoding.DER)

    def file(self, name: str) -> Path:
        """Return where something is."""
        return self.folder / name

    def server_options(self) -> dict[str, Path | int]:
        """Return the options of a node that listens with TLS, too."""
        files = {"tls_certificate": self.file("server.pem"), "tls_key": self.file("server.key")}
        return {"tls_port": 0, **files}

    def client_context(self, name: str | None = None, protocol: str = ALPN) -> ssl.SSLContext:
        """Return the context of a client that trusts the authority; `name` is its certificate."""
        context = ssl.create_default_context(cafile=str(self.file("ca.pem")))
        context.set_alpn_protocols([protocol])
        if name is not None:
            context.load_cert_chain(self.file(f"{name}.pem"), self.file(f"{name}.key"))
        return context

    def client_context_for(self, protocols: list[str] | None) -> ssl.SSLContext:
        """Return the context of a client that says that it speaks these; None: says nothing."""
        context = ssl.create_default_context(cafile=str(self.file("ca.pem")))
        if protocols is not None:
            context.set_alpn_protocols(protocols)
        return context

    def server_context(self) -> ssl.SSLContext:
        """Return a plain context of a server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0
        context.load_cert_chain(self.file("server.pem"), self.file("server.key"))
        context.set_alpn_protocols([ALPN])
        return context

    def pair(self) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
        """Return server and client of a connection whose handshake is done."""
        server, client = connected_pair()
        server.settimeout(10)
        client.settimeout(10)
        with ThreadPoolExecutor(1) as pool:
            accepting = pool.submit(self.server_context().wrap_socket, server, server_side=True)
            context = self.client_context()
            connected = context.wrap_socket(client, server_hostname="localhost")
            return accepting.result(10), connected


def _key_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    found = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found)


def let_certificates_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no certificate of a server pass any more that is not in use already."""
    shake_hands = ServerTls._shake_hands  # noqa: SLF001 - time is OpenSSL's

    def expired(self: ServerTls, context: ssl.SSLContext, *, is_new: bool) -> tuple[bytes, float]:
        if is_new:
            raise SecurityFileError(str(self.certificate), None, "certificate has expired")
        return shake_hands(self, context, is_new=is_new)

    monkeypatch.setattr(ServerTls, "_shake_hands", expired)


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection by TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname(), 10)
        server, _ = listening.accept()
    return server, client


def peer_of(server: socket.socket) -> Peer:
    """Return what a connection makes of its client's socket."""
    return TlsPeer(server) if isinstance(server, ssl.SSLSocket) else PlainPeer(server)


def shake_hands(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, name: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Connect a client and a server in memory, and return both ends."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    while waiting:
        for each in tuple(waiting):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(each)
    return client, server


class TlsNode(Node):
    """A node that has no other port than one with TLS."""

    certificates: Certificates

    @classmethod
    def of(cls, certificates: Certificates, options: dict[str, Any]) -> "TlsNode":
        """Make one; tests connect many clients at a time."""
        places = {"unauthenticated_per_address_max": 256}
        node = cls({"port": None, **certificates.server_options(), **places, **options})
        node.certificates = certificates
        return node

    @property
    def address(self) -> Any:
        assert self.tls_address is not None
        return SecureAddress(self.tls_address, self.certificates.client_context())


class Tap(RawClient):
    """A client that encrypts by itself, and so can send any part of a record."""

    def __init__(
        self,
        certificates: Certificates,
        client: socket.socket,
        context: ssl.SSLContext | None = None,
    ):
        self.reader = FrameReader()
        self.socket = client
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = context or certificates.client_context()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    @classmethod
    def to(
        cls, address, certificates: Certificates, context: ssl.SSLContext | None = None
    ) -> "Tap":
        """Connect, and shake hands."""
        tap = cls(certificates, socket.create_connection(address, 10), context)
        tap.shake_hands()
        return tap

    def hello(self) -> bytes:
        """Return what a client sends first."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    def last_flight(self) -> bytes:
        """Send the hello, if that is not done, and return what ends the handshake."""
        self.send(self.hello())
        while True:
            self._incoming.write(self.socket.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                return self._outgoing.read()

    def shake_hands(self):
        self.send(self.last_flight())

    def encrypted(self, content: bytes) -> bytes:
        """Return what would be sent: as few records as hold it."""
        self._tls.write(content)
        return self._outgoing.read()

    def receive(self) -> bytes:
        """Return plaintext that came; nothing at the end."""
        while True:
            try:
                return self._tls.read(65536)
            except ssl.SSLWantReadError:
                part = self.socket.recv(65536)
                if not part:
                    return b""
                self._incoming.write(part)
            except ssl.SSLZeroReturnError:
                return b""

    def frame(self):
        """Return type and body of the next frame; None when the server has closed."""
        while (frame := self.reader.next_frame()) is None:
            part = self.receive()
            if not part:
                return None
            room = self.reader.buffer()
            room[: len(part)] = part
            self.reader.received(len(part))
        return frame[0], bytes(frame[1])
