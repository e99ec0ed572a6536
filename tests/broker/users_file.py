"""A file of users and grants that tests write, and clients that prove who they are by it."""

from datetime import UTC, datetime
from pathlib import Path

from poe.errors import PoeError
from poe.security.scram import ScramClient, ScramKeys
from poe.security.token import make_token
from tests.broker.nodes import connect


class UsersFile:
    """What stands in it; `write` puts it in place."""

    def __init__(self, path: Path):
        self.path = path
        self.users: dict[str, list[str]] = {}
        self.grants: list[str] = []

    def password(self, name, password):
        self._lines(name).append(f'scram_sha_256 = "{ScramKeys.of_password(password).text()}"')

    def quota(self, name, **limits):
        told = ", ".join(f"{key} = {value}" for key, value in limits.items())
        self._lines(name).append(f"quota = {{{told}}}")

    def certificate(self, name, *names):
        self._lines(name).append(f"certificates = {list(names)!r}")

    def token(self, name, token_id, expires_s=None):
        """Add a token, and return its text."""
        text, digest = make_token(token_id)
        until = ""
        if expires_s is not None:
            until = f"expires = {datetime.fromtimestamp(expires_s, UTC):%Y-%m-%dT%H:%M:%SZ}\n"
        row = f'[[users.{name}.tokens]]\nid = "{token_id}"\nsha256 = "{digest}"\n{until}'
        self._lines(name).append(row)
        return text

    def grant(self, principals, operations, **names):
        self.grants.append(
            "[[grants]]\n"
            f"principals = {principals.split()!r}\n"
            f"operations = {operations.split()!r}\n"
            + "".join(f"{key} = {value.split(' ')!r}\n" for key, value in names.items())
        )

    def remove(self, name):
        del self.users[name]

    def write(self, mode=0o600):
        """Put the file in place, whole."""
        rows = ["version = 1"]
        for name, lines in self.users.items():
            own = [each for each in lines if not each.startswith("[[")]
            tables = [each for each in lines if each.startswith("[[")]
            rows += [f"[users.{name}]", *own, *tables]
        new = self.path.with_suffix(".new")
        new.write_text("\n".join([*rows, *self.grants]) + "\n")
        new.chmod(mode)
        new.replace(self.path)

    def _lines(self, name):
        return self.users.setdefault(name, [])


def step(client, mechanism, data=b""):
    """Send one step of an authentication."""
    return client.control("auth", mechanism=mechanism, data=data)


def log_in(client, user, password, binding=None):
    """Prove to know a password; return the last answer. By TLS, `binding` is the server's."""
    scram = ScramClient(user, password, binding)
    told = step(client, scram.mechanism, scram.first())
    told = step(client, scram.mechanism, scram.final(told["data"]))
    scram.check(told["data"])
    return told


def connect_as(node, token):
    """Open a client of the owner of a token; without one, of who administers the node."""
    text = token or (node.config.dir / "admin.token").read_text().strip()
    client = connect(node)
    try:
        step(client, "BEARER", text.encode())
    except PoeError:
        client.close()
        raise
    return client
