"""Three servers with an engine each: one order for all, and nothing that was acknowledged is lost.

Servers are processes on loopback, which are killed by their pids.
"""

import os
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

from poe.cluster.log.engine import (
    CatalogChanged,
    Connected,
    Disconnected,
    Forgotten,
    Lost,
    NotStored,
    PeerAsked,
    Stored,
)
from poe.cluster.log.names import Names
from poe.cluster.log.nats_server import settings_of, text_of
from poe.cluster.log.nats_target import Login, NatsTarget, OutsideServers
from poe.cluster.options import ClusterOptions
from poe.errors import (
    CatalogChangedMeanwhile,
    LogEngineUnfit,
    NoQuorum,
    PoeError,
    TooFewNodes,
    UnknownNode,
    UnknownStream,
)
from tests.cluster.log.engines import NO_LEADER, PATIENCE_S, EngineNode, Engines
from tests.ports import free_port, quiet_ports
from tests.tls import Certificates
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


class Producer:
    """Publishes entries, some at a time, until it is stopped, and remembers what became of them."""

    def __init__(self, node: EngineNode, under_way: int = 8) -> None:
        self.node = node
        self.stored: dict[bytes, int] = {}
        self.refused: list[NotStored] = []
        self._numbers = count()
        self._ending = threading.Event()
        self._rest = threading.Semaphore(0)
        self._under_way = under_way
        for _ in range(under_way):
            self._publish()

    def _publish(self) -> None:
        payload = f"{self.node.name} {next(self._numbers)}".encode()

        def told(became: Stored | NotStored) -> None:
            if isinstance(became, Stored):
                self.stored[payload] = became.place
            else:
                self.refused.append(became)
            if self._ending.is_set():
                self._rest.release()
            elif isinstance(became, Stored):
                self._publish()
            else:
                # It would be refused again at once, and again.
                threading.Timer(0.02, self._publish).start()

        self.node.publish_soon("s", payload, told, deadline_s=3.0)

    def stop(self) -> None:
        self._ending.set()
        for _ in range(self._under_way):
            assert self._rest.acquire(timeout=PATIENCE_S)


def follow_all(engines: Engines, stream: str = "s") -> None:
    for node in engines:
        node.engine.follow(stream, 0, 1)


def assert_equal(engines: Engines, last_place: int) -> list[bytes]:
    """All have heard the same up to a place, without a gap; return the payloads."""
    for node in engines:
        node.wait_followed(last_place)
    first, *others = [node.followed().entries[:last_place] for node in engines]
    assert [entry.place for entry in first] == list(range(1, last_place + 1))
    assert all(entries == first for entries in others)
    return [entry.payload for entry in first]


def assert_nothing_missing(engines: Engines, *producers: Producer) -> None:
    stored = {place: payload for each in producers for payload, place in each.stored.items()}
    payloads = assert_equal(engines, max(stored))
    assert {place: payloads[place - 1] for place in stored} == stored
    assert len(set(payloads)) == len(payloads)


def test_what_is_published_anywhere_is_the_same_everywhere_in_order_and_in_time(engines):
    follow_all(engines)
    told = [
        node.publish("s", f"{node.name} {turn}".encode()) for turn in range(9) for node in engines
    ]
    assert told == [Stored(place) for place in range(1, 28)]
    payloads = assert_equal(engines, 27)
    assert payloads == [f"{node.name} {turn}".encode() for turn in range(9) for node in engines]
    times = [entry.time_us for entry in engines["a"].followed().entries]
    assert times == sorted(times)
    assert engines["a"].events[-1].entries[-1].place == 27
    for node in engines:
        node.engine.follow("s", 20, 2)
        assert [entry.place for entry in node.wait_followed(7, 2)] == list(range(21, 28))


def test_an_entry_with_the_same_id_is_stored_once_whoever_publishes_it(engines):
    a, b = engines["a"], engines["b"]
    assert a.publish("s", b"x", entry_id="1") == Stored(1)
    assert b.publish("s", b"x", entry_id="1") == Stored(1)
    assert b.publish("s", b"y", entry_id="2") == Stored(2)
    state = a.stream_state("s")
    assert (state.first_place, state.last_place) == (1, 2)
    assert b.engine.metrics()["duplicates"] == 1


