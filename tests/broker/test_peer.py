"""What a client behind TLS sends is found, and what is sent to it arrives whole."""

import gc
import os
import select
import socket
import ssl
import threading

import pytest

from poe.broker.connection.peer import TlsPeer
from poe.storage import RealFiles
from tests.tls import Tap, connected_pair, peer_of
from tests.waiting import wait_until

RECORD_BYTES = 16 * 1024


@pytest.fixture(params=["plain", "tls"])
def either(request, tls_pair):
    """A peer of either kind, and the socket of its client."""
    server, client = connected_pair() if request.param == "plain" else tls_pair()
    server.setblocking(False)
    with server, client:
        yield peer_of(server), client


@pytest.fixture
def encrypted(tls_pair):
    """A peer behind TLS, and the socket of its client."""
    server, client = tls_pair()
    server.setblocking(False)
    return TlsPeer(server), client


@pytest.fixture
def file(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "data").write_bytes(os.urandom(3_000_000))
    return RealFiles.at(tmp_path / "base").open("data", "r")


def receive(peer, size):
    """Receive so many bytes by one call."""
    room = bytearray(size)
    return bytes(room[: peer.receive_into(memoryview(room))])


def end_of(client):
    """Say what ends a stream, and close."""
    if isinstance(client, ssl.SSLSocket):
        client.settimeout(0)
        with pytest.raises(ssl.SSLWantReadError):
            client.unwrap()
    client.shutdown(socket.SHUT_WR)


def test_nothing_is_there_until_something_comes(either):
    peer, client = either
    with pytest.raises(BlockingIOError):
        receive(peer, 10)
    assert peer.is_open()
    assert not peer.has_more()
    client.sendall(b"hello")
    wait_until(peer.has_more)
    assert peer.is_open()
    assert receive(peer, 1) == b"h"
    assert peer.has_more()
    assert receive(peer, 10) == b"ello"
    assert not peer.has_more()


def test_the_end_of_a_stream_is_seen_though_it_arrives_as_bytes(either):
    """Trap 2: the farewell of TLS lies in the kernel as bytes that come."""
    peer, client = either
    assert peer.is_open()
    end_of(client)
    wait_until(lambda: not peer.is_open())
    assert receive(peer, 10) == b""


def test_a_farewell_is_seen_though_the_stream_goes_on(encrypted):
    """A client that says goodbye, and waits for an answer before it closes."""
    peer, client = encrypted
    client.settimeout(0)
    with pytest.raises(ssl.SSLWantReadError):
        client.unwrap()
    wait_until(lambda: not peer.is_open())
    assert peer.has_pending()
    assert receive(peer, 10) == b""


def test_what_came_before_the_end_is_received_before_it(either):
    peer, client = either
    client.sendall(b"last")
    end_of(client)
    wait_until(peer.has_more)
    assert peer.is_open()
    received = b""
    while part := receive(peer, 10):
        received += part
    assert received == b"last"
    assert not peer.is_open()


def test_a_reset_ends_a_stream(either):
    peer, client = either
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    socket.socket(fileno=client.detach()).close()
    wait_until(lambda: not peer.is_open())
    assert not peer.has_more()


def test_one_who_is_gone_before_its_handshake_leaves_nothing_open(certificates):
    """What is not closed warns when it is collected, which fails the test."""
    server, client = connected_pair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    with server, pytest.raises(OSError, match="not connected"):
        TlsPeer.of(server, certificates.server_context())
    gc.collect()


def test_what_lies_decrypted_is_told(encrypted):
    """Trap 1: of a record that was received in part, the kernel has nothing left to tell."""
    peer, client = encrypted
    client.sendall(b"x" * 100)
    wait_until(peer.has_more)
    assert peer.has_pending()
    assert receive(peer, 1) + receive(peer, 60) == b"x" * 61
    assert peer.has_pending()
    assert receive(peer, 60) == b"x" * 39
    assert not peer.has_pending()


def test_full_records_are_received_by_one_call(encrypted):
    """Trap 6: else each one costs a turn of the event loop."""
    peer, client = encrypted
    content = os.urandom(5 * RECORD_BYTES + 7)
    client.sendall(content)
    wait_until(lambda: peer.waiting_bytes() > len(content))
    assert receive(peer, 128 << 10) == content
    assert not peer.is_mid_record


def test_more_than_there_is_room_for_is_left(encrypted):
    peer, client = encrypted
    content = os.urandom(5 * RECORD_BYTES)
    client.sendall(content)
    wait_until(lambda: peer.waiting_bytes() > len(content))
    assert receive(peer, 2 * RECORD_BYTES + 1) == content[: 2 * RECORD_BYTES + 1]
    assert peer.has_pending()
    assert receive(peer, 10 * RECORD_BYTES) == content[2 * RECORD_BYTES + 1 : 3 * RECORD_BYTES]
    assert receive(peer, 10 * RECORD_BYTES) == content[3 * RECORD_BYTES :]


@pytest.fixture
def tapped(certificates):
    """A peer behind TLS, the plain socket of its client, and what encrypts for it."""
    server, client = connected_pair()
    tap = Tap(certificates, client)
    shaking = threading.Thread(target=tap.shake_hands)
    shaking.start()
    with certificates.server_context().wrap_socket(server, server_side=True) as tls, client:
        shaking.join()
        tls.setblocking(False)
        yield TlsPeer(tls), client, tap


