"""A node in this process: its life, its messages, and the module functions that speak to one."""

import io
import itertools
import os
import signal
import socket
import threading

import pytest

import poe
from poe.actors import LoopSystem
from poe.broker import NODE_SUP
from poe.config import Config
from poe.errors import (
    InvalidMessage,
    InvalidTopicName,
    LocalProtocolError,
    NodeNotRunning,
    NodeRunning,
    OptionError,
    PointerOutOfRange,
    PortInUse,
    StoreLocked,
    UnknownTopic,
)
from poe.node import Node
from poe.storage import SystemClock
from tests.broker.nodes import connect, descriptors, read_by_next
from tests.forks import exit_code_of, fork
from tests.interrupts import places
from tests.waiting import wait_until

NODE = {"port": None}


@pytest.fixture
def module_node(tmp_path):
    yield poe.start(dir=tmp_path / "module", port=None)
    poe.stop()


def walk(node, topic):
    pointer, found = 0, []
    while (record := node.next(topic, pointer)) is not None:
        pointer = record[0]
        found.append(record)
    return found


# ---- life ---------------------------------------------------------------------------------------


def test_a_node_runs_between_start_and_stop(tmp_path):
    node = Node(dir=tmp_path, port=0)
    assert not node.is_running
    assert node.address is None
    assert node.start() is node
    assert node.is_running
    assert node.address is not None
    with poe.protocol.socket(*node.address, timeout_s=10) as connection:
        assert connection.write("t", [b"m"]) == walk(node, "t")[0][0]
    node.stop()
    assert not node.is_running
    node.stop()


def test_a_stopped_node_starts_again_with_its_messages(tmp_path):
    node = Node(dir=tmp_path, port=None)
    for number in range(3):
        with node:
            node.put("t", b"m%d" % number)
    with node:
        assert [message for _, message in walk(node, "t")] == [b"m0", b"m1", b"m2"]


def test_a_node_of_a_forked_process_has_no_address(tmp_path):
    """It told the port where the parent's is reached."""

    def look():
        assert node.address is None
        assert not node.is_running

    with Node(dir=tmp_path, port=0) as node:
        assert exit_code_of(fork(look)) == 0
        assert node.address is not None


def test_a_forked_process_has_no_node_and_harms_none(module_node, tmp_path):
    """It wrote where its parent did: what that had acknowledged meanwhile was overwritten."""
    module_node.put("t", b"before")
    reading, writing = os.pipe()

    def use_copy():
        os.close(writing)
        os.read(reading, 1)
        _use_copy(module_node, tmp_path / "child")

    child = fork(use_copy)
    os.close(reading)
    module_node.put("t", b"meanwhile")
    os.close(writing)
    assert exit_code_of(child) == 0
    module_node.put("t", b"after")
    poe.stop()
    poe.start(dir=tmp_path / "module", port=None)
    assert [message for _, message in walk(poe, "t")] == [b"before", b"meanwhile", b"after"]


def _use_copy(node, folder):
    for request in (lambda: poe.put("t", b"of the child"), lambda: node.next("t", 0), node.status):
        with pytest.raises(NodeNotRunning):
            request()
    node.stop()
    with pytest.raises(StoreLocked):
        node.start()
    with poe.start(dir=folder, port=None) as own:
        own.put("t", b"in a folder of its own")
        assert [message for _, message in walk(poe, "t")] == [b"in a folder of its own"]


def test_a_folder_is_free_when_its_node_has_ended_although_a_fork_lives(tmp_path):
    with Node(dir=tmp_path, port=None):
        reading, writing = os.pipe()

        def wait():
            os.close(writing)
            os.read(reading, 1)

        child = fork(wait)
        os.close(reading)
    with Node(dir=tmp_path, port=None) as node:
        assert node.is_running
    os.close(writing)
    assert exit_code_of(child) == 0


class StoppingClock(SystemClock):
    """Has a signal come that stops the node while an actor of this thread looks at the time."""

    is_armed = False

    def now_us(self):
        if self.is_armed and threading.current_thread() is threading.main_thread():
            self.is_armed = False
            signal.raise_signal(signal.SIGUSR1)
        return super().now_us()