@pytest.mark.parametrize("size", [0, 10_700, 16 << 20], ids=["empty", "batch", "largest"])
def test_an_entry_may_be_empty_or_as_large_as_allowed(engines, size):
    follow_all(engines)
    payload = os.urandom(size)
    assert engines["a"].publish("s", payload, deadline_s=20) == Stored(1)
    assert assert_equal(engines, 1) == [payload]


def test_an_entry_that_is_larger_is_refused_and_stored_nowhere(engines):
    refused = engines["a"].publish("s", bytes((16 << 20) + 1))
    assert isinstance(refused, NotStored)
    assert refused.is_sure
    assert engines["a"].publish_now("nobody", b"x") == NO_LEADER
    assert engines["a"].stream_state("s").last_place == 0


def test_many_entries_of_all_sizes_come_without_a_gap_to_who_begins_late(engines):
    a = engines["a"]
    sizes = [(number * 7919) % 40_000 for number in range(1500)]
    sizes[700] = 6 << 20  # more than a portion
    done = threading.Semaphore(0)
    for number, size in enumerate(sizes):
        payload = number.to_bytes(4, "big") + bytes(size)
        a.publish_soon("s", payload, lambda became: done.release(), deadline_s=20)
    for _ in sizes:
        assert done.acquire(timeout=PATIENCE_S)
    follow_all(engines)
    payloads = assert_equal(engines, len(sizes))
    assert [len(payload) - 4 for payload in payloads] == sizes


def test_no_more_comes_than_its_owner_takes_but_for_a_portion(engines):
    a = engines["a"]
    done = threading.Semaphore(0)
    for _ in range(600):
        a.publish_soon("s", bytes(100_000), lambda became: done.release(), deadline_s=20)
    for _ in range(600):
        assert done.acquire(timeout=PATIENCE_S)
    a.engine.taken("s", 1, 0)  # nobody follows yet
    a.engine.follow("s", 0, 1)
    a.engine.taken("s", 1, 0)
    a.wait_followed(80)
    # Another stream has all the time that it takes.
    engines.make_stream("other")
    a.publish("other", b"x")
    a.engine.follow("other", 0, 2)
    a.wait_followed(1, 2)
    assert 80 <= len(a.followed().entries) < 200
    taken = 0
    while taken < 600:
        taken = a.wait_followed(taken + 1)[-1].place
        a.engine.taken("s", 1, taken)
    assert [entry.place for entry in a.followed().entries] == list(range(1, 601))


def test_a_leader_that_is_killed_loses_nothing_that_was_acknowledged(engines):
    follow_all(engines)
    producers = [Producer(node) for node in engines]
    wait_until(lambda: all(len(each.stored) > 50 for each in producers), PATIENCE_S)
    leader = engines.leader("s")
    leader.kill_server()
    others = [each for each in producers if each.node is not leader]
    before = [len(each.stored) for each in others]
    wait_until(
        lambda: all(len(each.stored) > n + 50 for each, n in zip(others, before, strict=True)),
        PATIENCE_S,
    )
    leader.start_server()
    leader.wait_connected(2)
    mine = producers[engines.nodes.index(leader)]
    was = len(mine.stored)
    wait_until(lambda: len(mine.stored) > was + 10, PATIENCE_S)
    for each in producers:
        each.stop()
    assert_nothing_missing(engines, *producers)
    assert any(not each.is_sure for each in mine.refused)
    assert leader.heard(Disconnected)


def test_a_follower_that_is_killed_goes_on_where_it_was(engines):
    follow_all(engines)
    leader = engines.leader("s")
    follower = next(node for node in engines if node is not leader)
    producer = Producer(leader)
    wait_until(lambda: len(producer.stored) > 50, PATIENCE_S)
    follower.kill_server()
    was = len(producer.stored)
    wait_until(lambda: len(producer.stored) > was + 200, PATIENCE_S)
    follower.start_server()
    follower.wait_connected(2)
    producer.stop()
    assert_nothing_missing(engines, producer)


