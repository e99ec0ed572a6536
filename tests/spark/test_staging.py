"""The commit protocol against a real server, without Spark: it may end anywhere and begin anew."""

from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe import Node
from poe.broker import LocalRequest
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import (
    ConnectFailed,
    InvalidTopicName,
    ProducerFenced,
    RangeGone,
    ReservedTopic,
)
from poe.protocol import PutId, Socket
from poe.protocol.removed import Removed
from poe.protocol.server import Server
from poe.spark.retrying_socket import RetryingSocket
from poe.spark.staging import Staging
from poe.storage import POINTER_MAX
from tests.broker.nodes import address, connect, stored
from tests.broker.server_process import ServerProcess
from tests.waiting import wait_until
from torture.layers.simulated_disk import SimulatedDisk
from torture.simulated_node import SimulatedNode

pytestmark = pytest.mark.spark

FOR_EVER = -1
NUMBERS = count()
ROWS = [(b"ab"[number % 3 % 2], b"message %d" % number) for number in range(20)]
"""Which of two topics, and the message."""


class DriverKilled(Exception):
    pass


class MortalSocket(RetryingSocket):
    """The server as a driver sees it that is killed after so many calls."""

    calls_left = FOR_EVER

    def call(self, method, *args, **kwargs):
        if self.calls_left == 0:
            raise DriverKilled
        self.calls_left -= 1
        return super().call(method, *args, **kwargs)


class Write:
    """A write of the same rows under names of its own, as often as it takes."""

    def __init__(self, node):
        self.node = node
        self.name = b"write-%d" % next(NUMBERS)
        self.staging = Staging.of_producer(self.name.decode(), None)

    def attempt(self, rows=ROWS, size=4, *, calls=FOR_EVER, epoch=0):
        """Stage in puts of up to `size` messages, and commit with so many calls."""
        with MortalSocket([Server(*address(self.node))], 5.0) as server:
            self.staging.open(server)
            ranges = self.staging.stage(server, self.puts_of(rows, size))
            server.calls_left = calls
            self.staging.commit(server, epoch, ranges)

    def puts_of(self, rows, size):
        for letter in b"ab":
            messages = [message for each, message in rows if each == letter]
            for start in range(0, len(messages), size):
                yield self.topic(letter), messages[start : start + size]

    def topic(self, letter):
        return self.name + bytes([letter])

    def is_complete(self, times=1):
        """Tell whether each row is there, and so many times."""
        return all(
            sorted(stored(self.node, self.topic(letter)))
            == sorted([message for each, message in ROWS if each == letter] * times)
            for letter in b"ab"
        )


@pytest.fixture(scope="module")
def node(shared_node):
    return shared_node


@pytest.fixture
def server(node):
    with RetryingSocket([Server(*address(node))], 5.0) as server:
        yield server


def topics(node):
    with connect(node) as client:
        return client.topics()


def test_what_is_staged_reaches_nobody_before_the_commit(node, server):
    staging = Staging.of_one_write()
    staging.open(server)
    staging.stage(server, [(b"nobody", [b"m"])])
    assert b"nobody" not in topics(node)


def test_commit_copies_in_the_order_of_the_partitions(node, server):
    staging = Staging.of_one_write()
    staging.open(server)
    late = staging.stage(server, [(b"order", [b"3", b"4"])])
    early = staging.stage(server, [(b"order", [b"1"]), (b"order", [b"2"])])
    staging.commit(server, 0, early + late)
    assert stored(node, b"order") == [b"1", b"2", b"3", b"4"]


def test_temporary_topic_goes_with_the_commit(node, server):
    staging = Staging.of_one_write()
    staging.open(server)
    assert staging.topic in topics(node)
    staging.commit(server, 0, staging.stage(server, [(b"goes", [b"m"])]))
    assert staging.topic not in topics(node)


@given(st.lists(st.tuples(st.permutations(ROWS), st.integers(1, 9), st.integers(0, 20))))
@example([(ROWS, 4, calls) for calls in range(20)])
@example([(ROWS, 9, 7), (ROWS, 1, 20)])
def test_each_message_is_there_once_wherever_drivers_were_killed(node, killed):
    write = Write(node)
    for rows, size, calls in killed:
        with suppress(DriverKilled):
            write.attempt(rows, size, calls=calls)
    write.attempt(ROWS[::-1], 5)
    assert write.is_complete()


def test_a_batch_that_is_done_may_be_repeated(node):
    write = Write(node)
    write.attempt(size=1)
    write.attempt(size=9)
    assert write.is_complete()


