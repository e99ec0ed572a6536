"""What happens to nodes and networks: none of it loses what was promised, or doubles it unnamed.

Three nodes in processes and on hosts of their own; clients at each put and take jobs all the while.
"""

import time

import pytest

from tests.cluster.clusters import finish, go_on, set_going
from tests.cluster.network import network
from tests.cluster.nodes import PEER_PORT, Nodes
from tests.cluster.witness import connect
from tests.waiting import wait_until

pytest.importorskip("zenoh")
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


def test_without_a_fault_nothing_comes_twice(witness):
    set_going(witness)
    finish(witness)
    history = witness.history()
    messages = [each for event in history.of("handed") for each in event.messages]
    assert len(messages) == len(set(messages))


@pytest.mark.parametrize("has_folder", [True, False])
def test_a_killed_node_is_missed_at_once_and_joins_again(witness, has_folder):
    set_going(witness)
    c = witness.nodes["c"]
    witness.kill(c)
    killed = time.monotonic()
    witness.nodes.wait_until_seen(a="ab", b="ab")
    assert time.monotonic() - killed < 2
    go_on(witness, "ab")
    if not has_folder:
        c.lose_folder()
    witness.start(c)
    go_on(witness, "abc")
    finish(witness)


def test_a_frozen_node_costs_the_others_nothing_and_goes_on_when_it_is_thawed(witness):
    set_going(witness)
    c = witness.nodes["c"]
    with witness.fault("freeze of c"):
        c.process.freeze()
        witness.nodes.wait_until_seen(a="ab", b="ab")
        go_on(witness, "ab")
        c.process.thaw()
    go_on(witness, "abc")
    finish(witness)


def test_both_sides_of_a_split_go_on_and_agree_when_it_heals(witness):
    set_going(witness)
    net, c = witness.nodes.net, witness.nodes["c"]
    with witness.fault("cut of c"):
        net.cut_off(c.host)
        witness.nodes.wait_until_seen(a="ab", b="ab", c="c")
        assert witness.put(c) == "refused"
        assert witness.put(c, copies=1) == "ok"
        go_on(witness, "ab")
        net.connect(c.host)
    go_on(witness, "abc")
    finish(witness)


def test_nodes_find_each_other_after_a_cut_though_the_seed_of_both_is_gone(tmp_path):
    with network(3) as net:
        made = Nodes.joined(net, tmp_path, ())
        for node in made:
            node.options = [*node.options, "--seeds", f"{net.hosts[0].address}:{PEER_PORT}"]
        with made.running() as cluster:
            cluster["a"].kill()
            cluster.wait_until_seen(b="bc", c="bc")
            net.cut_off(cluster["c"].host)
            cluster.wait_until_seen(b="b", c="c")
            net.connect(cluster["c"].host)
            cluster.wait_until_seen(b="bc", c="bc")


def test_two_nodes_that_cannot_see_each_other_agree_by_way_of_the_third(witness):
    set_going(witness)
    net = witness.nodes.net
    one, other = witness.nodes["a"].host, witness.nodes["b"].host
    with witness.fault("cut between a and b"):
        net.cut_between(one, other)
        witness.nodes.wait_until_seen(a="ac", b="bc", c="abc")
        go_on(witness, "abc")
        net.connect_between(one, other)
    finish(witness)


def test_routers_pass_on_between_two_nodes_that_cannot_see_each_other(make_witness):
    witness = make_witness("--cluster-mode", "router")
    set_going(witness)
    net = witness.nodes.net
    one, other = witness.nodes["a"].host, witness.nodes["b"].host
    with witness.fault("cut between a and b"):
        net.cut_between(one, other)
        cut = time.monotonic()
        wait_until(lambda: time.monotonic() > cut + 4)  # twice as long as anybody may be silent
        assert [node.live() for node in witness.nodes] == [set("abc")] * 3
        go_on(witness, "abc")
        net.connect_between(one, other)
    finish(witness)


def test_what_is_lost_one_way_is_lost_both_ways(witness):
    set_going(witness)
    net = witness.nodes.net
    one, other = witness.nodes["a"].host, witness.nodes["b"].host
    with witness.fault("cut from a to b"):
        net.cut_one_way(one, other)
        witness.nodes.wait_until_seen(a="ac", b="bc", c="abc")
        go_on(witness, "abc")
        net.connect_one_way(one, other)
    finish(witness)


def test_a_slow_link_does_not_hold_up_those_who_do_not_use_it(witness):
    a, c = witness.nodes["a"], witness.nodes["c"]
    set_going(witness)
    with witness.fault("slow link of c"):
        witness.nodes.net.slow_down(c.host, "10mbit")
        took = []
        with connect(a) as socket:
            for _ in range(300):  # 18 MB, of which the link would carry half in 7 s
                begun = time.monotonic()
                socket.control("queue_put", topic="large", messages=[bytes(60_000)], copies=2)
                took.append(time.monotonic() - begun)
        assert sorted(took)[150] < 0.2
        go_on(witness, "ab")
        witness.nodes.net.speed_up(c.host)
    go_on(witness, "abc")
    finish(witness)
