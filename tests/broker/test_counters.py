"""What a node counts: topics and itself, connections, producers, and its options."""

import pytest

from poe import Node
from poe.errors import UnknownTopic
from poe.protocol import PutId
from tests.broker.nodes import connect

HEADER = 11


def row(node, topic=b"t"):
    return node.counters()["topics"][topic]


def test_what_is_put_and_read_is_counted_with_its_headers(simulate):
    sim = simulate()
    sim.node.put_many("t", [b"abc", b"de"])
    assert row(sim.node) == {
        "messages_in": 2,
        "bytes_in": 5 + 2 * HEADER,
        "messages_out": 0,
        "bytes_out": 0,
        "refused": {},
    }
    pointer, _ = sim.node.next("t", 0)
    sim.node.next("t", pointer)
    sim.node.next("t", sim.node.put("t", b"x"))
    assert (row(sim.node)["messages_out"], row(sim.node)["bytes_out"]) == (2, 5 + 2 * HEADER)
    sim.read(b"t", 0, 100)
    assert (row(sim.node)["messages_out"], row(sim.node)["messages_in"]) == (5, 3)


def test_sums_outlive_rotations_crashes_and_the_end_of_segments(simulate, quiet):
    sim = simulate(count_limit=10, check_interval=0.1, max_bytes=500)
    for number in range(100):
        sim.node.put("t", b"%03d" % number)
        if number == 50:
            sim.system.exit(sim.servers()[-1], "boom")
        if number == 60:
            sim.system.exit(sim.servers()[-1], "kill")
        sim.advance(0.2)
    sim.kill("topic_registry")
    sim.node.put("t", b"end")
    assert len(sim.servers()) < 10
    assert row(sim.node)["messages_in"] == 101
    assert row(sim.node)["bytes_in"] == 101 * (3 + HEADER)


def test_what_was_there_before_the_start_is_not_counted(tmp_path):
    with Node(dir=tmp_path, port=None) as node:
        node.put("t", b"m")
        node.put("other", b"m")
    with Node(dir=tmp_path, port=None) as node:
        assert node.counters()["topics"] == {}
        node.next("t", 0)
        assert row(node)["messages_in"] == 0
        node.put("t", b"m")
        assert row(node)["messages_in"] == 1
        assert b"other" not in node.counters()["topics"]


def test_a_topic_that_is_deleted_is_counted_anew(simulate):
    sim = simulate()
    sim.node.put("t", b"m")
    sim.node.control("delete", topic=b"t")
    assert sim.node.counters()["topics"] == {}
    sim.node.put("t", b"m")
    assert row(sim.node)["messages_in"] == 1


def test_refusals_are_counted_by_their_names_where_the_topic_is_there(tmp_path):
    with Node(dir=tmp_path, port=0, message_max=100) as node, connect(node) as client:
        client.write("t", [b"m"])
        with pytest.raises(Exception, match="message"):
            client.write("t", [b"x" * 1000])
        for name in ("unknown", "unknown2"):
            with pytest.raises(UnknownTopic):
                client.ordinal(name, 0)
        assert row(node)["refused"] == {"InvalidMessage": 1}
        assert node.counters()["node"]["refused"] == {"UnknownTopic": 2}
        assert list(node.counters()["topics"]) == [b"t"]


def test_pages_of_topics_follow_one_another(simulate):
    node = simulate().node
    names = [b"%02d" % number for number in range(25)]
    for name in names:
        node.put(name, b"m")
    found, after, pages = [], b"", 0
    while True:
        page = node.control("counters", after=after, count=10)
        found += page["topics"]
        pages += 1
        after = page["next"]
        if after is None:
            break
    assert (found, pages) == (names, 3)
    assert len(node.control("counters", count=25)["topics"]) == 25
    assert node.control("counters", count=25)["next"] is None


@pytest.mark.slow
def test_a_client_gets_all_pages(tmp_path):
    with Node(dir=tmp_path, port=0) as node, connect(node) as client:
        for number in range(600):
            node.put(b"%d" % number, b"m")
        assert len(client.counters()["topics"]) == 600


def test_syncs_and_what_was_waited_for_them_are_counted(tmp_path):
    with Node(dir=tmp_path, port=None, ack="fsync") as node:
        for _ in range(3):
            node.put("t", b"m")
        told = node.counters()["node"]
        assert told["syncs"] >= 3
        assert told["sync_us"] > 0


def test_the_node_tells_of_itself(tmp_path):
    with Node(dir=tmp_path, port=0) as node, connect(node), connect(node) as client:
        told = client.counters()["node"]
        assert (told["connections"], told["accepted"]) == (2, 2)
        assert told["memory_bytes"] > 10_000_000
        assert told["cpu_s"] > 0
        assert told["disk_free_bytes"] > 0
        assert told["scrub"] == {"compared": 0, "damaged": 0, "ended_us": 0, "left": 0}
        assert told["started_us"] <= client.connections()[0]["since_us"]


def test_room_on_the_disk_is_not_told_where_it_is_not_asked(tmp_path):
    with Node(dir=tmp_path, port=None, min_free=0) as node:
        assert node.counters()["node"]["disk_free_bytes"] is None


def test_connections_tell_what_the_kernel_has_counted(tmp_path):
    with Node(dir=tmp_path, port=0) as node, connect(node) as other:
        with connect(node) as client:
            client.write("t", [b"x" * 10_000])
            mine = client.connections()[1]
            assert mine["bytes_in"] > 10_000
            assert (mine["user"], mine["tls"], mine["unsent_bytes"]) == ("", False, 0)
            assert mine["address"].startswith("127.0.0.1:")
        assert len(other.connections()) == 1


def test_producers_of_a_topic_are_told_the_newest_first(tmp_path):
    with Node(dir=tmp_path, port=0) as node, connect(node) as client:
        for number in (1, 2):
            node.put_many("t", [b"m"], PutId(bytes([number]) * 16, 3, 0))
        pointer = node.put_many("t", [b"m"], PutId(b"\1" * 16, 3, 1))
        found = client.producers("t")
        assert [each["producer"] for each in found] == ["01" * 16, "02" * 16]
        newest = {"producer": "01" * 16, "epoch": 3, "sequence": 1, "pointer": pointer}
        assert found[0] == newest
        with pytest.raises(UnknownTopic):
            client.producers("unknown")
        node.put("plain", b"m")
        assert client.producers("plain") == []


def test_options_say_where_they_came_from(tmp_path, monkeypatch):
    monkeypatch.setenv("POE_SYNC_INTERVAL", "2.5")
    file = tmp_path / "poe.toml"
    file.write_text("count_limit = 77\n[topics.audit]\nack = 'fsync'\n")
    monkeypatch.setenv("POE_CONFIG", str(file))
    with Node(dir=tmp_path / "data", port=0) as node, connect(node) as client:
        told = client.config()
        assert told["sync_interval"] == {"value": 2.5, "from": "POE_SYNC_INTERVAL"}
        assert told["count_limit"] == {"value": 77, "from": f"{file}: count_limit"}
        assert told["port"] == {"value": 0, "from": "argument"}
        assert told["ack"]["from"] == "default"
        assert told["topics"]["value"][0]["topic"] == "audit"
        assert told["dir"]["value"] == str(tmp_path / "data")
