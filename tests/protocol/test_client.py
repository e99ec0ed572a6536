import contextlib
import socket as tcp
import threading
import time
import weakref
from functools import partial
from itertools import islice
from struct import pack

import pytest

import poe.protocol
from poe.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    FrameTooLarge,
    InvalidMessage,
    LocalProtocolError,
    Overloaded,
    PointerOutOfRange,
    RemoteProtocolError,
    ServerError,
    UnknownTopic,
)
from poe.protocol import IN_FLIGHT_MAX
from poe.protocol.server import Server
from poe.protocol.wire import Wire
from poe.security import Tls
from poe.security.credentials import Token
from poe.security.token import make_token
from tests.forks import exit_code_of, fork
from tests.interrupts import places
from tests.protocol.scripted_server import Peer, ScriptedServer, pointer_body, record


@pytest.fixture(autouse=True, params=["plain", "tls"])
def over(request, monkeypatch):
    """What is between client and server."""
    if request.param == "tls":
        certificates = request.getfixturevalue("certificates")
        tls = Tls(certificates.file("ca.pem"))
        monkeypatch.setattr(ScriptedServer, "tls", certificates.server_context())
        monkeypatch.setattr(poe.protocol, "socket", partial(poe.protocol.socket, tls=tls))
    return request.param


PUT_T_HELLO = b"\0\0\0\x01t\0\0\0\x05hello"


def answer_puts(peer: Peer) -> None:
    """Answer each put with the number of the request."""
    number = 0
    try:
        while peer.receive()[0] == 2:
            number += 1
            peer.send(3, pointer_body(number))
    except EOFError:
        return


def test_write_sends_one_frame_and_returns_the_pointer():
    def script(peer: Peer) -> None:
        assert peer.receive() == (2, PUT_T_HELLO)
        peer.send(3, pointer_body(42))

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.write("t", [b"hello"]) == 42


def test_read_sends_one_frame_and_returns_the_records():
    def script(peer: Peer) -> None:
        assert peer.receive() == (0, pointer_body(7) + b"\0\0\0\x64" + b"t")
        peer.send(1, record(8, b"a") + record(9, b"bc"))

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.read(b"t", 7, 100) == [(8, b"a"), (9, b"bc")]


def test_module_functions_take_the_socket_last():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send(3, pointer_body(1))
        peer.receive()
        peer.send(1, record(1, b"m"))

    with (
        ScriptedServer(script) as server,
        poe.protocol.socket("127.0.0.1", server.port) as socket,
    ):
        assert poe.protocol.write(b"t", [b"m"], socket) == 1
        assert poe.protocol.read(b"t", 0, 100, socket) == [(1, b"m")]


def test_unknown_topic_reads_as_nothing():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send(1, b"")

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.read(b"t", 0, 100) == []


@pytest.mark.parametrize("message", [b"m", b"x" * 3000])
def test_replies_that_come_byte_by_byte_are_put_together(message):
    records = record(1, message) + record(2, b"n")

    def script(peer: Peer) -> None:
        peer.receive()
        peer.send_bytes(pack(">IH", 2 + len(records), 1) + records, piece_size=1)

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.read(b"t", 0, 10) == [(1, message), (2, b"n")]


def test_reply_larger_than_the_scratch_is_read():
    messages = [(number, b"%07d" % number * 20) for number in range(1, 5000)]

    def script(peer: Peer) -> None:
        for _ in range(2):
            peer.receive()
            peer.send(1, b"".join(record(*each) for each in messages))

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.read(b"t", 0, 5000) == messages
        assert socket.read(b"t", 0, 5000) == messages


def test_control_arguments_and_result_pass_unchanged():
    def script(peer: Peer) -> None:
        request = peer.receive_control()
        assert request == {"op": "create", "id": request["id"], "topic": b"t", "names": ["a"]}
        peer.send_control(request["id"], {"x": [1, b"2", None]})

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.control("create", topic=b"t", names=["a"]) == {"x": [1, b"2", None]}


def test_topics_status_and_wait_are_control_requests():
    def script(peer: Peer) -> None:
        for op, result in (
            ("topics", [b"t"]),
            ("status", {b"t": [["ref", "w"]]}),
            ("wait", True),
            ("wait", False),
        ):
            request = peer.receive_control()
            assert request.pop("op") == op
            peer.send_control(request.pop("id"), result)
            assert request == (
                {"topic": b"t", "pointer": 5, "timeout_s": 1.5} if op == "wait" else {}
            )

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.topics() == [b"t"]
        assert socket.status() == {b"t": [["ref", "w"]]}
        assert socket.wait("t", 5, 1.5) is True
        assert socket.wait("t", 5, 1.5) is False


