"""A disk that takes its time with one topic: that one waits, all others go on."""

import errno
import gc
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from poe.actors import KILL
from poe.broker.appendix.message import Seal
from poe.broker.connection.stream import Stream
from poe.errors import CallTimeout, SyncFailed
from poe.protocol import FrameReader, PutReply, PutRequest, decode_reply
from poe.storage import Store, decode_records
from tests.broker.nodes import connect, read_by_next
from tests.scenarios.clients import dial
from tests.tls import BOTH
from tests.waiting import wait_until

TRANSPORTS = BOTH


SLOW, FAST = b"slow", b"fast"


class SlowDisk:
    """Holds up the syncs of one topic, but for its locks, until it is told to go on."""

    def __init__(self, fdatasync: Callable[[int], None]):
        self.real = fdatasync
        self.gate = threading.Event()
        self.begun = 0
        self.ended = 0
        self.longest_s = 0.0  # then the disk goes on by itself
        self.unheld = 0
        self.errors: list[OSError] = []
        self.stalls_after_error = False

    def fdatasync(self, fd):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.parent.name == SLOW.decode() and not path.name.endswith("_lock"):
            self.begun += 1
            if self.begun > self.unheld:
                assert self.gate.wait(self.longest_s or 20) or self.longest_s
            if self.errors:
                if self.stalls_after_error:
                    self.gate.clear()
                raise self.errors.pop()
            self.ended += 1
        self.real(fd)


@pytest.fixture
def disk(monkeypatch):
    disk = SlowDisk(os.fdatasync)
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    yield disk
    disk.gate.set()


def io_error():
    return OSError(errno.EIO, "Input/output error")


class Producer(threading.Thread):
    """Puts one message as a client does, and keeps what came of it."""

    def __init__(self, node, message):
        super().__init__(daemon=True)
        self.node = node
        self.message = message
        self.answer: object = None
        self.start()

    def run(self):
        with connect(self.node) as client:
            try:
                self.answer = client.write(SLOW, [self.message])
            except SyncFailed as error:
                self.answer = error

    def result(self):
        self.join(20)
        return self.answer


@pytest.fixture
def node(serve, disk):
    return start(serve, disk)


def start(serve, disk, **options):
    """Start a node with a message on each topic, then stall the disk."""
    disk.gate.set()
    node = serve(**{"ack": "fsync", **options})
    for topic in (SLOW, FAST):
        node.put(topic, b"first")
    disk.gate.clear()
    disk.begun = disk.ended = 0
    return node


def begin(node, disk, count):
    """Have a first put wait for the disk, then others for the first."""
    producers = [Producer(node, b"0")]
    wait_until(lambda: disk.begun == 1)
    producers += [Producer(node, b"%d" % number) for number in range(1, count)]
    wait_until(lambda: len(node.info()) and dict(node.info())[SLOW][-1][1].count == 1 + count)
    return producers


def test_other_topics_are_served_while_one_waits_for_the_disk(node, disk):
    (producer,) = begin(node, disk, 1)
    with connect(node) as client:
        for number in range(100):
            client.write(FAST, [b"%d" % number])
        client.write(b"new", [b"1"])
        assert len(client.read(SLOW, 0, 10)) == 2
    assert producer.answer is None
    disk.gate.set()
    assert isinstance(producer.result(), int)


def test_a_put_that_waits_too_long_is_told_and_may_be_stored(serve, disk):
    node = start(serve, disk, put_timeout=0.5)
    with connect(node) as client:
        for message in (b"1", b"2"):
            with pytest.raises(CallTimeout, match=r"0\.5 s; the work may have been done"):
                client.write(SLOW, [message])
        disk.gate.set()
        wait_until(lambda: disk.ended >= 2, 20)  # so that the next one has all the time there is
        client.write(SLOW, [b"3"])
    assert [message for _, message in read_by_next(node, SLOW)] == [b"first", b"1", b"2", b"3"]


@pytest.mark.slow
def test_a_put_that_has_to_be_made_again_gives_its_buffer_back_while_it_waits(node, disk):
    """The buffers are for all connections; each that waits for a disk would have one of its own."""
    gc.collect()  # what tests before this one have left has no buffer then
    (ref,) = [ref for ref, _ in dict(node.info())[SLOW]]
    disk.gate.set()
    node.system.call(ref, Seal())
    disk.gate.clear()
    producer = Producer(node, b"1")
    wait_until(lambda: dict(node.info())[SLOW][-1][1].count == 2)
    wait_until(lambda: buffers_in_use() == 0)
    assert producer.answer is None
    disk.gate.set()
    assert read_by_next(node, SLOW)[-1] == (producer.result(), b"1")


def buffers_in_use():
    """Tell how many connections have a receive buffer of those that are shared."""
    streams = [each for each in gc.get_objects() if isinstance(each, Stream)]
    return sum(each.frames.is_in_scratch for each in streams)


