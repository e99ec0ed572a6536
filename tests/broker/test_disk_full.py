"""On a full disk puts are refused and reads go on; when there is room again, puts do, too."""

import contextlib
import resource

import pytest

from poe import Node
from poe.errors import StorageFull, TopicFailed
from tests.broker.nodes import SimulatedNode, connect, read_by_frames, read_by_next
from tests.broker.users_file import UsersFile

TOPIC = b"t"

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def sim(disk):
    sim = SimulatedNode(disk.folder / "data", min_free=0, count_limit=10, worker_timeout=1)
    yield sim
    sim.stop()


def fill(sim, disk, topic=TOPIC):
    """Fill the disk, then the topic until it refuses a message; tell what it has taken."""
    disk.fill()
    taken: list[bytes] = []
    with contextlib.suppress(StorageFull):
        while len(taken) < 1000:
            message = b"%d " % len(taken) * 100
            sim.node.put(topic, message)
            taken.append(message)
    assert len(taken) < 1000
    return taken


def texts(sim, topic=TOPIC):
    by_next = read_by_next(sim.node, topic)
    assert read_by_frames(sim.read, topic, 7) == by_next
    return [message for _, message in by_next]


def test_puts_are_refused_reads_go_on_and_puts_resume(sim, disk):
    sim.node.put(TOPIC, b"first")
    taken = fill(sim, disk)
    for _ in range(3):
        with pytest.raises(StorageFull):
            sim.node.put_many(TOPIC, [b"x" * 5000] * 2)
        assert texts(sim) == [b"first", *taken]
    disk.free()
    sim.node.put(TOPIC, b"again")
    assert texts(sim) == [b"first", *taken, b"again"]


def test_a_refused_batch_leaves_no_part_of_it(sim, disk):
    sim.node.put(TOPIC, b"first")
    disk.fill()
    with pytest.raises(StorageFull):
        sim.node.put_many(TOPIC, [b"x" * 1000] * 100)
    sim.stop()
    disk.free()
    sim.start()
    assert texts(sim) == [b"first"]


def test_a_new_topic_is_refused_and_does_not_come_into_being(sim, disk):
    sim.node.put(TOPIC, b"first")
    disk.fill()
    with pytest.raises(StorageFull):
        sim.node.put(b"new", b"x" * 5000)
    assert sim.node.topics() == [TOPIC]
    assert not (sim.folder / "topics/new").exists()
    assert texts(sim) == [b"first"]
    disk.free()
    sim.node.put(b"new", b"1")
    assert texts(sim, b"new") == [b"1"]


def test_a_writer_that_cannot_be_followed_goes_on(sim, disk):
    """Rotation needs room for new files; until there is some, the old writer stays the writer."""
    sim.node.put_many(TOPIC, [b"%d" % number for number in range(10)])
    disk.fill()
    for _ in range(5):
        sim.advance(0.5)
        assert len(texts(sim)) >= 10
        with pytest.raises(StorageFull):
            sim.node.put(TOPIC, b"x" * 5000)
    assert sim.node.is_running
    disk.free()
    sim.advance(0.5)
    sim.node.put(TOPIC, b"again")
    assert texts(sim) == [*(b"%d" % number for number in range(10)), b"again"]
    sim.advance(2)
    assert len(sim.servers()) == 2


def test_a_killed_writer_comes_back_when_there_is_room(sim, disk):
    sim.node.put(TOPIC, b"first")
    sim.node.put(b"other", b"1")
    taken = fill(sim, disk)
    writer = dict(sim.node.status())[TOPIC][-1][0]
    sim.system.exit(writer, "kill")
    for _ in range(20):
        sim.advance(0.1)
        with pytest.raises(StorageFull):
            sim.node.put(TOPIC, b"x" * 5000)
    assert texts(sim, b"other") == [b"1"]
    assert sim.node.is_running
    disk.free()
    sim.advance(0.5)
    sim.node.put(TOPIC, b"again")
    assert texts(sim) == [b"first", *taken, b"again"]


def test_a_killed_reader_comes_back_without_a_request_when_there_is_room(sim, disk):
    sim.node.put_many(TOPIC, [b"%d" % number for number in range(10)])
    sim.advance(3)  # asleep, it holds no file open whose pages would become free at its end
    reader, _ = sim.servers()
    data = min((sim.folder / "topics/t").glob("*_data"))
    data.with_name(data.name.replace("_data", "_index")).unlink()
    disk.fill()
    sim.system.exit(reader, "kill")
    sim.advance(1)
    disk.free()
    sim.advance(0.5)
    before_s = sim.clock.monotonic_s()
    assert len(read_by_next(sim.node, TOPIC)) == 10
    assert sim.clock.monotonic_s() == before_s


def test_a_killed_registry_comes_back_on_a_full_disk(sim, disk):
    sim.node.put(TOPIC, b"first")
    sim.advance(3)  # asleep, its index is written; else it would take room to read it again
    disk.fill()
    for _ in range(5):
        sim.kill("topic_registry")
        sim.advance(0.5)
        assert texts(sim) == [b"first"]
        with pytest.raises(StorageFull):
            sim.node.put(TOPIC, b"x" * 5000)
    disk.free()
    sim.node.put(TOPIC, b"again")
    assert texts(sim) == [b"first", b"again"]


