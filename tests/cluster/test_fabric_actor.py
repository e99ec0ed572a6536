"""The actors of a fabric, on a simulated network and in simulated time."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from poe.actors import GenServer
from poe.broker.requests.queue_messages import QUEUES
from poe.cluster.actor_messages import (
    FABRIC,
    MEMBERS,
    CloseFabric,
    FabricMetrics,
    FramesHeard,
    PaceSeen,
    TellNodes,
)
from poe.cluster.fabric.envelope import FRAME_MAX_BYTES, encode_envelope
from poe.cluster.fabric.interface import Overlooked, PeerDown, PeerUp, Published, Refused
from poe.cluster.fabric_actor import (
    LOOK_S,
    MAIL_MAX_BYTES,
    SPLIT_LOOKS,
    STUCK_AFTER_S,
    WHOLE_AFTER,
    FabricParts,
    Mailroom,
    fabric_specs,
)
from poe.cluster.identity import PROTOCOL, NodeRef, Peer
from poe.cluster.peer_sender import ASK_DEADLINE_S, SILENCE_US
from poe.errors import FabricFailed
from poe.supervision import Strategy, Supervisor, SupervisorFlags
from poe.testing import SimulatedNetwork, SimulatedSystem
from poe.testing.simulated_fabric import NO_FAULTS, Faults

STEP_S = 0.01


def peer_of(host: str, epoch: int = 1) -> Peer:
    ref = NodeRef(host.encode().ljust(8, b"."), epoch)
    return Peer(ref, host, "", PROTOCOL, b"\0" * 8, f"{host}:1")


class Ear(GenServer):
    """Stands for members, and for queues: keeps what it is told, and answers some frames."""

    def init(self, answer: bytes | None = None) -> None:
        self._answer = answer
        self._heard: list[Any] = []

    def handle_call(self, request, caller):
        return list(self._heard)

    def handle_cast(self, message) -> None:
        self._heard.append(message)
        if isinstance(message, FramesHeard) and self._answer is not None:
            self.cast(FABRIC, TellNodes((message.sender,), self._answer))


FLAGS = SupervisorFlags(strategy=Strategy.REST_FOR_ONE, intensity=0)


class SimulatedNode:
    """A node with the actors of a fabric only, in a system of its own."""

    def __init__(self, me: Peer, fabric: Any, answer: bytes | None = None) -> None:
        self.me, self.fabric = me, fabric
        self.system = SimulatedSystem()
        self.system.start(Ear, name=MEMBERS)
        self.system.start(Ear, answer, name=QUEUES)
        top = self.system.start(Supervisor, FLAGS, fabric_specs(FabricParts(fabric, me)))
        assert top is not None
        self.top = top

    def tell(self, *others: "SimulatedNode", frame: bytes = b"frame") -> None:
        refs = tuple(other.me.ref for other in others)
        self.system.cast(FABRIC, TellNodes(refs, frame))

    def told_members(self) -> list[Any]:
        told: list[Any] = self.system.call(MEMBERS, "heard")
        return told

    def frames(self) -> list[bytes]:
        heard: list[FramesHeard] = self.system.call(QUEUES, "heard")
        return [frame for each in heard for frame in each.frames]

    def metrics(self) -> dict[str, int]:
        counts: dict[str, int] = self.system.call(FABRIC, FabricMetrics())
        return counts


class World:
    """Nodes whose clocks, and that of the network, go on together."""

    def __init__(self, faults: Faults = NO_FAULTS) -> None:
        self.network = SimulatedNetwork(0, faults=faults)
        self.nodes: list[SimulatedNode] = []

    def start(self, *hosts: str, answer: bytes | None = None) -> list[SimulatedNode]:
        made = [SimulatedNode(peer_of(host), self.network.fabric(host), answer) for host in hosts]
        self.nodes += made
        self.run(0.1)
        return made

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.network.run_for(round(STEP_S * 1e6))
            for node in self.nodes:
                node.system.advance(STEP_S)

    def close(self) -> None:
        for node in self.nodes:
            node.system.shutdown()


@pytest.fixture
def world():
    made = World()
    yield made
    made.close()


def test_members_are_told_who_is_there_and_who_is_gone(world):
    a, b = world.start("a", "b")
    assert a.told_members() == [PeerUp(b.me)]
    world.network.kill("b")
    world.run(0.1)
    assert a.told_members()[1:] == [PeerDown(b.me.ref, "lost")]
    assert a.metrics()["frames_unsent"] == 0
    a.tell(b)
    assert a.metrics()["frames_unsent"] == 1


def test_a_frame_comes_to_the_queues_of_each_node_it_is_for(world):
    a, b, c = world.start("a", "b", "c")
    a.tell(b, c)
    world.run(0.02)
    assert (a.frames(), b.frames(), c.frames()) == ([], [b"frame"], [b"frame"])


def test_frames_of_one_turn_leave_together(world):
    a, b = world.start("a", "b")
    asks = a.fabric.metrics()["asks"]

    a.tell(*[b] * 100)
    world.run(0.02)
    assert b.frames() == [b"frame"] * 100
    assert a.fabric.metrics()["asks"] == asks + 1


def test_what_is_told_in_reply_rides_on_the_answer(world):
    (a,) = world.start("a")
    (b,) = world.start("b", answer=b"stored")
    asks = b.fabric.metrics()["asks"]
    a.tell(b)
    world.run(0.02)
    assert a.frames() == [b"stored"]
    assert b.fabric.metrics()["asks"] == asks


def test_a_peer_that_freezes_is_slow_then_gone_and_the_others_hear_on(world):
    a, b, c = world.start("a", "b", "c")
    world.nodes.remove(b)
    world.network.freeze("b")
    a.tell(b, c)
    world.run(0.2)
    assert a.told_members()[2:] == [PaceSeen(b.me.ref, is_slow=True)]
    assert c.frames() == [b"frame"]
    world.run(2.5)
    assert [type(each) for each in a.told_members()[3:]] == [PeerDown]
    b.system.shutdown()


def test_a_peer_that_answers_nothing_is_gone_although_its_link_is_there(world):
    a, b = world.start("a", "b")
    b.system.stop(b.top)
    b.fabric = world.network.fabric("b")
    b.fabric.open(b.me, lambda event: None)
    world.run(3.0)
    before = len(a.told_members())
    a.tell(b)
    world.run(SILENCE_US / 1e6 + 2 * ASK_DEADLINE_S)
    told = a.told_members()[before:]
    assert PaceSeen(b.me.ref, is_slow=True) in told
    assert PeerDown(b.me.ref, "it does not answer") in told
    answering = [event for event in told if isinstance(event, PeerUp)]
    assert answering == []


def test_what_no_envelope_is_hurts_nobody(world):
    a, b = world.start("a", "b")
    answers: list[bytes | None] = []
    for payload in (b"", b"\xc1", b"\x92\x01", encode_envelope([b"frame"]) + b"x"):
        b.fabric.ask(a.me.ref, payload, 1.0, answers.append)
    world.run(0.05)
    assert answers == [encode_envelope([])] * 4
    assert a.metrics()["envelopes_malformed"] == 4
    b.tell(a)
    world.run(0.02)
    assert a.frames() == [b"frame"]


def test_a_frame_that_is_too_large_is_dropped_and_what_follows_is_sent(world):
    a, b = world.start("a", "b")
    a.tell(b, frame=bytes(FRAME_MAX_BYTES + 1))
    a.tell(b)
    world.run(0.02)
    assert b.frames() == [b"frame"]


def test_a_refused_node_is_told_to_members(world):
    (a,) = world.start("a")
    refused = Refused("stranger", FabricFailed("because"))
    a.fabric.hear(refused)
    assert a.told_members() == [refused]


def test_a_node_that_closes_its_fabric_is_missed_and_hears_nothing(world):
    a, b = world.start("a", "b")
    a.system.cast(FABRIC, CloseFabric())
    world.run(0.1)
    assert isinstance(b.told_members()[-1], PeerDown)
    assert isinstance(a.told_members()[-1], PeerDown)
    b.tell(a)
    world.run(5.0)
    assert a.frames() == []


class StuckFabric:
    """Passes on what another fabric does until it is stuck; each life may be stuck anew."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.hear: Any = None
        self.is_stuck = False
        self.opened_count = 0

    def open(self, me, hear) -> None:
        self.opened_count += 1
        self.hear = hear
        self._inner.open(me, hear)

    def ask(self, node, payload, deadline_s, answered) -> None:
        if self.is_stuck:
            answered(None)
        else:
            self._inner.ask(node, payload, deadline_s, answered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def stuck_node(world: World) -> tuple[SimulatedNode, StuckFabric]:
    fabric = StuckFabric(world.network.fabric("stuck"))
    node = SimulatedNode(peer_of("stuck"), fabric)
    world.nodes.append(node)
    return node, fabric


def test_a_session_that_is_stuck_is_opened_anew(world):
    node, fabric = stuck_node(world)
    (other,) = world.start("other")
    assert node.told_members() == [PeerUp(other.me)]
    fabric.is_stuck = True
    world.run(LOOK_S)
    fabric.is_stuck = False
    world.run(STUCK_AFTER_S + 3.0)
    assert fabric.opened_count == 2
    assert node.told_members()[-1] == PeerUp(other.me)
    assert node.metrics()["reopened"] == 1
    node.tell(other)
    world.run(0.05)
    assert other.frames() == [b"frame"]


def test_a_session_that_stays_stuck_ends_the_actor_for_its_supervisor(world):
    node, fabric = stuck_node(world)
    fabric.is_stuck = True
    world.run(3 * LOOK_S)
    assert fabric.opened_count == 2
    assert not node.system.is_alive(FABRIC)
    assert not node.system.is_alive(node.top)


def test_a_session_that_was_whole_for_long_may_be_opened_anew_again(world):
    _, fabric = stuck_node(world)
    for opened_count in (2, 3):
        fabric.is_stuck = True
        world.run(LOOK_S)
        fabric.is_stuck = False
        world.run(LOOK_S * (WHOLE_AFTER + 2))
        assert fabric.opened_count == opened_count


def speaks(world: World, fabric: StuckFabric, peer: Peer, looks: int) -> None:
    """Have a node speak before so many looks."""
    for _ in range(looks):
        fabric.hear(Published(peer.ref, encode_envelope([b"frame"])))
        world.run(LOOK_S)


def test_a_session_is_opened_anew_when_a_node_speaks_for_long_and_is_not_seen(world):
    node, fabric = stuck_node(world)
    speaks(world, fabric, peer_of("unseen"), SPLIT_LOOKS + 1)
    world.run(LOOK_S)
    assert (fabric.opened_count, node.metrics()["reopened"]) == (2, 1)
    speaks(world, fabric, peer_of("unseen"), SPLIT_LOOKS + 1)
    assert fabric.opened_count == 2
    assert node.system.is_alive(FABRIC)


def test_what_nodes_say_before_they_are_seen_or_after_they_were_lost_opens_no_session_anew(world):
    _, fabric = stuck_node(world)
    early, late = peer_of("early"), peer_of("late")
    for _ in range(SPLIT_LOOKS):
        fabric.hear(Published(early.ref, encode_envelope([b"frame"])))
        fabric.hear(PeerUp(early))
        world.run(LOOK_S)
        fabric.hear(PeerDown(early.ref, "lost"))
    speaks(world, fabric, late, SPLIT_LOOKS - 1)
    world.run(3 * LOOK_S)
    assert fabric.opened_count == 1


def test_a_session_is_opened_anew_when_a_node_is_seen_for_long_and_does_not_answer(world):
    node, fabric = stuck_node(world)
    mute = peer_of("mute")
    fabric.hear(PeerUp(mute))
    world.run(0.1)
    for _ in range(SPLIT_LOOKS + 3):
        node.system.cast(FABRIC, TellNodes((mute.ref,), b"frame"))
        world.run(LOOK_S)
    assert (fabric.opened_count, node.metrics()["reopened"]) == (2, 1)
    assert PeerDown(mute.ref, "it does not answer") in node.told_members()


def test_a_session_is_opened_anew_when_a_node_is_found_twice_and_is_not_seen(world):
    node, fabric = stuck_node(world)
    (other,) = world.start("other")
    overlooked = Overlooked(peer_of("overlooked").ref)
    fabric.hear(overlooked)
    world.run(10.0)
    assert fabric.opened_count == 1
    fabric.hear(overlooked)
    world.run(3 * LOOK_S)
    assert (fabric.opened_count, node.metrics()["reopened"]) == (2, 1)
    assert node.told_members()[-1] == PeerUp(other.me)


def test_a_node_that_is_seen_since_it_was_overlooked_opens_no_session_anew(world):
    _, fabric = stuck_node(world)
    late = peer_of("late")
    for _ in range(SPLIT_LOOKS):
        fabric.hear(Overlooked(late.ref))
        fabric.hear(PeerUp(late))
        fabric.hear(Overlooked(late.ref))
        world.run(LOOK_S)
        fabric.hear(PeerDown(late.ref, "lost"))
        world.run(LOOK_S)
    assert fabric.opened_count == 1


class Overheard:
    """A fabric whose other end a test has, too: what a peer sends while this node is busy."""

    def __init__(self, fabric: Any) -> None:
        self._fabric = fabric
        self.hear: Any = None

    def open(self, me, hear) -> None:
        self.hear = hear
        self._fabric.open(me, hear)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)