class InterruptedClock(SystemClock):
    """Has Ctrl-C come at the `left`-th look of this thread at the time."""

    left = 0

    def now_us(self):
        if threading.current_thread() is threading.main_thread():
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return super().now_us()


def test_a_start_that_is_interrupted_keeps_neither_folder_nor_port(tmp_path):
    """Also while somebody keeps the interrupt, as Python's prompt does."""
    with Node(dir=tmp_path, port=None) as before:
        before.put("t", b"m")
    sockets = open_sockets()
    loops, kept = count_threads("poe-loop"), []
    clock = InterruptedClock()
    for number in itertools.count(1):
        clock.left = number
        node = Node(dir=tmp_path, port=0, clock=clock)
        try:
            node.start()
            break
        except KeyboardInterrupt as interrupt:
            kept.append(interrupt)
        assert not node.is_running
        assert open_sockets() <= sockets
        assert count_threads("poe-loop") == loops
    clock.left = 0
    with node:
        assert [message for _, message in walk(node, "t")] == [b"m"]
    assert len(kept) > 1


@pytest.mark.parametrize("file", ["poe/storage/store/store.py", "poe/actors/loop_system.py"])
def test_a_stop_that_is_interrupted_keeps_neither_folder_nor_port(tmp_path, file):
    """The node said that it does not run, and nobody could stop it any more."""
    node = Node(dir=tmp_path, port=0)
    sockets, loops = open_sockets(), count_threads("poe-loop")
    put = []
    for is_interrupted in places(file):
        node.start()
        put.append(node.put("t", b"m"))
        is_interrupted(node.stop)
        assert open_sockets() <= sockets
        assert count_threads("poe-loop") == loops
    with node:
        assert [pointer for pointer, _ in walk(node, "t")] == put
    assert len(put) > 2


def test_a_signal_handler_may_stop_the_node_in_the_middle_of_a_put(tmp_path):
    """The store was closed below the actor: what that acknowledged then was lost."""
    clock = StoppingClock()
    node = Node(dir=tmp_path, port=None, clock=clock).start()
    system = node.system
    before = signal.signal(signal.SIGUSR1, lambda *_: node.stop())
    try:
        node.put("t", b"before")
        clock.is_armed = True
        node.put("t", b"interrupted")
    finally:
        signal.signal(signal.SIGUSR1, before)
    wait_until(lambda: not count_threads("poe-stop"))
    assert not node.is_running
    assert not system.is_alive(NODE_SUP)
    with node:
        assert [message for _, message in walk(node, "t")] == [b"before", b"interrupted"]


def open_sockets():
    return {each for each in descriptors() if each.startswith("socket:")}


def count_threads(name):
    return sum(thread.name == name for thread in threading.enumerate())


def test_options_come_by_name_or_complete(tmp_path):
    assert Node({"dir": tmp_path, "port": 1}, port=2).config.listener.port == 2
    config = Config.load({"dir": tmp_path, "port": None})
    assert Node(config).config is config
    with pytest.raises(OptionError, match="is not known"):
        Node(dir=tmp_path, prot=1)


def test_an_option_beside_a_config_is_refused(tmp_path):
    """It was passed over without a word, be it known or not."""
    config = Config.load({"dir": tmp_path, "port": None})
    with pytest.raises(OptionError, match="option 'ack' is 'fsync'; use none beside a Config"):
        Node(config, ack="fsync")


@pytest.mark.parametrize("call", ["put", "put_many", "next", "topics", "status", "info", "sync"])
def test_a_node_that_does_not_run_says_so(tmp_path, call):
    arguments = {"put": ("t", b"m"), "put_many": ("t", [b"m"]), "next": ("t", 0)}
    node = Node(dir=tmp_path, port=None)
    with pytest.raises(NodeNotRunning):
        getattr(node, call)(*arguments.get(call, ()))


