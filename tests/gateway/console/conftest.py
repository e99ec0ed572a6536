from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from poe.gateway.console.level import Level
from poe.gateway.console.visit import Visit
from poe.node import Node
from tests.cli.processes import Background

TIMEOUT_S = 20.0


class Shown(Background):
    """`poe console` as users start it, in front of a node; exists once it is ready.

    Attributes:
        base: where it is, without a path.
        token: of the URL that it has printed last.
        http: a client that is logged in.
    """

    def __init__(self, node, *options, **variables):
        """Begin in front of a node of this process, or of a broker's url, and log in."""
        self.node = node
        broker = node if isinstance(node, str) else f"poe://127.0.0.1:{node.address[1]}"
        super().__init__("console", "--broker", broker, *options, **variables)
        try:
            self.base = self.read_token().partition("/console")[0]
            self.http = self.client()
            self.log_in(self.http)
        except BaseException:
            self.__exit__()
            raise

    def read_token(self):
        """Wait for the next invitation that is printed, and return its URL."""
        line = self.read_until(b"for one browser)\n").decode().rstrip("\n").rpartition("\n")[2]
        url = line.removeprefix("console at ").partition(" ")[0]
        self.token = url.partition("#")[2]
        return url

    def client(self):
        """A client that is not logged in."""
        return httpx.Client(base_url=f"{self.base}/console/api/", timeout=TIMEOUT_S)

    def log_in(self, client):
        """Use the token up, and wait for the next one."""
        reply = client.post("login", json={"token": self.token})
        assert reply.status_code == 200, reply.text
        self.read_token()

    def __exit__(self, *arguments):
        if hasattr(self, "http"):
            self.http.close()
        super().__exit__(*arguments)


def visit_of(node: object, query: bytes = b"", **path: str) -> Any:
    """A visit of somebody who is lent what stands for connections to a node."""
    look: Any = SimpleNamespace(node=lambda: nullcontext(node))
    request: Any = SimpleNamespace(scope={"query_string": query}, path_params=path)
    nothing: Any = None
    return Visit(request, None, look, Level.READ, nothing, nothing)


@pytest.fixture(scope="session")
def node(tmp_path_factory) -> Iterator[Node]:
    """A node that all tests share; each has topics of its own."""
    with Node(dir=tmp_path_factory.mktemp("node"), port=0, names="escape") as node:
        yield node


@pytest.fixture(scope="session")
def console(node) -> Iterator[Shown]:
    """A console that may do all, with a client that is logged in."""
    with Shown(node, "--destructive") as console:
        yield console


@pytest.fixture
def topic(request) -> str:
    """The test's own topic."""
    return "".join(each if each.isalnum() else "_" for each in request.node.name)
