"""Topics that rest are served as all others are, and get appendix servers when somebody asks."""

import shutil

import pytest

from poe.actors import Call, Error, GenServer
from poe.broker import RequestHandler, RoutingTable
from poe.broker.appendix.server import REGISTRY
from poe.errors import ActorDead, Overloaded, TopicFailed, UnknownTopic
from poe.storage import Store
from poe.storage.store import store
from tests.broker.nodes import SimulatedNode, check_pages, read_by_next
from tests.storage.segments import NOW

TOPICS = [b"t%03d" % number for number in range(120)]
RANGE = {"pointer": 0, "last": (1 << 56) - 1, "limit": 10, "bytes_max": 1000}


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node that was stopped and started, with topics that all rest."""
    monkeypatch.setattr(store, "FEW_TOPICS", 0)
    made = SimulatedNode(tmp_path, count_limit=3)
    for topic in TOPICS:
        made.node.put(topic, b"0")
    made.stop()
    made.start()
    assert len(resting(made)) == len(TOPICS)
    yield made
    made.stop()


def resting(made):
    return made.node._store.topics.resting  # noqa: SLF001 - nothing else tells


def test_who_lists_topics_wakes_none(node):
    assert node.node.topics() == TOPICS
    info = dict(node.node.info())
    assert list(info) == TOPICS
    [(ref, segment)] = info[b"t007"]
    assert ref is None
    assert (segment.role, segment.count, segment.size_bytes) == ("w", 1, 12)
    assert segment.pointer_low == segment.pointer_high > 0
    assert dict(node.node.status())[b"t007"] == [(None, "w")]
    assert node.node.control("status")[b"t007"] == [["-", "w"]]
    assert len(resting(node)) == len(TOPICS)


def test_who_makes_a_group_that_begins_at_the_end_wakes_none(node):
    """Of thousands that took longer than anybody waits for a group to be made."""
    named = {"group": "workers", "mode": "shared", "topics": ["t*"]}
    told = node.node.control("group_create", **named, options={"start": "newest"})
    info = dict(node.node.info())
    ends = {unit["unit"]: unit["floor"] for unit in told["units"]}
    assert ends == {topic: info[topic][0][1].pointer_low for topic in TOPICS}
    assert len(resting(node)) == len(TOPICS)


def test_whatever_is_asked_of_a_topic_that_rests_is_answered(node):
    asks = [
        lambda topic: node.node.next(topic, 0)[1] == b"0",
        lambda topic: node.read(topic, 0, 10)[0][1] == b"0",
        lambda topic: node.node.put(topic, b"1") > 0,
        lambda topic: node.node.control("wait", topic=topic, pointer=0, timeout_s=1),
        lambda topic: node.node.control("segments", topic=topic)[0]["count"] == 1,
        lambda topic: node.node.control("create", topic=topic),
        lambda topic: node.node.control("sync", topic=topic) is None,
        lambda topic: node.node.control("last_put", topic=topic, producer=bytes(16)) is None,
        lambda topic: node.node.control("span", topic=topic, **RANGE)[1] == 1,
        lambda topic: node.node.control("trim", topic=topic, pointer=0) == 0,
        lambda topic: node.node.control("delete", topic=topic) is None,
    ]
    for topic, ask in zip(TOPICS, asks, strict=False):
        assert ask(topic), topic
        assert topic not in resting(node)
    assert len(resting(node)) == len(TOPICS) - len(asks)
    with pytest.raises(UnknownTopic):
        node.node.next(TOPICS[len(asks) - 1], 0)
    assert len(node.node.topics()) == len(TOPICS) - 1


LEFT_OPEN = TOPICS[:9]


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """A node whose server was killed with topics open; some were closed before."""
    monkeypatch.setattr(store, "FEW_TOPICS", 0)
    left = Store.open(tmp_path)
    for topic in TOPICS[5:15]:
        left.create_segment(topic, NOW).append([b"0"], NOW)
    left.close()
    left = Store.open(tmp_path)
    for topic in LEFT_OPEN:
        if topic not in left.topics:
            left.create_segment(topic, NOW).append([b"0"], NOW)
        left.topics[topic][-1].unseal()
        left.topics[topic][-1].append([b"1"], NOW)
    del left
    made = SimulatedNode(tmp_path)
    yield made
    made.stop()


def left_open(made):
    return made.node._store.left_open()  # noqa: SLF001 - nothing else tells


@pytest.mark.parametrize("op", ["info", "status"])
def test_a_listing_recovers_what_a_kill_left_open_and_wakes_nothing(killed, op):
    assert left_open(killed) == LEFT_OPEN
    told = killed.node.control(op)
    assert left_open(killed) == []
    assert len(resting(killed)) == 15
    if op == "info":
        counts = [segment["count"] for [segment] in told.values()]
        assert counts == [2] * len(LEFT_OPEN) + [1] * 6


def test_what_a_kill_left_open_is_recovered_a_topic_after_the_other(killed):
    assert left_open(killed) == LEFT_OPEN
    killed.advance(0.012)
    assert 0 < len(left_open(killed)) < len(LEFT_OPEN)
    killed.advance(1)
    assert left_open(killed) == []
    assert len(resting(killed)) == 15


def test_a_sync_of_all_makes_durable_what_a_kill_left_open(killed):
    assert left_open(killed) == LEFT_OPEN
    killed.node.sync()
    assert left_open(killed) == []
    for topic in LEFT_OPEN:
        assert not list((killed.folder / "topics" / topic.decode()).glob("*_lock"))


def test_a_sync_of_all_tells_of_what_cannot_be_recovered_and_does_the_others(killed):
    [data] = (killed.folder / "topics/t003").glob("*_data")
    data.unlink()
    data.mkdir()
    with pytest.raises(TopicFailed, match="t003"):
        killed.node.sync()
    assert left_open(killed) == []
    data.rmdir()


def test_who_asks_for_a_topic_that_a_kill_left_open_waits_for_that_one_alone(killed):
    topic = LEFT_OPEN[-1]
    assert killed.node.put(topic, b"2") > 0
    assert left_open(killed) == LEFT_OPEN[:-1]
    assert [message for _, message in killed.read(topic, 0, 10)] == [b"0", b"1", b"2"]
    assert left_open(killed) == LEFT_OPEN[:-1]
    killed.advance(1)
    assert [message for _, message in killed.read(topic, 0, 10)] == [b"0", b"1", b"2"]


def test_what_a_kill_left_open_and_cannot_be_read_is_out_of_service_alone(killed):
    [data] = (killed.folder / "topics/t003").glob("*_data")
    data.unlink()
    data.mkdir()
    killed.advance(1)
    assert left_open(killed) == []
    with pytest.raises(TopicFailed):
        killed.node.next(b"t003", 0)
    assert killed.node.next(b"t004", 0)[1] == b"0"
    data.rmdir()


def test_what_is_read_while_the_folder_of_all_topics_is_away_is_not_taken_for_lost(node):
    topics, elsewhere = node.folder / "topics", node.folder / "elsewhere"
    topics.rename(elsewhere)
    with pytest.raises(TopicFailed):
        node.node.next(b"t007", 0)
    elsewhere.rename(topics)
    for _ in range(2):
        assert [message for _, message in read_by_next(node.node, b"t007")] == [b"0"]
        assert node.routes.removals.newest(b"t007") == 0, "of what was removed"
        node.stop()
        node.start()


def test_what_rests_expires(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FEW_TOPICS", 0)
    made = SimulatedNode(tmp_path, max_age=100.0)
    made.node.put(b"old", b"0")
    made.advance(60)
    made.node.put(b"young", b"0")
    made.stop()
    made.start()
    made.advance(60)
    assert [made.node.next(topic, 0) is None for topic in (b"old", b"young")] == [True, False]
    made.stop()


def test_what_a_kill_left_open_and_is_too_much_goes_at_the_next_look(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FEW_TOPICS", 0)
    left = Store.open(tmp_path)
    for topic in TOPICS[:3]:
        for number in range(3):
            left.create_segment(topic, NOW + number).append([b"x" * 89], NOW + number)
    del left
    made = SimulatedNode(tmp_path, max_bytes=200)
    assert left_open(made) == TOPICS[:3]
    made.advance(1200)
    assert [len(found) for _, found in made.node.info()] == [2] * 3
    made.stop()


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_somebody_has_taken_away_of_a_topic_that_rests_is_told_once_it_was_read(
    node, is_folder
):
    [event] = resting(node)[b"t003"]
    for path in (node.folder / "topics/t003").iterdir():
        path.unlink()
    if is_folder:
        (node.folder / "topics/t003").rmdir()
    assert node.node.next(b"t003", 0) is None
    told = node.node.control("removed", topic=b"t003", pointer=0)
    assert told["removed"] == [[event.pointer_low, event.pointer_high]]
    assert node.node.put(b"t003", b"1") > event.pointer_high


def test_pages_tell_of_all_topics_once(node):
    check_pages(node, TOPICS)


def test_a_registry_that_is_replaced_knows_what_rests(node):
    node.node.put(TOPICS[3], b"1")
    node.kill("topic_registry")
    node.advance(1)
    assert len(resting(node)) == len(TOPICS) - 1
    assert node.node.topics() == TOPICS
    for topic in TOPICS[:5]:
        messages = [message for _, message in node.read(topic, 0, 10)]
        assert messages == [b"0", b"1"] if topic == TOPICS[3] else [b"0"]


class Killer(GenServer):
    """Reads a topic while it kills the registry."""

    def init(self, routes: RoutingTable):
        self.handler = RequestHandler(self, routes)

    async def handle_call(self, topic: bytes, caller: Call):
        registry = self.whereis(REGISTRY)
        assert registry is not None
        self.exit(registry, "kill")
        try:
            return await self.handler.next(topic, 0)
        except ActorDead as error:
            return Error(error)


def test_a_registry_that_ends_while_it_is_to_wake_a_topic_is_asked_again(node):
    killer = node.system.start(Killer, node.routes)
    assert node.system.call(killer, TOPICS[0])[1] == b"0"


def test_what_rests_is_no_new_topic(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FEW_TOPICS", 0)
    made = SimulatedNode(tmp_path, topics_max=2, auto_create=True)
    for topic in (b"a", b"b"):
        made.node.put(topic, b"0")
    made.stop()
    made.start()
    with pytest.raises(Overloaded):
        made.node.put(b"c", b"0")
    assert made.node.put(b"a", b"1") > 0
    made.stop()


def test_a_topic_that_cannot_be_read_when_it_is_asked_for_is_out_of_service_alone(node):
    data = next((node.folder / "topics/t005").glob("*_data"))
    content = data.read_bytes()
    data.unlink()
    data.mkdir()
    noted = list(resting(node))
    with pytest.raises(TopicFailed):
        node.node.next(b"t005", 0)
    assert node.node.next(b"t006", 0)[1] == b"0"
    assert len(resting(node)) == len(noted) - 2
    data.rmdir()
    data.write_bytes(content)
    assert node.node.next(b"t005", 0)[1] == b"0"


def test_a_topic_that_cannot_be_read_is_gone_once_somebody_has_removed_its_folder(node):
    folder = node.folder / "topics/t005"
    data = next(folder.glob("*_data"))
    data.unlink()
    data.mkdir()
    with pytest.raises(TopicFailed):
        node.node.put(b"t005", b"1")
    shutil.rmtree(folder)
    assert node.node.put(b"t005", b"1") > 0
    assert [message for _, message in node.read(b"t005", 0, 10)] == [b"1"]
