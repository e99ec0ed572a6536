"""What a put has stored is copied onto another topic once, whole or not at all."""

import numpy as np
import pytest

from poe import Node, PutId, client
from poe.errors import (
    LocalProtocolError,
    PointerOutOfRange,
    ProducerFenced,
    RangeGone,
    RemoteProtocolError,
    SequenceGap,
)
from poe.storage import POINTER_MAX
from tests.broker.nodes import connect, read_by_frames
from tests.scenarios.clients import RawClient, tls_of
from tests.tls import BOTH

TRANSPORTS = BOTH


SOURCE, TARGET = b"source", b"target"
PRODUCER = bytes(range(16))
BATCHES = [
    [b"one"],
    [b"equal"] * 50,
    [b"%d" % number * (number % 7 + 1) for number in range(300)],
    [b"x" * 70_000, b"y", b"z" * 300],
]
ALL = [message for batch in BATCHES for message in batch]


def put_id(sequence, epoch=0):
    return PutId(PRODUCER, epoch, sequence)


def messages_of(socket, topic):
    return [message for _, message in read_by_frames(socket.read, topic)]


NODE = {"count_limit": 100, "check_interval": 0.005}


@pytest.mark.parametrize("ack", ["flushed", "memory", "fsync"])
def test_what_is_copied_is_the_same_at_other_pointers(serve, ack):
    node = serve(ack=ack)
    with connect(node) as socket:
        last = [socket.write(SOURCE, batch) for batch in BATCHES]
        socket.write(TARGET, [b"before"])
        for number, batch in enumerate(BATCHES):
            pointer = last[number] - len(batch)
            copied = socket.copy(SOURCE, pointer, last[number], TARGET, put_id(number))
            assert copied > last[-1]
            assert socket.last_put(TARGET, PRODUCER) == (0, number, copied)
        stored = read_by_frames(socket.read, TARGET)
        assert [message for _, message in stored] == [b"before", *ALL]
        assert stored[-1][0] == copied
        assert messages_of(socket, SOURCE) == ALL
        found = np.concatenate([e.pointers for e in socket.read_ranges(TARGET, 0, POINTER_MAX)])
        assert found.tolist() == [pointer for pointer, _ in stored]


def test_a_part_of_a_put_and_puts_side_by_side_are_copied_too(simulate):
    sim = simulate()
    last = sim.node.put_many(SOURCE, [b"%d" % number for number in range(9)])
    arguments = {"topic": TARGET, "producer": PRODUCER, "epoch": 0}
    sim.node.control(
        "copy", source=SOURCE, pointer=last - 4, last=last - 1, sequence=0, **arguments
    )
    assert [m for _, m in sim.read(TARGET, 0, 10)] == [b"5", b"6", b"7"]
    assert sim.node.put(SOURCE, b"next") == last + 1
    sim.node.control(
        "copy", source=SOURCE, pointer=last - 1, last=last + 1, sequence=1, **arguments
    )
    assert [m for _, m in sim.read(TARGET, 0, 10)] == [b"5", b"6", b"7", b"8", b"next"]


def test_what_was_copied_is_not_copied_again(node):
    with connect(node) as socket:
        last = socket.write(SOURCE, [b"a", b"b"])
        copied = socket.copy(SOURCE, last - 2, last, TARGET, put_id(0))
        for _ in range(3):
            assert socket.copy(SOURCE, last - 2, last, TARGET, put_id(0)) == copied
        with pytest.raises(SequenceGap):
            socket.copy(SOURCE, last - 2, last, TARGET, put_id(2))
        socket.copy(SOURCE, last - 2, last, TARGET, put_id(0, epoch=1))
        with pytest.raises(ProducerFenced):
            socket.copy(SOURCE, last - 2, last, TARGET, put_id(1))
        assert messages_of(socket, TARGET) == [b"a", b"b"] * 2


