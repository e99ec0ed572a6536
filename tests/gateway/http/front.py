"""`poe gateway` as users start it, in front of a node, and clients that are not of good will."""

import socket

import httpx

from poe.node import Node
from tests.cli.processes import Background

HOST = "127.0.0.1"
TIMEOUT_S = 20.0


class Front(Background):
    """A gateway on a free port; exists once it is ready."""

    def __init__(self, broker, *options, tls=None, **variables):
        """Begin in front of a node of this process, of one at a port, or of a broker's url.

        With `tls`, certificates of a `tests.tls.Certificates`, clients speak HTTPS.
        """
        if tls is not None:
            files = "--tls-certificate", tls.file("server.pem"), "--tls-key", tls.file("server.key")
            options = (*files, *options)
        if isinstance(broker, Node):
            assert broker.address is not None
            broker = broker.address[1]
        if isinstance(broker, int):
            broker = f"poe://{HOST}:{broker}"
        super().__init__("gateway", "--port", 0, "--broker", broker, *options, **variables)
        try:
            self.port = int(self.read_until(b"\n").rpartition(b":")[2])
        except AssertionError:
            self.__exit__()
            raise
        self.tls = tls
        scheme, verify = ("http", True) if tls is None else ("https", tls.client_context())
        url = f"{scheme}://{HOST}:{self.port}"
        self.http = httpx.Client(base_url=url, timeout=TIMEOUT_S, verify=verify)

    def __exit__(self, *arguments):
        if hasattr(self, "http"):
            self.http.close()
        super().__exit__(*arguments)

    def connect(self, *, from_address=HOST):
        """A connection for bytes that no client library would send; by TLS, if that is spoken."""
        connection = self.connect_plain(from_address=from_address)
        if self.tls is None:
            return connection
        return self.tls.client_context(protocol="http/1.1").wrap_socket(
            connection, server_hostname=HOST
        )

    def connect_plain(self, *, from_address=HOST):
        """A connection without TLS."""
        return socket.create_connection(
            (HOST, self.port), timeout=TIMEOUT_S, source_address=(from_address, 0)
        )


def whole_reply(connection):
    """What comes until the gateway closes the connection."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def reply(connection):
    """The next reply with a body of known length: status line and headers, and the body."""
    content = b""
    while b"\r\n\r\n" not in content:
        part = connection.recv(65536)
        assert part, f"closed after {content!r}"
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head, body


def stored(node, topic):
    """All messages of a topic; none where there is no such topic."""
    name = topic if isinstance(topic, bytes) else topic.encode()
    pointer, messages = 0, []
    while name in node.topics() and (found := node.next(name, pointer)) is not None:
        pointer, message = found
        messages.append(message)
    return messages