def test_a_taken_port_is_refused_before_anything_is_made(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        node = Node(dir=tmp_path / "new", port=taken.getsockname()[1])
        with pytest.raises(PortInUse):
            node.start()
    assert not (tmp_path / "new").exists()
    assert not node.is_running
    with node:
        assert node.is_running, "it starts once the port is free"


def test_one_folder_has_one_node(tmp_path):
    with Node(dir=tmp_path, port=None), pytest.raises(StoreLocked):
        Node(dir=tmp_path, port=None).start()
    with Node(dir=tmp_path, port=None) as free_again:
        assert free_again.is_running


def test_a_node_keeps_its_folder_though_the_program_goes_to_another(tmp_path, monkeypatch):
    """It was another one at the next start, and what was put before seemed to be gone."""
    monkeypatch.chdir(tmp_path)
    node = Node(dir="data", port=None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with node:
        node.put("t", b"m")
    assert (tmp_path / "data" / "topics").is_dir()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_two_nodes_live_in_one_process(tmp_path):
    with Node(dir=tmp_path / "a", port=0) as a, Node(dir=tmp_path / "b", port=0) as b:
        a.put("t", b"in a")
        b.put("t", b"in b")
        assert walk(a, "t")[0][1] == b"in a"
        assert walk(b, "t")[0][1] == b"in b"
        assert a.address != b.address


def test_the_end_of_the_tree_is_told_with_its_reason(tmp_path):
    reasons: list[object] = []
    system = LoopSystem()
    node = Node(dir=tmp_path, port=None).start(system)
    node.when_ended(reasons.append)
    sup = system.whereis("poe_sup")
    assert sup is not None
    system.exit(sup, "given up")
    wait_until(lambda: reasons)
    assert reasons == ["given up"]
    assert not node.is_running
    node.stop()


# ---- messages -----------------------------------------------------------------------------------


def test_messages_come_back_in_order_with_rising_pointers(node):
    pointers = [node.put("t", b"m%d" % number) for number in range(5)]
    last = node.put_many(b"t", [b"m5", b"m6"])
    found = walk(node, b"t")
    assert [pointer for pointer, _ in found[:5]] == pointers
    assert found[-1] == (last, b"m6")
    assert [pointer for pointer, _ in found] == sorted({pointer for pointer, _ in found})
    assert node.next("t", last) is None


@pytest.mark.parametrize("message", [b"m", bytearray(b"m"), memoryview(b"m")])
def test_anything_bytes_like_is_a_message(node, message):
    node.put("t", message)
    assert walk(node, "t")[0][1] == b"m"


@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        ("put", ("t", b"m" * (16 * 1024 * 1024 + 1)), InvalidMessage),
        ("put", ("", b"m"), LocalProtocolError),
        ("put", (b"", b"m"), LocalProtocolError),
        ("put", ("../t", b"m"), InvalidTopicName),
        ("next", ("t", 0), UnknownTopic),
        ("next", ("", 0), LocalProtocolError),
    ],
)
def test_what_cannot_be_done_is_refused_and_stores_nothing(node, call, arguments, error):
    with pytest.raises(error):
        getattr(node, call)(*arguments)
    assert all(walk(node, topic) == [] for topic in node.topics())


@pytest.mark.parametrize("pointer", [-1, 2**56])
def test_a_pointer_out_of_range_is_refused(node, pointer):
    node.put("t", b"m")
    with pytest.raises(PointerOutOfRange):
        node.next("t", pointer)


