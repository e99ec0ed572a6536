"""Puts that are numbered are stored once, whatever becomes of the server and of its answers."""

import asyncio
import contextlib

import pytest

import poe
from poe.client import connect as connect_async
from poe.errors import (
    InvalidTopicName,
    LocalProtocolError,
    ProducerFenced,
    PropertyMismatch,
    RemoteProtocolError,
    RepeatedPut,
    SequenceGap,
    TopicNotCreated,
)
from poe.protocol import IN_FLIGHT_MAX, LastPut, PutId, PutReply, SequencedPutRequest
from poe.protocol.put import DELAYED_PREFIX, DELAYED_PRODUCER
from poe.storage.segment.producers import PINNED_PREFIX, PRODUCERS_FULL_COUNT, WINDOW_COUNT
from tests.broker.nodes import connect, read_by_frames
from tests.broker.server_process import ServerProcess
from tests.scenarios.clients import RawClient, tls_of
from tests.tls import BOTH
from tests.waiting import wait_until

TRANSPORTS = BOTH


PRODUCER = b"p" * 16
OTHER = b"q" * 16


@pytest.fixture(params=["memory", "flushed", "fsync"])
def node(request, serve):
    return serve(ack=request.param, read="flushed", count_limit=20, check_interval=0.01)


@pytest.fixture
def client(node):
    with connect(node) as client:
        yield client


def put(number, producer=PRODUCER, epoch=0):
    return PutId(producer, epoch, number)


def texts(client):
    return [message for _, message in read_by_frames(client.read, "t")]


def test_a_put_of_a_mapping_makes_no_topic(client):
    """It has made its own, with all that they are to have: that one was deleted since."""
    mapping = PINNED_PREFIX + bytes(12)
    with pytest.raises(TopicNotCreated):
        client.write("t", [b"a"], put(0, mapping))
    client.create_topic("t", partitions=2)
    client.write("t-1", [b"a"], put(0, mapping))


def test_a_put_that_is_repeated_is_stored_once_and_answered_alike(client):
    first = client.write("t", [b"a", b"b"], put(0))
    assert client.write("t", [b"a", b"b"], put(0)) == first
    second = client.write("t", [b"c"], put(1))
    assert client.write("t", [b"a", b"b"], put(0)) == first
    assert client.write("t", [b"c"], put(1)) == second
    assert texts(client) == [b"a", b"b", b"c"]


def test_producers_and_topics_count_for_themselves_and_plain_puts_do_not_count(client):
    client.write("t", [b"a"], put(0))
    client.write("t", [b"plain"])
    client.write("t", [b"b"], put(0, OTHER))
    client.write("u", [b"c"], put(0))
    client.write("t", [b"plain"])
    client.write("t", [b"d"], put(1))
    assert texts(client) == [b"a", b"plain", b"b", b"plain", b"d"]


def test_a_put_too_far_ahead_is_refused_and_stores_nothing(client):
    for number, expected in ((1, 0), (5, 0)):
        with pytest.raises(SequenceGap) as caught:
            client.write("t", [b"x"], put(number))
        assert caught.value.expected == expected
    client.write("t", [b"a"], put(0))
    with pytest.raises(SequenceGap) as caught:
        client.write("t", [b"x"], put(2))
    assert (caught.value.sequence, caught.value.expected) == (2, 1)
    assert texts(client) == [b"a"]


def test_a_put_too_far_ahead_makes_no_topic(client):
    with pytest.raises(SequenceGap, match="put 0 next") as caught:
        client.write("t", [b"a"], put(3))
    assert caught.value.expected == 0
    assert client.topics() == []


def test_a_greater_epoch_begins_with_0_and_shuts_the_lesser_one_out(client):
    client.write("t", [b"a"], put(0, epoch=3))
    with pytest.raises(SequenceGap):
        client.write("t", [b"x"], put(1, epoch=4))
    client.write("t", [b"b"], put(0, epoch=4))
    with pytest.raises(ProducerFenced) as caught:
        client.write("t", [b"x"], put(1, epoch=3))
    assert (caught.value.epoch, caught.value.newest_epoch) == (3, 4)
    assert texts(client) == [b"a", b"b"]


def test_across_rotations_the_last_puts_are_known_and_older_ones_known_to_be_stored(client):
    """As many as a client may have under way."""
    assert WINDOW_COUNT == IN_FLIGHT_MAX
    pointers: list[int] = []
    while len(pointers) < 200 or len(client.control("segments", topic="t")) < 4:
        number = len(pointers)
        pointers.append(client.write("t", [b"%d" % number], put(number)))
        assert number < 20_000
    count = len(pointers)
    for number in range(count - WINDOW_COUNT, count):
        assert client.write("t", [b"%d" % number], put(number)) == pointers[number]
    for number in (0, count - WINDOW_COUNT - 1):
        with pytest.raises(RepeatedPut) as caught:
            client.write("t", [b"%d" % number], put(number))
        assert caught.value.sequence == number
    assert texts(client) == [b"%d" % number for number in range(count)]


@pytest.mark.slow
def test_a_segment_with_very_many_producers_is_full(simulate):
    sim = simulate()
    for number in range(PRODUCERS_FULL_COUNT):
        sim.node.put_many("t", [b"m"], put(0, number.to_bytes(16)))
    assert sim.roles(b"t") == "w"
    wait_until(lambda: sim.advance(1) or len(sim.roles(b"t")) > 1)
    assert sim.node.control("last_put", topic=b"t", producer=bytes(16)) is None
    newest = (PRODUCERS_FULL_COUNT - 1).to_bytes(16)
    assert sim.node.control("last_put", topic=b"t", producer=newest) is not None
    sim.advance(10)
    assert len(sim.roles(b"t")) == 2


