import threading

import pytest

from poe.cluster.fabric.interface import (
    PAYLOAD_MAX_BYTES,
    Asked,
    Overlooked,
    PeerDown,
    PeerUp,
    Published,
    Refused,
)
from poe.cluster.identity import PROTOCOL, NodeRef
from poe.errors import FabricFailed, ForeignCluster, IncompatibleProtocol
from tests.cluster.fabric.listener import Listener
from tests.waiting import wait_until

pytest.importorskip("zenoh")


def refusals_of(node: Listener) -> list[Refused]:
    return [event for event in node.events if isinstance(event, Refused)]


def test_nodes_find_each_other_from_one_seed_and_say_who_they_are(cluster):
    first, second, third = cluster.start_all(3)
    for node in (first, second, third):
        told = [event.peer for event in node.events if isinstance(event, PeerUp)]
        assert sorted(told) == sorted(
            each.me for each in (first, second, third) if each is not node
        )


def test_an_ask_is_answered_by_the_node_it_is_for(cluster):
    first, second, third = cluster.start_all(3)
    assert second.ask(third.me.ref, b"hello") == b"HELLO"
    assert [event.sender for event in third.events if isinstance(event, Asked)] == [second.me.ref]
    assert not any(isinstance(event, Asked) for event in first.events)


def test_a_node_can_ask_itself(cluster):
    node = cluster.start()
    assert node.ask(node.me.ref, b"hello") == b"HELLO"


def test_the_largest_payload_arrives_and_a_larger_one_is_refused_at_once(cluster):
    first, second = cluster.start_all(2)
    assert first.ask(second.me.ref, bytes(PAYLOAD_MAX_BYTES)) == bytes(PAYLOAD_MAX_BYTES)
    assert first.ask(second.me.ref, bytes(PAYLOAD_MAX_BYTES + 1)) is None
    assert first.fabric.metrics()["too_large"] == 1


def test_nobody_answers_for_a_node_that_is_not_there(cluster):
    first, second = cluster.start_all(2)
    assert first.ask(NodeRef(b"nobody..", 1), b"hello") is None
    earlier_life = NodeRef(second.me.ref.id, 0)
    assert first.ask(earlier_life, b"hello") is None


def test_an_ask_that_nobody_answers_fails_at_its_deadline(cluster):
    first, second = cluster.start_all(2)
    second.is_silent = True
    assert first.ask(second.me.ref, b"hello", 0.05) is None
    metrics = first.fabric.metrics()
    assert (metrics["asks_failed"], metrics["under_way"]) == (1, 0)


def test_a_node_that_leaves_is_missed_and_what_it_was_asked_fails(cluster):
    first, second = cluster.start_all(2)
    second.is_silent = True
    answers: list[bytes | None] = []
    first.fabric.ask(second.me.ref, b"hello", 60.0, answers.append)
    second.close()
    first.wait_for(lambda: not first.is_up(second.me.ref))
    first.wait_for(lambda: answers == [None])
    assert isinstance(first.events[-1], PeerDown)


def test_who_leaves_hears_nothing_more_and_its_asks_fail(cluster):
    first, second = cluster.start_all(2)
    second.is_silent = True
    answers: list[bytes | None] = []
    first.fabric.ask(second.me.ref, b"hello", 60.0, answers.append)
    first.fabric.close()
    first.fabric.close()
    heard = len(first.events)
    assert answers == [None]
    assert first.ask(second.me.ref, b"hello") is None
    first.fabric.publish(b"hello")
    second.wait_for(lambda: not second.is_up(first.me.ref))
    assert len(first.events) == heard


def test_what_is_published_comes_to_all_others(cluster):
    first, *others = cluster.start_all(3)
    first.fabric.publish(b"news")
    for node in others:
        node.wait_for(lambda node=node: Published(first.me.ref, b"news") in node.events)
    assert not any(isinstance(event, Published) for event in first.events)


def test_a_node_of_another_cluster_is_refused_by_name_once(cluster):
    own = cluster.start("one")
    foreign = cluster.start("other", node_name="stranger")
    own.wait_for(lambda: refusals_of(own))
    foreign.wait_for(lambda: refusals_of(foreign))
    (refused,) = refusals_of(own)
    assert refused.who == "stranger"
    assert isinstance(refused.why, ForeignCluster)
    assert (refused.why.cluster, refused.why.other) == ("one", "other")
    assert own.fabric.metrics()["refused"] == 1
    assert not own.is_up(foreign.me.ref)
    assert own.ask(foreign.me.ref, b"hello") is None


@pytest.mark.parametrize("protocol", [0, PROTOCOL + 1], ids=["older", "newer"])
def test_another_version_is_refused_unless_both_speak_one_of_them(cluster, protocol):
    own = cluster.start()
    other = cluster.start(node_name="other", protocol=protocol)
    if protocol > PROTOCOL:
        own.wait_for(lambda: own.is_up(other.me.ref))
        return
    own.wait_for(lambda: refusals_of(own))
    (refused,) = refusals_of(own)
    assert refused.who == "other"
    assert isinstance(refused.why, IncompatibleProtocol)
    assert own.ask(other.me.ref, b"hello") is None


def test_two_nodes_with_one_id_see_each_other(cluster):
    first, second, third = cluster.start_all(3)
    copy = cluster.start(ref=first.me.ref)
    for node in (first, second, third):
        node.wait_for(lambda node=node: PeerUp(copy.me) in node.events)
    copy.wait_for(lambda: PeerUp(first.me) in copy.events)


def test_a_port_that_is_in_use_is_named(cluster):
    first = cluster.start()
    with pytest.raises(FabricFailed, match="in use") as caught:
        Listener(first.options)
    assert str(caught.value).count(first.options.locator) == 1
    assert str(caught.value).endswith("or choose another cluster_port")


def overlooked_by(node: Listener) -> list[NodeRef]:
    """Whom a node has told of, once it has sought another one."""
    wait_until(lambda: "poe-fabric-seek" not in [each.name for each in threading.enumerate()], 30)
    return [event.ref for event in node.events if isinstance(event, Overlooked)]


@pytest.mark.slow
def test_who_is_found_by_seeking_and_is_not_seen_all_the_same_is_told(cluster):
    """A peer connects to no router that it is introduced to: that stands for half a connection."""
    peer, router = cluster.start(seeds=()), cluster.start(seeds=(), cluster_mode="router")
    cluster.start("another")
    peer.fabric.seek([router.options.locator])
    assert overlooked_by(peer) == [router.me.ref]


@pytest.mark.slow
def test_who_is_sought_and_seen_then_is_not_told_as_overlooked(cluster, monkeypatch):
    monkeypatch.setattr("poe.cluster.fabric.zenoh_session._SEEK_S", 6.0)  # a busy machine
    one, other = cluster.start(seeds=()), cluster.start(seeds=())
    one.fabric.seek([other.options.locator])
    one.wait_for_all([other.me.ref])
    assert overlooked_by(one) == []


@pytest.mark.slow
def test_peers_that_come_and_go_leave_nothing_behind(cluster):
    first, second = cluster.start_all(2)
    threads = threading.active_count()
    for _ in range(20):
        third = cluster.start()
        for node in (first, second):
            node.wait_for(lambda node=node, ref=third.me.ref: node.is_up(ref))
        assert first.ask(third.me.ref, b"x" * 100_000) == b"X" * 100_000
        third.close()
        for node in (first, second):
            node.wait_for(lambda node=node, ref=third.me.ref: not node.is_up(ref))
    assert first.fabric.metrics()["peers"] == 1
    assert threading.active_count() <= threads + 2