def sync_in_thread(node, told):
    """Ask for a sync of everything as a client does; what comes of it is appended to `told`."""

    def ask():
        with connect(node) as client:
            try:
                told.append(client.control("sync"))
            except CallTimeout as error:
                told.append(error)

    syncer = threading.Thread(target=ask)
    syncer.start()
    return syncer


def test_new_topics_come_into_being_while_a_sync_waits_for_the_disk(serve, disk):
    node = start(serve, disk, ack="flushed", count_limit=10, check_interval=0.01)
    node.put(SLOW, b"second")
    told: list[object] = []
    syncer = sync_in_thread(node, told)
    wait_until(lambda: disk.begun == 1)
    with connect(node) as client:
        client.write(b"new", [b"%d" % number for number in range(10)])
        wait_until(lambda: len(dict(node.info())[b"new"]) > 1)  # it was rotated, too
    assert told == []
    disk.gate.set()
    syncer.join(20)
    assert told == [None]


@pytest.mark.parametrize("unheld", [0, 3])
def test_what_is_put_while_the_sync_that_ends_its_segment_runs_survives_a_kill(
    serve, disk, tmp_path, unheld
):
    """A sealed segment goes on as the writer where there is no room for another one."""
    node = start(serve, disk, ack="flushed", sync_interval=0.0)
    (ref,) = [ref for ref, _ in dict(node.info())[SLOW]]
    node.system.call(ref, Seal())
    # Data, index and sums; then it is written that it ends, and that is synced.
    disk.unheld, disk.longest_s = unheld, 0.1
    told: list[object] = []
    syncer = sync_in_thread(node, told)
    wait_until(lambda: disk.begun == unheld + 1)
    producer = Producer(node, b"second")
    assert isinstance(producer.result(), int)
    assert disk.ended == 4, "nothing else changes the files meanwhile"
    disk.gate.set()
    syncer.join(20)
    assert told == [None]
    with connect(node) as client:
        client.write(SLOW, [b"third"])
    shutil.copytree(node.config.dir, tmp_path / "killed")
    (segment,) = Store.open(tmp_path / "killed").topics[SLOW]
    found = segment.read(0, 10, 1000)
    assert found is not None
    assert [message for _, message in decode_records(found.read())] == [
        b"first",
        b"second",
        b"third",
    ]


def test_a_sync_that_waits_too_long_is_told(serve, disk):
    node = start(serve, disk, ack="flushed", put_timeout=0.1)
    node.put(SLOW, b"second")
    told: list[object] = []
    sync_in_thread(node, told).join(20)
    assert "0.1 s; the work may have been done" in str(*told)


def test_a_sync_goes_on_with_the_next_server_of_a_segment_when_one_is_killed(serve, disk):
    node = start(serve, disk, ack="flushed", sync_interval=0.0)
    node.put(SLOW, b"second")
    told: list[object] = []
    syncer = sync_in_thread(node, told)
    wait_until(lambda: disk.begun == 1)
    (ref,) = [ref for ref, _ in dict(node.info())[SLOW]]
    killer = threading.Thread(target=node.system.exit, args=(ref, KILL))
    killer.start()
    wait_until(lambda: disk.begun == 2)  # the repair syncs, too
    disk.gate.set()
    killer.join(20)
    syncer.join(20)
    assert told == [None]
    assert disk.ended >= 6  # data and sums: of both servers, and of the repair


def test_a_full_segment_does_not_wait_for_its_disk_in_everybody_s_way(serve, disk):
    node = start(serve, disk, count_limit=3, check_interval=0.01)
    producers = begin(node, disk, 10)
    with connect(node) as client:
        for number in range(100):
            client.write(FAST, [b"%d" % number])
    assert [producer.answer for producer in producers] == [None] * 10
    disk.gate.set()
    pointers = [producer.result() for producer in producers]
    assert sorted(pointers) == [pointer for pointer, _ in read_by_next(node, SLOW)[1:]]
    wait_until(lambda: len(dict(node.info())[SLOW]) > 1)


def test_a_segment_that_goes_does_not_wait_for_its_disk_in_everybody_s_way(
    serve, disk, monkeypatch
):
    monkeypatch.setattr("poe.broker.registry.appendix_servers._FINISH_S", 20.0)
    node = start(serve, disk, ack="flushed", count_limit=2)
    last = next(node.put(SLOW, b"%d" % number) for number in range(3))
    wait_until(lambda: len(node.control("segments", topic=SLOW)) == 2)
    syncing = threading.Thread(target=node.control, args=("sync",), kwargs={"topic": SLOW})
    syncing.start()
    wait_until(lambda: disk.begun == 1)
    trimming = threading.Thread(
        target=node.control, args=("trim",), kwargs={"topic": SLOW, "pointer": last}
    )
    trimming.start()

    def is_waiting():
        [registry] = [each for each in node.control("tree") if each["id"] == "topic_registry"]
        return registry["state"] == "busy"

    wait_until(is_waiting)
    with connect(node) as client:
        client.write(FAST, [b"second"])
    disk.gate.set()
    for each in (syncing, trimming):
        each.join(20)
    assert len(node.control("segments", topic=SLOW)) == 1