def test_the_last_put_of_a_producer_is_told(node, client):
    assert client.last_put("t", PRODUCER) is None
    client.write("t", [b"plain"])
    assert client.last_put("t", PRODUCER) is None
    for number in range(50):
        pointer = client.write("t", [b"a", b"b"], put(number, epoch=2))
        assert client.last_put("t", PRODUCER) == LastPut(2, number, pointer)
    assert client.last_put("t", OTHER) is None
    assert node.control("last_put", topic="t", producer=PRODUCER) == (2, 49, pointer)
    with pytest.raises(RemoteProtocolError, match="16 bytes"):
        client.control("last_put", topic="t", producer=b"short")


def test_the_last_put_on_a_topic_that_nobody_can_have_is_refused(node, client):
    node.create_topic("parted", partitions=2)
    assert client.last_put("parted-1", PRODUCER) is None
    with pytest.raises(InvalidTopicName):
        client.last_put("no/good", PRODUCER)
    for name in ("parted", "parted-2"):
        with pytest.raises(PropertyMismatch):
            client.last_put(name, PRODUCER)


@pytest.mark.parametrize("producer", [DELAYED_PRODUCER, DELAYED_PREFIX + b"of it"])
def test_no_client_numbers_its_puts_as_the_node_does(node, client, producer):
    """The node would take its own delayed messages for stored, and they would be lost."""
    client.write("t", [b"a"])
    forged = put(0, producer, epoch=2**32 - 1)
    with pytest.raises(RemoteProtocolError, match=r"poe\.delayed"):
        client.copy("t", 0, client.read("t", 0, 1)[0][0], "u", forged)
    with pytest.raises(RemoteProtocolError, match=r"poe\.delayed"):
        client.write("t", [b"forged"], forged)
    node.control("queue_put", topic="t", messages=[b"later"], due_us=0)
    wait_until(lambda: node.control("last_put", topic="t", producer=DELAYED_PRODUCER), 10)
    with connect(node) as other:
        assert texts(other) == [b"a", b"later"]


def test_a_node_in_the_same_process_takes_numbers_too(node, client):
    pointer = client.write("t", [b"a"], put(0))
    assert node.put_many("t", [b"a"], put(0)) == pointer
    assert node.put_many("u", [b"a"], put(0)) > pointer
    pointer = node.put_many("t", [b"b"], put(1))
    assert client.write("t", [b"b"], put(1)) == pointer
    with pytest.raises(LocalProtocolError, match="producer"):
        node.put_many("t", [b"a"], PutId(b"short", 0, 0))
    with pytest.raises(SequenceGap):
        node.put_many("new", [b"a"], put(1))
    assert texts(client) == [b"a", b"b"]


async def test_the_asyncio_client_takes_numbers_too(node):
    async with await connect_async(*node.address, **tls_of(node.address)) as client:
        calls = [client.write("t", [b"%d" % n], put(n)) for n in range(IN_FLIGHT_MAX)]
        pointers = await asyncio.gather(*calls)
        again = [client.write("t", [b"%d" % n], put(n)) for n in range(IN_FLIGHT_MAX)]
        assert await asyncio.gather(*again) == pointers
        assert await client.last_put("t", PRODUCER) == LastPut(0, 63, pointers[-1])


def test_a_server_that_is_started_again_knows_what_was_put(tmp_path):
    options = {"dir": tmp_path / "data", "port": 0, "count_limit": 20, "check_interval": 0.01}
    with poe.Node(**options) as node:
        pointers = [node.put_many("t", [b"%d" % n], put(n)) for n in range(50)]
    with poe.Node(**options) as node, connect(node) as client:
        assert client.last_put("t", PRODUCER) == LastPut(0, 49, pointers[-1])
        for number in range(20, 50):
            assert client.write("t", [b"%d" % number], put(number)) == pointers[number]
        client.write("t", [b"50"], put(50))
        assert texts(client) == [b"%d" % number for number in range(51)]


@pytest.mark.slow
@pytest.mark.parametrize("ack", ["flushed", "fsync"])
def test_a_server_that_is_killed_stores_what_is_put_again_once(tmp_path, ack):
    """With as many puts under way as may be: none is lost, none is there twice."""
    answered = 0
    pointers: dict[int, int] = {}
    for life in range(5):
        options = {"ack": ack, "count_limit": 300, "check_interval": 0.01}
        with ServerProcess(tmp_path / "data", **options) as server, server.connect() as client:
            last = client.last_put("t", PRODUCER)
            assert (-1 if last is None else last.sequence) >= answered - 1
            kill_at = answered + 100 + 37 * life
            _put_until_killed(server, answered, kill_at, pointers)
            answered = max(pointers) + 1
    with ServerProcess(tmp_path / "data", ack=ack) as server, server.connect() as client:
        last = client.last_put("t", PRODUCER)
        assert last is not None
        for number in range(last.sequence - 50, last.sequence + 10):
            pointer = client.write("t", [b"%d" % number], put(number))
            assert pointers.get(number, pointer) == pointer
        assert texts(client) == [b"%d" % number for number in range(last.sequence + 10)]


def _put_until_killed(server, first, kill_at, pointers):
    """Put numbers from `first` on, many under way, and kill the server when one is answered."""
    sent = received = first
    with RawClient(("127.0.0.1", server.port)) as client, contextlib.suppress(ConnectionError):
        while True:
            while sent - received < IN_FLIGHT_MAX:
                client.send(SequencedPutRequest(b"t", [b"%d" % sent], put(sent)).encode())
                sent += 1
            frame = client.frame()
            if frame is None:
                return
            pointer = PutReply.decode(memoryview(frame[1])).pointer
            assert pointers.setdefault(received, pointer) == pointer
            received += 1
            if received == kill_at:
                server.kill()
