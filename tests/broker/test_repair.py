"""Whoever crashes is replaced, what was acknowledged stays, and topics keep accepting."""

import logging
import shutil
import threading
import time
from functools import partial
from typing import Any

import pytest

from poe.actors import Call, Error, GenServer
from poe.actors.message import ExitSignal
from poe.broker import RequestHandler, RoutingTable
from poe.broker.appendix.server import REGISTRY
from poe.broker.requests.pipelines import PIPELINES
from poe.errors import ConnectionClosed, LocalProtocolError, PoeError, PointerOutOfRange
from poe.protocol import PutId
from poe.storage import decode_records
from tests.broker.nodes import (
    BYTES_MAX,
    KILLING,
    connect,
    is_served,
    kill,
    read_by_frames,
    read_by_next,
)
from tests.waiting import wait_until

TOPIC = b"t"
PRODUCER = bytes(16)

pytestmark = [pytest.mark.usefixtures("quiet"), KILLING]


@pytest.fixture
def sim(simulate):
    """A node with two readers and a writer; each holds two of the messages 0 to 5."""
    sim = simulate(count_limit=2, worker_timeout=1000)
    for number in range(0, 6, 2):
        sim.node.put_many(TOPIC, [b"%d" % number, b"%d" % (number + 1)])
        if number < 4:
            sim.advance(0.5)
    assert sim.roles(TOPIC) == "rrw"
    return sim


def texts(sim):
    by_next = read_by_next(sim.node, TOPIC)
    assert read_by_frames(sim.read, TOPIC, 2) == by_next
    return [int(message) for _, message in by_next]


def test_a_registry_that_was_restarted_has_one_tick(sim):
    """The original's timers went on behind its back, one more after each restart."""
    for _ in range(5):
        sim.kill("topic_registry")
        sim.advance(0.13)
    sim.advance(3)  # nothing that was put is left to be written or synced
    start_s = sim.clock.monotonic_s()
    ticks_count = 0
    while (next_s := sim.system.run_queue.next_deadline_s()) <= start_s + 10:
        sim.advance(next_s - sim.clock.monotonic_s())
        ticks_count += 1
    assert ticks_count == 20


def test_the_end_of_somebody_unknown_is_told_and_ends_nobody(sim, caplog):
    """In the original it ended the dispatcher, and with that the application."""
    registry = sim.system.actors.find("topic_registry").address
    servers = sim.servers()
    stranger = sim.frame_reads

    def tell():
        registry.cell.post(ExitSignal(stranger, "some bug", linked=False))

    with caplog.at_level(logging.INFO, "poe"):
        sim.system.run_outside(tell)
    assert "some bug" in caplog.text
    assert texts(sim) == [0, 1, 2, 3, 4, 5]
    assert sim.servers() == servers
    assert sim.system.actors.find("topic_registry").address is registry


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("reason", ["kill", "shutdown", "some bug"])
def test_an_appendix_server_that_ends_is_replaced_and_its_data_is_there(sim, number, reason):
    dead = sim.servers()[number]
    sim.system.exit(dead, reason)
    assert dead not in sim.servers()
    assert texts(sim) == [0, 1, 2, 3, 4, 5]
    sim.node.put(TOPIC, b"6")
    assert texts(sim) == [0, 1, 2, 3, 4, 5, 6]
    assert sim.roles(TOPIC).endswith("w")


def test_an_appendix_server_that_ends_is_replaced_before_any_time_passes(sim):
    before_s = sim.clock.monotonic_s()
    for ref in sim.servers():
        sim.system.exit(ref, "kill")
    assert texts(sim) == [0, 1, 2, 3, 4, 5]
    assert sim.clock.monotonic_s() == before_s


def test_all_appendix_servers_at_once_are_replaced(sim):
    for ref in sim.servers():
        sim.system.exit(ref, "kill")
    assert texts(sim) == [0, 1, 2, 3, 4, 5]
    sim.node.put(TOPIC, b"6")
    assert texts(sim) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["topic_registry", "appendix_sup"])
def test_a_part_of_the_tree_that_is_killed_is_replaced_and_all_data_is_there(sim, name):
    dead = sim.system.actors.find(name).address
    sim.kill(name)
    sim.advance(0.6)
    assert sim.system.actors.find(name).address != dead
    assert sim.node.is_running
    assert texts(sim) == [0, 1, 2, 3, 4, 5]
    sim.node.put(TOPIC, b"6")
    sim.node.put(b"new", b"0")
    assert texts(sim) == [0, 1, 2, 3, 4, 5, 6]


