"""Old segments go, or a whole topic, while others put, read and wait: nobody is told a lie."""

import contextlib
import gc
import itertools
import threading
import time

import pytest

from poe.errors import PoeError, UnknownTopic
from poe.protocol import PointerRequest, RangeRequest
from poe.storage import POINTER_MAX
from tests.broker.nodes import address, connect, kill, open_files, read_by_next
from tests.broker.server_process import ServerProcess
from tests.protocol.streams import records_of
from tests.scenarios.clients import RawClient
from tests.tls import BOTH
from tests.waiting import wait_until

TRANSPORTS = BOTH


TOPIC = b"t"
HOUR_US = 3_600_000_000


@pytest.fixture
def sim(simulate):
    return simulate(count_limit=2)


def fill(sim, count=5):
    """Put a segment's worth of messages several times; return the last pointer of each."""
    last = []
    for number in range(count):
        last.append(sim.node.put_many(TOPIC, [b"%d" % number] * 2))
        sim.advance(1)
    return last


def messages(sim):
    return [message for _, message in read_by_next(sim.node, TOPIC)]


def data_files(sim):
    return sorted(path.name for path in sim.folder.glob("topics/*/*_data"))


def trim(sim, pointer):
    return sim.node.control("trim", topic=TOPIC, pointer=pointer)


def delete(sim):
    return sim.node.control("delete", topic=TOPIC)


# ---- trim ---------------------------------------------------------------------------------------


def test_segments_that_hold_nothing_behind_the_pointer_go(sim):
    last = fill(sim)
    assert trim(sim, last[0] - 1) == 0
    assert trim(sim, last[0]) == 1
    assert messages(sim) == [b"1", b"1", b"2", b"2", b"3", b"3", b"4", b"4"]
    assert trim(sim, last[3] - 1) == 2
    assert messages(sim) == [b"3", b"3", b"4", b"4"]
    assert len(data_files(sim)) == 3
    assert trim(sim, last[0]) == 0


def test_a_writer_that_is_to_go_gets_a_successor_and_the_topic_stays(sim):
    old = sim.node.put(TOPIC, b"only one")
    assert trim(sim, old - 1) == 0
    assert trim(sim, old) == 1
    assert messages(sim) == []
    assert sim.node.topics() == [TOPIC]
    assert sim.roles(TOPIC) == "w"
    assert trim(sim, POINTER_MAX) == 0
    sim.wall.offset_us = -HOUR_US
    assert sim.node.put(TOPIC, b"next") > old


def test_what_was_trimmed_stays_away_after_a_restart(sim):
    last = fill(sim)
    trim(sim, last[2])
    sim.stop()
    sim.start()
    assert messages(sim) == [b"3", b"3", b"4", b"4"]


@pytest.mark.usefixtures("quiet")
def test_a_segment_whose_server_has_died_goes_after_its_repair(sim):
    last = fill(sim)
    sim.system.exit(sim.servers()[0], "kill")
    sim.advance(1)
    assert trim(sim, last[1]) == 2
    assert messages(sim)[0] == b"2"


def test_what_does_not_exist_cannot_be_trimmed_or_deleted(sim):
    for op, arguments in (("trim", {"pointer": 1}), ("delete", {})):
        with pytest.raises(UnknownTopic):
            sim.node.control(op, topic=b"never put onto", **arguments)


# ---- delete -------------------------------------------------------------------------------------


def test_a_topic_goes_with_all_that_belongs_to_it(sim):
    last = fill(sim)
    assert delete(sim) is None
    assert sim.node.topics() == []
    assert sim.read(TOPIC, 0, 10) == []
    assert list((sim.folder / "topics").iterdir()) == []
    assert open_files(sim.folder) == ["store.lock"]
    with pytest.raises(UnknownTopic):
        sim.node.next(TOPIC, 0)
    with pytest.raises(UnknownTopic):
        trim(sim, last[0])


def test_a_topic_that_is_made_again_goes_on_behind_its_old_pointers(sim):
    last = fill(sim)
    sim.wall.offset_us = -HOUR_US
    for _ in range(3):
        delete(sim)
        last.append(sim.node.put(TOPIC, b"new"))
        assert messages(sim) == [b"new"]
    assert last == sorted(set(last))
    sim.stop()
    sim.start()
    assert messages(sim) == [b"new"]


def test_other_topics_stay(sim):
    fill(sim)
    sim.node.put(b"other", b"stays")
    delete(sim)
    assert read_by_next(sim.node, b"other")[0][1] == b"stays"
    assert sim.node.topics() == [b"other"]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("number", [0, 2, -1])
