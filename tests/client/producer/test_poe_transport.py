import asyncio
import contextlib
import socket
import threading
from struct import pack

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

from poe.client.producer import poe_transport
from poe.client.producer.delivery import Outcome
from poe.client.producer.payload import Message
from poe.client.producer.poe_transport import PoeTransport
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.transport import Broker, OutgoingBatch, Partition, transport_of
from poe.errors import (
    ConnectFailed,
    ConnectionClosed,
    LocalProtocolError,
    NoQuorum,
    OptionError,
    PutUnconfirmed,
)
from poe.protocol import PutId
from poe.security import Tls, Token
from poe.security.token import make_token
from tests.ports import free_port, name_ports, swallowing_port
from tests.protocol.scripted_server import Peer, ScriptedServer, pointer_body
from tests.waiting import wait_until

ANY_BROKER = Broker(0, "", 0)
PUT_ID = PutId(b"p" * 16, 1, 2)
HEAD = b"p" * 16 + pack(">II", 1, 2)


TLS: dict[str, Tls] = {}
"""As an option, while that is what clients and servers speak."""


@pytest.fixture(autouse=True, params=["plain", "tls"])
def over(request, monkeypatch):
    """What is between client and server."""
    if request.param == "tls":
        certificates = request.getfixturevalue("certificates")
        monkeypatch.setitem(TLS, "tls", Tls(certificates.file("ca.pem")))
        monkeypatch.setattr(ScriptedServer, "tls", certificates.server_context())
    return request.param


def transport(*ports, host="127.0.0.1", **options):
    scheme = "poes" if TLS else "poe"
    url = f"{scheme}://" + ",".join(f"{host}:{port}" for port in ports)
    made = transport_of(url, ProducerOptions.load({**TLS, **options}))
    assert isinstance(made, PoeTransport)
    return made


def outgoing(*messages, partition=0):
    return OutgoingBatch(b"t", partition, list(messages), PUT_ID, sum(map(len, messages)))


class Answers:
    """Takes what becomes of batches, and lets a test wait for it."""

    def __init__(self):
        self.values = []
        self._arrived = asyncio.Event()

    def __call__(self, value):
        self.values.append(value)
        self._arrived.set()

    async def wait(self, count):
        while len(self.values) < count:
            await asyncio.wait_for(self._arrived.wait(), 5)
            self._arrived.clear()
        return self.values


async def link_to(server, on_lost=str, **options):
    return await transport(server.port, **options).connect(b"t", ANY_BROKER, on_lost)


async def test_partitions_are_what_the_options_say():
    found = await transport(1, 2, partitions={"t": 2}).metadata(b"t")
    assert found.brokers == (Broker(0, "127.0.0.1", 1), Broker(1, "127.0.0.1", 2))
    assert found.partitions == (Partition(0, 0), Partition(1, 0))


async def test_a_batch_is_a_sequenced_put_onto_the_topic_of_its_partition():
    def script(peer: Peer) -> None:
        assert peer.receive() == (4, HEAD + b"\0\0\0\x03t-1\0\0\0\x01a\0\0\0\x02bc")
        peer.send(3, pointer_body(42))
        peer.wait_closed()

    answers = Answers()
    with ScriptedServer(script) as server:
        link = await link_to(server, partitions=2)
        link.send(outgoing(b"a", b"bc", partition=1), answers)
        assert await answers.wait(1) == [42]
        link.close()


async def test_with_one_partition_a_topic_has_its_own_name_and_keys_are_left_out():
    def script(peer: Peer) -> None:
        assert peer.receive() == (4, HEAD + b"\0\0\0\x01t\0\0\0\x01v")
        peer.send(3, pointer_body(1))
        peer.wait_closed()

    answers = Answers()
    with ScriptedServer(script) as server:
        link = await link_to(server)
        link.send(outgoing(Message(b"v", b"k")), answers)
        assert await answers.wait(1) == [1]
        link.close()


async def test_the_first_address_that_answers_is_taken():
    with ScriptedServer(Peer.wait_closed) as server:
        link = await transport(free_port(), server.port).connect(b"t", ANY_BROKER, str)
        link.close()