class Busy(GenServer):
    """Holds up all others of its node while something is heard."""

    def handle_call(self, request, caller):
        hear, *events = request
        for each in events:
            hear(each)


def test_what_waits_is_bounded_in_bytes_and_more_is_dropped_counted_and_told(world, caplog):
    fabric = Overheard(world.network.fabric("a"))
    node = SimulatedNode(peer_of("a"), fabric)
    world.nodes.append(node)
    world.run(0.1)
    envelope = encode_envelope((b"x" * (1 << 20),))
    fits = MAIL_MAX_BYTES // (len(envelope) + 1024)
    busy = node.system.start(Busy)
    assert busy is not None
    events = [Published(peer_of("b").ref, envelope)] * (fits + 5)
    for _ in range(2):  # what was taken has made room again
        node.system.call(busy, (fabric.hear, *events))
        world.run(0.1)
    assert len(node.frames()) == 2 * fits
    assert node.metrics()["envelopes_dropped"] == 10
    world.run(LOOK_S)
    assert "10 envelopes of other nodes were dropped" in caplog.text


def test_what_is_not_from_a_peer_is_never_dropped(world):
    fabric = Overheard(world.network.fabric("a"))
    node = SimulatedNode(peer_of("a"), fabric)
    world.nodes.append(node)
    world.run(0.1)
    payload = b"x" * (MAIL_MAX_BYTES - 1024)
    busy = node.system.start(Busy)
    assert busy is not None
    events = Published(peer_of("c").ref, payload), PeerUp(peer_of("b"))
    node.system.call(busy, (fabric.hear, *events))
    world.run(0.1)
    assert PeerUp(peer_of("b")) in node.told_members()


def test_no_thread_takes_room_that_another_one_has():
    room = Mailroom(100 * 1024)
    with ThreadPoolExecutor(8) as threads:
        admitted = list(threads.map(lambda _: room.admit(b""), range(4000)))
    assert sum(admitted) == 100
    room.release(b"")
    assert [room.admit(b""), room.admit(b"")] == [True, False]
