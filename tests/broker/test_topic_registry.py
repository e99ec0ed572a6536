"""One bad topic never keeps the node from serving the others; it comes back by itself."""

import errno

import pytest

from poe.broker.appendix.server import REGISTRY
from poe.errors import ChildStartFailed, SyncFailed, TopicFailed, UnknownTopic
from poe.storage import SegmentOptions, Store
from tests.broker.faulty_broker import FaultyBroker, FragileServer
from tests.broker.nodes import START_US, SimulatedWall

TOPICS = [b"a", b"b", b"c"]

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def broker(tmp_path):
    """Topics a, b and c of two segments each, with a message in each segment; not started."""
    store = Store.open(tmp_path)
    for topic in TOPICS:
        for number in range(2):
            store.create_segment(topic, START_US).append([b"%d" % number], START_US)
    store.close()
    broker = FaultyBroker(tmp_path)
    yield broker
    FragileServer.broken = set()
    broker.files.heal()
    broker.stop()


def break_newest(broker, topic):
    """Let no appendix server start on the newest segment of a topic."""
    (*_, newest) = sorted((broker.folder / "topics" / topic.decode()).glob("*_data"))
    path = f"topics/{topic.decode()}/{newest.name.removesuffix('_data')}"
    FragileServer.broken = {path}
    return path


def check_served(broker, *topics):
    for topic in topics:
        assert broker.texts(topic)[:2] == [b"0", b"1"]
        assert broker.next(topic) == b"0"
        broker.put(topic, b"2")


def refusals(broker, topic):
    """Make a request of each kind that must fail; tell the errors."""
    requests = [
        lambda: broker.put(topic, b"2"),
        lambda: broker.next(topic),
        lambda: broker.texts(topic),
        lambda: broker.control("segments", topic=topic),
        lambda: broker.control("create", topic=topic),
        lambda: broker.control("wait", topic=topic, pointer=0, timeout_s=1),
    ]
    errors = []
    for request in requests:
        with pytest.raises(TopicFailed) as caught:
            request()
        errors.append(caught.value)
    return errors


def test_a_topic_whose_segment_gets_no_server_keeps_no_other_from_service(broker):
    path = break_newest(broker, b"b")
    broker.start()
    check_served(broker, b"a", b"c")
    for error in refusals(broker, b"b"):
        assert path in str(error), "it names the cause"
        assert error.retriable
    assert broker.server_count() == 4, "what was started for b has ended"
    check_served(broker, b"a", b"c")


def test_a_topic_out_of_service_is_listed_without_servers(broker):
    break_newest(broker, b"b")
    broker.start()
    assert broker.control("topics") == TOPICS
    assert [len(segments) for segments in broker.control("info").values()] == [2, 0, 2]
    with pytest.raises(UnknownTopic):
        broker.control("segments", topic=b"unknown")


@pytest.mark.parametrize("act", ["put", "next", "texts"])
def test_a_topic_is_back_with_the_first_request_after_its_cause_is_gone(broker, act):
    break_newest(broker, b"b")
    broker.start()
    refusals(broker, b"b")
    FragileServer.broken = set()
    if act == "put":
        broker.put(b"b", b"2")
    else:
        getattr(broker, act)(b"b")
    assert broker.server_count() == 6
    check_served(broker, *TOPICS)


def test_a_new_registry_meets_a_broken_topic_as_a_new_node_does(broker):
    broker.start()
    check_served(broker, *TOPICS)
    path = break_newest(broker, b"b")
    broker.system.exit(broker.system.actors.find(REGISTRY).address, "kill")
    broker.start_registry()
    check_served(broker, b"a", b"c")
    assert all(path in str(error) for error in refusals(broker, b"b"))
    FragileServer.broken = set()
    check_served(broker, *TOPICS)


def test_a_new_topic_that_gets_no_server_and_cannot_be_removed_is_made_at_the_next_put(broker):
    """An empty list of segments was left of it, at which the registry ended with each put."""
    broker.start()
    registry = broker.system.actors.find(REGISTRY).address
    FragileServer.broken = {f"topics/new/{SimulatedWall(broker.clock).now_us()}"}
    broker.files.fail(0, errno.EIO, "unlink", is_for_ever=True)
    with pytest.raises(ChildStartFailed):
        broker.put(b"new", b"1")
    broker.files.heal()
    FragileServer.broken = set()
    broker.system.advance(0.1)
    broker.put(b"new", b"2")
    assert broker.texts(b"new") == [b"2"]
    assert broker.system.actors.find(REGISTRY).address is registry