async def test_behind_an_address_that_leaves_a_batch_unanswered_the_next_one_is_taken():
    """A process that is stopped still takes connections."""
    with ScriptedServer(Peer.wait_closed) as frozen, ScriptedServer(answer_one) as other:
        made = transport(frozen.port, other.port)
        answers = Answers()
        link = await made.connect(b"t", ANY_BROKER, str)
        link.send(outgoing(b"a"), answers)
        link.close()
        assert isinstance((await answers.wait(1))[0], ConnectionClosed)
        await put_at_next(made, answers)


@pytest.mark.parametrize(
    ("error", "values"),
    [(NoQuorum, {"what": "topic t"}), (PutUnconfirmed, {"topic": "t", "waited_s": 3.0})],
)
async def test_behind_a_node_that_is_cut_off_from_the_others_the_next_one_is_taken(error, values):
    def refuse(peer: Peer) -> None:
        peer.receive()
        peer.send_error(error.code, error.__name__, "no majority", **values)
        peer.wait_closed()

    with ScriptedServer(refuse) as cut_off, ScriptedServer(answer_one) as other:
        made = transport(cut_off.port, other.port)
        answers, lost = Answers(), asyncio.Event()
        link = await made.connect(b"t", ANY_BROKER, lambda _: lost.set())
        link.send(outgoing(b"a"), answers)
        assert isinstance((await answers.wait(1))[0], error)
        await asyncio.wait_for(lost.wait(), 5)
        await put_at_next(made, answers)


def answer_one(peer: Peer) -> None:
    peer.receive()
    peer.send(3, pointer_body(7))
    peer.wait_closed()


async def put_at_next(made, answers):
    link = await made.connect(b"t", ANY_BROKER, str)
    link.send(outgoing(b"a"), answers)
    assert (await answers.wait(2))[1] == 7
    link.close()


async def test_each_address_of_a_name_is_tried(monkeypatch):
    def addresses(_host, port, *_arguments, **_options):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

    ips = ["127.0.0.2", "127.0.0.1"]
    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    with ScriptedServer(Peer.wait_closed) as server:
        link = await transport(server.port).connect(b"t", ANY_BROKER, str)
        link.close()
        ips.pop()
        with pytest.raises(ConnectFailed, match="refused"):
            await transport(server.port).connect(b"t", ANY_BROKER, str)


@pytest.mark.slow
async def test_an_address_that_swallows_packets_leaves_time_for_the_next(monkeypatch):
    monkeypatch.setattr(poe_transport, "_CONNECT_TIMEOUT_S", 2.0)
    with swallowing_port() as hole, ScriptedServer(Peer.wait_closed) as server:
        name_ports(monkeypatch, "localhost", [hole, server.port])
        link = await transport(1, host="localhost").connect(b"t", ANY_BROKER, str)
        link.close()


async def test_nobody_at_any_address_is_an_error_that_names_the_last():
    first, last = free_port(), free_port()
    with pytest.raises(ConnectFailed, match=str(last)):
        await transport(first, last).connect(b"t", ANY_BROKER, str)


async def test_a_batch_that_no_frame_takes_fails_alone():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send(3, pointer_body(1))
        peer.wait_closed()

    answers = Answers()
    with ScriptedServer(script) as server:
        link = await link_to(server)
        link.send(outgoing(b"x" * (65 << 20)), answers)
        link.send(outgoing(b"a"), answers)
        values = await answers.wait(2)
        assert sorted(map(type, values), key=str) == [int, LocalProtocolError]
        link.close()


async def test_the_end_of_the_connection_fails_what_is_open_and_is_told_once():
    def script(peer: Peer) -> None:
        peer.receive()

    answers = Answers()
    lost: list[str] = []
    with ScriptedServer(script) as server:
        link = await link_to(server, lost.append)
        link.send(outgoing(b"a"), answers)
        (error,) = await answers.wait(1)
        assert isinstance(error, ConnectionClosed)
        link.send(outgoing(b"b"), answers)
        assert len(await answers.wait(2)) == 2
        assert lost == [f"server 127.0.0.1:{server.port} closed the connection"]
        link.close()
        assert len(lost) == 1