def test_follow_reads_on_from_the_last_pointer_and_waits_at_the_end():
    def script(peer: Peer) -> None:
        pages = {0: record(1, b"a") + record(2, b"b"), 2: b"", 3: b""}
        for pointer in (0, 2):
            assert peer.receive() == (0, pointer_body(pointer) + b"\0\0\0\x02t")
            peer.send(1, pages[pointer])
        request = peer.receive_control()
        assert (request["op"], request["pointer"]) == ("wait", 2)
        peer.send_control(request["id"], result=False)
        assert peer.receive() == (0, pointer_body(2) + b"\0\0\0\x02t")
        peer.send(1, record(3, b"c"))

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        followed = list(islice(socket.follow("t", batch=2), 3))
    assert followed == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_follow_of_no_records_at_a_time_is_refused():
    with (
        ScriptedServer(Peer.wait_closed) as server,
        poe.protocol.socket(port=server.port) as socket,
        pytest.raises(LocalProtocolError, match="batch is 0"),
    ):
        next(socket.follow("t", batch=0))


def test_refusal_is_raised_as_the_server_s_error_and_leaves_the_socket_usable():
    def script(peer: Peer) -> None:
        for code, name, values in (
            (401, "UnknownTopic", {"topic": b"t"}),
            (207, "InvalidMessage", {"size_bytes": 9, "message_max": 5}),
            (302, "RemoteProtocolError", {}),
            (999, "Newer", {}),
        ):
            peer.receive()
            peer.send_error(code, name, "no", **values)
        answer_puts(peer)

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        for expected in (UnknownTopic, InvalidMessage, RemoteProtocolError, ServerError):
            with pytest.raises(expected) as caught:
                socket.write("t", [b"m"])
            assert type(caught.value) is expected
        assert socket.write("t", [b"m"]) == 1


class Held:
    """What the caller's frame holds."""


@pytest.mark.slow
@pytest.mark.usefixtures("uncollected")
def test_a_refusal_keeps_nothing_of_its_caller():
    def script(peer: Peer) -> None:
        for _ in range(2):
            peer.receive()
            peer.send_error(401, "UnknownTopic", "no", topic=b"t")

    def refused(ask):
        held = Held()
        with contextlib.suppress(UnknownTopic):  # `pytest.raises` would keep this frame
            ask()
            pytest.fail("it was not refused")
        return weakref.ref(held)

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        asks = partial(socket.write, "t", [b"m"]), partial(socket.read, "t", 0, 1)
        held = [refused(ask) for ask in asks]
    assert [each() for each in held] == [None, None]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda socket: socket.write("", [b"m"]), LocalProtocolError),
        (lambda socket: socket.write("t", []), LocalProtocolError),
        (lambda socket: socket.write("t", [b""]), LocalProtocolError),
        (lambda socket: socket.write("t", b"lone"), LocalProtocolError),
        (lambda socket: socket.write("t", [b"x" * 2000]), LocalProtocolError),
        (lambda socket: socket.read("", 0, 1), LocalProtocolError),
        (lambda socket: socket.read("t", -1, 1), PointerOutOfRange),
        (lambda socket: socket.read("t", 1 << 56, 1), PointerOutOfRange),
        (lambda socket: socket.read("t", 0, 1 << 32), LocalProtocolError),
        (lambda socket: socket.wait("t", 1 << 56, 1.0), PointerOutOfRange),
        (lambda socket: socket.wait("", 0, 1.0), LocalProtocolError),
        (lambda socket: socket.control("x", id=5), LocalProtocolError),
    ],
)
def test_mistakes_of_the_caller_send_nothing(call, error):
    with (
        ScriptedServer(answer_puts) as server,
        poe.protocol.socket(port=server.port, frame_max=1000) as socket,
    ):
        with pytest.raises(error):
            call(socket)
        assert socket.write("t", [b"m"]) == 1


def test_nobody_listening_is_said_so():
    with tcp.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port}") as caught:
        poe.protocol.socket("127.0.0.1", port)
    assert caught.value.port == port


def test_time_out_ends_the_socket():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send_bytes(b"\0\0")
        peer.wait_closed()

    with (
        ScriptedServer(script) as server,
        poe.protocol.socket(port=server.port, timeout_s=0.05) as socket,
    ):
        with pytest.raises(CallTimeout, match=r"within 0\.05 s"):
            socket.write("t", [b"m"])
        with pytest.raises(ConnectionClosed, match="a call timed out; open a new one"):
            socket.write("t", [b"m"])