def is_stored(node: EngineNode, stream: str, payload: str) -> bool:
    """Publish an entry, again and again the same one, and return whether it is stored now."""
    entry_id = f"{stream} {payload}"
    became = node.publish(stream, payload.encode(), entry_id=entry_id, deadline_s=1.0)
    return isinstance(became, Stored)


def test_a_server_that_freezes_stops_no_follow_that_went_by_it(start_engines):
    """Of so many streams it leads some, and has consumers of some that others lead."""
    engines = start_engines()
    a, b, c = engines
    streams = [f"s{number}" for number in range(8)]
    for number, stream in enumerate(streams):
        engines.make_stream(stream)
        for node in engines:
            node.engine.follow(stream, 0, number)
            wait_until(partial(is_stored, node, stream, node.name), PATIENCE_S)
    for node in engines:
        for number in range(len(streams)):
            node.wait_followed(3, number)
    c.freeze_server()
    try:
        for number, stream in enumerate(streams):
            wait_until(partial(is_stored, a, stream, "meanwhile"), PATIENCE_S)
            for node in (a, b):
                node.wait_followed(4, number)
    finally:
        c.thaw_server()
    for number, stream in enumerate(streams):
        for node in engines:
            payloads = [entry.payload for entry in node.wait_followed(4, number)]
            assert payloads == [b"a", b"b", b"c", b"meanwhile"], stream


def test_without_a_majority_nothing_is_stored_and_with_one_it_goes_on(engines):
    follow_all(engines)
    leader = engines.leader("s")
    a, b = [node for node in engines if node is not leader]
    assert a.publish("s", b"before") == Stored(1)
    b.kill_server()
    leader.kill_server()
    refusals: list[NotStored] = []

    def is_leaderless() -> bool:
        refused = a.publish_now("s", b"meanwhile", entry_id="meanwhile", deadline_s=1.0)
        assert isinstance(refused, NotStored)
        refusals.append(refused)
        return refused.is_sure

    wait_until(is_leaderless, PATIENCE_S)
    wait_until(lambda: isinstance(a.stream_state("s", 1.0), NoQuorum), PATIENCE_S)
    wait_until(lambda: a.state().leader == "", PATIENCE_S)
    for node in (b, leader):
        node.start_server()
        node.wait_connected(2)
    became: list[Stored | NotStored] = []

    def is_stored() -> bool:
        became.append(a.publish_now("s", b"meanwhile", entry_id="meanwhile", deadline_s=1.0))
        return isinstance(became[-1], Stored)

    wait_until(is_stored, PATIENCE_S)
    # Once, also where one of those that nobody has acknowledged was stored after all.
    assert became[-1] == Stored(2)
    assert assert_equal(engines, 2) == [b"before", b"meanwhile"]


def test_entries_that_the_stream_has_forgotten_are_told_before_anything_else(start_engines):
    engines = start_engines()
    engines.make_stream("s", bytes_max=1 << 20)
    a = engines["a"]
    for _ in range(20):
        assert isinstance(a.publish("s", bytes(100_000)), Stored)
    first = a.stream_state("s").first_place
    assert first > 1
    a.engine.follow("s", 0, 1)
    a.wait_for(lambda: a.followed().ends)
    assert a.followed().ends == [Forgotten("s", 1, first)]
    assert a.followed().entries == []
    a.engine.follow("s", first - 1, 2)
    assert [entry.place for entry in a.wait_followed(21 - first, 2)] == list(range(first, 21))