async def test_last_words_of_a_server_that_refuses_are_the_reason():
    def script(peer: Peer) -> None:
        peer.send_error(403, "Overloaded", "too many clients")

    lost: list[str] = []
    with ScriptedServer(script) as server:
        link = await link_to(server, lost.append)
        while not lost:  # noqa: ASYNC110 - ends with the connection
            await asyncio.sleep(0.001)
        assert [each.partition(", after: ")[2] for each in lost] == ["too many clients"]
        link.close()


async def test_who_waits_for_an_answer_in_a_thread_receives_it_there():
    threads = []

    def script(peer: Peer) -> None:
        peer.receive()
        peer.send(3, pointer_body(7))
        peer.wait_closed()

    def wait(link, outcome):
        def done(value):
            threads.append(threading.current_thread())
            outcome.settle(value)

        link.send(outgoing(b"a"), done)
        link.assist(outcome, 5.0)

    with ScriptedServer(script) as server:
        link = await link_to(server)
        outcome = Outcome()
        thread = threading.Thread(target=wait, args=[link, outcome])
        thread.start()
        thread.join()  # the loop stands still meanwhile
        assert outcome.value == 7
        assert threads == [thread]
        link.close()


async def test_who_waits_in_a_thread_is_woken_when_the_connection_is_closed():
    with ScriptedServer(Peer.wait_closed) as server:
        link = await link_to(server)
        answers, outcome = Answers(), Outcome()
        link.send(outgoing(b"a"), answers)
        thread = threading.Thread(target=link.assist, args=[outcome, 30.0])
        thread.start()
        link.close()
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()
        assert isinstance((await answers.wait(1))[0], ConnectionClosed)


async def test_a_large_reply_with_another_one_behind_it_holds_nothing_back():
    """OpenSSL decrypts both together, and the second is nothing that the kernel tells of."""

    def script(peer: Peer) -> None:
        peer.receive()
        peer.receive()
        text = "x" * 300_000
        fields = {"code": 401, "name": "UnknownTopic", "message": text, "values": {"topic": b"t"}}
        error = msgpack.packb(fields)
        peer.send_bytes(
            pack(">IH", 2 + len(error), 18) + error + pack(">IH", 9, 3) + pointer_body(9)
        )
        peer.wait_closed()

    answers = Answers()
    with ScriptedServer(script) as server:
        link = await link_to(server)
        link.send(outgoing(b"a"), answers)
        link.send(outgoing(b"b"), answers)
        assert (await answers.wait(2))[1] == 9
        link.close()


async def test_a_server_that_reads_slowly_gets_every_byte():
    batches = [bytes([number]) * 3_000_000 for number in range(4)]

    def script(peer: Peer) -> None:
        for number, batch in enumerate(batches):
            _, body = peer.receive()
            assert body.endswith(batch)
            peer.send(3, pointer_body(number))
        peer.wait_closed()

    answers = Answers()
    with ScriptedServer(script) as server:
        link = await link_to(server)
        for batch in batches:
            link.send(outgoing(batch), answers)
        assert await answers.wait(4) == [0, 1, 2, 3]
        link.close()


async def test_a_login_is_renewed_between_batches_that_are_under_way(monkeypatch):
    monkeypatch.setattr("poe.protocol.renewal._PAUSE_MIN_S", 0.02)
    logins = []

    def script(peer: Peer) -> None:
        number = 0
        with contextlib.suppress(EOFError):
            while True:
                kind, body = peer.receive()
                if kind == 16:
                    request = msgpack.unpackb(body)
                    logins.append(request["data"])
                    told = {"data": None, "principal": "ci", "expires_s": 0.05}
                    peer.send_control(request["id"], told)
                else:
                    number += 1
                    peer.send(3, pointer_body(number))

    token, _ = make_token("ci")
    answers, sent = Answers(), 0
    with ScriptedServer(script) as server:
        link = await link_to(server, credentials=Token(token))
        while len(logins) < 4:
            for _ in range(20):
                link.send(outgoing(b"m"), answers)
            sent += 20
            await answers.wait(sent)
        assert answers.values == list(range(1, sent + 1))
        link.close()


async def test_a_reply_of_another_kind_ends_the_connection():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send_control(1, None)
        peer.wait_closed()

    answers = Answers()
    with ScriptedServer(script) as server:
        link = await link_to(server)
        link.send(outgoing(b"a"), answers)
        (error,) = await answers.wait(1)
        assert isinstance(error, ConnectionClosed)
        link.close()