def test_a_segment_that_goes_is_not_synced_for_it(serve, disk):
    node = start(serve, disk, ack="flushed", count_limit=2, sync_interval=0.0)
    last = node.put(SLOW, b"second")
    wait_until(lambda: len(node.control("segments", topic=SLOW)) == 2)
    node.control("trim", topic=SLOW, pointer=last)
    assert len(node.control("segments", topic=SLOW)) == 1
    assert disk.begun == 0


def test_all_that_come_during_a_sync_share_the_next_one(node, disk):
    producers = begin(node, disk, 20)
    assert disk.begun == 1
    disk.gate.set()
    pointers = [producer.result() for producer in producers]
    assert disk.ended == 4  # data and sums of two groups
    stored = {message: pointer for pointer, message in read_by_next(node, SLOW)}
    assert pointers == [stored[producer.message] for producer in producers]


def test_after_a_sync_that_fails_those_who_waited_and_those_behind_are_put_again(node, disk):
    producers = begin(node, disk, 5)
    disk.errors = [io_error()]
    disk.gate.set()
    pointers = [producer.result() for producer in producers]
    stored = {message: pointer for pointer, message in read_by_next(node, SLOW)}
    assert pointers == [stored[producer.message] for producer in producers]
    assert len(stored) == 6


def test_where_all_syncs_fail_those_who_waited_and_those_behind_are_refused(node, disk):
    producers = begin(node, disk, 5)
    disk.errors = [io_error()] * 100
    disk.gate.set()
    assert [type(producer.result()) for producer in producers] == [SyncFailed] * 5
    disk.errors.clear()
    with connect(node) as client:
        pointer = client.write(SLOW, [b"again"])
    assert read_by_next(node, SLOW)[-1] == (pointer, b"again")


def test_nobody_else_waits_while_what_failed_is_cut_off(node, disk):
    producers = begin(node, disk, 2)
    disk.errors, disk.stalls_after_error = [io_error()], True
    disk.gate.set()
    wait_until(lambda: disk.begun == 2)
    producers.append(Producer(node, b"while it is cut"))
    with connect(node) as client:
        for number in range(100):
            client.write(FAST, [b"%d" % number])
        assert [message for _, message in client.read(SLOW, 0, 10)] == [b"first"]
    assert [producer.answer for producer in producers] == [None] * 3
    disk.gate.set()
    pointers = [producer.result() for producer in producers]
    assert sorted(pointers) == [pointer for pointer, _ in read_by_next(node, SLOW)[1:]]


def test_puts_of_one_connection_keep_their_order_when_one_is_put_again(node, disk):
    messages = [b"%d" % number for number in range(20)]
    frames = b"".join(PutRequest(SLOW, [message]).encode() for message in messages)
    with dial(node.address, 20) as client:
        client.sendall(frames)
        wait_until(lambda: disk.begun == 1)
        disk.errors = [io_error()]
        disk.gate.set()
        pointers = receive_pointers(client, len(messages))
    assert read_by_next(node, SLOW)[1:] == list(zip(pointers, messages, strict=True))


def receive_pointers(client, count):
    reader = FrameReader()
    pointers: list[int] = []
    while len(pointers) < count:
        size = client.recv_into(reader.buffer())
        assert size
        reader.received(size)
        while (frame := reader.next_frame()) is not None:
            reply = decode_reply(PutReply, *frame)
            assert isinstance(reply, PutReply)
            pointers.append(reply.pointer)
    return pointers


def test_a_node_that_stops_answers_those_who_wait_for_the_disk_first(node, disk):
    producers = begin(node, disk, 5)
    stopper = threading.Thread(target=node.stop)
    stopper.start()
    disk.gate.set()
    stopper.join(20)
    assert all(isinstance(producer.result(), int) for producer in producers)


def test_a_segment_is_full_while_its_disk_is_slow(serve, disk):
    """The sync that runs is waited for, and its end is not answered twice."""
    disk.gate.set()
    node = serve(ack="fsync", count_limit=10, check_interval=0.01)
    producers = [Producer(node, b"%d" % number) for number in range(50)]
    pointers = [producer.result() for producer in producers]
    stored = {message: pointer for pointer, message in read_by_next(node, SLOW)}
    assert pointers == [stored[producer.message] for producer in producers]


def test_sums_of_what_came_during_a_sync_follow_its_end(serve, disk):
    node = serve(ack="flushed", sync_interval=0.0, worker_timeout=60.0)
    node.put(SLOW, b"1")
    syncer = threading.Thread(target=node.sync)
    syncer.start()
    wait_until(lambda: disk.begun == 1)
    node.put(SLOW, b"2")
    (index,) = (node.config.dir / "topics/slow").glob("*_index")
    sums = index.with_name(index.name.replace("_index", "_sum"))
    wait_until(lambda: index.stat().st_size == 2 * 12)
    assert sums.stat().st_size == 64 + 48
    disk.gate.set()
    wait_until(lambda: sums.stat().st_size == 64 + 2 * 48)
    syncer.join(20)