@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_topic_with_a_server_that_has_died_can_be_deleted(simulate, number, is_noticed):
    sim = simulate(count_limit=2)
    last = fill(sim)
    sim.system.exit(sim.servers()[number], "kill")
    if is_noticed:
        sim.advance(1)
    delete(sim)
    assert data_files(sim) == []
    assert sim.node.put(TOPIC, b"new") > last[-1]
    sim.advance(2)
    assert messages(sim) == [b"new"]
    assert len(data_files(sim)) == 1


@pytest.mark.usefixtures("quiet")
def test_a_topic_is_not_back_when_the_registry_has_died(sim):
    fill(sim)
    delete(sim)
    kill(sim.node, "topic_registry")
    sim.advance(1)
    assert sim.node.topics() == []
    sim.node.put(TOPIC, b"new")
    assert messages(sim) == [b"new"]


# ---- what was removed is known ------------------------------------------------------------------


def removed(sim, pointer=0, topic=TOPIC):
    answer = sim.node.control("removed", topic=topic, pointer=pointer)
    assert answer["unknown_high"] == 0
    return [tuple(each) for each in answer["removed"]]


def newest_removed(sim):
    """What `info` tells of each segment of the topic, which is the same."""
    (newest,) = {row["removed"] for row in sim.node.control("info")[TOPIC]}
    assert newest == sim.node.control("segments", topic=TOPIC)[0]["removed"]
    return newest


def test_what_was_trimmed_is_told_also_after_a_restart(sim):
    last = fill(sim)
    assert removed(sim) == []
    assert newest_removed(sim) == 0
    trim(sim, last[1])
    for _ in range(2):
        assert removed(sim) == [(last[0] - 1, last[0]), (last[1] - 1, last[1])]
        assert removed(sim, last[0] + 1) == [(last[1] - 1, last[1])]
        assert newest_removed(sim) == last[1]
        sim.stop()
        sim.start()


def test_what_was_deleted_is_told_of_a_topic_that_is_gone_and_of_one_made_anew(sim):
    last = fill(sim)
    delete(sim)
    for _ in range(2):
        assert removed(sim)[-1] == (last[-1] - 1, last[-1])
        sim.stop()
        sim.start()
    assert sim.node.put(TOPIC, b"new") > last[-1]
    assert len(removed(sim)) == len(last)
    assert newest_removed(sim) == last[-1]


def test_a_registry_that_dies_forgets_nothing(sim, caplog):
    last = fill(sim)
    trim(sim, last[0])
    kill(sim.node, "topic_registry")
    sim.advance(1)
    caplog.clear()
    assert removed(sim) == [(last[0] - 1, last[0])]


def test_who_asks_wrongly_is_told_so(sim):
    for arguments in ({}, {"topic": TOPIC}, {"topic": TOPIC, "pointer": -1}, {"pointer": 1}):
        with pytest.raises(PoeError, match="argument"):
            sim.node.control("removed", **arguments)


# ---- while others are at work -------------------------------------------------------------------


class Crowd:
    """Threads that each do one thing again and again, until the block ends; errors are raised."""

    def __init__(self):
        self.has_ended = threading.Event()
        self.errors = []
        self.threads = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.has_ended.set()
        for thread in self.threads:
            thread.join(30)
        if self.errors:
            raise self.errors[0]

    def repeat(self, action):
        def run():
            try:
                while not self.has_ended.is_set():
                    action()
            except Exception as error:  # noqa: BLE001 - raised again in the test's thread
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()


class Putter:
    """Puts batches, and remembers when it began, when it was told, and of which pointer."""

    def __init__(self, put):
        self.put = put
        self.done = []
        self.numbers = itertools.count()

    def __call__(self):
        message = b"%d of %d" % (next(self.numbers), id(self))
        began_s = time.monotonic()
        pointer = self.put(TOPIC, [message] * 3)
        self.done.append((began_s, time.monotonic(), pointer, message))


@pytest.fixture
def crowded(serve):
    """A node and sockets to it, each for a thread of its own."""
    sockets = []

    def start(**options):
        node = serve(count_limit=50, check_interval=0.005, **options)

        def socket():
            sockets.append(connect(node, 30))
            return sockets[-1]

        return node, socket

    yield start
    for socket in sockets:
        socket.close()


def read_all(socket):
    return list(
        itertools.chain.from_iterable(
            records_of(found) for found in socket.read_ranges(TOPIC, 0, POINTER_MAX, 100)
        )
    )


def have_put(putters, since_s):
    """Whether each has begun and ended a put since then."""
    return all(putter.done and putter.done[-1][0] > since_s for putter in putters)


