"""The test broker of Poe fails as it is told to, and only so."""

import asyncio
import socket as tcp
import subprocess
import sys
from contextlib import suppress
from functools import partial

import pytest

import poe.client
from poe import protocol
from poe.client.consumer.consumer import Consumer
from poe.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    OptionError,
    Overloaded,
    StorageFull,
)
from poe.protocol import PutId
from poe.protocol.envelope import encode
from poe.testing import broker
from tests.python_process import environment

pytest_plugins = ["poe.testing.fixtures"]


def connect(made, **options):
    return protocol.socket("127.0.0.1", int(made.url.rpartition(":")[2]), **options)


def values(messages):
    return [each.value for each in messages]


def test_messages_are_collected_whoever_put_them(poe_broker):
    assert poe_broker.collected("t") == []
    with connect(poe_broker) as socket:
        pointer = socket.write("t", [b"a", b"b"])
    poe_broker.node.put("t", b"c")
    collected = poe_broker.collected("t")
    assert values(collected) == [b"a", b"b", b"c"]
    assert collected[1].pointer == pointer


def test_messages_of_partitions_and_envelopes_are_collected(poe_broker):
    with connect(poe_broker) as socket:
        for partition in range(2):
            socket.write(f"t-{partition}", [encode(b"k", b"%d" % partition, {"h": b"1"})])
    collected = sorted(poe_broker.collected("t", partitions=2, envelope=True))
    assert [(m.partition, m.key, m.value, m.headers) for m in collected] == [
        (0, b"k", b"0", {"h": b"1"}),
        (1, b"k", b"1", {"h": b"1"}),
    ]


def test_a_stopped_broker_is_as_a_dead_one_and_keeps_what_it_has(poe_broker):
    with connect(poe_broker) as socket:
        socket.write("t", [b"a"])
        for _ in range(2):
            poe_broker.stop()
        with pytest.raises(ConnectionClosed):
            socket.write("t", [b"b"])
    with pytest.raises(ConnectFailed, match="Connection refused"):
        connect(poe_broker)
    assert values(poe_broker.collected("t")) == [b"a"]
    for _ in range(2):
        poe_broker.start()
    with connect(poe_broker) as socket:
        socket.write("t", [b"c"])
    assert values(poe_broker.collected("t")) == [b"a", b"c"]


def test_a_connection_that_is_just_being_accepted_is_reset_too(poe_broker):
    address = poe_broker.url.removeprefix("poe://").split(":")
    for _ in range(30):
        with tcp.create_connection(address, timeout=10) as client:
            poe_broker.stop()
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
        poe_broker.start()


def test_a_consumer_follows_a_broker_that_stops_and_starts(poe_broker):
    with Consumer(poe_broker.url, "t", follow=True) as reader:
        for number in range(3):
            poe_broker.node.put("t", b"%d" % number)
            assert values(reader.receive()) == [b"%d" % number]
            poe_broker.stop()
            poe_broker.start()
        assert reader.statistics().reconnect_count >= 2


def test_cut_connections_are_reset_and_new_ones_taken(poe_broker):
    port = int(poe_broker.url.rpartition(":")[2])
    with tcp.create_connection(("127.0.0.1", port)) as raw, connect(poe_broker) as socket:
        raw.sendall(protocol.ControlRequest("topics", 1, {}).encode())
        assert raw.recv(1000)
        assert socket.topics() == []
        poe_broker.cut()
        with pytest.raises(ConnectionResetError):
            raw.recv(1000)
        with pytest.raises(ConnectionClosed):
            socket.topics()
    with connect(poe_broker) as socket:
        assert socket.topics() == []


def test_requests_take_longer_with_latency_and_wait_side_by_side(poe_broker):
    async def write_many():
        port = int(poe_broker.url.rpartition(":")[2])
        async with await poe.client.connect(port=port) as client:
            loop = asyncio.get_running_loop()
            begin_s = loop.time()
            await asyncio.gather(*(client.write("t", [b"m"]) for _ in range(50)))
            return loop.time() - begin_s

    poe_broker.set_latency(0.05)
    assert 0.05 <= asyncio.run(write_many()) < 50 * 0.05
    poe_broker.set_latency(1000)
    with connect(poe_broker, timeout_s=0.01) as socket, pytest.raises(CallTimeout):
        socket.write("t", [b"never"])
    poe_broker.set_latency(0)
    with connect(poe_broker) as socket:
        socket.write("t", [b"last"])
    assert values(poe_broker.collected("t")) == [b"m"] * 50 + [b"last"]


def test_puts_are_answered_with_errors_that_are_ordered_and_other_requests_are_not(poe_broker):
    poe_broker.fail(Overloaded("puts_max", 7), count=2)
    poe_broker.fail(StorageFull("/disk", "No space left on device"))
    with connect(poe_broker) as socket:
        for _ in range(2):
            assert socket.topics() == []
            with pytest.raises(Overloaded) as caught:
                socket.write("t", [b"refused"])
        assert (caught.value.limit, caught.value.value) == ("puts_max", 7)
        with pytest.raises(StorageFull, match="No space left"):
            socket.write("t", [b"refused"], PutId(bytes(16), 1, 0))
        socket.write("t", [b"taken"], PutId(bytes(16), 1, 0))
    assert values(poe_broker.collected("t")) == [b"taken"]