def test_a_node_starts_on_a_full_disk(sim, disk):
    sim.node.put(TOPIC, b"first")
    sim.stop()
    disk.fill()
    sim.start()
    assert texts(sim) == [b"first"]
    with pytest.raises(StorageFull):
        sim.node.put(TOPIC, b"x" * 5000)
    disk.free()
    sim.node.put(TOPIC, b"again")
    assert texts(sim) == [b"first", b"again"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_node_with_users_starts_on_a_full_disk_too(tmp_path, disk, is_killed):
    users = UsersFile(tmp_path / "users.toml")
    users.token("alice", "a")
    users.write()
    folder = disk.folder / "data"
    sim = SimulatedNode(folder, users=users.path, min_free=400_000)
    sim.node.put(TOPIC, b"first")
    sim.stop()
    if is_killed:
        (folder / "store.reserve").write_bytes(bytes(25_000))
        (folder / "admin.token").write_bytes(b"of the one before")
    disk.fill()
    sim.start()
    assert texts(sim) == [b"first"]
    token = folder / "admin.token"
    assert token.exists() == is_killed, "the room of the old one is enough"
    assert not is_killed or token.read_bytes().startswith(b"poe_admin_")
    sim.stop()


@pytest.mark.parametrize("act", ["read", "next", "wait", "put"])
def test_a_topic_that_needs_room_for_its_repair_is_back_when_there_is_some(sim, disk, act):
    """The last entries of an index could not be written when the node stopped."""
    sim.node.put(TOPIC, b"first")
    taken = fill(sim, disk)
    sim.stop()
    disk.fill()
    sim.start()
    for read in (sim.node.next, lambda topic, pointer: sim.read(topic, pointer, 10)):
        with pytest.raises(TopicFailed, match="free space"):
            read(TOPIC, 0)
    disk.free()
    if act == "read":
        assert sim.read(TOPIC, 0, 1)
    elif act == "next":
        assert sim.node.next(TOPIC, 0)
    elif act == "wait":
        assert sim.node.control("wait", topic=TOPIC, pointer=0, timeout_s=0)
    else:
        taken.append(b"again")
        sim.node.put(TOPIC, b"again")
    assert texts(sim) == [b"first", *taken]


def test_nobody_loses_what_waits_in_memory(disk):
    sim = SimulatedNode(disk.folder / "data", min_free=0, ack="memory", buffer_count_max=1000)
    sim.node.put(TOPIC, b"first")
    sim.advance(1)
    taken = []
    disk.fill()
    for number in range(20):
        taken.append(b"%d " % number * 1000)
        sim.node.put(TOPIC, taken[-1])
        sim.advance(5)
    assert texts(sim)[0] == b"first"
    disk.free()
    sim.advance(5)
    assert texts(sim) == [b"first", *taken]
    sim.stop()
    sim.start()
    assert texts(sim) == [b"first", *taken]
    sim.stop()


@pytest.mark.slow
def test_clients_are_told_and_their_connections_stay(disk):
    with (
        Node(dir=disk.folder / "data", port=0, min_free=0) as node,
        connect(node) as client,
    ):
        client.write(TOPIC, [b"first"])
        disk.fill()
        for _ in range(3):
            with pytest.raises(StorageFull, match="free space"):
                client.write(TOPIC, [b"x" * 5000] * 10)
            assert [message for _, message in client.read(TOPIC, 0, 10)] == [b"first"]
        disk.free()
        client.write(TOPIC, [b"again"])
        assert [message for _, message in client.read(TOPIC, 0, 10)] == [b"first", b"again"]


def test_a_file_at_the_limit_of_the_process_is_a_full_disk(simulate):
    sim = simulate()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        sim.node.put(TOPIC, b"first")
        sim.node.put(b"other", b"1")
        sim.node.put_many(TOPIC, [b"x" * 100_000] * 10)
        with pytest.raises(StorageFull):
            sim.node.put(TOPIC, b"x" * 100_000)
        assert len(texts(sim)) == 11
        sim.node.put(b"other", b"2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    sim.node.put(TOPIC, b"again")
    assert len(texts(sim)) == 12


def test_what_waits_in_memory_is_written_without_a_request_once_there_is_room(disk):
    sim = SimulatedNode(disk.folder / "data", min_free=0, ack="memory", buffer_count_max=1000)
    sim.node.put(TOPIC, b"first")
    sim.advance(1)
    disk.fill()
    sim.node.put(TOPIC, b"x" * 5000)
    sim.advance(0.1)
    (data,) = (sim.folder / "topics/t").glob("*_data")
    assert data.stat().st_size < 5000
    disk.free()
    sim.advance(1.1)
    assert data.stat().st_size > 5000


def test_a_segment_that_cannot_sleep_for_want_of_room_sleeps_later(disk):
    sim = SimulatedNode(disk.folder / "data", min_free=0, worker_timeout=1)
    sim.node.put_many(TOPIC, [b"x"] * 1000)
    disk.fill()
    sim.advance(3)
    (index,) = (sim.folder / "topics/t").glob("*_index")
    assert index.stat().st_size < 12_000
    disk.free()
    sim.advance(3)
    assert index.stat().st_size == 12_000