@pytest.mark.slow
@pytest.mark.parametrize("ack", ["flushed", "fsync", "memory"])
def test_a_put_that_was_acknowledged_after_a_delete_is_there(crowded, ack):
    node, socket = crowded(ack=ack)
    putters = [Putter(socket().write), Putter(socket().write), Putter(node.put_many)]
    reader, waiter, syncer, deleter = socket(), socket(), socket(), socket()
    with Crowd() as crowd:
        for putter in putters:
            crowd.repeat(putter)
        crowd.repeat(lambda: read_all(reader))
        crowd.repeat(lambda: waiter.wait(TOPIC, POINTER_MAX, 0.01))
        crowd.repeat(lambda: syncer.control("sync"))
        deletes: list[tuple[float, float]] = []
        while len(deletes) < 25:
            if not deleter.wait(TOPIC, 0, 10):
                continue
            began_s = time.monotonic()
            deleter.delete(TOPIC)
            deletes.append((began_s, time.monotonic()))
        wait_until(lambda: have_put(putters, deletes[-1][1]) or crowd.errors, 30)
    done = sorted(itertools.chain.from_iterable(putter.done for putter in putters))
    pointers = [pointer for _, _, pointer, _ in done]
    assert len(set(pointers)) == len(pointers)
    left = dict(read_all(socket()))
    delete_began_s, delete_ended_s = deletes[-1]
    for began_s, ended_s, pointer, message in done:
        if began_s > delete_ended_s:
            assert left.get(pointer) == message
        elif ended_s < delete_began_s:
            assert pointer not in left
    assert len(left) % 3 == 0


@pytest.mark.slow
def test_trimming_while_segments_come_takes_nothing_behind_the_pointer(crowded):
    node, socket = crowded()
    putters = [Putter(socket().write), Putter(node.put_many)]
    reader, trimmer = socket(), socket()
    trimmed_count, pointer = 0, 0
    with Crowd() as crowd:
        for putter in putters:
            crowd.repeat(putter)
        crowd.repeat(lambda: read_all(reader))
        while trimmed_count < 40 and not crowd.errors:
            if not trimmer.wait(TOPIC, pointer, 10):
                continue
            pointer = trimmer.segments(TOPIC)[-1]["pointer_high"] or pointer
            trimmed_count += trimmer.trim(TOPIC, pointer)
    left = dict(read_all(socket()))
    for _, _, put_pointer, message in itertools.chain.from_iterable(p.done for p in putters):
        if put_pointer - 2 > pointer:
            assert left.get(put_pointer) == message
    assert list(left) == sorted(left)


@pytest.mark.slow
@pytest.mark.parametrize("left_max", [140, 1])
def test_of_a_topic_whose_deletion_was_cut_short_the_newest_segments_are_left(tmp_path, left_max):
    folder = tmp_path / "data"
    with ServerProcess(folder, count_limit=10) as server:
        socket = server.connect()
        last = [socket.write(TOPIC, [b"%d" % number] * 20) for number in range(150)]

        def delete():
            with contextlib.suppress(PoeError):
                socket.delete(TOPIC)

        deleting = threading.Thread(target=delete)
        deleting.start()
        wait_until(lambda: len(list(folder.glob("topics/*/*_data"))) <= left_max, 30)
        server.kill()
        deleting.join(30)
        socket.close()
    with ServerProcess(folder) as server, server.connect() as socket:
        left = read_all(socket)
        assert len(left) % 20 == 0
        assert [pointer for pointer, _ in left][19::20] == last[len(last) - len(left) // 20 :]
        if socket.topics():
            socket.delete(TOPIC)
        assert socket.write(TOPIC, [b"new"]) > last[-1]
        assert [message for _, message in read_all(socket)] == [b"new"]


@pytest.mark.parametrize("kind", [PointerRequest, RangeRequest])
def test_a_reader_that_goes_lets_go_of_what_was_deleted(serve, tmp_path, kind):
    node = serve()
    last = node.put_many(TOPIC, [bytes(2**20)] * 16)
    request = kind(TOPIC, 0, last, 100, 2**30) if kind is RangeRequest else kind(TOPIC, 0, 100)
    gc.disable()
    try:
        with RawClient(address(node)) as client:
            client.send(request.encode())
            client.socket.recv(1)
            node.control("delete", topic=TOPIC)
            assert len(open_files(tmp_path / "node0")) > 1
        wait_until(lambda: open_files(tmp_path / "node0") == ["store.lock"])
    finally:
        gc.enable()