@pytest.mark.parametrize("error_number", [errno.EMFILE, errno.EIO])
def test_files_that_could_not_be_removed_go_with_the_next_that_go(broker, error_number):
    """They took room until the next start, as what expires while clients have all descriptors."""
    broker.start()
    check_served(broker, *TOPICS)
    folder = broker.folder / "topics" / "b"
    before = sorted(folder.glob("*_data"))
    broker.files.fail(0, error_number, "unlink", is_for_ever=True)
    pointer = broker.routes[b"b"].bounds[0]
    assert broker.control("trim", topic=b"b", pointer=pointer) == 1
    broker.files.heal()
    assert sorted(folder.glob("*_data")) == before
    assert broker.control("trim", topic=b"c", pointer=0) == 0
    assert sorted(folder.glob("*_data")) == before[1:]
    assert len(list(folder.glob(f"{before[0].name.removesuffix('data')}*"))) == 0
    assert broker.texts(b"b")[-1:] == [b"2"]


@pytest.mark.parametrize("operation", ["unlink", "remove_folder"])
def test_an_empty_segment_that_cannot_be_removed_does_no_harm(tmp_path, broker, operation):
    store = Store.open(tmp_path)
    store.create_segment(b"b", START_US)
    store.create_segment(b"b", START_US).append([b"2"], START_US)
    store.close()
    broker.start(lambda: broker.files.fail(0, errno.EIO, operation, is_for_ever=True))
    check_served(broker, *TOPICS)
    assert broker.texts(b"b") == [b"0", b"1", b"2", b"2"]
    broker.files.heal()
    broker.restart()
    assert broker.texts(b"b") == [b"0", b"1", b"2", b"2"]


@pytest.mark.slow
def test_whichever_call_of_the_start_fails_every_topic_is_there_in_the_end(broker):
    """Between the recovery of the store and the end of the registry's start."""
    for nth in range(100):
        broker.start(lambda nth=nth: broker.files.fail(nth, errno.EIO))
        is_over = not broker.files.failed_count
        broker.files.heal()
        check_read(broker)
        broker.put(b"b", b"2")
        broker.stop()
        if is_over:
            break
    assert 3 <= nth < 100
    broker.start()


def check_read(broker):
    for topic in TOPICS:
        assert broker.texts(topic)[:2] == [b"0", b"1"]


def test_a_sync_that_fails_for_one_topic_is_done_for_the_others_and_told(broker):
    broker.start()
    check_served(broker, *TOPICS)
    broker.files.fail(0, errno.EIO, "sync")
    servers = [(topic, ref) for topic in TOPICS for ref in broker.routes[topic].refs]
    with pytest.raises(SyncFailed, match="topics/a/"):
        broker.control("sync")
    dirty = [topic for topic, ref in servers if broker.system.get_state(ref)["_sync"].is_dirty]
    assert dirty == [b"a"]
    # What the disk did not take it may have lost, so a later sync of it is no success.
    with pytest.raises(SyncFailed, match="earlier"):
        broker.control("sync")


def test_puts_go_on_after_a_failed_sync_and_a_failed_rotation(broker):
    """The same bad disk does both; the next put asks for a new segment again."""
    broker.options = SegmentOptions(ack="fsync")
    broker.start()
    broker.put(b"a", b"durable")
    broker.files.fail(0, errno.EIO, "sync", "open", is_for_ever=True)
    with pytest.raises(SyncFailed):
        broker.put(b"a", b"doubtful")
    broker.files.heal()
    broker.system.advance(1.0)
    broker.put(b"a", b"durable again")
    assert broker.texts(b"a")[-2:] == [b"durable", b"durable again"]
    assert len(broker.routes[b"a"].refs) > 1


def test_a_sync_covers_what_was_there_before_the_start(broker):
    broker.start()
    broker.files.fail(0, errno.EIO, "sync")
    with pytest.raises(SyncFailed):
        broker.control("sync")


def test_a_sync_covers_the_names_of_files(broker, monkeypatch):
    broker.start()
    synced: list[str] = []
    monkeypatch.setattr(broker.files, "sync_folder", synced.append)
    broker.control("sync")
    assert {"topics", "topics/a", "topics/b", "topics/c"} <= set(synced)


def test_empty_segments_behind_which_there_are_others_go_at_the_start(tmp_path):
    """In the original they never expired, since an atom is greater than any number."""
    store = Store.open(tmp_path)
    for _ in range(3):
        store.create_segment(b"t", START_US)
    store.create_segment(b"t", START_US).append([b"1"], START_US)
    store.close()
    broker = FaultyBroker(tmp_path)
    broker.start()
    assert broker.texts(b"t") == [b"1"]
    assert broker.server_count() == len(list(tmp_path.glob("topics/t/*_data"))) == 1
    broker.stop()