@pytest.mark.slow
def test_many_threads_put_at_once_and_nothing_is_lost(tmp_path):
    with Node(dir=tmp_path, port=None, count_limit=300, check_interval=0.01) as node:

        def put_all(label):
            for number in range(500):
                node.put("t", b"%b-%d" % (label, number))

        threads = [threading.Thread(target=put_all, args=(label,)) for label in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        messages = [message for _, message in walk(node, "t")]
        assert len(messages) == 1500
        for label in (b"a", b"b", b"c"):
            own = [message for message in messages if message.startswith(label)]
            assert own == [b"%b-%d" % (label, number) for number in range(500)]


# ---- what there is ------------------------------------------------------------------------------


def test_status_and_info_name_each_topic_s_appendix_servers(node):
    node.put_many("b_topic", [b"one", b"two"])
    node.put("a_topic", b"x")
    assert node.topics() == [b"a_topic", b"b_topic"]
    (a, [(_, a_role)]), (b, [(b_ref, b_role)]) = node.status()
    assert (a, a_role, b, b_role) == (b"a_topic", "w", b"b_topic", "w")
    described_ref, segment = dict(node.info())[b"b_topic"][0]
    assert described_ref == b_ref
    # Two records of 4 + 7 + 3 bytes.
    assert (segment.count, segment.size_bytes) == (2, 28)
    assert [segment.pointer_low, segment.pointer_high] == [p for p, _ in walk(node, "b_topic")]


def test_the_printed_status_is_the_original_s(node):
    node.put("the_topic", b"m")
    printed = io.StringIO()
    node.print_status(printed)
    assert printed.getvalue() == "the_topic\t:w\n"


def test_control_requests_work_as_over_the_socket(node):
    node.put("t", b"m")
    assert node.control("topics") == [b"t"]
    assert node.control("health")["status"] == "ok"
    node.sync()


# ---- module functions ---------------------------------------------------------------------------


def test_the_module_speaks_to_the_started_node(module_node):
    pointer = poe.put("t", b"one")
    last = poe.put_many("t", [b"two", b"three"])
    found = poe.next("t", pointer)
    assert found is not None
    assert found[1] == b"two"
    assert poe.next("t", last) is None
    assert poe.topics() == [b"t"]
    assert [role for _, role in poe.status()[0][1]] == ["w"]
    assert poe.info()[0][1][0][1].count == 3
    poe.sync()
    assert module_node.is_running


def test_an_actor_system_has_one_node(tmp_path):
    system = LoopSystem()
    with Node(dir=tmp_path / "a", port=None).start(system) as node:
        other = Node(dir=tmp_path / "b", port=None)
        with pytest.raises(NodeRunning):
            other.start(system)
        node.put("t", b"m")
        with other:
            assert other.is_running


def test_the_module_starts_one_node_at_a_time(module_node, tmp_path):
    with pytest.raises(NodeRunning):
        poe.start(dir=tmp_path / "other", port=None)
    poe.stop()
    assert not module_node.is_running
    with pytest.raises(NodeNotRunning):
        poe.topics()
    poe.start({"dir": tmp_path / "module"}, port=None)
    assert poe.topics() == []


def test_of_threads_that_start_the_module_s_node_at_once_one_does(tmp_path):
    """Each had one, and all but the last could not be stopped by `poe.stop`."""
    started, refused = [], []

    def start(number):
        try:
            started.append(poe.start(dir=tmp_path / str(number), port=None))
        except NodeRunning as error:
            refused.append(error)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert (len(started), len(refused)) == (1, 3)
    finally:
        poe.stop()
        still_running = [node for node in started if node.is_running]
        for node in still_running:
            node.stop()
    assert not still_running


@pytest.mark.slow
@pytest.mark.usefixtures("uncollected")
def test_a_node_that_has_stopped_holds_nothing_of_its_folder_open(tmp_path):
    with Node(dir=tmp_path, port=None) as node:
        node.put("t", b"m")
    assert [path for path in descriptors() if path.startswith(str(tmp_path))] == []
    assert not node.is_running


def test_stopping_what_was_not_started_is_fine():
    poe.stop()
    with pytest.raises(NodeNotRunning):
        poe.put("t", b"m")


def test_a_put_that_is_refused_makes_no_topic(tmp_path):
    with Node(dir=tmp_path, port=0, message_max=100) as node:
        with pytest.raises(InvalidMessage):
            node.put(b"new", b"x" * 101)
        with connect(node) as client, pytest.raises(InvalidMessage):
            client.write(b"new", [b"x", b"x" * 101])
        assert node.topics() == []
        with pytest.raises(UnknownTopic):
            node.next(b"new", 0)
    assert list((tmp_path / "topics").iterdir()) == []


def test_a_node_that_runs_may_be_entered_and_not_started_again(tmp_path):
    with Node(dir=tmp_path, port=0).start() as node:
        node.put(b"t", b"x")
        with pytest.raises(NodeRunning):
            node.start()
        assert read_by_next(node, b"t")[0][1] == b"x"
    assert not node.is_running