def test_a_login_that_is_not_answered_in_time_is_no_request_that_may_have_been_done():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.wait_closed()

    token, _ = make_token("t")
    with (
        ScriptedServer(script) as server,
        pytest.raises(ConnectFailed, match=r"no answer to the login within 0\.5 s"),
    ):
        poe.protocol.socket(port=server.port, timeout_s=0.5, credentials=Token(token))


def test_time_out_covers_sending():
    over = threading.Event()
    with ScriptedServer(lambda _: over.wait(10)) as deaf:
        with (
            poe.protocol.socket(port=deaf.port, timeout_s=0.25) as socket,
            pytest.raises(CallTimeout),
        ):
            socket.write("t", [b"x" * 30_000_000])
        over.set()


def test_time_out_covers_sending_to_a_server_that_takes_little_by_little():
    """Of TLS each record would have as long."""

    def script(peer: Peer) -> None:
        with contextlib.suppress(OSError, EOFError):
            for _ in range(40):
                peer.receive_bytes(200_000)
                is_over.wait(0.05)

    is_over = threading.Event()
    with ScriptedServer(script) as slow:
        with poe.protocol.socket(port=slow.port, timeout_s=0.25) as socket:
            begun_s = time.monotonic()
            with pytest.raises(CallTimeout):
                socket.write("t", [b"x" * 30_000_000])
        assert time.monotonic() - begun_s < 1.5
        is_over.set()


def test_wait_may_take_longer_than_the_time_out():
    def script(peer: Peer) -> None:
        request = peer.receive_control()
        assert request["timeout_s"] == 60.0
        peer.send_control(request["id"], result=True)
        peer.receive_control()
        peer.wait_closed()

    with (
        ScriptedServer(script) as server,
        poe.protocol.socket(port=server.port, timeout_s=0.05) as socket,
    ):
        assert socket.wait("t", 0, 60.0)
        with pytest.raises(CallTimeout, match=r"within 0\.15"):
            socket.wait("t", 0, 0.1)


@pytest.mark.parametrize("sent", [b"", b"\0\0\0", b"\0\0\0\x09\0\x03abc"])
def test_connection_closed_in_the_middle_is_said_so(sent):
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send_bytes(sent)

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        for _ in range(2):
            with pytest.raises(ConnectionClosed, match="closed the connection; open a new one"):
                socket.write("t", [b"m"])


def test_server_that_refuses_the_connection_is_heard():
    def script(peer: Peer) -> None:
        peer.send_error(403, "Overloaded", "full", limit="connections_max", value=9)

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        with pytest.raises(Overloaded, match="full"):
            socket.write("t", [b"m"])
        with pytest.raises(ConnectionClosed):
            socket.write("t", [b"m"])


def test_server_that_refuses_a_frame_half_way_is_heard():
    def script(peer: Peer) -> None:
        peer.receive_bytes(4)
        peer.send_error(303, "FrameTooLarge", "no", size_bytes=5, frame_max=4)

    with (
        ScriptedServer(script) as server,
        poe.protocol.socket(port=server.port) as socket,
        pytest.raises(FrameTooLarge, match="no"),
    ):
        socket.write("t", [b"x" * 20_000_000])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"\0\0\0\x08\0\x03abcdef", "put reply of 6 bytes"),
        (b"\0\0\0\x02\0\x01", "type 1 came as the answer, not 3"),
        (b"\0\0\0\x03\0\x12\xc1", "error reply"),
        (b"\0\0\0\0", "has no type"),
        (b"\xff\xff\xff\xff", "frame of 4294967295 bytes is refused"),
    ],
)
def test_reply_that_makes_no_sense_ends_the_socket(reply, reason):
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send_bytes(reply)
        peer.wait_closed()

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        with pytest.raises(RemoteProtocolError, match=reason):
            socket.write("t", [b"m"])
        with pytest.raises(ConnectionClosed, match=reason):
            socket.write("t", [b"m"])


def test_control_reply_with_another_id_ends_the_socket():
    def script(peer: Peer) -> None:
        peer.send_control(peer.receive_control()["id"] + 1, None)
        peer.wait_closed()

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        with pytest.raises(RemoteProtocolError, match="answered with id"):
            socket.control("topics")
        with pytest.raises(ConnectionClosed):
            socket.topics()