def test_what_is_not_whole_is_not_copied(node):
    with connect(node) as socket:
        first = socket.write(SOURCE, [b"a"] * 200)
        socket.wait(SOURCE, first, 0)
        last = socket.write(SOURCE, [b"b"] * 200)
        for pointer, end in ((last, last + 1), (first - 201, first), (last - 1, last + 1)):
            with pytest.raises(RangeGone) as caught:
                socket.copy(SOURCE, pointer, end, TARGET, put_id(0))
            assert (caught.value.pointer, caught.value.last) == (pointer, end)
        with pytest.raises(RangeGone):
            socket.copy(b"unknown", 0, 1, TARGET, put_id(0))
        socket.trim(SOURCE, first)
        with pytest.raises(RangeGone, match="does not hold all"):
            socket.copy(SOURCE, first - 200, first, TARGET, put_id(0))
        assert socket.topics() == [SOURCE]
        socket.copy(SOURCE, last - 200, last, TARGET, put_id(0))
        assert messages_of(socket, TARGET) == [b"b"] * 200


class StoppedClock:
    """With it, puts lie side by side."""

    def now_us(self):
        return 1_700_000_000_000_000


def test_more_than_a_put_can_hold_is_refused(tmp_path):
    options = {"dir": tmp_path / "data", "port": 0, "frame_max": 4096, "message_max": 2000}
    with Node(options, clock=StoppedClock()) as node, connect(node) as socket:
        first = socket.write(SOURCE, [b"x" * 100] * 36)
        last = socket.write(SOURCE, [b"x" * 100])
        for pointer, end in ((0, last), (last, last), (last, last - 1)):
            with pytest.raises(RemoteProtocolError, match="copy 1 to 262144 at a time"):
                socket.copy(SOURCE, pointer, end, TARGET, put_id(0))
        with pytest.raises(RemoteProtocolError, match=r"more than 4096 bytes \(frame_max\)"):
            socket.copy(SOURCE, first - 36, last, TARGET, put_id(0))
        assert socket.topics() == [SOURCE]
        socket.copy(SOURCE, first - 35, last, TARGET, put_id(0))
        assert len(messages_of(socket, TARGET)) == 36


def test_wrong_arguments_are_refused_on_both_sides(node):
    with connect(node) as socket, RawClient(node.address) as raw:
        for wrong in (PutId(b"short", 0, 0), PutId(PRODUCER, -1, 0), PutId(PRODUCER, 0, 2**32)):
            with pytest.raises(LocalProtocolError):
                socket.copy(SOURCE, 0, 1, TARGET, wrong)
        for pointers in ((-1, 1), (0, 2**56)):
            with pytest.raises(PointerOutOfRange):
                socket.copy(SOURCE, *pointers, TARGET, put_id(0))
        good = {"source": SOURCE, "pointer": 0, "last": 1, "topic": TARGET}
        good |= {"producer": PRODUCER, "epoch": 0, "sequence": 0}
        wrong_values = {"producer": b"short", "epoch": -1, "sequence": 2**32, "source": b""}
        for name, value in wrong_values.items():
            with pytest.raises(RemoteProtocolError, match=name):
                raw.control("copy", **{**good, name: value})
        for name in good:
            with pytest.raises(RemoteProtocolError, match=name):
                raw.control("copy", **{each: good[each] for each in good if each != name})


async def test_the_asyncio_client_copies_too(node):
    async with await client.connect(*node.address, **tls_of(node.address)) as connection:
        last = await connection.write(SOURCE, [b"a", b"b"])
        copied = await connection.copy(SOURCE, last - 2, last, TARGET, put_id(0))
        assert await connection.read(TARGET, 0, 10) == [(copied - 1, b"a"), (copied, b"b")]


@pytest.mark.usefixtures("quiet")
def test_damage_is_not_copied(serve, tmp_path):
    folder = tmp_path / "data"
    with serve(dir=folder) as node, connect(node) as socket:
        last = socket.write(SOURCE, [b"sound"] * 10)
    (data,) = folder.glob("topics/source/*_data")
    data.write_bytes(data.read_bytes().replace(b"sound", b"wrong", 1))
    with connect(serve(dir=folder)) as socket:
        with pytest.raises(Exception, match="no valid record"):
            socket.copy(SOURCE, last - 10, last, TARGET, put_id(0))
        assert socket.topics() == [SOURCE]
