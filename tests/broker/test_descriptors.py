"""Out of file descriptors: clients are told, idle segments let theirs go, nothing crashes."""

import contextlib
import gc
import os
import resource
from pathlib import Path

import pytest

from poe import Node
from poe.broker.appendix.server import AppendixServer
from poe.broker.connection.spare_descriptor import SpareDescriptor
from poe.errors import NoDescriptors, Overloaded
from poe.storage.store import store
from tests.broker.server_process import ServerProcess
from tests.scenarios.clients import RawClient
from tests.waiting import wait_until

FILES_MAX = 120
"""What a node needs for itself, and for a dozen segments."""


@pytest.fixture
def few_descriptors():
    """Let this process open so many files more than it has open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []

    def limit(more):
        gc.collect()  # what other tests have left open would be closed in between
        while taken:
            os.close(taken.pop())
        in_use = max(int(link.name) for link in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 1 + more, hard))
        take_all(taken)
        for _ in range(more):
            os.close(taken.pop())

    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for fd in taken:
        os.close(fd)


def take_all(taken):
    """Open files until there can be no more."""
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))


def test_the_spare_one_leaves_room_for_one(few_descriptors):
    spare = SpareDescriptor()
    few_descriptors(0)
    with spare.lent():
        os.close(os.open(os.devnull, os.O_RDONLY))
    with pytest.raises(OSError, match="Too many open files"):
        os.open(os.devnull, os.O_RDONLY)
    spare.close()


@pytest.mark.slow
def test_idle_segments_let_their_files_go_for_others(simulate, few_descriptors):
    sim = simulate(worker_timeout=1000.0)
    topics = [b"t%d" % number for number in range(60)]
    for topic in topics:
        sim.node.put(topic, b"1")
    for ref in sim.servers():
        ref.cell.instance._segment.hibernate()  # noqa: SLF001 - time alone would do it
    few_descriptors(30)
    for _ in range(2):
        for topic in topics:
            assert sim.node.next(topic, 0)
            sim.node.put(topic, b"2")
            assert len(sim.read(topic, 0, 10)) > 1


def test_idle_segments_let_their_files_go_for_topics_that_rest(
    simulate, few_descriptors, monkeypatch
):
    """These were told to be out of service, as where a disk has failed, half of some thousands."""
    monkeypatch.setattr(store, "FEW_TOPICS", 0)
    sim = simulate(worker_timeout=1000.0)
    topics = [b"t%d" % number for number in range(60)]
    for topic in topics:
        sim.node.put(topic, b"1")
    sim.stop()
    sim.start()
    few_descriptors(30)
    for topic in topics:
        sim.node.put(topic, b"2")
        assert sim.node.next(topic, 0)[1] == b"1"
    assert sim.routes.failures == {}


def test_a_put_waits_for_topics_that_were_made_faster_than_they_are_synced(
    simulate, few_descriptors, monkeypatch
):
    """While a sync of a segment runs, it has to keep its files."""
    sim = simulate()
    synced_s = sim.system.run_queue.monotonic_s() + 1.5
    hibernate = AppendixServer._hibernate  # noqa: SLF001 - as while a sync runs

    def hibernate_when_synced(self):
        return self.monotonic_s() > synced_s and hibernate(self)

    monkeypatch.setattr(AppendixServer, "_hibernate", hibernate_when_synced)
    few_descriptors(30)
    for number in range(20):
        sim.node.put(b"t%d" % number, b"1")
    assert sim.system.run_queue.monotonic_s() > synced_s


@pytest.mark.parametrize(
    ("few_topics", "ask"),
    [(0, lambda node: node.next(b"t", 0)), (store.FEW_TOPICS, lambda node: node.sync())],
    ids=["read of a topic that rests", "sync"],
)
def test_who_can_have_no_file_is_told_so(simulate, few_descriptors, monkeypatch, few_topics, ask):
    monkeypatch.setattr(store, "FEW_TOPICS", few_topics)
    sim = simulate()
    sim.node.put(b"t", b"1")
    sim.stop()
    sim.start()
    few_descriptors(0)
    with pytest.raises(NoDescriptors):
        ask(sim.node)
    few_descriptors(20)
    ask(sim.node)
    assert sim.node.next(b"t", 0)[1] == b"1"


def test_a_sync_of_more_segments_than_may_be_open_is_done_in_parts(
    simulate, few_descriptors, monkeypatch
):
    sim = simulate()
    topics = [b"t%d" % number for number in range(60)]
    for topic in topics:
        sim.node.put(topic, b"1")
    sim.stop()
    sim.start()
    synced = []
    monkeypatch.setattr(
        os, "fdatasync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    few_descriptors(30)
    sim.node.sync()
    assert {path.parent.name.encode() for path in synced} == set(topics)


@pytest.mark.slow
def test_who_can_have_no_file_is_told_so_and_nothing_is_stored(simulate, few_descriptors):
    sim = simulate()
    sim.node.put(b"t", b"1")
    sim.advance(3)
    few_descriptors(0)
    with pytest.raises(NoDescriptors, match="raise the limit on open files"):
        sim.node.put(b"t", b"2")
    with pytest.raises(NoDescriptors):
        sim.node.next(b"t", 0)
    with pytest.raises(NoDescriptors):
        sim.read(b"t", 0, 10)
    few_descriptors(20)
    assert [message for _, message in sim.read(b"t", 0, 10)] == [b"1"]


@pytest.mark.parametrize("more", range(6))
def test_who_can_have_too_few_files_is_told_so_whichever_is_missing(
    simulate, few_descriptors, more
):
    """A map of an index has one of its own; without it, the disk was said to have failed."""
    sim = simulate()
    sim.node.put(b"t", b"1")
    sim.advance(3)
    few_descriptors(more)
    with contextlib.suppress(NoDescriptors):
        sim.node.control("ordinal", topic="t", pointer=0)
        sim.read(b"t", 0, 10)


@pytest.mark.slow
def test_clients_without_a_descriptor_are_told_and_the_next_are_served(tmp_path):
    with ServerProcess(tmp_path / "data") as server, server.connect() as client:
        client.write(b"t", [b"1"])
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (FILES_MAX, hard))
        crowd = [RawClient(("127.0.0.1", server.port)) for _ in range(FILES_MAX + 20)]
        told = crowd[-1].error()
        assert isinstance(told, Overloaded)
        assert f"limit of open files of {FILES_MAX}" in str(told)
        assert client.control("health")["status"] == "ok"
        assert client.read(b"t", 0, 1)
        for each in crowd:
            each.close()

        def is_served():
            with RawClient(("127.0.0.1", server.port)) as raw:
                raw.send(b"\0\0\0\2\0\x4d")
                return not isinstance(raw.error(), Overloaded)

        wait_until(is_served)
        with server.connect() as other:
            other.write(b"t2", [b"1"])


@pytest.mark.parametrize("more", [0, 1, 4, 8, 16])
def test_a_node_that_may_open_too_few_files_for_itself_says_so(
    tmp_path, few_descriptors, quiet, more
):
    node = Node(dir=tmp_path / "data", port=0)
    Node(dir=tmp_path / "other", port=None).start().stop()  # what is loaded late is loaded by now
    few_descriptors(more)
    with pytest.raises(NoDescriptors, match=r"Too many open files.*; .*raise the limit"):
        node.start()
    assert not node.is_running
