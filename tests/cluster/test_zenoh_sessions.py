"""What the fabric counts on: how soon bare sessions of zenoh miss one another, and who relays."""

import time
from contextlib import closing, contextmanager

import pytest

from tests.cluster.network import network
from tests.cluster.program import Program
from tests.waiting import wait_until

pytest.importorskip("zenoh")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NAMES = "abcdefgh"
LATE_S = 8
"""A lease is 2 s; where threads that receive are too few, or stuck, it takes 10 s and more."""


class Peers:
    """A session on each host."""

    def __init__(self, net, folder, mode):
        self.net = net
        self.programs = {}
        for host, name in zip(net.hosts, NAMES, strict=False):
            seed = [] if name == "a" else [net.hosts[0].address]
            arguments = ["-m", "tests.cluster.zenoh_peer", mode, name, host.address, *seed]
            self.programs[name] = Program(host, arguments, folder / f"{name}.log")

    def __getitem__(self, name):
        return self.programs[name]

    def live(self, name):
        """Those who are there, as one sees it."""
        found: set[str] = set()
        for line in list(self[name].lines):
            what, other, _ = line.split()
            (found.add if what == "up" else found.discard)(other)
        return found

    def told(self, name, what, other):
        """When one was last told of another's coming or going."""
        lines = (line.split() for line in list(self[name].lines))
        return max((float(at) for *said, at in lines if said == [what, other]), default=0.0)

    def wait_for_live(self, **wanted):
        wait_until(lambda: all(self.live(name) == set(live) for name, live in wanted.items()), 40)

    def close(self):
        for each in self.programs.values():
            each.kill()


@contextmanager
def sessions(folder, count=3, mode="peer"):
    """So many sessions, each of which was found by all others."""
    with network(count) as net, closing(Peers(net, folder, mode)) as made:
        made.wait_for_live(**dict.fromkeys(NAMES[:count], NAMES[:count]))
        yield made


@pytest.fixture
def peers(tmp_path):
    with sessions(tmp_path) as made:
        yield made


def test_a_killed_peer_is_missed_at_once(peers):
    killed = time.monotonic()
    peers["c"].kill()
    peers.wait_for_live(a="ab", b="ab")
    # Before its lease is over.
    assert max(peers.told(name, "down", "c") for name in "ab") - killed < 1


def test_a_frozen_peer_is_missed_after_its_lease_and_found_again(peers):
    frozen = time.monotonic()
    peers["c"].freeze()
    peers.wait_for_live(a="ab", b="ab")
    assert 1 < max(peers.told(name, "down", "c") for name in "ab") - frozen < LATE_S
    peers["c"].thaw()
    peers.wait_for_live(a="abc", b="abc", c="abc")


def test_both_sides_of_a_cut_miss_each_other_and_meet_again(peers):
    cut = time.monotonic()
    peers.net.cut_off(peers.net.hosts[2])
    peers.wait_for_live(a="ab", b="ab", c="c")
    missed = [peers.told(*each) for each in (("a", "down", "c"), ("c", "down", "b"))]
    assert all(1 < at - cut < LATE_S for at in missed)
    peers.net.connect(peers.net.hosts[2])
    peers.wait_for_live(a="abc", b="abc", c="abc")


def test_two_peers_that_cannot_see_each_other_are_both_seen_by_the_third(peers):
    a, b, _ = peers.net.hosts
    peers.net.cut_between(a, b)
    peers.wait_for_live(a="ac", b="bc", c="abc")
    peers.net.connect_between(a, b)
    peers.wait_for_live(a="abc", b="abc", c="abc")


def test_what_is_lost_one_way_is_missed_by_both(peers):
    a, b, _ = peers.net.hosts
    peers.net.cut_one_way(a, b)
    peers.wait_for_live(a="ac", b="bc", c="abc")


def test_routers_relay_between_those_who_cannot_see_each_other(tmp_path):
    with sessions(tmp_path, mode="router") as routers:
        a, b, _ = routers.net.hosts
        cut = time.monotonic()
        routers.net.cut_between(a, b)
        wait_until(lambda: time.monotonic() > cut + 4)  # twice as long as the lease
        assert [routers.live(name) for name in "abc"] == [set("abc")] * 3
        assert routers.told("a", "down", "b") == 0


def test_one_that_is_cut_off_from_many_misses_all_of_them_at_once(tmp_path):
    with sessions(tmp_path, 8) as peers:
        cut = time.monotonic()
        peers.net.cut_off(peers.net.hosts[2])
        peers.wait_for_live(c="c", a="abdefgh")
        assert max(peers.told("c", "down", name) for name in "abdefgh") - cut < LATE_S


def test_a_peer_that_was_killed_is_found_again_under_its_name(peers):
    host = peers.net.hosts[1]
    peers["b"].kill()
    peers.wait_for_live(a="ac", c="ac")
    arguments = ["-m", "tests.cluster.zenoh_peer", "peer", "b", host.address]
    program = Program(host, [*arguments, peers.net.hosts[0].address], peers["b"].log)
    peers.programs["b"] = program
    peers.wait_for_live(a="abc", b="abc", c="abc")
