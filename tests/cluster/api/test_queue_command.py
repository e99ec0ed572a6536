"""`poe queue`, `poe put --queue` and `poe work` at a node of a cluster."""

import asyncio
import json
import sys
from typing import Any

import pytest

from poe import client
from poe.client.group import redrive
from poe.client.group.membership import Membership
from poe.cluster.batch import BATCH_BYTES_MAX, PUT_BYTES_MAX
from poe.errors import PutTooLarge
from poe.record import RECORD_HEADER_BYTES
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


@pytest.mark.slow
def test_put_onto_a_queue_takes_lines_too(node, run):
    assert run("put", "--queue", "jobs", "a").startswith("1 message, last pointer ")
    ended = poe("put", "--queue", "jobs", "-", stdin=b"b\nc\n", port=node.address[1])
    assert ended.stdout.startswith(b"2 messages, "), ended
    assert taken(node, "jobs", 3) == [b"a", b"b", b"c"]
    assert node.topics() == []


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_queue_is_not_described_as_a_topic(run, output_format):
    run("queue", "put", "jobs", "a")
    told = run("topic", "describe", "jobs", "--format", output_format, code=1)
    assert told.startswith("poe: 'jobs' is a queue of the cluster")


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
    assert "exists already" in run("queue", "create", "jobs", code=1)
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


@pytest.mark.slow
def test_dead_letters_of_a_queue_are_shown_and_put_back(node, run):
    run("queue", "put", "jobs", "bad")
    with node.queue("jobs", group="mailers") as queue:
        queue.get(timeout_s=5).dead("no hope")
        wait_until(lambda: "no hope" in _dead(run), 5)
    assert json.loads(run("queue", "dead", "mailers", "--format", "json"))["message"] == "bad"
    assert run("queue", "redrive", "mailers") == "1 message put back\n"
    assert taken(node, "jobs", 1, group="mailers") == [b"bad"]
    assert run("queue", "redrive", "mailers") == "0 messages put back\n"


def test_letters_are_put_back_however_long_it_takes_to_join_their_group(node, run, monkeypatch):
    join = Membership.open

    async def join_late(member):
        await asyncio.sleep(1.5 * redrive._LETTERS_S)  # noqa: SLF001 - how long one is waited for
        await join(member)

    run("queue", "put", "jobs", "bad")
    with node.queue("jobs", group="mailers") as queue:
        queue.get(timeout_s=5).dead("no hope")
        wait_until(lambda: "no hope" in _dead(run), 5)
    monkeypatch.setattr(redrive, "_LETTERS_S", 0.5)
    monkeypatch.setattr(Membership, "open", join_late)
    assert run("queue", "redrive", "mailers") == "1 message put back\n"


def test_a_redrive_of_nothing_leaves_no_group_that_is_in_the_way_later(node, run):
    with node.queue("jobs", group="mailers") as queue:
        assert queue.get(timeout_s=0.1) is None
        wait_until(lambda: "mailers" in run("group", "list"))
        assert run("queue", "redrive", "mailers") == "0 messages put back\n"
    assert "redrive" not in run("group", "list")


def test_letters_are_looked_for_at_all_nodes_of_the_url(tmp_path):
    links = Links()
    with (
        LinkedNode(links, tmp_path / "a", "a", port=0, copies=1) as a,
        LinkedNode(links, tmp_path / "b", "b", port=0, copies=1) as b,
    ):
        wait_until(lambda: a.control("cluster")["live"] == 2, 5)
        for node in (a, b):
            node.control("queue_put", topic="jobs", messages=[node.me.name.encode()], copies=2)
        dead = ("queue", "dead", "mailers", "--url")
        url = places(a, b)

        def found():
            lines = _told(*dead, f"poe://127.0.0.1:1,{url}").splitlines()
            return sorted(line.split("\t")[-1] for line in lines)

        for node in (a, b):
            with node.queue("jobs", group="mailers") as queue:
                queue.get().dead("no hope")
                wait_until(lambda: "no hope" in _told(*dead, f"poe://{url}"), 5)
        # The second letter may come a while after its message was given up.
        wait_until(lambda: found() == ["a", "b"], 20)


def places(*nodes):
    return ",".join(f"127.0.0.1:{node.address[1]}" for node in nodes)


def _told(*arguments):
    return poe_here(*arguments).stdout.decode()


def test_a_put_for_which_there_are_too_few_nodes_makes_no_queue(run):
    assert "2 copies" in run("queue", "put", "jobs", "a", "--copies", "2", code=1)
    assert run("queue", "list") == ""
    run("queue", "put", "jobs", "a")


def test_what_cannot_be_is_said_with_what_to_do(node, run):
    node.put("mine", b"a topic")
    for words, told in [
        (("create", "new", "--messages-max", "9" * 30), "--messages-max"),
        (("create", "new", "--bytes-max", "9" * 30), "--bytes-max"),
        (("put", "mine", "a", "--copies", "2"), "'mine' is a topic of this node"),
        (("dump", "mine"), "'mine' is a topic of this node"),
    ]:
        assert told in run("queue", *words, code=2 if "new" in words else 1)
    run("queue", "create", "jobs")
    assert "queue 'jobs' exists already" in run("queue", "create", "jobs", code=1)
    told = run("topic", "delete", "jobs", "--yes", code=1)
    assert "poe queue delete" in told
    assert "--pointer" not in run("read", "jobs", code=1)


def test_a_message_too_large_for_a_queue_is_refused_with_the_limit(node, run):
    for size in (PUT_BYTES_MAX, BATCH_BYTES_MAX, BATCH_BYTES_MAX + 1):
        with node.queue("jobs") as queue, pytest.raises(PutTooLarge) as refused:
            queue.put([b"x" * size])
        assert f"send at most {PUT_BYTES_MAX}" in str(refused.value)
    with node.queue("jobs") as queue:
        queue.put([b"x" * (PUT_BYTES_MAX - RECORD_HEADER_BYTES)])


def test_who_made_a_queue_is_told_as_a_node(node, run):
    run("queue", "create", "jobs")
    row = json.loads(run("queue", "list", "--format", "json"))
    assert row["created_by"] == node.me.ref.id.hex()


def _dead(run):
    try:
        return run("queue", "dead", "mailers")
    except AssertionError:  # they are not there yet
        return ""


@pytest.mark.slow
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
