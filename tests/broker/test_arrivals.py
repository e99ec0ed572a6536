"""Who is served already comes first, however many arrive at once; and those get in all the same."""

import contextlib
import socket
import ssl
import threading

import pytest

from poe.actors import event_loop
from poe.broker.connection import connection, listener
from poe.broker.connection.peer import PlainPeer, TlsPeer
from poe.protocol import PutRequest
from tests.scenarios.clients import RawClient, SecureAddress

TOPIC = b"t"
PUT = PutRequest(TOPIC, [b"message"]).encode()
CROWD = 40
MANY = {"unauthenticated_per_address_max": CROWD + 1}


@pytest.fixture
def _one_turn_a_round(monkeypatch):
    """However fast the machine is."""
    monkeypatch.setattr(event_loop, "_ARRIVAL_S", 0.0)
    monkeypatch.setattr(event_loop, "_ARRIVALS_SHARE", 0.0)


class Steps:
    """What the loop does for those who arrive, from the first of it until a put is served.

    The first one waits until all have come, and has the put sent then: what the loop looks at next
    has both.
    """

    def __init__(self, writer):
        self.have_come = threading.Event()
        self.is_served = threading.Event()
        self.count = 0
        self._writer = writer

    def watch(self, monkeypatch, owner, name):
        """Count the calls of a method."""
        method = getattr(owner, name)

        def counted(*args):
            if not self.count:
                assert self.have_come.wait(10)
                self._writer.send(PUT)
            self.count += not self.is_served.is_set()
            return method(*args)

        monkeypatch.setattr(owner, name, counted)

    def end_with_put(self, monkeypatch):
        """Count no more from when a put is carried out."""
        begin_put = connection.begin_put

        def noted(*args):
            self.is_served.set()
            return begin_put(*args)

        monkeypatch.setattr(connection, "begin_put", noted)


def first_flight(context):
    """What a client sends first."""
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


@pytest.mark.usefixtures("_one_turn_a_round")
@pytest.mark.parametrize("way", ["plain", "tls"])
def test_a_put_waits_for_one_turn_of_a_crowd_and_not_for_all(serve, certificates, monkeypatch, way):
    """And for a client that each acceptor takes at once, where nobody had come before."""
    node = serve(**certificates.server_options(), **MANY)
    is_tls = way == "tls"
    first = first_flight(certificates.client_context()) if is_tls else b""
    acceptors = listener.TLS_ACCEPTORS_COUNT if is_tls else listener.ACCEPTORS_COUNT
    with RawClient(node.address) as writer, contextlib.ExitStack() as closing:
        writer.send(PUT)
        writer.frame()
        steps = Steps(writer)
        steps.end_with_put(monkeypatch)
        steps.watch(monkeypatch, TlsPeer if is_tls else PlainPeer, "__init__")
        steps.watch(monkeypatch, TlsPeer, "shake_hands")
        for _ in range(CROWD):
            client = socket.create_connection(node.tls_address if is_tls else node.address, 10)
            closing.enter_context(client).sendall(first)
        steps.have_come.set()
        writer.frame()
        assert steps.is_served.is_set()
        assert 1 <= steps.count <= acceptors + 1


def test_a_client_gets_in_while_others_ask_without_a_pause(serve, certificates, monkeypatch):
    node = serve(**certificates.server_options())
    is_in = threading.Event()
    begin_put, asked = connection.begin_put, []
    with RawClient(node.address) as writer:

        def asked_again(*args):
            """Have the next one there before the loop can have looked at anything else."""
            if not is_in.is_set():
                asked.append(1)
                with contextlib.suppress(BlockingIOError):
                    writer.socket.recv(4096)
                writer.socket.sendall(PUT)
            return begin_put(*args)

        monkeypatch.setattr(connection, "begin_put", asked_again)
        writer.socket.setblocking(False)
        writer.send(PUT)
        address = SecureAddress(node.tls_address, certificates.client_context())
        try:
            with RawClient(address) as client:
                assert client.control("health")["status"] == "ok"
            assert asked
        finally:
            is_in.set()
