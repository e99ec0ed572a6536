"""Clients for scenarios: three ways to say the same, one of them without any manners."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poe import Node, client, protocol
from poe.protocol import (
    ControlReply,
    ControlRequest,
    DataReply,
    ErrorReply,
    FrameReader,
    PointerRequest,
    PutReply,
    PutRequest,
    decode_reply,
)
from poe.supervision.api import CountChildren

HEADER = struct.Struct(">IH")
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class SecureAddress(Sequence[Any]):
    """Host and port, as a pair, of a server that speaks TLS, with the context to connect by."""

    pair: tuple[str, int]
    context: ssl.SSLContext

    def __getitem__(self, index):
        return self.pair[index]

    def __len__(self):
        return 2


def tls_of(address):
    """Tell the arguments that a client needs besides an address."""
    return {"tls": address.context} if isinstance(address, SecureAddress) else {}


def dial(address, timeout_s=TIMEOUT_S, receive_buffer_bytes=None):
    """Connect, by TLS where that is spoken."""
    with contextlib.ExitStack() as until_connected:
        connection = until_connected.enter_context(socket.socket())
        if receive_buffer_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection.settimeout(timeout_s)
        connection.connect(tuple(address))
        if isinstance(address, SecureAddress):
            connection = address.context.wrap_socket(connection, server_hostname=address[0])
        until_connected.pop_all()
    return connection


class RawClient:
    """Sends any bytes, and tells what comes back, frame by frame."""

    def __init__(self, address, timeout_s=TIMEOUT_S):
        self.socket = dial(address, timeout_s)
        self.reader = FrameReader()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def end(self):
        """Send nothing more, and go on receiving."""
        if isinstance(self.socket, ssl.SSLSocket):
            timeout_s = self.socket.gettimeout()
            self.socket.settimeout(0)
            with contextlib.suppress(ssl.SSLWantReadError):
                self.socket.unwrap()  # it does not wait for the server's
            self.socket.settimeout(timeout_s)
        socket.socket.shutdown(self.socket, socket.SHUT_WR)

    def frame(self):
        """Tell type and body of the next frame; None when the server has closed."""
        while (frame := self.reader.next_frame()) is None:
            try:
                size = self.socket.recv_into(self.reader.buffer())
            except (ConnectionResetError, ssl.SSLZeroReturnError):
                return None
            if not size:
                return None
            self.reader.received(size)
        return frame[0], bytes(frame[1])

    def error(self):
        """Tell the next frame, which is an error."""
        frame = self.frame()
        assert frame is not None, "closed without an error frame"
        assert frame[0] == ErrorReply.MESSAGE_TYPE, frame
        return ErrorReply.decode(memoryview(frame[1])).to_error()

    def assert_closed(self):
        assert self.frame() is None

    def call(self, request, reply_class):
        self.send(request.encode())
        frame = self.frame()
        assert frame is not None, "closed"
        reply = decode_reply(reply_class, frame[0], memoryview(frame[1]))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def write(self, topic, messages):
        return self.call(PutRequest(topic, messages), PutReply).pointer

    def read(self, topic, pointer, limit):
        return self.call(PointerRequest(topic, pointer, limit), DataReply).records

    def control(self, op, **arguments):
        return self.call(ControlRequest(op, 7, arguments), ControlReply).result


class BlockingClient:
    def __init__(self, address):
        self.socket = protocol.socket(*address, timeout_s=TIMEOUT_S, **tls_of(address))
        self.write = self.socket.write
        self.read = self.socket.read
        self.control = self.socket.control
        self.close = self.socket.close


class AsyncioClient:
    """The asyncio client, driven from a test that is not asynchronous."""

    def __init__(self, address):
        self.runner = asyncio.Runner()
        self.socket = self.runner.run(
            client.connect(*address, timeout_s=TIMEOUT_S, **tls_of(address))
        )

    def write(self, topic, messages):
        return self.runner.run(self.socket.write(topic, messages))

    def read(self, topic, pointer, limit):
        return self.runner.run(self.socket.read(topic, pointer, limit))

    def control(self, op, **arguments):
        return self.runner.run(self.socket.control(op, **arguments))

    def close(self):
        self.runner.run(self.socket.close())
        self.runner.close()


CLIENTS = {"raw": RawClient, "blocking": BlockingClient, "asyncio": AsyncioClient}


def frame(message_type, body):
    """Make a frame of any type around any body."""
    return HEADER.pack(2 + len(body), message_type) + body


def put_body(topic, messages):
    """Make the body of a put request without any check."""
    batch = b"".join(struct.pack(">I", len(message)) + message for message in messages)
    return struct.pack(">I", len(topic)) + topic + batch


def connection_count(node: Node) -> int:
    """How many clients are connected to a node."""
    count: int = node.system.call("connection_sup", CountChildren()).active
    return count


def received_until_end(client: socket.socket) -> bytes:
    """All that a socket receives until its end."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            received += part
    return received
