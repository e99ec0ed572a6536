"""What nobody touches costs nothing: no ticks; listings let others in between."""

from weakref import proxy

import pytest

from poe import Node
from poe.actors import NO_REPLY, Call
from poe.broker import LocalRequest
from poe.broker.appendix.message import CheckLimits
from poe.broker.appendix.server import AppendixServer
from poe.broker.registry import topic_registry
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.registry.topic_registry import TopicRegistry
from poe.broker.requests.listing import pages
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import CallTimeout, RemoteProtocolError, StorageError
from poe.protocol import exchange
from poe.protocol.exchange import PAGE_COUNT, end_of
from tests.broker.nodes import SimulatedNode, check_pages, connect

TOPICS = [b"t%03d" % number for number in range(120)]


@pytest.fixture
def node(tmp_path):
    made = SimulatedNode(tmp_path, count_limit=3)
    for topic in TOPICS:
        made.node.put(topic, b"0")
    yield made
    made.stop()


def test_a_tick_reaches_only_who_was_put_onto(node, monkeypatch):
    looked = []
    take = AppendixServer.handle_cast

    def count(server, message):
        if isinstance(message, CheckLimits):
            looked.append(server.describe_role())
        return take(server, message)

    for topic in TOPICS[:5]:
        node.node.put(topic, b"1")
    node.advance(5)
    monkeypatch.setattr(AppendixServer, "handle_cast", count)
    node.advance(5)
    assert looked == []
    node.node.put(TOPICS[7], b"1")
    node.advance(5)
    assert looked == ["w t007"]


def test_a_writer_that_is_full_is_sealed_at_the_next_tick(node):
    node.node.put_many(b"t000", [b"1", b"2"])
    node.advance(1)
    assert node.roles(b"t000") in {"rw", "hw"}


def test_a_writer_that_is_full_by_limits_that_were_greater_before_is_sealed(tmp_path):
    made = SimulatedNode(tmp_path)
    made.node.put_many(b"t", [b"0"] * 10)
    made.stop()
    made = SimulatedNode(tmp_path, count_limit=5)
    made.advance(1)
    assert made.roles(b"t") in {"rw", "hw"}
    made.stop()


def test_pages_tell_of_all_topics_once(node):
    check_pages(node, TOPICS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"after": 1},
        {"after": 0},
        {"after": False},
        {"after": []},
        {"after": {}},
        {"count": -1},
        {"count": 1.5},
        {"count": "all"},
    ],
)
@pytest.mark.parametrize("op", ["topics", "status", "info"])
def test_pages_that_are_none_are_refused(node, op, wrong):
    with pytest.raises(RemoteProtocolError, match=next(iter(wrong))):
        node.node.control(op, **wrong)


def test_pages_know_what_is_made_and_deleted_and_what_cannot_be_served(node):
    node.node.put(b"s", b"0")
    node.node.control("delete", topic=b"t001")
    node.routes.failures[b"t0005"] = StorageError("broken")
    expected = sorted({*TOPICS, b"s", b"t0005"} - {b"t001"})
    assert node.node.topics() == list(node.node.control("info")) == expected
    assert node.node.control("topics", after=b"t000", count=2) == [b"t0005", b"t002"]
    assert node.node.control("info", after=b"t000", count=1) == {b"t0005": []}
    assert node.routes.page(b"", 0) == []
    assert RoutingTable().page(b"", 9) == []


def test_a_page_ends_where_all_are_told():
    full = [b"%04d" % number for number in range(PAGE_COUNT)]
    assert end_of(full, b"") == full[-1]
    assert end_of(full[:-1], b"") is None
    assert end_of([], b"x") is None
    assert end_of(full, full[-1]) is None, "a server that knows no pages"
    assert end_of([*full, b"more"], b"") is None, "such a one, too"


def test_a_listing_takes_turns_however_many_topics_there_are(node):
    served = []

    async def list_all(handler):
        served.extend([len(names) async for names in pages(handler.actor, handler.routes)])
        return "listed"

    before = node.clock.monotonic_s()
    assert node.node._serve(list_all) == "listed"  # noqa: SLF001 - one request of our own
    assert sum(served) == len(TOPICS)
    assert max(served) <= 50
    assert node.clock.monotonic_s() > before, "it has paused"
    assert node.routes.listings_count == 0


@pytest.fixture
def asked(monkeypatch):
    """Who waits for a sync; none of them ends by itself."""
    asked: list[Call] = []

    def hold(_server, caller, _answer):
        asked.append(caller)
        return NO_REPLY

    monkeypatch.setattr(AppendixServer, "_when_synced", hold)
    return asked


def test_a_sync_of_all_asks_some_at_a_time_and_lets_others_in_between(node, asked):
    ref = node.system.start(LocalRequest, node.routes)
    sync = node.system.run_queue.call_from_outside(ref.cell, lambda handler: handler.sync(None))
    for count in (100, 20):
        node.advance(1)
        assert len(asked) == count
        assert not sync.is_done
        while asked:
            asked.pop().answer(None)
    node.advance(1)
    assert sync.is_done
    assert sync.error is None


class ImpatientRequest(LocalRequest):
    """Waits for a disk as long as a request of a socket does."""

    def init(self, routes):
        self._handler = RequestHandler(proxy(self), routes, put_timeout_s=30.0)


def test_a_sync_of_all_gives_up_when_a_disk_has_not_answered_in_time(node, asked):
    ref = node.system.start(ImpatientRequest, node.routes)
    with pytest.raises(CallTimeout):
        node.system.call(ref, lambda handler: handler.sync(None), None)
    assert len(asked) == 100


def test_a_look_at_what_expires_lets_others_in_between(tmp_path, monkeypatch):
    monkeypatch.setattr(topic_registry, "_LOOKS_PER_TURN", 10)
    made = SimulatedNode(tmp_path, max_age=100.0)
    for topic in TOPICS:
        made.node.put(topic, b"0")
    made.advance(9.99)
    pauses: list[float] = []
    sleep = TopicRegistry.sleep

    def count(registry, seconds):
        pauses.append(seconds)
        return sleep(registry, seconds)

    monkeypatch.setattr(TopicRegistry, "sleep", count)
    made.advance(1)
    assert len(pauses) == len(TOPICS) // 10
    made.stop()


def test_a_client_gets_all_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "PAGE_COUNT", 7)
    with Node(dir=tmp_path, port=0) as node:
        for topic in TOPICS[:21]:
            node.put(topic, b"0")
        with connect(node) as client:
            assert client.topics() == TOPICS[:21]
            assert list(client.info()) == TOPICS[:21]
            assert client.control("info") == client.info()
            assert list(client.control("status")) == TOPICS[:21]
