"""What a node tells of what has happened: through a socket, and in simulated time."""

import threading
import time

import pytest

from poe import Node
from poe.broker.requests.events import EVENTS
from poe.errors import RemoteProtocolError
from poe.protocol.node_event import EVENTS_COUNT_MAX, NodeEvent, why
from tests.broker.nodes import connect, kill
from tests.waiting import wait_until


def kinds(events: list[NodeEvent]) -> list[tuple[str, str]]:
    return [(each.kind, each.child) for each in events]


def test_a_node_that_has_just_started_has_nothing_to_tell(simulate):
    page = simulate().node.events()
    assert (page.events, page.newest_seq, page.oldest_seq) == ([], 0, 0)


def test_a_restart_has_the_crash_as_its_cause_and_its_time(simulate):
    sim = simulate()
    sim.advance(7.0)
    sim.kill("scrubber")
    ended, restarted = sim.node.events().events
    assert (ended.kind, ended.child, ended.supervisor) == (
        "child_terminated",
        "scrubber",
        "poe_sup",
    )
    assert (restarted.kind, restarted.cause_seq) == ("restarted", ended.seq)
    assert restarted.intensity == (1, 10, 1)
    assert ended.time_us == sim.node._clock.now_us()  # noqa: SLF001
    assert sim.node.counters()["node"]["restarts"] == 1


def test_the_node_gives_up_and_its_events_say_why(simulate, quiet):
    sim = simulate()
    for _ in range(11):
        sim.kill("scrubber")
    events = sim.node._routes.events.after(0, 100)  # noqa: SLF001 - it runs no more
    told = [NodeEvent.from_map(each) for each in events]
    assert (told[-1].kind, told[-1].intensity) == ("gave_up", (11, 10, 1))
    found = why(told, told[-1].seq)
    assert found is not None
    assert kinds(found.chain) == [("gave_up", "scrubber"), ("child_terminated", "scrubber")]


def test_a_topic_that_is_repaired_tells_which_crash_was_the_cause(simulate, quiet):
    sim = simulate()
    sim.node.put("t", b"m")
    (server,) = sim.servers()
    sim.system.exit(server, "boom")
    events = sim.node.events().events
    assert kinds(events) == [
        ("child_terminated", "appendix_server"),
        ("topic_repaired", "t"),
    ]
    assert events[1].cause_seq == events[0].seq
    assert events[0].ref == str(server)


def test_a_crash_of_the_registry_is_one_event_for_all_the_servers_that_end_with_it(simulate, quiet):
    sim = simulate()
    for number in range(20):
        sim.node.put(f"t{number}", b"m")
    sim.kill("topic_registry")
    events = sim.node.events().events
    ends = [each for each in events if each.child == "appendix_server"]
    assert sum(each.count for each in ends) <= 20
    assert len(ends) <= 1
    assert ("restarted", "topic_registry") in kinds(events)


def test_who_deletes_and_makes_topics_is_told_once_it_is_done(tmp_path):
    with Node(dir=tmp_path, port=0) as node, connect(node) as client:
        client.create_topic("made", partitions=2)
        with pytest.raises(Exception, match="is not known"):
            client.delete("unknown")
        client.delete("made")
        node.create_topic("local")
        events = client.events().events
        assert kinds(events) == [
            ("topic_create", "made"),
            ("delete", "made"),
            ("topic_create", "local"),
        ]
        assert events[0].who.startswith("127.0.0.1:")
        assert events[2].who == "the node's own process"


def test_who_waits_hears_of_an_event_at_once(tmp_path, quiet):
    with Node(dir=tmp_path, port=0) as node, connect(node) as client:
        found = []
        waiting = threading.Thread(target=lambda: found.append(client.events(0, wait_s=30.0)))
        waiting.start()
        wait_until(lambda: node.system.get_state(EVENTS)["_waiting"], 10)
        began_s = time.monotonic()
        kill(node, "scrubber")
        waiting.join(40)
        assert time.monotonic() - began_s < 10  # of 30
        assert kinds(found[0].events)[0] == ("child_terminated", "scrubber")


def test_who_waits_in_vain_is_told_after_its_time(simulate):
    sim = simulate()
    sim.kill("scrubber")
    newest = sim.node.events().newest_seq
    began_s = sim.system.run_queue.monotonic_s()
    assert sim.node.events(newest, wait_s=5.0).events == []
    assert sim.system.run_queue.monotonic_s() - began_s == pytest.approx(5.0)


def test_who_asks_behind_more_than_there_is_is_answered_at_once(simulate):
    page = simulate().node.events(1_000_000, wait_s=30.0)
    assert (page.events, page.newest_seq) == ([], 0)


@pytest.mark.parametrize("after", [2**63 - 1, 2**63, 2**64 - 1])
def test_who_asks_behind_any_number_that_a_request_can_carry_is_answered(simulate, after):
    assert simulate().node.events(after).events == []


def test_the_end_of_a_node_waits_for_nobody_who_waits_for_events(tmp_path):
    found = []
    with Node(dir=tmp_path, port=0) as node, connect(node) as client:
        waiting = threading.Thread(target=lambda: found.append(client.events(0, wait_s=30.0)))
        waiting.start()
        wait_until(lambda: node.system.get_state(EVENTS)["_waiting"], 10)
        began_s = time.monotonic()
        node.stop()
        waiting.join(40)
        assert time.monotonic() - began_s < 10  # of 30
    assert found[0].events == []


def test_pages_are_bounded_and_follow_one_another(simulate, quiet):
    sim = simulate()
    ring = sim.node._routes.events  # noqa: SLF001 - as those do who tell it
    for number in range(EVENTS_COUNT_MAX + 5):
        ring.add("k", child=str(number))
    page = sim.node.events()
    assert len(page.events) == EVENTS_COUNT_MAX
    assert len(sim.node.events(page.events[-1].seq).events) == 5
    assert kinds(sim.node.events(2, limit=1).events) == [("k", "2")]


@pytest.mark.parametrize(
    "arguments", [{"after": -1}, {"after": "x"}, {"limit": 1.5}, {"wait_s": 1e9}, {"wait_s": "1"}]
)
def test_wrong_arguments_are_refused(simulate, arguments):
    with pytest.raises(RemoteProtocolError, match="send a"):
        simulate().node.control("events", **arguments)