def test_a_batch_that_is_done_may_be_repeated_when_its_plan_has_expired(node, server):
    write = Write(node)
    write.attempt(size=1)
    server.call(Socket.trim, write.staging.topic, POINTER_MAX)
    write.attempt(size=9)
    assert write.is_complete()


def test_rows_that_have_expired_before_the_plan_do_not_stand_in_the_way_of_a_repeat(node, server):
    staging = Staging.of_producer("expired", None)
    staging.open(server)
    first, *others = staging.stage(server, [(b"expired", [b"1"]), (b"expired", [b"2"])])
    server.call(Socket.trim, staging.topic, POINTER_MAX)
    late = staging.stage(server, [(b"expired", [b"3"])])
    with pytest.raises(RangeGone, match="does not hold all that was put"):
        staging.commit(server, 0, [*late, *others, first])
    assert stored(node, b"expired") == []
    staging.commit(server, 0, staging.stage(server, [(b"expired", [b"1", b"2", b"3"])]))
    assert stored(node, b"expired") == [b"1", b"2", b"3"]


def test_each_epoch_is_another_batch(node):
    write = Write(node)
    write.attempt(epoch=3)
    write.attempt(epoch=4)
    write.attempt(epoch=9)
    assert write.is_complete(times=3)


def test_earlier_epoch_is_refused_and_changes_nothing(node):
    write = Write(node)
    write.attempt(epoch=4)
    with pytest.raises(ProducerFenced):
        write.attempt(epoch=3)
    assert write.is_complete()


def test_batch_without_rows_can_be_committed_and_repeated(node):
    write = Write(node)
    write.attempt([])
    write.attempt([])
    write.attempt(epoch=1)
    assert write.is_complete()


@pytest.mark.parametrize(
    ("topic", "error"), [(b"no/good", InvalidTopicName), (b"poe.groups", ReservedTopic)]
)
def test_topic_that_nobody_can_have_is_refused_before_it_is_planned(node, server, topic, error):
    staging, fine = Staging.of_producer(error.__name__, None), error.__name__.encode()
    staging.open(server)
    with pytest.raises(error):
        staging.commit(server, 0, staging.stage(server, [(fine, [b"m"]), (topic, [b"m"])]))
    staging.commit(server, 0, staging.stage(server, [(fine, [b"m"])]))
    assert stored(node, fine) == [b"m"]


def test_staged_rows_of_a_batch_that_is_done_are_trimmed_with_the_next_one(tmp_path):
    with Node(dir=tmp_path, port=0, count_limit=len(ROWS), check_interval=0.01) as node:
        write = Write(node)
        write.attempt(epoch=0)
        with connect(node) as client:
            # All rows are in a segment that is closed, at whatever moment of the write that was.
            wait_until(lambda: client.segments(write.staging.topic)[-1]["count"] < len(ROWS))
        write.attempt(epoch=1)
        assert write.is_complete(times=2)
        # The rows of the last one may have a plan and its end before them, and have those behind.
        assert len(stored(node, write.staging.topic)) <= len(ROWS) + 4


def test_task_that_comes_after_the_end_of_its_write_leaves_no_topic_behind(node, server):
    staging = Staging.of_one_write()
    staging.open(server)
    staging.delete(server)
    with pytest.raises(RangeGone):
        staging.stage(server, [(b"late", [b"m"])])
    assert staging.topic not in topics(node)


def test_a_write_whose_beginning_has_expired_says_so_and_leaves_no_topic_behind(tmp_path):
    staging = Staging.of_one_write()
    with (
        Node(dir=tmp_path, port=0, size_limit=1000, max_bytes=2000, check_interval=0.01) as node,
        RetryingSocket([Server(*address(node))], 5.0) as server,
    ):
        staging.open(server)

        def has_expired():
            staging.stage(server, [(b"t", [b"x" * 1000])])
            return False

        with pytest.raises(RangeGone, match="does not hold all that was put"):
            wait_until(has_expired)
        assert topics(node) == []


@pytest.mark.parametrize("is_temporary", [True, False])
def test_a_server_that_shows_only_what_is_synced_is_written_to(tmp_path, is_temporary):
    staging = Staging(bytes(16), is_temporary=is_temporary)
    not_unasked_s = 3600.0
    with (
        Node(dir=tmp_path, port=0, read="synced", sync_interval=not_unasked_s) as node,
        connect(node) as client,
    ):
        with RetryingSocket([Server(*address(node))], 5.0) as server:
            staging.open(server)
            ranges = staging.stage(server, [(b"a", [b"1", b"2"]), (b"b", [b"3"])])
            staging.commit(server, 0, ranges)
        client.control("sync")
        assert stored(node, b"a") == [b"1", b"2"]
        assert stored(node, b"b") == [b"3"]


