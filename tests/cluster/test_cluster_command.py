"""`poe cluster`: what it tells of two nodes, one of which is stopped and forgotten."""

import json

import pytest

from tests.cli.processes import complaint, poe, poe_here
from tests.cluster.linked_nodes import LinkedNode, Links
from tests.waiting import wait_until


@pytest.fixture
def nodes(tmp_path):
    links = Links()
    a = LinkedNode(links, tmp_path / "a", "ada", port=0, zone="rack1")
    b = LinkedNode(links, tmp_path / "b", "bob")
    with a, b:
        wait_until(lambda: a.control("cluster")["live"] == 2, 5)
        yield a, b


@pytest.fixture
def run(nodes):
    def run(*arguments, code=0):
        ended = poe_here("cluster", *arguments, port=nodes[0].address[1])
        assert ended.returncode == code, ended
        return ended.stdout.decode() if code == 0 else complaint(ended)

    return run


def rows(output):
    return [json.loads(line) for line in output.splitlines()]


def test_status_tells_of_the_cluster_and_of_what_has_happened(nodes, run):
    nodes[0].control("queue_put", topic="jobs", messages=[b"one"])
    told = run("status")
    assert told.startswith("cluster test: 2 of 2 members live, 1 queue, 0 groups\n")
    assert "this node: ada at 127.0.0.1:5557, zone rack1, id " in told
    assert "  put ok: 1\n" in told
    assert "node_up: bob" in told
    (row,) = rows(run("status", "--format", "json"))
    assert (row["state"], row["live"]) == ("joined", 2)


def test_the_status_of_a_server_has_a_line_for_its_cluster(nodes):
    ended = poe_here("status", port=nodes[0].address[1])
    assert ended.stdout.decode().endswith("cluster:\ttest: joined, 2 of 2 live, 0 queues\n")


def test_members_are_listed_one_a_line(nodes, run):
    lines = run("members").splitlines()
    told = {line.split("\t")[1]: line.split("\t")[2:] for line in lines}
    assert told["ada"] == ["joined", "me", "127.0.0.1:5557", "rack1"]
    assert told["bob"] == ["joined", "live", "127.0.0.1:5557", ""]
    assert {row["name"] for row in rows(run("members", "--format", "json"))} == {"ada", "bob"}


def test_a_node_that_is_down_is_forgotten_and_one_that_lives_is_not(nodes, run):
    assert "stop it before" in run("forget", "bob", code=1)
    assert "no member of the cluster is 'eve'" in run("forget", "eve", code=1)
    nodes[1].stop()
    wait_until(lambda: "bob\tleft\tdown" in run("members"), 5)
    assert run("forget", "bob").startswith("node bob (")
    assert "bob\tforgotten\tdown" in run("members")


def test_what_came_twice_is_reported_with_cause_nodes_and_time(nodes, run):
    a, b = nodes
    a.control("queue_put", topic="jobs", messages=[b"one"])
    assert run("report") == ""
    wait_until(lambda: b.control("queue_browse", topic="jobs")["messages"], 5)
    a.links.cut(a.me.ref, b.me.ref)
    wait_until(lambda: a.control("cluster")["live"] == b.control("cluster")["live"] == 1, 5)
    for node in nodes:
        with node.queue("jobs", group="g") as queue:
            queue.get(timeout_s=5).ack()
    a.links.heal(a.me.ref, b.me.ref)
    wait_until(lambda: "\tcertain\t" in run("report", "--queue", "jobs"), 15)
    assert run("report").startswith("jobs\tg\t")
    (row,) = rows(run("report", "--format", "json"))
    assert (row["queue"], row["group"], row["certainty"]) == ("jobs", "g", "certain")
    assert "queue 'other' is not known" in run("report", "--queue", "other", code=1)


def test_a_node_without_a_cluster_says_so(node):
    ended = poe_here("cluster", "status", port=node.address[1])
    assert "this node is in no cluster" in complaint(ended)


@pytest.mark.slow
def test_a_folder_that_no_start_makes_right_ends_a_server_as_a_wrong_option_does(tmp_path):
    """A service manager that starts it again and again would do so for ever."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "node.identity").write_bytes(b"damaged")
    run = poe("serve", "--dir", folder, "--port", 0, "--cluster", "shop", "--adopt-folder")
    assert b"node.identity cannot be used" in run.stderr.splitlines()[-1]
    assert run.returncode == 2
