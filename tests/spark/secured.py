"""A node that listens with TLS and asks who is there, and users with a token each."""

from pathlib import Path

from poe import Node
from poe.protocol.server import Server
from poe.security import Entry, Tls, TokenFile
from tests.broker.users_file import UsersFile
from tests.tls import Certificates


class SecuredNode:
    """Runs from `start` to `stop`; its users are what `users` says then, and after `reload`."""

    def __init__(self, folder: Path, certificates: Certificates):
        self.folder = folder
        self.certificates = certificates
        self.users = UsersFile(folder / "users.toml")

    def start(self, **options):
        self.users.write()
        place = {"dir": self.folder / "data", "port": 0, **self.certificates.server_options()}
        self.node = Node({**place, "users": self.users.path, "reload_interval": 0, **options})
        self.node.start()

    def stop(self):
        self.node.stop()

    def reload(self):
        """Have the node read the users as they are written now."""
        self.users.write()
        return self.node.reload()

    def add(self, name, grants):
        """Add a user with a token in a file, who may do what (operations, names) say."""
        path = self.folder / name
        path.touch(0o600)
        path.write_text(self.users.token(name, name) + "\n")
        for operations, names in grants:
            self.users.grant(name, operations, **names)

    @property
    def url(self):
        assert self.node.tls_address is not None
        host, port = self.node.tls_address
        return f"poes://{host}:{port}"

    def options(self, name):
        """Return the options of the data source by which a user gets in."""
        return {
            "url": self.url,
            "caFile": str(self.certificates.file("ca.pem")),
            "tokenFile": str(self.folder / name),
        }

    def server(self, name):
        """Return how a client of this user gets in."""
        assert self.node.tls_address is not None
        tls = Tls(ca=self.certificates.file("ca.pem"))
        return Server(*self.node.tls_address, Entry(tls, TokenFile(self.folder / name)))
