"""Bytes that are no request get one error frame and a closed connection, and harm nobody else."""

import random
import ssl
import struct

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

from poe import Node
from poe.errors import FrameTooLarge, RemoteProtocolError
from poe.protocol import (
    ControlRequest,
    DataReply,
    PointerRequest,
    PutReply,
    PutRequest,
)
from poe.protocol.frames import POINTER_REQUEST, PUT_REQUEST, RANGE_REQUEST, SEQUENCED_PUT_REQUEST
from tests.scenarios.clients import RawClient, frame, put_body
from tests.scenarios.conftest import FRAME_MAX, TOPIC

pytestmark = pytest.mark.usefixtures("unharmed")

READ = PointerRequest(TOPIC, 0, 100).encode()


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x80000000, FRAME_MAX + 1])
def test_a_length_bomb_is_refused_before_its_body_arrives(raw, length):
    raw.send(struct.pack(">I", length))
    error = raw.error()
    assert isinstance(error, FrameTooLarge)
    assert (error.size_bytes, error.frame_max) == (length, FRAME_MAX)
    raw.assert_closed()


@pytest.mark.parametrize("length", [0, 1])
def test_a_frame_too_short_for_a_type_is_refused(raw, length):
    raw.send(struct.pack(">I", length) + b"\0" * 20)
    assert isinstance(raw.error(), RemoteProtocolError)
    raw.assert_closed()


@pytest.mark.parametrize("message_type", [1, 3, 6, 15, 17, 18, 19, 255, 0xFFFF])
def test_a_type_that_is_no_request_is_refused(raw, message_type):
    raw.send(frame(message_type, b"\0" * 100))
    with pytest.raises(RemoteProtocolError, match=f"type {message_type}"):
        raise raw.error()
    raw.assert_closed()


LIES = {
    "no topic length": b"",
    "half a topic length": b"\0\0\0",
    "topic of no bytes": put_body(b"", [b"x"]),
    "topic longer than the frame": b"\xff\xff\xff\xfft" + b"x" * 50,
    "no messages": put_body(TOPIC, []),
    "an empty message": put_body(TOPIC, [b""]),
    "an empty message among others": put_body(TOPIC, [b"x", b"", b"y"]),
    "an empty message at the end": put_body(TOPIC, [b"x", b"y", b""]),
    "equal messages and an empty one": put_body(TOPIC, [b"x"] * 50 + [b""]),
    "a message longer than the frame": put_body(TOPIC, [b"x"])[:-1],
    "a message of 4 GiB": put_body(TOPIC, [b"x"]) + b"\xff\xff\xff\xffz",
    "half a message length": put_body(TOPIC, [b"x", b"y"]) + b"\0\0",
    "a byte too many": put_body(TOPIC, [b"xx"] * 20) + b"\0",
    "a byte too few": put_body(TOPIC, [b"xx"] * 20)[:-1],
    "one length of many that lies": put_body(TOPIC, [b"xx"] * 20).replace(
        b"\0\0\0\2xx\0\0\0\2xx", b"\0\0\0\2xx\0\0\0\3xx", 1
    ),
}


@pytest.mark.parametrize("body", LIES.values(), ids=LIES)
def test_a_put_whose_lengths_lie_is_refused_and_nothing_of_it_is_stored(raw, body):
    raw.send(frame(PUT_REQUEST, body))
    assert isinstance(raw.error(), RemoteProtocolError)
    raw.assert_closed()


@pytest.mark.parametrize("body", LIES.values(), ids=LIES)
def test_so_is_one_with_a_number_and_its_number_is_not_used_up(raw, node, body):
    raw.send(frame(SEQUENCED_PUT_REQUEST, bytes(24) + body))
    assert isinstance(raw.error(), RemoteProtocolError)
    raw.assert_closed()
    assert node.control("last_put", topic=TOPIC, producer=bytes(16)) is None


@pytest.mark.parametrize("size", [0, 23, 24, 27, 28])
def test_a_put_too_short_for_its_number_or_a_topic_is_refused(raw, size):
    raw.send(frame(SEQUENCED_PUT_REQUEST, bytes(size)))
    assert isinstance(raw.error(), RemoteProtocolError)
    raw.assert_closed()


@pytest.mark.parametrize("size", range(12))
def test_a_read_too_short_for_a_topic_is_refused(raw, size):
    raw.send(frame(POINTER_REQUEST, b"\0" * size))
    error = raw.error() if size < 12 else None
    assert isinstance(error, RemoteProtocolError)
    raw.assert_closed()


@pytest.mark.parametrize("size", [0, 7, 14, 22])
def test_a_read_by_range_too_short_for_a_topic_is_refused(raw, size):
    raw.send(frame(RANGE_REQUEST, b"\0" * size))
    assert isinstance(raw.error(), RemoteProtocolError)
    raw.assert_closed()


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 6, 10, 17])
def test_a_client_that_goes_within_a_frame_is_forgotten(node, cut):
    for _ in range(5):
        with RawClient(node.address) as raw:
            raw.send(READ[:cut])