def test_a_stream_that_is_deleted_is_lost_and_one_of_the_same_name_is_another(engines):
    follow_all(engines)
    a = engines["a"]
    a.publish("s", b"x")
    assert_equal(engines, 1)
    assert a.call(lambda told: a.engine.delete_stream("s", told)) is None
    assert a.call(lambda told: a.engine.delete_stream("s", told)) is None
    for node in engines:
        node.wait_for(lambda node=node: node.followed().ends)
        assert node.followed().ends == [Lost("s", 1)]
    assert isinstance(a.stream_state("s"), UnknownStream)
    engines.make_stream("s")
    a.publish("s", b"y")
    a.engine.follow("s", 0, 2)
    assert [entry.payload for entry in a.wait_followed(1, 2)] == [b"y"]
    assert a.followed().ends == [Lost("s", 1)]


def test_who_follows_no_more_hears_nothing_and_a_second_follow_replaces_the_first(engines):
    a = engines["a"]
    a.engine.follow("s", 0, 1)
    a.publish("s", b"1")
    a.wait_followed(1)
    a.engine.follow("s", 0, 2)
    a.wait_followed(1, 2)
    a.publish("s", b"2")
    a.wait_followed(2, 2)
    assert len(a.followed(1).entries) == 1
    a.engine.unfollow("s")
    a.publish("s", b"3")
    a.engine.follow("s", 2, 3)
    a.wait_followed(1, 3)
    assert len(a.followed(2).entries) == 2


def test_of_two_that_change_a_key_at_once_one_is_told_so_and_all_hear_the_same(engines):
    a, b, c = engines
    first = a.put_catalog("k", b"1", 0)
    assert isinstance(first, int)
    assert isinstance(b.put_catalog("k", b"2", 0), CatalogChangedMeanwhile)
    second = b.put_catalog("k", b"2", first)
    assert isinstance(second, int)
    assert second > first
    other = c.put_catalog("K-_9", b"", 0)

    def is_heard(node: EngineNode) -> bool:
        return node.catalog() == {"k": (b"2", second), "K-_9": (b"", other)}

    for node in engines:
        # A value that was replaced at once need not be heard.
        node.wait_for(partial(is_heard, node))


def test_values_that_follow_one_another_at_once_are_all_stored(engines):
    a = engines["a"]
    revision, revisions = 0, []
    for turn in range(200):
        became = a.put_catalog("k", str(turn).encode(), revision)
        assert isinstance(became, int)
        revision = became
        revisions.append(revision)
    assert revisions == sorted(set(revisions))
    a.wait_for(lambda: a.catalog().get("k") == (b"199", revision))


def test_at_each_connection_the_newest_of_each_key_is_heard(engines):
    a, b, _ = engines
    revision = 0
    for turn in range(5):
        became = a.put_catalog("k", str(turn).encode(), revision)
        assert isinstance(became, int)
        revision = became
    b.wait_for(lambda: b.catalog().get("k") == (b"4", revision))
    b.kill_server()
    assert isinstance(a.put_catalog("other", b"x", 0), int)
    b.start_server()
    b.wait_connected(2)
    at = max(index for index, event in enumerate(b.events) if isinstance(event, Connected))
    b.wait_for(lambda: len([e for e in b.events[at:] if isinstance(e, CatalogChanged)]) >= 2)
    heard = [(e.key, e.value) for e in b.events[at:] if isinstance(e, CatalogChanged)]
    assert heard == [("k", b"4"), ("other", b"x")]


def test_a_node_asks_another_and_is_told_where_nobody_answers(engines):
    a, b, _ = engines
    # A server hears a moment later than others that somebody can be asked.
    wait_until(lambda: a.ask("b", b"hello") == b"HELLO", PATIENCE_S)
    assert a.ask("a", b"") == b""
    wait_until(lambda: b.ask("a", b"") == b"", PATIENCE_S)
    payload = b"x" * (16 << 20)
    assert b.ask("a", payload, 20.0) == payload.upper()
    assert isinstance(a.ask("nobody", b"hello"), UnknownNode)
    assert len(a.heard(PeerAsked)) == 3
    b.freeze_server()
    try:
        assert a.ask("b", b"hello", 1.0) is None
    finally:
        b.thaw_server()
    b.close()
    wait_until(lambda: isinstance(a.ask("b", b"hello", 1.0), UnknownNode), PATIENCE_S)


