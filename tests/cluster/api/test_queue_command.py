"""`poe queue`, `poe put --queue` and `poe work` at a node of a cluster."""

import json
import sys
from typing import Any

import pytest

from poe import client
from poe.storage import decode_records
from tests.cli.processes import Background, complaint, poe, poe_here
from tests.cluster.linked_nodes import LinkedNode, Links
from tests.waiting import wait_until

Queue: Any = client.Queue


@pytest.fixture
def node(tmp_path):
    with LinkedNode(Links(), tmp_path / "data", "a", port=0, copies=1) as node:
        yield node


@pytest.fixture
def run(node):
    def run(*arguments, code=0, **options):
        ended = poe_here(*arguments, port=node.address[1], **options)
        assert ended.returncode == code, ended
        return ended.stdout.decode() if code == 0 else complaint(ended)

    return run


def taken(node, name, count, **options):
    found: list[bytes] = []
    with node.queue(name, **options) as queue:
        while len(found) < count:
            with queue.get(timeout_s=5) as job:
                found.append(job.value)
    return found


def test_messages_are_put_onto_a_queue_which_that_makes(node, run):
    assert run("queue", "put", "jobs", "a", "b").startswith("2 messages, last pointer ")
    assert run("queue", "put", "jobs", "c", "--copies", "1").endswith(", 1 copy\n")
    assert taken(node, "jobs", 3) == [b"a", b"b", b"c"]
    assert "2 copies were asked for" in run("queue", "put", "jobs", "d", "--copies", "2", code=1)


def test_put_onto_a_queue_takes_lines_too(node, run):
    assert run("put", "--queue", "jobs", "a").startswith("1 message, last pointer ")
    ended = poe("put", "--queue", "jobs", "-", stdin=b"b\nc\n", port=node.address[1])
    assert ended.stdout.startswith(b"2 messages, "), ended
    assert taken(node, "jobs", 3) == [b"a", b"b", b"c"]
    assert node.topics() == []


def test_put_without_queue_makes_a_topic(node, run):
    run("put", "orders", "a")
    assert node.topics() == [b"orders"]


def test_a_delayed_message_is_put_onto_a_queue(node, run):
    assert run("queue", "put", "jobs", "a", "--delay", "0.1") == "1 message, due in 0.1 s\n"
    assert taken(node, "jobs", 1) == [b"a"]
    assert node.topics() == []


def test_queues_are_made_listed_and_deleted(run):
    told = run("queue", "create", "jobs", "--on-full", "drop-oldest", "--messages-max", "10")
    assert told == "jobs\t1 copy\t0 messages here\twhen full: drop-oldest\n"
    assert run("queue", "list") == told
    row = json.loads(run("queue", "list", "--format", "json"))
    assert (row["name"], row["messages_max"], row["persist"]) == ("jobs", 10, False)
    assert "in use" in run("queue", "create", "jobs", code=1)
    assert "--yes" in run("queue", "delete", "jobs", code=2)
    assert run("queue", "delete", "jobs", "--yes") == "queue jobs: deleted\n"
    assert run("queue", "list") == ""


def test_what_a_queue_holds_is_dumped_and_stays(node, run):
    run("queue", "put", "jobs", "one", "two")
    assert run("queue", "dump", "jobs") == "one\ntwo\n"
    rows = [
        json.loads(line)
        for line in run("queue", "dump", "jobs", "--format", "json").split("\n")[:2]
    ]
    assert [row["message"] for row in rows] == ["one", "two"]
    assert rows[0]["stream"].startswith("jobs@")
    assert rows[1]["pointer"] == rows[0]["pointer"] + 1
    raw = poe_here("queue", "dump", "jobs", "--format", "raw", port=node.address[1]).stdout
    assert [message for _, message in decode_records(raw)] == [b"one", b"two"]
    assert taken(node, "jobs", 2) == [b"one", b"two"]


def test_a_group_of_a_queue_shows_how_far_it_is_in_each_stream(node, run):
    run("queue", "put", "jobs", "a", "b", "c")
    with node.queue("jobs", group="workers") as queue:
        done, held = queue.get(timeout_s=5), queue.get(timeout_s=5)
        done.ack()
        wait_until(lambda: f"floor {done.pointer}" in run("group", "show", "workers"), 5)
        (line,) = [each for each in run("group", "show", "workers").split("\n") if "unit" in each]
        assert line.startswith("unit\tjobs@")
        assert " 0" not in line
        held.ack()


def test_dead_letters_of_a_queue_are_shown_and_put_back(node, run):
    run("queue", "put", "jobs", "bad")
    with node.queue("jobs", group="mailers") as queue:
        queue.get(timeout_s=5).dead("no hope")
        wait_until(lambda: "no hope" in _dead(run), 5)
    assert json.loads(run("queue", "dead", "mailers", "--format", "json"))["message"] == "bad"
    assert run("queue", "redrive", "mailers") == "1 message put back\n"
    assert taken(node, "jobs", 1, group="mailers") == [b"bad"]
    assert run("queue", "redrive", "mailers") == "0 messages put back\n"


def _dead(run):
    try:
        return run("queue", "dead", "mailers")
    except AssertionError:  # they are not there yet
        return ""


def test_a_program_works_on_a_queue(node, run, tmp_path):
    run("queue", "put", "jobs", "a", "b")
    script = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read() + b'\\n')"
    out = tmp_path / "out"
    work = ("work", "jobs", "--port", str(node.address[1]), "--")
    with Background(*work, sys.executable, "-c", script, str(out)):
        wait_until(lambda: out.exists() and sorted(out.read_bytes().split()) == [b"a", b"b"], 20)


def test_a_node_without_a_cluster_says_so(shared_node):
    for words in (("list",), ("create", "jobs"), ("dump", "jobs"), ("delete", "jobs", "--yes")):
        ended = poe_here("queue", *words, port=shared_node.address[1])
        assert ended.returncode == 1
        assert "in no cluster" in complaint(ended)