def test_closed_socket_says_so():
    with ScriptedServer(Peer.wait_closed) as server:
        socket = poe.protocol.socket(port=server.port)
        socket.close()
        socket.close()
        with pytest.raises(ConnectionClosed, match="closed here"):
            socket.write("t", [b"m"])


def test_interrupted_call_leaves_no_reply_for_the_next():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send(3, pointer_body(1))
        peer.wait_closed()

    class Interrupted(tcp.socket):
        """A connection whose first receive is ended by Ctrl-C."""

        def recv_into(self, *_: object) -> int:
            raise KeyboardInterrupt

    with ScriptedServer(script) as server:
        plain = tcp.create_connection(("127.0.0.1", server.port))
        connection = Interrupted(fileno=plain.detach())
        place = Server("127.0.0.1", server.port)
        wire = Wire(connection, place, timeout_s=None, frame_max=1000)
        with poe.protocol.Socket(wire, 1000) as socket:
            with pytest.raises(KeyboardInterrupt):
                socket.write("t", [b"m"])
            with pytest.raises(ConnectionClosed, match="interrupted"):
                socket.write("t", [b"m"])


def test_a_call_that_is_interrupted_anywhere_says_so_or_leaves_the_socket_usable():
    for interrupted in places("protocol/wire.py"):
        with ScriptedServer(answer_puts) as server, poe.protocol.socket(port=server.port) as socket:
            interrupted(partial(socket.write, "t", [b"m"]))
            if socket.is_usable:
                assert socket.write("t", [b"m"]) in {1, 2}
            else:
                with pytest.raises(ConnectionClosed, match="interrupted"):
                    socket.write("t", [b"m"])


def test_a_forked_process_is_told_to_open_a_socket_of_its_own():
    """Each of the two would take replies that are the other's."""
    with ScriptedServer(answer_puts) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.write("t", [b"m"]) == 1

        def go_on():
            with pytest.raises(ConnectionClosed, match=r"fork.*; open a new one"):
                socket.write("t", [b"m"])
            assert not socket.is_usable
            socket.close()

        assert exit_code_of(fork(go_on)) == 0
        assert socket.write("t", [b"m"]) == 2


def test_write_batches_yields_each_pointer_in_order():
    count = 3 * IN_FLIGHT_MAX
    with ScriptedServer(answer_puts) as server, poe.protocol.socket(port=server.port) as socket:
        batches = ([b"m"] for _ in range(count))
        assert list(socket.write_batches("t", batches)) == list(range(1, count + 1))
        assert socket.write("t", [b"m"]) == count + 1


def test_write_batches_has_a_bounded_number_of_requests_under_way():
    taken: list[int] = []

    def batches():
        while True:
            taken.append(len(taken))
            yield [b"m"]

    with ScriptedServer(answer_puts) as server, poe.protocol.socket(port=server.port) as socket:
        pointers = socket.write_batches("t", batches())
        assert list(islice(pointers, 5)) == [1, 2, 3, 4, 5]
        assert len(taken) == IN_FLIGHT_MAX + 5
        pointers.close()


def test_other_calls_wait_for_write_batches_to_end():
    with ScriptedServer(answer_puts) as server, poe.protocol.socket(port=server.port) as socket:
        pointers = socket.write_batches("t", [[b"m"]] * 5)
        assert next(pointers) == 1
        with pytest.raises(LocalProtocolError, match="replies to 4 requests are outstanding"):
            socket.write("t", [b"m"])
        pointers.close()
        assert socket.write("t", [b"m"]) == 6


def test_batch_that_is_refused_on_either_side_leaves_the_socket_usable():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send(3, pointer_body(1))
        peer.receive()
        peer.send_error(401, "UnknownTopic", "no", topic=b"t")
        answer_puts(peer)

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        pointers = socket.write_batches("t", [[b"m"]] * 4)
        assert next(pointers) == 1
        with pytest.raises(UnknownTopic):
            next(pointers)
        assert socket.write("t", [b"m"]) == 3
        with pytest.raises(LocalProtocolError, match="is empty"):
            list(socket.write_batches("t", [[b"m"], [b""]]))
        assert socket.write("t", [b"m"]) == 5


def test_connection_lost_under_write_batches_is_said_so():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send(3, pointer_body(1))

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        pointers = socket.write_batches("t", [[b"m"]] * 200)
        with pytest.raises(ConnectionClosed):
            list(pointers)
        with pytest.raises(ConnectionClosed):
            socket.write("t", [b"m"])
