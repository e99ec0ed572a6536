import threading
from functools import partial
from typing import Any

import pytest

from poe.cluster.fabric.interface import Asked, FabricEvent, PeerDown, PeerUp, Published
from poe.cluster.identity import PROTOCOL, NodeRef, Peer
from poe.errors import FabricFailed
from poe.testing.simulated_fabric import (
    NO_FAULTS,
    Faults,
    Hub,
    SimulatedFabric,
    SimulatedNetwork,
    Spans,
    Told,
)

SEEN_US = 60_000
"""Until hosts have found each other."""
LEASE_US = Spans().lease
REJOIN_US = Spans().rejoin[1]


def peer_of(host: str, epoch: int = 1) -> Peer:
    ref = NodeRef(host.encode().ljust(8, b"."), epoch)
    return Peer(ref, host, "", PROTOCOL, b"\0" * 8, f"{host}:1")


class Node:
    """Hears everything, and answers asks in capitals."""

    def __init__(self, network: SimulatedNetwork, host: str, epoch: int = 1) -> None:
        self.me = peer_of(host, epoch)
        self.events: list[FabricEvent | Told] = []
        self.fabric: SimulatedFabric = network.fabric(host)
        self.fabric.open(self.me, self.hear)

    def hear(self, event) -> None:
        self.events.append(event)
        if isinstance(event, Asked):
            event.answer(event.payload.upper())

    def names(self) -> list[str]:
        """Who is up, and what was told since, as short words."""
        return [word_of(event) for event in self.events]


def word_of(event) -> str:
    match event:
        case PeerUp(peer):
            return f"up {peer.name}"
        case PeerDown(ref, _):
            return f"down {ref.id.decode().strip('.')}"
        case Told(_, frame) | Published(_, frame) | Asked(_, frame, _):
            return frame.decode()
    raise AssertionError(event)


def cluster(*hosts: str, seed: int = 0, faults: Faults = NO_FAULTS) -> Any:
    network = SimulatedNetwork(seed, faults=faults)
    nodes = [Node(network, host) for host in hosts]
    network.run_for(SEEN_US)
    for node in nodes:
        node.events.clear()
    return network, *nodes


def test_nodes_find_each_other():
    network = SimulatedNetwork(0)
    a, b = Node(network, "a"), Node(network, "b")
    network.run_for(SEEN_US)
    assert (a.names(), b.names()) == (["up b"], ["up a"])
    assert network.hosts() == ["a", "b"]


def test_a_host_has_room_for_one_node():
    network = SimulatedNetwork(0)
    Node(network, "a")
    with pytest.raises(FabricFailed, match="host a"):
        Node(network, "a")


def test_frames_and_what_is_published_arrive():
    network, a, b, c = cluster("a", "b", "c")
    assert a.fabric.tell(b.me.ref, b"hello")
    b.fabric.publish(b"news")
    network.run_for(0)
    assert (a.names(), b.names(), c.names()) == (["news"], ["hello"], ["news"])


def test_an_ask_is_answered_once_and_one_to_nobody_with_none():
    network, a, b = cluster("a", "b", faults=Faults(double=1.0))
    answers: list[bytes | None] = []
    a.fabric.ask(b.me.ref, b"x", 1.0, answers.append)
    network.run_for(2_000_000)
    a.fabric.ask(peer_of("z").ref, b"x", 1.0, answers.append)
    assert answers == [b"X", None]


def test_a_node_can_ask_itself():
    network, a = cluster("a")
    answers: list[bytes | None] = []
    a.fabric.ask(a.me.ref, b"x", 1.0, answers.append)
    network.run_for(1)
    assert answers == [b"X"]


def test_an_ask_into_a_cut_is_answered_with_none_at_its_deadline():
    network, a, b = cluster("a", "b")
    network.cut("a", "b")
    answers: list[bytes | None] = []
    a.fabric.ask(b.me.ref, b"x", 0.5, answers.append)
    network.run_for(499_999)
    assert answers == []
    network.run_for(1)
    assert answers == [None]


@pytest.mark.parametrize("one_way", [False, True], ids=["both ways", "one way"])
def test_both_sides_of_a_cut_lose_each_other_after_the_lease(one_way):
    network, a, b, c = cluster("a", "b", "c")
    network.cut("a", "b", one_way=one_way)
    network.run_for(LEASE_US - 1)
    assert a.names() == b.names() == []
    network.run_for(1)
    assert (a.names(), b.names(), c.names()) == (["down b"], ["down a"], [])
    assert not a.fabric.tell(b.me.ref, b"hello")
    network.heal_all()
    network.run_for(REJOIN_US)
    assert (a.names(), b.names()) == (["down b", "up b"], ["down a", "up a"])