def known_nodes(node: EngineNode) -> dict[str, bool]:
    """Which nodes there are as one says, and whether they are reached; none where it cannot say."""
    return dict(getattr(node.state(), "nodes", {}))


def test_what_is_there_and_who_leads_it_is_told(engines):
    a = engines["a"]
    a.publish("s", bytes(1000))
    wait_until(lambda: set(a.replicas("s").values()) == {0}, PATIENCE_S)
    state = a.stream_state("s")
    assert state.leader in "abc"
    assert set(state.replicas) == set("abc")
    assert state.size_bytes > 1000
    assert state.changed == ()
    whole = a.state()
    assert whole.leader in "abc"
    assert whole.nodes == {"a": True, "b": True, "c": True}
    assert whole.size_bytes > 1000
    victim = next(node for node in engines if node.name not in (whole.leader, "a"))
    victim.kill_server()
    wait_until(lambda: known_nodes(a).get(victim.name) is False, PATIENCE_S)
    wait_until(lambda: a.replicas("s").get(victim.name) == -1, PATIENCE_S)


def test_who_leads_is_changed_though_nobody_does_just_now(engines):
    """While one is elected nobody leads, and who has just been elected has heard of nobody yet."""
    a, b, _ = engines
    for name in "bca" * 2:
        told: list[PoeError | None] = []
        a.engine.lead("s", name, told.append)
        while not told:
            assert isinstance(b.call(partial(b.engine.lead, "s", "nobody")), UnknownNode)
        assert told == [None]
    victim = next(node for node in engines if node not in (a, engines.leader("s")))
    victim.kill_server()
    wait_until(lambda: a.replicas("s").get(victim.name) == -1, PATIENCE_S)
    assert isinstance(a.call(partial(a.engine.lead, "s", victim.name)), UnknownNode)


def test_a_cluster_grows_from_one_node_which_alone_agrees_with_nobody(nats_program, tmp_path):
    del nats_program
    with Engines(tmp_path, 3, knows_first=True) as engines:
        a, b, c = engines
        engines.start([a])
        a.wait_connected()
        assert isinstance(a.make_stream("s", replicas=1), NoQuorum)
        assert a.state().leader == ""
        engines.start([b])
        wait_until(lambda: known_nodes(a) == {"a": True, "b": True}, PATIENCE_S)
        refused = a.make_stream("s")
        assert isinstance(refused, TooFewNodes)
        assert (refused.wanted, refused.live) == (3, 2)
        engines.start([c])
        engines.wait_whole()
        engines.make_stream("s")
        assert c.publish("s", b"x") == Stored(1)


def test_a_stream_is_made_once_and_not_on_more_nodes_than_there_are(engines):
    a, b, _ = engines
    assert b.make_stream("s") is None
    error = a.make_stream("large", replicas=5)
    assert isinstance(error, TooFewNodes)
    assert (error.wanted, error.live) == (5, 3)


def test_a_stream_gets_other_numbers_of_replicas_and_of_bytes(engines):
    a = engines["a"]
    for number in range(30):
        assert isinstance(a.publish("s", bytes(100_000), entry_id=str(number)), Stored)
    assert a.make_stream("s", replicas=1, bytes_max=1 << 20) is None
    wait_until(lambda: len(a.replicas("s")) == 1, PATIENCE_S)
    assert a.stream_state("s").first_place > 20
    assert a.make_stream("s", replicas=3, bytes_max=1 << 24) is None
    wait_until(lambda: list(a.replicas("s").values()) == [0, 0, 0], PATIENCE_S)
    assert isinstance(a.make_stream("s", replicas=5), TooFewNodes)


