"""Below `min_free` puts are refused and all else goes on; they resume by themselves."""

import pytest

from poe.errors import StorageFull
from poe.storage import RealFiles
from tests.broker.nodes import SimulatedNode, read_by_next

pytestmark = pytest.mark.usefixtures("quiet")

TOPIC = b"t"
MIN_FREE = 400_000
LARGE = [b"x" * 1000] * 50


@pytest.fixture
def sim(disk):
    sim = SimulatedNode(disk.folder / "data", min_free=MIN_FREE, worker_timeout=1)
    yield sim
    sim.stop()


def put_until_refused(sim, topic=TOPIC):
    """Put for a simulated second between puts; tell how many messages were taken."""
    for number in range(100):
        try:
            sim.node.put_many(topic, LARGE)
        except StorageFull:
            return number * len(LARGE)
        sim.advance(1)
    raise AssertionError


def test_puts_stop_while_there_is_room_and_resume_by_themselves(sim, disk):
    taken = put_until_refused(sim)
    assert 300_000 < RealFiles.at(disk.folder).free_bytes() < MIN_FREE
    with pytest.raises(StorageFull):
        sim.node.put(b"new", b"x")
    assert sim.node.topics() == [TOPIC]
    assert not (sim.folder / "topics/new").exists()
    assert len(read_by_next(sim.node, TOPIC)) == taken
    (data,) = sim.folder.glob("topics/t/*_data")
    data_bytes = data.stat().st_size
    sim.stop()
    sim.start()
    assert data.stat().st_size == data_bytes
    with pytest.raises(StorageFull):
        sim.node.put(TOPIC, b"x")
    assert len(read_by_next(sim.node, TOPIC)) == taken


def test_room_that_comes_back_is_noticed_within_a_second(sim, disk):
    disk.fill()
    sim.advance(1)
    with pytest.raises(StorageFull, match="min_free"):
        sim.node.put(TOPIC, b"x")
    disk.free()
    sim.advance(1)
    sim.node.put(TOPIC, b"x")


def test_room_is_noticed_by_the_next_put_however_seldom_the_registry_looks(disk):
    sim = SimulatedNode(disk.folder / "data", min_free=MIN_FREE, check_interval=1000)
    sim.node.put(TOPIC, b"first")
    disk.fill()
    sim.advance(1000)
    with pytest.raises(StorageFull):
        sim.node.put(TOPIC, b"x")
    disk.free()
    sim.advance(1)
    sim.node.put(TOPIC, b"again")
    assert [message for _, message in read_by_next(sim.node, TOPIC)] == [b"first", b"again"]
    sim.stop()


def test_what_was_taken_is_still_written(disk):
    """With `ack="memory"` messages wait; they are written below the limit, too."""
    sim = SimulatedNode(disk.folder / "data", min_free=MIN_FREE, ack="memory")
    sim.node.put(TOPIC, b"first")
    with disk.ballast.open("wb") as ballast:
        ballast.write(bytes(900_000))
    for topic in (b"new", TOPIC):  # a new segment is a reason to ask the disk
        with pytest.raises(StorageFull, match="min_free"):
            sim.node.put(topic, b"second")
    sim.advance(0.1)
    (data,) = disk.folder.glob("data/topics/t/*_data")
    assert data.read_bytes().endswith(b"first")
    sim.stop()
