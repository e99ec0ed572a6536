"""Which server a command asks, and how it gets in."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from poe import protocol
from poe.errors import CallTimeout, ConnectFailed, OptionError, OriginalServer, RemoteProtocolError
from poe.protocol.client import open_socket
from poe.protocol.server import Server
from poe.security.entry import Entry

CALL_TIMEOUT_S = 30.0
"""A server that does not answer for so long is given up, rather than waited for without end."""

LOOK_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server is, and how a command gets in."""

    url: str
    """As producers, consumers and queues take it."""
    server: Server
    """The first one of the url, with the way in."""
    is_told: bool = False
    """Whether the command or its environment names it; else it is the last login's, or the one of
    this machine."""
    others: tuple[Server, ...] = ()
    """Those of the url behind the first one, each asked where none before it can be reached."""

    @property
    def host(self) -> str:
        """Return the first server's host."""
        return self.server.host

    @property
    def port(self) -> int:
        """Return the first server's port."""
        return self.server.port

    @property
    def entry(self) -> Entry:
        """Return how to get in."""
        return self.server.entry

    @property
    def options(self) -> dict[str, Any]:
        """Return how to get in, as arguments of producers, consumers and queues."""
        return {"tls": self.entry.tls, "credentials": self.entry.credentials}

    def connect(self, timeout_s: float | None = CALL_TIMEOUT_S) -> protocol.Socket:
        """Connect to the first server of the url that can be reached.

        Raises:
            ConnectFailed: nobody listens there.
            TlsFailed: it is not the server that it should be.
            AuthenticationFailed: it does not take the credentials.
        """
        return self._reach(timeout_s)[1]

    def _reach(
        self, timeout_s: float | None, connect_timeout_s: float | None = None
    ) -> tuple[Server, protocol.Socket]:
        *earlier, last = self._servers()
        for server in earlier:
            with suppress(ConnectFailed):
                # Others are there to be asked: none is waited for as long as for an answer.
                return server, open_socket(server, timeout_s, connect_timeout_s=LOOK_TIMEOUT_S)
        return last, open_socket(last, timeout_s, connect_timeout_s=connect_timeout_s)

    def _servers(self) -> list[Server]:
        return [self.server, *(replace(each, entry=self.entry) for each in self.others)]

    def all_reached(self) -> Iterator[protocol.Socket]:
        """Connect to each server of the url that can be reached, for a look, one after another."""
        for server in self._servers():
            try:
                connection = open_socket(server, LOOK_TIMEOUT_S)
            except (ConnectFailed, CallTimeout):
                continue
            with connection:
                yield connection

    @contextmanager
    def looking(self, timeout_s: float = LOOK_TIMEOUT_S) -> Iterator[protocol.Socket]:
        """Connect for a look, which changes nothing and has a short time limit.

        Args:
            timeout_s: more of groups: a node of a cluster may have to ask another one, for 20 s.

        Raises:
            ConnectFailed: nobody listens there, or it does not answer as a server of Poe does.
        """
        server, connection = self._reach(timeout_s, LOOK_TIMEOUT_S)
        with connection:
            try:
                yield connection
            except CallTimeout as error:
                reason = f"what listens there gave no answer within {timeout_s:g} s"
                raise server.unreachable(reason) from error
            except RemoteProtocolError as error:
                if connection.is_usable:  # a refusal that a server of Poe has sent
                    raise
                reason = (
                    f"what answers there is no server of Poe, or one of another version: {error}"
                )
                raise server.unreachable(reason) from error

    def partitions_of(self, topic: bytes) -> "Partitions":
        """Ask which topics hold the partitions of a topic; itself, where the server cannot tell.

        Raises:
            PropertyMismatch: it would be a partition that its topic has not got.
            PoeError: nobody answers.
        """
        with self.connect() as connection:
            try:
                found = connection.find_topic(topic)
            except OriginalServer:
                found = None
        if found is None or not found.is_told:
            is_queue = found is not None and found.queue is not None
            return Partitions((topic,), is_known=found is not None, is_queue=is_queue)
        names = tuple(each.topic for each in found.partitions)
        return Partitions(names, has_envelope=found.properties.envelope, is_known=True)


class Partitions(NamedTuple):
    """The topics that hold the partitions of a topic."""

    topics: tuple[bytes, ...]
    has_envelope: bool = False
    is_known: bool = False
    """Whether the server knows it; one that is older does not say."""
    is_queue: bool = False
    """Whether it is a queue across nodes, which has none."""

    def one(self, number: int | None) -> int | None:
        """Return which partition is meant; None where several are, and none was named.

        Raises:
            OptionError: there is none of this number.
        """
        if number is not None and number >= len(self.topics):
            allowed = f"0 to {len(self.topics) - 1}: the topic has {len(self.topics)} partitions"
            raise OptionError("--partition", number, allowed)
        return 0 if number is None and len(self.topics) == 1 else number