def test_a_stream_that_somebody_has_changed_is_named(engines):
    a = engines["a"]
    names = Names("t.est")
    settings = {
        "name": names.stream("s"), "subjects": [names.subject("s")], "num_replicas": 3,
        "retention": "limits", "storage": "file", "discard": "old", "max_age": 10**9,
        "max_bytes": 64 << 20, "duplicate_window": 10**9, "deny_delete": True, "deny_purge": True,
    }  # fmt: skip
    assert "error" not in ask_server(a, f"$JS.API.STREAM.UPDATE.{names.stream('s')}", settings)
    changed = a.stream_state("s").changed
    assert [each.partition(":")[0] for each in changed] == ["max_age", "duplicate_window"]
    error = a.make_stream("s")
    assert isinstance(error, LogEngineUnfit)
    assert "max_age: 1000000000, not 0" in str(error)


def ask_server(node: EngineNode, subject: str, question: dict[str, Any]) -> dict[str, Any]:
    """Ask a server something that an engine never would."""
    import asyncio  # noqa: PLC0415

    from poe.cluster.log.nats_link import Link  # noqa: PLC0415 - an extra

    async def ask() -> dict[str, Any]:
        target = node.server.target()
        assert target is not None
        link = await Link.connect(target, target.urls[0], target.login)
        try:
            return await link.ask(subject, question, 5.0)
        finally:
            await link.close()

    return asyncio.run(ask())


def test_a_stream_is_led_by_whom_it_is_given_to(engines):
    a = engines["a"]
    for name in ("b", "c", "a"):
        assert a.call(lambda told, name=name: a.engine.lead("s", name, told)) is None
        assert a.stream_state("s").leader == name
        assert isinstance(a.publish("s", b"x" + name.encode()), Stored)
    assert isinstance(a.call(lambda told: a.engine.lead("s", "z", told)), UnknownNode)
    assert isinstance(a.call(lambda told: a.engine.lead("none", "b", told)), UnknownStream)


def test_a_node_that_is_forgotten_is_replaced_by_another_one(start_engines):
    engines = start_engines(4)
    engines.make_stream("s")
    a = engines["a"]
    for number in range(20):
        assert isinstance(a.publish("s", str(number).encode()), Stored)
    replicas = a.stream_state("s").replicas
    spare = next(node for node in engines if node.name not in replicas)
    victim = next(node for node in engines if node.name in set(replicas) - {"a"})
    assert isinstance(a.call(lambda told: a.engine.forget_node("z", told)), UnknownNode)
    victim.close()
    wait_until(lambda: known_nodes(a).get(victim.name) is False, PATIENCE_S)
    assert a.call(lambda told: a.engine.forget_node(victim.name, told)) is None
    wait_until(lambda: victim.name not in (known_nodes(a) or victim.name), PATIENCE_S)

    def is_moved() -> bool:
        state = a.stream_state("s", 1.0)
        found = getattr(state, "replicas", {})
        return victim.name not in found and found.get(spare.name) == 0

    wait_until(is_moved, PATIENCE_S)
    spare.engine.follow("s", 0, 1)
    assert [int(entry.payload) for entry in spare.wait_followed(20)] == list(range(20))


def test_a_server_with_a_certificate_of_another_authority_stays_outside(start_engines, tmp_path):
    certificates = Certificates.make(tmp_path)
    engines = start_engines(3, **files_of(certificates))
    (tmp_path / "other").mkdir()
    others = files_of(Certificates.make(tmp_path / "other"))
    a = engines["a"]
    engines.make_stream("s")
    assert a.publish("s", b"x") == Stored(1)
    stranger = Engines(tmp_path / "stranger", 1, **others).nodes[0]
    routes = tuple(node.options.log_locator for node in engines)
    stranger.options = type(stranger.options)(
        cluster="t.est", cluster_port=stranger.options.cluster_port, log_engine="nats",
        log_port=stranger.options.log_port, log_seeds=routes, **others,
    )  # fmt: skip
    stranger.server = type(stranger.server).prepare(stranger.options, stranger.folder, "z")
    try:
        stranger.start_server()
        log = a.folder / "log" / "nats.log"
        wait_until(lambda: "TLS route handshake error" in log.read_text(), PATIENCE_S)
        assert a.state().nodes == {"a": True, "b": True, "c": True}
    finally:
        stranger.close()