async def test_a_function_that_hangs_holds_no_worker_for_ever(monkeypatch):
    monkeypatch.setattr("poe.client.producer.poe_transport._CONNECT_TIMEOUT_S", 0.2)
    over = threading.Event()

    def hang():
        over.wait(10)
        return make_token("ci")[0]

    with ScriptedServer(Peer.wait_closed) as server:
        with pytest.raises(ConnectFailed, match="timed out"):
            await link_to(server, credentials=Token(hang))
        over.set()


@pytest.mark.parametrize("url", ["poe:/x", "nats://h:1", "poe://h:x", "poe://"])
def test_urls_that_are_none_are_refused(url):
    with pytest.raises(OptionError, match="host:port"):
        transport_of(url, ProducerOptions.load({}))


class Interrupted:
    """A socket on which an interrupt comes while it sends, of which it has done a part."""

    def __init__(self, whole, size, kind):
        self._whole = whole
        self._size = size
        self._kind = kind
        self.is_over = False

    def __getattr__(self, name):
        return getattr(self._whole, name)

    def send(self, frame):
        if self.is_over:
            return self._whole.send(frame)
        self.is_over = True
        self._whole.send(frame[: self._size])
        raise self._kind


# `signal.alarm` and a handler that raises TimeoutError, which is an OSError, limit a task's time.
@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
async def test_behind_a_frame_of_which_an_interrupt_has_sent_a_part_nothing_is_sent(kind):
    """The server would take the next one for the rest of it, and store that."""
    lost: list[str] = []
    received: list[bytes] = []

    def script(peer: Peer) -> None:
        received.append(peer.receive_bytes(30))
        with contextlib.suppress(EOFError, ConnectionResetError):
            received.append(peer.receive_bytes(1))

    answers = Answers()
    with ScriptedServer(script) as server:
        link = await link_to(server, lost.append)
        link._socket = Interrupted(link._socket, 30, kind)  # noqa: SLF001 - where the signal comes
        with pytest.raises(kind):
            link.send(outgoing(b"x" * 1000), answers)
        link.send(outgoing(b"y" * 1000), answers)
        values = await answers.wait(2)
        assert [type(each) for each in values] == [ConnectionClosed] * 2
        assert len(lost) == 1
        wait_until(lambda: received)  # the server may not have looked yet that it has a client
    assert sum(map(len, received)) == 30


async def test_an_interrupt_before_a_batch_is_sent_ends_the_connection_too(monkeypatch):
    """Else its queue would wait for an answer until the request has timed out."""

    def interrupted(*_):
        raise KeyboardInterrupt

    lost: list[str] = []
    with ScriptedServer(Peer.wait_closed) as server:
        link = await link_to(server, lost.append)
        monkeypatch.setattr(poe_transport, "put_frame", interrupted)
        with pytest.raises(KeyboardInterrupt):
            link.send(outgoing(b"a"), Answers())
        await asyncio.sleep(0)
        assert lost == ["a call was interrupted"]


async def test_an_interrupt_while_a_reply_is_handed_out_gives_none_to_another_request(monkeypatch):
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send(3, pointer_body(1))
        peer.receive()
        peer.send(3, pointer_body(2))
        peer.wait_closed()

    def interrupted(*arguments):
        if not interrupts:
            interrupts.append(1)
            raise KeyboardInterrupt
        return decode(*arguments)

    decode = poe_transport._decode  # noqa: SLF001 - where the signal comes
    interrupts: list[int] = []
    lost: list[str] = []
    answers = Answers()
    with ScriptedServer(script) as server:
        link = await link_to(server, lost.append)
        monkeypatch.setattr(poe_transport, "_decode", interrupted)
        link._watch(0)  # noqa: SLF001 - or the loop would be faster
        link.send(outgoing(b"a"), answers)
        with pytest.raises(KeyboardInterrupt):
            link.assist(Outcome(), 5.0)
        link.send(outgoing(b"b"), answers)
        values = await answers.wait(2)
        assert [type(each) for each in values] == [ConnectionClosed] * 2
        assert lost == ["a call was interrupted"]
