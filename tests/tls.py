"""Certificates for tests, and sockets that are connected by TLS."""

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import trustme

from poe.broker.connection.peer import Peer, PlainPeer, TlsPeer

ALPN = "poe/1"


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

    def issue(self, name: str, *identities: str, **options) -> Path:
        """Make a certificate and its key as NAME.pem and NAME.key, and return the former."""
        leaf = self.authority.issue_cert(*identities, key_type=trustme.KeyType.ECDSA, **options)
        return self.write(name, leaf)

    def write(self, name: str, leaf: trustme.LeafCert) -> Path:
        """Write a certificate and its key."""
        path = self.folder / f"{name}.pem"
        path.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(self.folder / f"{name}.key")
        return path

    def file(self, name: str) -> Path:
        """Return where something is."""
        return self.folder / name

    def server_options(self) -> dict[str, Path | int]:
        """Return the options of a node that listens with TLS, too."""
        files = {"tls_certificate": self.file("server.pem"), "tls_key": self.file("server.key")}
        return {"tls_port": 0, **files}

    def client_context(self, name: str | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts the authority; `name` is its certificate."""
        context = ssl.create_default_context(cafile=str(self.file("ca.pem")))
        context.set_alpn_protocols([ALPN])
        if name is not None:
            context.load_cert_chain(self.file(f"{name}.pem"), self.file(f"{name}.key"))
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


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection by TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname(), 10)
        server, _ = listening.accept()
    return server, client


def peer_of(server: socket.socket) -> Peer:
    """Return what a connection makes of its client's socket."""
    return TlsPeer(server) if isinstance(server, ssl.SSLSocket) else PlainPeer(server)