class Onlooker(GenServer):
    """Kills the registry, and asks when the next one has begun and not come to a topic yet."""

    def init(self, routes: RoutingTable):
        self.handler = RequestHandler(self, routes)

    async def handle_call(self, request: Any, caller: Call):
        topic, ask = request
        registry = self.whereis(REGISTRY)
        assert registry is not None
        self.exit(registry, "kill")
        while topic in self.handler.routes:
            await self.call(PIPELINES, ("pipelines", {}))  # the others go on meanwhile
        try:
            return await ask(self.handler, topic)
        except PoeError as error:
            return Error(error)


async def _read(handler, topic):
    found = await handler.get(topic, 0, 10, BYTES_MAX)
    return None if found is None else decode_records(found.read())


async def _sync_all(handler, topic):
    await handler.sync(None)
    return topic in handler.routes  # and so was asked


async def _is_topic(handler, topic):
    return handler.routes.is_topic(topic)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda handler, topic: handler.next(topic, 0), lambda pointer: (pointer, b"m")),
        (_read, lambda pointer: [(pointer, b"m")]),
        (lambda handler, topic: handler.last_put(topic, PRODUCER), lambda pointer: (0, 0, pointer)),
        (_sync_all, lambda _: True),
        (_is_topic, lambda _: True),
    ],
    ids=["next", "read", "last_put", "sync", "is_topic"],
)
def test_no_topic_is_taken_for_unknown_or_empty_while_another_registry_opens_them(
    simulate, ask, told
):
    """Those that had no servers yet were: readers left out messages, and a producer began anew."""
    sim = simulate()
    topics = [b"t%d" % number for number in range(5)]
    pointers = [sim.node.put_many(topic, [b"m"], PutId(PRODUCER, 0, 0)) for topic in topics]
    onlooker = sim.system.start(Onlooker, sim.routes)
    assert onlooker is not None
    assert sim.system.call(onlooker, (topics[-1], ask)) == told(pointers[-1])


def test_a_server_that_dies_while_its_supervisor_is_away_comes_back_without_the_registry_ending(
    sim,
):
    registry = sim.system.actors.find("topic_registry").address

    def kill_both():
        for ref in [sim.system.actors.find("appendix_sup").address, *sim.servers_now]:
            ref.cell.post(ExitSignal(None, "kill"))

    sim.servers_now = sim.servers()
    sim.system.run_outside(kill_both)
    sim.advance(1)
    assert texts(sim) == [0, 1, 2, 3, 4, 5]
    sim.node.put(TOPIC, b"6")
    assert texts(sim) == [0, 1, 2, 3, 4, 5, 6]
    assert sim.system.actors.find("topic_registry").address == registry


class Describes(GenServer):
    """Asks what segments a topic has, as a connection does."""

    def init(self, routes: RoutingTable):
        self.handler = RequestHandler(self, routes)
        self.rows: list[Any] = []

    async def handle_cast(self, message: Any):
        self.rows = await self.handler.describe(message)


def test_segments_are_told_of_while_their_servers_are_being_replaced(sim):
    """Who plans a read by it would leave their messages out."""
    asks = sim.system.start(Describes, sim.routes)
    dying = sim.servers()

    def kill_and_ask():
        for ref in dying:
            ref.cell.post(ExitSignal(None, "kill"))
        asks.cell.instance.cast(asks, TOPIC)

    sim.system.run_outside(kill_and_ask)
    sim.advance(1)
    assert [info.count for _, info in asks.cell.instance.rows] == [2, 2, 2]


def test_half_a_batch_that_a_crash_left_is_not_seen(sim):
    """Bytes behind the flushed offset, as a process that is killed within write(2) leaves them."""
    path = max(sim.folder.glob("topics/t/*_data"))
    with path.open("ab") as data:
        data.write(b"\x00\x00\x00\x20\x00\x06garbage")
    sim.system.exit(sim.servers()[-1], "kill")
    assert texts(sim) == [0, 1, 2, 3, 4, 5]
    sim.node.put(TOPIC, b"6")
    assert texts(sim) == [0, 1, 2, 3, 4, 5, 6]


def test_an_index_that_was_removed_is_made_again(sim):
    for path in sim.folder.glob("topics/t/*_index"):
        path.unlink()
    for ref in sim.servers():
        sim.system.exit(ref, "kill")
    assert texts(sim) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("number", "left"), [(0, [2, 3, 4, 5]), (1, [0, 1, 4, 5])])