def files_of(certificates: Certificates) -> dict[str, Any]:
    return {
        "cluster_certificate": certificates.file("server.pem"),
        "cluster_key": certificates.file("server.key"),
        "cluster_ca": certificates.file("ca.pem"),
    }


def test_servers_of_somebody_elses_are_used_by_their_urls(start_engines, tmp_path):
    engines = start_engines()
    a = engines["a"]
    credentials = tmp_path / "credentials"
    credentials.write_text(f"poe:{a.server.secret}")
    target = a.server.target()
    assert target is not None
    options = ClusterOptions(
        cluster="other",
        log_engine=f"nats://127.0.0.1:{free_port()},{target.urls[0]}",
        log_credentials=credentials,
    )
    node = EngineNode(options, tmp_path / "z", "z", OutsideServers(options))
    try:
        node.open()
        node.wait_connected()
        # Names of another cluster on the same servers are others.
        engines.make_stream("s")
        assert a.publish("s", b"x") == Stored(1)
        assert isinstance(node.stream_state("s"), UnknownStream)
        assert node.make_stream("s") is None
        wait_until(lambda: node.publish("s", b"y") == Stored(1), PATIENCE_S)
        node.engine.follow("s", 0, 1)
        assert [entry.payload for entry in node.wait_followed(1)] == [b"y"]
        wait_until(lambda: known_nodes(node) == {"a": True, "b": True, "c": True}, PATIENCE_S)
        assert node.state().leader in "abc"
        # They are none of the cluster's nodes, which are forgotten without them.
        assert isinstance(node.call(partial(node.engine.forget_node, "b")), UnknownNode)
        assert a.state().nodes.keys() == {"a", "b", "c"}
    finally:
        node.close()


def test_nodes_that_use_servers_of_somebody_elses_find_each_other(start_engines, tmp_path):
    engines = start_engines()
    credentials = tmp_path / "credentials"
    credentials.write_text(f"poe:{engines['a'].server.secret}")
    target = engines["a"].server.target()
    assert target is not None
    options = ClusterOptions(
        cluster="other", log_engine=target.urls[0], log_credentials=credentials
    )  # fmt: skip
    nodes = [
        EngineNode(options, tmp_path / name, name, OutsideServers(options)) for name in ("y", "z")
    ]
    try:
        for node in nodes:
            node.open()
            node.wait_connected()
        wait_until(lambda: set(known_nodes(nodes[0])) == {"a", "b", "c"}, PATIENCE_S)
        assert nodes[0].state().peers == {"y": True, "z": True}
        nodes[1].close()
        assert nodes[0].state().peers == {"y": True}
    finally:
        for node in nodes:
            node.close()
    assert engines["a"].state().peers == {"a": True, "b": True, "c": True}


@pytest.mark.parametrize("is_known", [True, False], ids=["with", "without a certificate"])
def test_servers_with_tls_are_used_with_the_certificate_of_the_node(
    nats_program, tmp_path, is_known
):
    certificates = Certificates.make(tmp_path)
    files = files_of(certificates)
    port = quiet_ports(1)[0]
    settings = settings_of(
        ClusterOptions(cluster="c", log_engine="nats", log_port=quiet_ports(1)[0]),
        "z", tmp_path, "secret",
    )  # fmt: skip
    settings |= {"listen": f"127.0.0.1:{port}", "tls": {
        "cert_file": str(files["cluster_certificate"]), "key_file": str(files["cluster_key"]),
        "ca_file": str(files["cluster_ca"]), "verify": True,
    }}  # fmt: skip
    (tmp_path / "run").mkdir()
    path = tmp_path / "nats.conf"
    path.write_text(text_of(settings))
    (tmp_path / "credentials").write_text("poe:secret")
    options = ClusterOptions(
        cluster="c", log_engine=f"tls://127.0.0.1:{port}",
        log_credentials=tmp_path / "credentials", **(files if is_known else {}),
    )  # fmt: skip
    node = EngineNode(options, tmp_path / "z", "z", OutsideServers(options))
    command = ["setpriv", "--pdeathsig", "KILL", str(nats_program), "-c", str(path)]
    server = subprocess.Popen(command)
    try:
        node.open()
        if is_known:
            node.wait_connected()
        else:
            node.wait_for(lambda: any("ertificate" in e.why for e in node.heard(Disconnected)))
    finally:
        node.close()
        server.kill()
        server.wait(PATIENCE_S)