class SimulatedServer:
    """A node on a simulated disk, as a driver sees it that is killed when it has copied something.

    It begins with the node, and is used up with the copy.
    """

    are_several = False

    def __init__(self, node):
        self._node = node

    def call(self, method, *args, check=None, **kwargs):
        del check
        return getattr(self, method.__name__)(*args, **kwargs)

    def control(self, op, **arguments):
        return self._node.control(op, **arguments)

    def trim(self, topic, pointer):
        return self.control("trim", topic=topic, pointer=pointer)

    def last_put(self, topic, producer):
        return self.control("last_put", topic=topic, producer=producer)

    def removed(self, _topic, _pointer):
        return Removed((), 0)

    def write(self, topic, messages, put_id=None):
        ref = self._node.start_client(LocalRequest)
        put = partial(RequestHandler.put, topic=topic, messages=messages, put_id=put_id)
        return self._node.system.call(ref, put, None)

    def read(self, topic, pointer, limit):
        found = [each for each in self._node.read_all()[topic] if each[0] > pointer]
        return found[:limit]

    def copy(self, source, pointer, last, topic, put_id):
        named = dict(zip(PutId._fields, put_id, strict=True))
        self.control("copy", source=source, pointer=pointer, last=last, topic=topic, **named)
        self.control("sync", topic=topic)
        raise DriverKilled


def test_a_power_cut_in_the_middle_of_a_commit_takes_no_plan_of_which_something_is_copied():
    """A repeat would put another one, of which what is copied would be taken for the begin."""
    for seed in range(10):
        disk = SimulatedDisk()
        node = SimulatedNode(disk, "flushed", 100)
        staging = Staging.of_producer("p", None)
        rows = [b"%d" % number for number in range(9)]
        for size in (2, 3, 4, 5, 6, 9, 9):
            server: Any = SimulatedServer(node)
            staging.open(server)
            parts = [rows[at : at + size] for at in range(0, 9, size)]
            ranges = staging.stage(server, [(b"t", each) for each in reversed(parts)])
            with suppress(DriverKilled):
                staging.commit(server, 0, ranges)
            node.abandon(partial(disk.cut_power, Random(seed)))
            node.start()
        assert sorted(message for _, message in node.read_all()[b"t"]) == rows, seed
        node.stop()


class ServerThatLeaves(RetryingSocket):
    """The server as a driver sees it from which it is cut off before a method."""

    method: object = None

    def call(self, method, *args, **kwargs):
        if method is self.method:
            raise ConnectFailed("h", 1, "cut off")
        return super().call(method, *args, **kwargs)


def test_a_write_that_has_stored_all_has_succeeded_though_its_topic_is_left(node, caplog):
    staging = Staging.of_one_write()
    with ServerThatLeaves([Server(*address(node))], 5.0) as server:
        server.method = Socket.delete
        staging.open(server)
        staging.commit(server, 0, staging.stage(server, [(b"left", [b"m"])]))
    assert stored(node, b"left") == [b"m"]
    assert f"topic {staging.topic.decode()} is left, use `poe delete`: " in caplog.text


def test_producers_of_one_name_on_two_topics_are_two():
    first, second, again = (Staging.of_producer("p", topic) for topic in ("a", "b", "a"))
    assert first != second
    assert first == again


class KillingSocket(RetryingSocket):
    """Kills the server when it has changed something, and asks the next one for it again."""

    def __init__(self, folder):
        self.folder = folder
        self.process = ServerProcess(folder)
        super().__init__([Server("127.0.0.1", self.process.port)], patience_s=20.0)

    def call(self, method, *args, **kwargs):
        result = super().call(method, *args, **kwargs)
        if method not in {Socket.write, Socket.copy, Socket.trim}:
            return result
        self.process.kill()
        self.process = ServerProcess(self.folder, port=self.process.port)
        return super().call(method, *args, **kwargs)

    def close(self):
        super().close()
        self.process.kill()


@pytest.mark.slow
def test_each_message_is_there_once_when_the_server_is_killed_after_each_change(tmp_path):
    staging = Staging.of_producer("p", None)
    with KillingSocket(tmp_path / "node") as server:
        staging.open(server)
        ranges = staging.stage(server, [(b"a", [b"1", b"2"]), (b"b", [b"3"])])
        staging.commit(server, 0, ranges)
        with server.process.connect() as client:
            assert [message for _, message in client.read(b"a", 0, 9)] == [b"1", b"2"]
            assert [message for _, message in client.read(b"b", 0, 9)] == [b"3"]