def test_a_record_that_is_not_whole_shows_as_one(tapped):
    """Trap 5: there is no plaintext, and yet the peer owes something."""
    peer, client, tap = tapped
    record = tap.encrypted(b"hello")
    assert not peer.is_mid_record
    client.sendall(record[:-1])
    wait_until(lambda: peer.waiting_bytes() == len(record) - 1)
    with pytest.raises(BlockingIOError):
        receive(peer, 10)
    assert peer.is_mid_record
    client.sendall(record[-1:])
    wait_until(peer.has_more)
    assert receive(peer, 10) == b"hello"
    assert not peer.is_mid_record


def test_a_part_of_a_record_behind_a_full_one_shows_as_one(tapped):
    peer, client, tap = tapped
    record = tap.encrypted(b"x" * RECORD_BYTES)
    sent = record + tap.encrypted(b"hello")[:9]
    client.sendall(sent)
    wait_until(lambda: peer.waiting_bytes() == len(sent))
    assert receive(peer, 128 << 10) == b"x" * RECORD_BYTES
    assert peer.is_mid_record


def test_a_reset_within_a_record_behind_a_full_one_is_not_forgotten(tapped):
    """OpenSSL meets it, and the kernel then has nothing more to tell."""
    peer, client, tap = tapped
    sent = tap.encrypted(b"x" * RECORD_BYTES) + tap.encrypted(b"hello")[:9]
    client.sendall(sent)
    wait_until(lambda: peer.waiting_bytes() == len(sent))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    wait_until(lambda: is_reset(peer))
    assert receive(peer, 128 << 10) == b"x" * RECORD_BYTES
    assert peer.has_pending()
    assert receive(peer, 10) == b""


def is_reset(peer):
    """Look whether a reset has come, without taking it."""
    poll = select.poll()
    poll.register(peer.client, select.POLLIN)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def test_a_full_record_alone_owes_nothing(tapped):
    peer, client, tap = tapped
    record = tap.encrypted(b"x" * RECORD_BYTES)
    client.sendall(record)
    wait_until(lambda: peer.waiting_bytes() == len(record))
    assert receive(peer, 128 << 10) == b"x" * RECORD_BYTES
    assert not peer.is_mid_record


def test_a_look_for_more_takes_no_time_for_a_part_of_a_record(tapped):
    peer, client, tap = tapped
    assert not peer.has_more()
    assert not peer.is_mid_record
    record = tap.encrypted(b"hello")
    client.sendall(record[:7])
    wait_until(lambda: peer.waiting_bytes() == 7)
    assert not peer.has_more()
    assert peer.is_open()
    assert peer.is_mid_record


@pytest.mark.slow
@pytest.mark.parametrize("head_size", [4, 20_000, 200_000])
def test_slow_readers_get_every_byte(tls_pair, file, head_size):
    """Trap 3: what the kernel refused must be offered again, though others sent meanwhile."""
    whole = file.read_at(3_000_000, 0)
    peers, readers, received = [], [], []
    for number in range(4):
        server, client = tls_pair()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        server.setblocking(False)
        peers.append(TlsPeer(server))
        content = bytearray()
        received.append(content)
        readers.append(threading.Thread(target=read_slowly, args=(client, content, 3 + number)))
    heads = [bytes([number]) * head_size for number in range(4)]
    left = dict.fromkeys(range(4), True)
    for number, peer in enumerate(peers):
        left[number] = not peer.push(heads[number], file, number, 3_000_000 - number)
    assert all(left.values())
    for reader in readers:
        reader.start()
    tries = 0
    while any(left.values()):
        tries += 1
        for number in [each for each, is_left in left.items() if is_left]:
            left[number] = not peers[number].push(*peers[number].rest, 100_000)
    for number, peer in enumerate(peers):
        peer.close_notify()
        peer.client.shutdown(socket.SHUT_WR)
        readers[number].join()
        assert received[number] == heads[number] + whole[number : 3_000_000 - number]
    assert tries > 10


def read_slowly(client, content, size):
    """Read in small parts, so that records are taken in parts, too."""
    while part := client.recv(size * 1000):
        content.extend(part)


def test_a_reply_of_many_records_leaves_as_full_packets(tls_pair, file, monkeypatch):
    server, client = tls_pair()
    server.setblocking(False)
    corks = []
    monkeypatch.setattr(server, "setsockopt", lambda *arguments: corks.append(arguments))
    peer = TlsPeer(server)
    assert peer.push(b"head", file, 0, 1000)
    assert corks == []
    assert peer.push(b"head", file, 0, 50_000)
    assert corks == [(socket.IPPROTO_TCP, socket.TCP_CORK, on) for on in (1, 0)]
    received = b""
    while len(received) < 51_008:
        received += client.recv(100_000)
    assert received == b"head" + file.read_at(1000, 0) + b"head" + file.read_at(50_000, 0)


def test_a_goodbye_is_one_in_the_peers_language(encrypted):
    peer, client = encrypted
    client.settimeout(10)
    peer.close_notify()
    peer.client.shutdown(socket.SHUT_WR)
    assert client.recv(10) == b""
    peer.close_notify()  # once more is harmless