def test_what_is_sent_into_a_cut_arrives_when_it_heals_in_time():
    network, a, b = cluster("a", "b")
    network.cut("a", "b", one_way=True)
    a.fabric.tell(b.me.ref, b"late")
    b.fabric.tell(a.me.ref, b"in time")
    network.run_for(LEASE_US - 1)
    assert (a.names(), b.names()) == (["in time"], [])
    network.heal("a", "b")
    network.run_for(LEASE_US)
    assert b.names() == ["late"]


def test_what_is_sent_into_a_cut_that_lasts_is_lost():
    network, a, b = cluster("a", "b")
    network.split({"a"}, {"b"})
    a.fabric.tell(b.me.ref, b"lost")
    network.run_for(LEASE_US)
    network.heal_all()
    network.run_for(REJOIN_US)
    assert b.names() == ["down a", "up a"]


def test_a_killed_node_is_missed_soon_and_hears_nothing_more():
    network, a, b = cluster("a", "b")
    a.fabric.tell(b.me.ref, b"hello")
    network.kill("b")
    network.run_for(Spans().death)
    assert (a.names(), b.names()) == (["down b"], [])
    network.run_for(LEASE_US)
    assert a.names() == ["down b"]


def test_a_node_that_leaves_is_missed_at_once():
    network, a, b = cluster("a", "b")
    b.fabric.close()
    b.fabric.close()
    network.run_for(0)
    assert a.names() == ["down b"]


def test_a_node_that_starts_again_at_once_is_another_one():
    network, a, b = cluster("a", "b")
    network.kill("b")
    again = Node(network, "b", epoch=2)
    network.run_for(REJOIN_US)
    assert a.names() == ["down b", "up b"]
    event = a.events[-1]
    assert isinstance(event, PeerUp)
    assert event.peer.ref.epoch == 2
    assert (b.names(), again.names()) == ([], ["up a"])
    assert not a.fabric.tell(b.me.ref, b"for the old one")


def test_a_frozen_host_notices_all_of_it_when_it_thaws():
    network, a, b = cluster("a", "b")
    ticked: list[str] = []
    network.freeze("b")
    network.at(10, partial(ticked.append, "tick"), "b")
    a.fabric.tell(b.me.ref, b"hello")
    network.run_for(LEASE_US)
    assert network.is_frozen("b")
    assert (a.names(), b.names(), ticked) == (["down b"], [], [])
    network.thaw("b")
    assert (b.names(), ticked) == (["hello", "down a"], ["tick"])
    network.run_for(REJOIN_US)
    assert (a.names()[-1], b.names()[-1]) == ("up b", "up a")


def test_nobody_is_lost_by_a_short_freeze():
    network, a, b = cluster("a", "b")
    network.freeze("b")
    network.run_for(LEASE_US - 1)
    network.thaw("b")
    network.run_for(LEASE_US * 2)
    assert a.names() == b.names() == []


def test_a_slow_link_delays_by_size_and_takes_no_more_when_much_waits():
    network, a, b = cluster("a", "b")
    network.slow("a", "b", 1_000_000)
    assert a.fabric.tell(b.me.ref, b"x" * 100_000)
    network.run_for(99_999)
    assert b.names() == []
    network.run_for(1)
    assert len(b.names()) == 1
    assert [a.fabric.tell(b.me.ref, b"x" * 100_000) for _ in range(4)] == [True, True, True, False]
    network.slow("a", "b", None)


def test_a_clock_jumps_for_one_host():
    network, _, _ = cluster("a", "b")
    network.jump("b", -5_000_000)
    assert network.clock_us("a") - network.clock_us("b") == 5_000_000


def heard_with(seed: int) -> list[str]:
    faults = Faults(delay_max_us=5_000, drop=0.2, double=0.2)
    network, a, b = cluster("a", "b", seed=seed, faults=faults)
    for number in range(50):
        a.fabric.tell(b.me.ref, b"%d" % number)
    network.run_for(1_000_000)
    heard: list[str] = b.names()
    return heard


def test_faults_lose_double_and_reorder_by_the_seed():
    heard = heard_with(7)
    assert heard == heard_with(7) != heard_with(8)
    assert len(set(heard)) < 50 < len(heard) + 30
    assert len(heard) > len(set(heard))
    assert heard != sorted(heard, key=int)


def test_waiting_for_what_never_comes_fails():
    network, _ = cluster("a")
    with pytest.raises(AssertionError, match="not true within 1000"):
        network.run_until(lambda: False, within_us=1000)
    assert not network.step()


def test_a_hub_does_the_same_in_real_time():
    found, answered = threading.Event(), threading.Event()
    with Hub() as hub:
        b = Node(hub, "b")
        a = hub.fabric("a")
        a.open(peer_of("a"), lambda _: found.set())
        assert found.wait(10)
        answers: list[bytes | None] = []

        def hear(answer: bytes | None) -> None:
            answers.append(answer)
            answered.set()

        a.ask(b.me.ref, b"x", 5.0, hear)
        assert answered.wait(10)
        assert answers == [b"X"]
        assert a.metrics()["asks"] == 1