def test_an_owner_that_begins_anew_without_having_left_hears_all_once(engines):
    a = engines["a"]
    a.engine.follow("s", 0, 1)
    a.publish("s", b"x")
    a.wait_followed(1)
    a.open()
    a.wait_connected(2)
    a.engine.follow("s", 0, 2)
    a.wait_followed(1, 2)
    assert a.publish("s", b"y") == Stored(2)
    assert len(a.wait_followed(2, 2)) == 2
    assert len(a.followed(1).entries) == 1


class Elsewhere:
    """Says another thing of where a server is than the server does."""

    def __init__(self, change: Callable[[NatsTarget], NatsTarget | None], node: EngineNode) -> None:
        self.change, self.node = change, node

    def target(self) -> NatsTarget | None:
        target = self.node.server.target()
        return None if target is None else self.change(target)


def test_who_does_not_know_the_secret_is_not_let_in(start_engines):
    from poe.cluster.log.nats_engine import NatsEngine  # noqa: PLC0415 - an extra

    engines = start_engines(1)
    wrong = Elsewhere(lambda target: NatsTarget(target.urls, Login("poe", "wrong")), engines["a"])
    heard: list[Any] = []
    engine = NatsEngine("x", "t.est", wrong)
    engine.open(heard.append)
    try:
        wait_until(lambda: heard, PATIENCE_S)
        (event,) = heard
        assert isinstance(event, Disconnected)
        assert event.why.endswith("does not let this node in")
        told: list[Any] = []
        engine.publish("s", "1", b"x", 1.0, told.append)
        wait_until(lambda: told, PATIENCE_S)
        assert told[0].is_sure
    finally:
        engine.close()


def test_a_server_that_is_too_old_or_takes_too_little_is_not_used(nats_program):
    """It says so itself, as it is connected: here a few lines that speak for it."""
    from poe.cluster.log.nats_engine import NatsEngine  # noqa: PLC0415 - an extra
    from tests.cluster.log.old_server import old_server  # noqa: PLC0415

    del nats_program
    answers: list[tuple[dict[str, Any], str]] = [
        ({"version": "2.9.10"}, "is version 2.9.10"),
        ({"version": "2.15.1", "max_payload": 1 << 20}, "set `max_payload`"),
        ({"version": "2.15.1", "jetstream": False}, "no JetStream"),
    ]
    for said, why in answers:
        with old_server(**said) as url:
            heard: list[Any] = []
            engine = NatsEngine("x", "c", Fixed(url))
            engine.open(heard.append)
            try:
                wait_until(partial(bool, heard), PATIENCE_S)
                assert why in heard[0].why
            finally:
                engine.close()


class Fixed:
    """A server at a url."""

    def __init__(self, url: str) -> None:
        self.url = url

    def target(self) -> NatsTarget:
        return NatsTarget((self.url,))


def test_what_is_under_way_when_it_is_closed_is_told_once(engines):
    a = engines["a"]
    told: list[Any] = []
    for number in range(200):
        a.publish_soon("s", bytes(10_000), told.append, entry_id=str(number))
    a.engine.stream_state("s", 5.0, told.append)
    a.engine.ask("b", b"x", 5.0, told.append)
    a.engine.put_catalog("k", b"x", 0, told.append)
    a.engine.close()
    a.is_open = False
    assert len(told) == 203
    before = len(a.events)
    a.engine.publish("s", "late", b"x", 1.0, told.append)
    assert told[-1].is_sure
    a.engine.stream_state("s", 1.0, told.append)
    assert isinstance(told[-1], NoQuorum)
    a.engine.close()
    assert len(a.events) == before
    assert len(told) == 205
    a.open()
    a.wait_connected(2)
    assert isinstance(a.publish("s", b"again"), Stored)