async def test_an_error_comes_in_the_turn_of_its_put(poe_broker):
    """Answers in front of it are still under way when it is decided."""
    port = int(poe_broker.url.rpartition(":")[2])
    async with await poe.client.connect(port=port) as client:
        waiting = asyncio.create_task(client.wait("t", 0, 30.0))
        await asyncio.sleep(0)  # lets it send
        poe_broker.fail(Overloaded("puts_max", 7))
        refused = asyncio.create_task(client.write("t", [b"refused"]))
        taken = asyncio.create_task(client.write("t", [b"taken"]))
        done, _ = await asyncio.wait((waiting, refused, taken), timeout=0.05)
        assert not done
        poe_broker.node.put("t", b"what is waited for")
        assert await waiting
        with pytest.raises(Overloaded):
            await refused
        await taken
    assert values(poe_broker.collected("t")) == [b"what is waited for", b"taken"]


def test_a_put_whose_reply_is_lost_is_stored(poe_broker):
    poe_broker.lose_replies(2)
    put_id = PutId(bytes(16), 1, 0)
    for _ in range(2):
        with connect(poe_broker) as socket, pytest.raises(ConnectionClosed):
            socket.write("t", [b"m"], put_id)
    with connect(poe_broker) as socket:
        assert socket.write("t", [b"m"], put_id) == poe_broker.collected("t")[-1].pointer
    assert values(poe_broker.collected("t")) == [b"m"]


def test_a_producer_delivers_each_message_once_through_all_that_a_broker_does(poe_broker):
    sent = [b"%d" % number for number in range(60)]
    with poe.client.Producer(poe_broker.url, reconnect_min_s=0.01) as producer:
        deliveries = []
        for number, message in enumerate(sent):
            if number == 10:
                poe_broker.fail(Overloaded("puts_max", 7), count=3)
            elif number == 20:
                poe_broker.lose_replies(2)
            elif number == 30:
                poe_broker.stop()
            elif number == 40:
                poe_broker.start()
            elif number == 50:
                poe_broker.cut()
            deliveries.append(producer.produce_async("t", message))
        for delivery in deliveries:
            delivery.result(10)
    assert values(poe_broker.collected("t")) == sent


def test_large_frames_pass_both_ways(poe_broker):
    message = bytes(range(256)) * 40_000
    with connect(poe_broker) as socket:
        pointer = socket.write("t", [message])
        assert socket.read("t", 0, 1) == [(pointer, message)]


def test_brokers_are_apart_and_leave_nothing_behind():
    with broker() as one, broker(message_max=5) as other:
        assert one.url != other.url
        one.node.put("t", b"longer than that")
        assert other.collected("t") == []
        folder = one.node.config.dir
        with connect(other) as socket, pytest.raises(poe.PoeError, match="use 1 to 5"):
            socket.write("t", [b"longer than that"])
    assert not folder.exists()
    one.close()
    with pytest.raises(ConnectFailed):
        connect(one)


@pytest.mark.parametrize(
    "call",
    [lambda made: made.start(), lambda made: made.stop(), lambda made: made.cut(),
     lambda made: made.set_latency(0), lambda made: made.fail(Overloaded("puts_max", 7)),
     lambda made: made.lose_replies(), lambda made: made.collected("t")],
)  # fmt: skip
def test_a_closed_broker_says_so(call):
    with broker() as closed:
        pass
    closed.close()
    with pytest.raises(RuntimeError, match="test broker cannot do that: it was closed"):
        call(closed)


@pytest.mark.parametrize("count", [-1, "2", True, None, 1.5, 1 << 40])
def test_a_wrong_count_is_an_error_that_names_it(poe_broker, count):
    for call in (poe_broker.lose_replies, partial(poe_broker.fail, Overloaded("puts_max", 7))):
        with pytest.raises(OptionError, match=r"'count' is .*; use a whole number from 0 to 10000"):
            call(count)
    with connect(poe_broker) as socket:
        assert socket.write("t", [b"as if nothing had been ordered"])


@pytest.mark.parametrize("error", [OSError(), Overloaded, None, 7])
def test_only_errors_of_poe_can_be_ordered(poe_broker, error):
    with pytest.raises(OptionError, match=r"'error' is .*; use a PoeError"):
        poe_broker.fail(error)


@pytest.mark.parametrize("latency_s", [-1, "1", None, True, float("nan"), float("inf")])
def test_a_wrong_latency_is_an_error_that_names_it(poe_broker, latency_s):
    with pytest.raises(OptionError, match=r"'latency_s' is .*; use seconds, 0 to"):
        poe_broker.set_latency(latency_s)


def test_another_transport_is_an_error_that_names_those_there_are():
    with pytest.raises(OptionError, match="use poe or kafka"):
        broker("http")  # type: ignore[call-overload]  # the wrong value is the point


TESTS_OF_A_USER = """
pytest_plugins = ["poe.testing.fixtures"]

def test_collects(poe_broker):
    poe_broker.node.put("t", b"m")
    assert [each.value for each in poe_broker.collected("t")] == [b"m"]

def test_has_a_broker_of_its_own(poe_broker):
    assert poe_broker.collected("t") == []
"""


@pytest.mark.slow
def test_users_ask_for_the_fixture_in_their_tests(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS_OF_A_USER)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert "2 passed" in run.stdout, run.stdout + run.stderr