def test_a_request_in_single_bytes_is_served(raw, node):
    for byte in READ + ControlRequest("topics", 1, {}).encode():
        raw.send(bytes([byte]))
    first, second = raw.frame(), raw.frame()
    assert [m for _, m in DataReply.decode(memoryview(first[1])).records] == [b"1", b"2", b"3"]
    assert msgpack.unpackb(second[1]) == {"id": 1, "result": [TOPIC]}


def test_valid_requests_before_garbage_are_answered_first(raw):
    raw.send(READ * 3 + b"\xde\xad\xbe\xef" * 100)
    for _ in range(3):
        frame_type, body = raw.frame()
        assert frame_type == DataReply.MESSAGE_TYPE
        assert len(body) == 3 * 12
    assert isinstance(raw.error(), RemoteProtocolError)
    raw.assert_closed()


def test_requests_behind_garbage_are_not_served(raw, unharmed):
    raw.send(frame(99, b"") + PutRequest(TOPIC, [b"evil"]).encode())
    assert isinstance(raw.error(), RemoteProtocolError)
    raw.assert_closed()
    unharmed()


def test_a_frame_that_stalls_is_ended_with_an_error(tmp_path):
    with (
        Node(dir=tmp_path / "short", port=0, frame_timeout=0.05) as node,
        RawClient(node.address) as raw,
        RawClient(node.address) as idle,
    ):
        raw.send(READ[:-1])
        with pytest.raises(RemoteProtocolError, match="frame_timeout"):
            raise raw.error()
        raw.assert_closed()
        # Between two frames a client may rest as long as it likes.
        assert idle.read(TOPIC, 0, 10) == []


def test_a_large_frame_that_makes_progress_is_not_ended(tmp_path):
    with (
        Node(dir=tmp_path / "short", port=0, frame_timeout=0.05) as node,
        RawClient(node.address) as raw,
    ):
        request = PutRequest(TOPIC, [b"x" * 300_000]).encode()
        for start in range(0, len(request), 50_000):
            raw.send(request[start : start + 50_000])
        assert raw.frame()[0] == PutReply.MESSAGE_TYPE


BOMBS = {
    "no msgpack": b"\xc1",
    "nothing": b"",
    "no map": msgpack.packb([1, 2]),
    "a number": msgpack.packb(7),
    "no op": msgpack.packb({"id": 1}),
    "no id": msgpack.packb({"op": "topics"}),
    "an op that is a number": msgpack.packb({"op": 7, "id": 1}),
    "an id that is text": msgpack.packb({"op": "topics", "id": "x"}),
    "an id below 0": msgpack.packb({"op": "topics", "id": -1}),
    "keys of bytes": msgpack.packb({b"op": "topics", b"id": 1}),
    "two maps": msgpack.packb({"op": "topics", "id": 1}) * 2,
    "a map cut short": msgpack.packb({"op": "topics", "id": 1})[:-1],
    "a map of 4 G entries": b"\xdf\xff\xff\xff\xff",
    "a list of 4 G entries": b"\x82\xa2op\xa6topics\xa2id\xdd\xff\xff\xff\xff",
    "text of 4 GB": b"\x82\xa2op\xdb\xff\xff\xff\xff",
    "nested 60 000 deep": b"\x91" * 60_000 + b"\x01",
    "nested maps": b"\x81\xa1x" * 20_000 + b"\x01",
    "more than 256 KiB": msgpack.packb({"op": "topics", "id": 1, "x": "y" * 270_000}),
    "a list of 60 000 items": msgpack.packb({"op": "topics", "id": 1, "x": [0] * 60_000}),
    "an extension type": msgpack.packb({"op": msgpack.ExtType(5, b"x"), "id": 1}),
    "text that is no UTF-8": b"\x82\xa2op\xa3\xff\xfe\xfd\xa2id\x01",
}


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_a_control_request_that_is_no_map_of_ours_is_refused(raw, body):
    raw.send(frame(ControlRequest.MESSAGE_TYPE, body))
    assert isinstance(raw.error(), RemoteProtocolError)
    raw.assert_closed()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_never_get_more_than_an_error(node, seed):
    dice = random.Random(seed)
    for _ in range(100):
        with RawClient(node.address) as raw:
            data = bytearray(frame(dice.choice([0, 2, 16]), dice.randbytes(dice.randrange(200))))
            for _ in range(dice.randrange(3)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            try:
                raw.send(data)
                raw.end()
            except (ConnectionError, ssl.SSLError):
                continue
            while (reply := raw.frame()) is not None:
                assert reply[0] in {DataReply.MESSAGE_TYPE, PutReply.MESSAGE_TYPE, 17, 18}
    for topic in set(node.topics()) - {TOPIC}:
        assert topic.isascii()
