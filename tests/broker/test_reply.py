"""Records by ranges over a real socket: whole, in bounded memory, whatever goes on meanwhile."""

import pytest

from poe import client
from poe.errors import CorruptRecord, LocalProtocolError
from poe.protocol import RANGE_COUNT_MAX
from poe.storage import POINTER_MAX
from tests.broker.nodes import connect
from tests.protocol.streams import records_of
from tests.scenarios.clients import tls_of
from tests.tls import BOTH

TRANSPORTS = BOTH


TOPIC = b"t"


def fill(socket, batch_count=8, sizes=(1, 30, 900)):
    """Put batches of mixed sizes, large enough for a segment each, and return the records."""
    records = []
    for number in range(batch_count):
        messages = [b"%d" % number * sizes[n % len(sizes)] for n in range(20)]
        last = socket.write(TOPIC, messages)
        records += list(zip(range(last - 19, last + 1), messages, strict=True))
    return records


def all_of(ranges):
    return [record for found in ranges for record in records_of(found)]


NODE = {"count_limit": 10, "check_interval": 0.005}


def test_ranges_cross_segments_and_end_where_they_are_told(node):
    with connect(node) as socket:
        records = fill(socket)
        for first, last in ((0, 159), (15, 25), (19, 20), (3, 3), (159, 159)):
            asked = TOPIC, records[first][0] - 1, records[last][0]
            for limit, bytes_max in ((RANGE_COUNT_MAX, 1 << 20), (7, 1 << 20), (100, 1000)):
                found = list(socket.read_ranges(*asked, limit, bytes_max))
                assert all_of(found) == records[first : last + 1]
                assert all(len(each) <= limit for each in found)
                assert all(len(each.data) <= max(bytes_max, 911) for each in found)
        assert [len(each) for each in socket.read_ranges(TOPIC, records[-1][0], POINTER_MAX)] == []
        assert len(socket.read_range(b"unknown", 0, POINTER_MAX)) == 0
        assert len(socket.read_range(TOPIC, 0, POINTER_MAX, 0)) == 0


def test_a_range_between_two_messages_holds_nothing_wherever_it_lies(node):
    with connect(node) as socket:
        fill(socket)
        for segment in socket.segments(TOPIC)[:-1]:
            high = segment["pointer_high"]
            assert len(socket.read_range(TOPIC, high, high)) == 0
            assert len(socket.read_range(TOPIC, high + 1, high)) == 0
            assert len(socket.read_range(TOPIC, 0, 1)) == 0
            assert socket.span(TOPIC, high, high, 1, 1) is None


def test_a_span_tells_what_a_read_gives(node):
    with connect(node) as socket:
        records = fill(socket)
        pointer = 0
        while span := socket.span(TOPIC, pointer, records[-5][0], 13, 3000):
            found = socket.read_range(TOPIC, pointer, records[-5][0], 13, 3000)
            assert span == (found.pointers[-1], len(found), len(found.data))
            pointer = span.last_pointer
        assert pointer == records[-5][0]
        assert socket.span(b"unknown", 0, POINTER_MAX, 1, 1) is None


def test_a_read_that_was_given_up_leaves_the_socket_usable(node):
    with connect(node) as socket:
        records = fill(socket)
        ranges = socket.read_ranges(TOPIC, 0, POINTER_MAX, 5)
        assert records_of(next(ranges)) == records[:5]
        with pytest.raises(LocalProtocolError, match="or read_ranges first"):
            socket.topics()
        ranges.close()
        assert socket.read(TOPIC, 0, 1) == records[:1]


async def test_the_asyncio_client_does_the_same(node):
    with connect(node) as socket:
        records = fill(socket)
    async with await client.connect(*node.address, **tls_of(node.address)) as connection:
        found = await connection.read_range(TOPIC, records[4][0], records[9][0])
        assert records_of(found) == records[5:10]
        span = await connection.span(TOPIC, records[4][0], records[9][0], 3, 10_000)
        assert span is not None
        assert span.record_count == 3
        segments = await connection.segments(TOPIC)
        assert await connection.trim(TOPIC, records[19][0]) == 1
        assert len(await connection.segments(TOPIC)) == len(segments) - 1
        await connection.delete(TOPIC)
        assert await connection.topics() == []


def test_a_reply_is_no_larger_than_a_frame_with_its_entries(serve):
    node = serve(frame_max=4096, message_max=2000)
    with connect(node) as socket:
        records = []
        for number in range(20):
            last = socket.write(TOPIC, [b"x"] * 300)
            records += [(last - 299 + n, b"x") for n in range(300)]
            last = socket.write(TOPIC, [b"%d" % number * 1000])
            records += [(last, b"%d" % number * 1000)]
        found = list(socket.read_ranges(TOPIC, 0, POINTER_MAX, 2**32 - 1, 2**32 - 1))
        assert all_of(found) == records
        assert max(24 * len(each) for each in found) > 4000
        assert max(10 + 12 * len(each) + len(each.data) for each in found) <= 4100


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("on_corrupt", ["close", "skip"])
def test_damage_is_told_with_where_to_go_on_or_skipped(serve, tmp_path, on_corrupt):
    folder = tmp_path / "data"
    with serve(dir=folder, count_limit=10, check_interval=0.005) as node, connect(node) as socket:
        records = fill(socket)
    (data, *_) = sorted(folder.glob("topics/t/*_data"))
    content = bytearray(data.read_bytes())
    content[11] ^= 1
    data.write_bytes(content)
    node = serve(dir=folder, on_corrupt=on_corrupt)
    with connect(node) as socket:
        if on_corrupt == "skip":
            found = socket.read_ranges(TOPIC, 0, POINTER_MAX)
            assert all_of(found) == records[20:]
            assert len(socket.read_range(TOPIC, 0, records[10][0])) == 0
            return
        for read in (socket.read_range, lambda *asked: next(socket.read_ranges(*asked))):
            with pytest.raises(CorruptRecord) as caught:
                read(TOPIC, 0, POINTER_MAX)
            assert caught.value.pointer == records[19][0]
        assert records_of(socket.read_range(TOPIC, records[19][0], POINTER_MAX, 1)) == [records[20]]