def test_a_reader_whose_data_file_is_gone_costs_its_messages_only(sim, number, left):
    sorted(sim.folder.glob("topics/t/*_data"))[number].unlink()
    sim.system.exit(sim.servers()[number], "kill")
    assert texts(sim) == left
    sim.node.put(TOPIC, b"6")
    assert texts(sim) == [*left, 6]


def test_a_writer_whose_data_file_is_gone_is_replaced_by_an_empty_one(sim):
    last = read_by_next(sim.node, TOPIC)[-1][0]
    max(sim.folder.glob("topics/t/*_data")).unlink()
    sim.system.exit(sim.servers()[-1], "kill")
    assert texts(sim) == [0, 1, 2, 3]
    assert sim.node.put(TOPIC, b"6") > last
    assert texts(sim) == [0, 1, 2, 3, 6]


def test_a_topic_that_cannot_be_repaired_leaves_the_others_alone(sim):
    sim.node.put(b"other", b"0")
    shutil.rmtree(sim.folder / "topics" / "t")
    for ref in [ref for ref, _ in dict(sim.node.status())[TOPIC]]:
        sim.system.exit(ref, "kill")
    sim.advance(1)
    assert read_by_next(sim.node, b"other")
    sim.node.put(b"other", b"1")
    assert len(read_by_next(sim.node, b"other")) == 2


@pytest.mark.parametrize("wrong", [[b"x", 1], ["text"], [None], [b"x", [b"y"]], 5])
def test_messages_of_a_wrong_type_are_refused_and_crash_nobody(sim, wrong):
    servers = sim.servers()
    with pytest.raises(LocalProtocolError):
        sim.node.put_many(TOPIC, wrong)
    assert sim.servers() == servers
    assert texts(sim) == [0, 1, 2, 3, 4, 5]


def test_bytes_likes_are_stored_as_their_bytes(sim):
    wide = memoryview(b"6\x30\x30\x30").cast("I")
    sim.node.put_many(TOPIC, [wide, bytearray(b"7"), memoryview(b"8-8-")[::2]])
    sim.node.put(TOPIC, wide)
    assert texts(sim) == [0, 1, 2, 3, 4, 5, 6000, 7, 88, 6000]


@pytest.mark.parametrize("pointer", ["0", None, -1, 2**56, b"1", 1.5])
def test_a_wrong_pointer_is_refused_and_crashes_nobody(sim, pointer):
    servers = sim.servers()
    with pytest.raises((LocalProtocolError, PointerOutOfRange)):
        sim.node.next(TOPIC, pointer)
    assert sim.servers() == servers
    assert texts(sim) == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_puts_go_on_a_second_after_the_registry_died_and_none_is_lost(serve):
    node = serve(count_limit=200, check_interval=0.01)
    acknowledged: list[list[tuple[int, bytes]]] = [[] for _ in range(3)]
    longest_s = [0.0, 0.0, 0.0]
    is_over = threading.Event()

    def write(writer):
        with connect(node) as socket:
            number = 0
            while not is_over.is_set():
                message = b"%d %d" % (writer, number)
                start_s = time.monotonic()
                pointer = socket.write(TOPIC, [message])
                longest_s[writer] = max(longest_s[writer], time.monotonic() - start_s)
                acknowledged[writer].append((pointer, message))
                number += 1

    def have_all_written(count):
        return all(len(records) > count for records in acknowledged)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for count in range(100, 700, 100):
        wait_until(partial(have_all_written, count), 20)
        kill(node, "topic_registry")
    wait_until(partial(have_all_written, 700), 20)
    is_over.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    stored = read_by_next(node, TOPIC)
    assert sorted(record for records in acknowledged for record in records) == stored
    assert max(longest_s) < 5  # of 10, after which a client gives up


@pytest.mark.slow
@pytest.mark.parametrize("name", ["listener_sup", "connection_sup"])
def test_a_listener_that_is_killed_comes_back_on_its_port(serve, name):
    node = serve()
    port = node.address
    for number in range(5):
        with connect(node) as client:
            client.write(TOPIC, [b"%d" % number])
            kill(node, name)
            wait_until(lambda: is_served(node))
            # The old connections have ended with their supervisor.
            with pytest.raises(ConnectionClosed):
                client.topics()
    assert node.address == port
    assert node.is_running
    expected = [b"%d" % number for number in range(5)]
    assert [message for _, message in read_by_next(node, TOPIC)] == expected
