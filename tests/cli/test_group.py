"""`poe group`, `poe queue` and `poe work`: groups and work queues from a terminal."""

import errno
import json
import os
import re
import sys
from pathlib import Path
from time import time_ns
from types import SimpleNamespace

import pytest

from poe import Node
from poe.broker.appendix.hybrid_clock import HybridClock
from poe.broker.requests.log_groups import _LIST_S, _PATIENCE_S
from poe.cli import endpoint
from poe.cli.work import _Programs
from poe.client import Consumer, Queue
from poe.client.group.redrive import discard, redrive
from poe.client.producer.murmur2 import murmur2
from poe.protocol.client import open_socket
from poe.protocol.envelope import decode, encode
from tests.broker.damaged_group import damage_group
from tests.broker.nodes import connect, read_by_next
from tests.cli.processes import Background, complaint, poe, poe_here
from tests.client.consumers import VALUES, url
from tests.waiting import wait_until

PASSED = "; 1 letter passed over, of topics from which the group takes nothing"
OPTIONS = {"retry_s": 0, "attempts_max": 2}


@pytest.fixture
def run(node):
    def run(*arguments, code=0, command=poe_here):
        ended = command(*arguments, port=node.address[1])
        assert ended.returncode == code, ended
        return ended.stdout.decode() if code == 0 else complaint(ended)

    return run


@pytest.fixture
def billing(node):
    """A group that has read half of a topic; its last pointer there."""
    last = node.put_many("orders", VALUES)
    with Consumer(url(node), "orders", group="billing", batch=5) as consumer:
        consumer.receive()
    return last - 5


def rows(output):
    return [json.loads(line) for line in output.splitlines()]


def test_groups_are_listed(run, billing):
    assert run("group", "list") == "billing\tordered\torders\n"
    assert rows(run("group", "list", "--format", "json")) == [
        {"group": "billing", "mode": "ordered", "topics": ["orders"]}
    ]


def test_a_group_is_shown_with_its_members_and_what_has_happened(node, run, billing):
    with Consumer(url(node), "orders", group="billing") as consumer:
        consumer.receive()
        told = run("group", "show", "billing")
        assert told.startswith("billing\tordered\tok\nmember\t")
        assert f"unit\torders\ttopic orders, partition 0, position {billing}, owner " in told
        assert "joined" in told
        (content,) = rows(run("group", "show", "billing", "--format", "json"))
        assert content["units"][0]["unit"] == "orders"


def test_what_a_member_holds_is_as_old_as_it_is_by_the_clock_of_its_node(tmp_path):
    """That of the machine on which the command runs may be another one."""
    clock = HybridClock(lambda: time_ns() - 10**9 * 86_400)
    with Node({"dir": tmp_path / "data", "port": 0}, clock=clock) as node:
        node.put_many("orders", VALUES)
        assert node.address is not None
        with Queue(url(node), "orders", group="workers") as queue, queue.get():
            told = poe_here("group", "show", "workers", port=node.address[1]).stdout.decode()
    (held_s,) = re.findall("the oldest for ([0-9]+) s", told)
    assert int(held_s) < 3600


def test_what_a_member_calls_itself_neither_breaks_a_line_nor_commands_the_terminal(node, run):
    """Whoever may read the group may join it, under any name."""
    node.put_many("orders", VALUES)
    named = {"group": "billing", "mode": "ordered", "topics": ["orders"]}
    name = "ann\nmember\t\x1b[2J"
    node.control("group_join", member=bytes(16), name=name, instance="a\rb", **named)
    told = run("group", "show", "billing")
    assert not set(told) & set("\x1b\r")
    (member,) = (line for line in told.splitlines() if line.startswith("member"))
    assert member.split("\t")[1] == r"ann\nmember\t\x1b[2J"
    assert member.endswith(r" (instance a\rb)")


def test_lag_is_told_in_messages(run, billing):
    assert run("group", "lag", "billing").startswith("orders\t5 messages\t")
    (row,) = rows(run("group", "lag", "billing", "--format", "json"))
    assert (row["unit"], row["position"], row["messages"]) == ("orders", billing, 5)


def test_a_look_at_groups_waits_as_long_as_a_node_may_ask_another_one(run, billing, monkeypatch):
    """Else a node that waits for who coordinates was said to be none that answers."""
    limits = []

    def opened(server, limit_s, **connecting):
        limits.append(limit_s)
        return open_socket(server, limit_s, **connecting)

    monkeypatch.setattr(endpoint, "open_socket", opened)
    for command in (("list",), ("show", "billing"), ("lag", "billing")):
        run("group", *command)
    run("queue", "dead", "billing")
    assert min(limits[:4]) > max(_PATIENCE_S, _LIST_S)


def test_a_group_is_moved_and_a_dry_run_tells_what_would_be(run, billing):
    newest = ("group", "reset", "billing", "--to", "newest")
    assert run(*newest, "--dry-run") == (
        f"orders\t{billing} to {billing + 5}\tskips 5 messages\nnothing was moved\n"
    )
    assert run(*newest) == f"orders\t{billing} to {billing + 5}\tskips 5 messages\n"
    assert run("group", "reset", "billing", "--to", "oldest") == (
        f"orders\t{billing + 5} to 0\trepeats 10 messages\n"
    )
    place = ("--unit", "orders", "--to", billing)
    (row,) = rows(run("group", "reset", "billing", *place, "--format", "json"))
    assert row == {"unit": "orders", "old": 0, "new": billing, "messages": 5}
    assert "skips" in run("group", "reset", "billing", "--to", "2100-01-01T00:00")


def test_a_group_that_has_members_is_not_moved_by_chance(node, run, billing):
    with Consumer(url(node), "orders", group="billing"):
        assert "has 1 member" in run("group", "reset", "billing", "--to", "oldest", code=1)
        run("group", "reset", "billing", "--to", "oldest", "--force")


def test_a_group_is_paused_and_resumed(node, run, billing):
    run("group", "pause", "billing")
    assert run("group", "show", "billing").startswith("billing\tordered\tpaused\n")
    run("group", "resume", "billing")
    assert run("group", "show", "billing").startswith("billing\tordered\tok\n")


def test_a_group_is_deleted(run, billing):
    assert "give --yes" in run("group", "delete", "billing", code=2)
    assert run("group", "delete", "billing", "--yes") == "group billing, 0 members: deleted\n"
    assert "is not known" in run("group", "show", "billing", code=1)


def test_a_group_that_is_damaged_is_deleted_by_force(serve, tmp_path):
    """As the error says that tells of it."""
    node = serve(dir=tmp_path / "data")
    node.control("group_create", group="billing", mode="ordered", topics=["orders"])
    damage_group(node, "broken")
    node.stop()
    port = serve(dir=tmp_path / "data").address[1]
    told = poe_here("group", "delete", "broken", "--yes", port=port)
    assert "delete the group with force" in complaint(told)
    told = poe_here("group", "delete", "broken", "--yes", "--force", port=port)
    assert (told.returncode, told.stdout) == (0, b"group broken, damaged: deleted\n")
    assert poe_here("group", "list", port=port).stdout == b"billing\tordered\torders\n"


@pytest.mark.parametrize("place", ["yesterday", "17", "", "0001-01-01", "9999-12-31"])
def test_what_is_no_place_is_refused(run, billing, place):
    assert "--to" in run("group", "reset", "billing", "--to", place, code=2)


def test_a_pointer_that_is_none_is_no_place(run, billing):
    of_unit = ("group", "reset", "billing", "--unit", "orders", "--to")
    assert "option '--to' is '1111" in run(*of_unit, "1" * 30, code=2)


def test_of_dead_letters_no_more_are_shown_than_there_can_be(run, billing):
    told = run("queue", "dead", "billing", "--limit", 10**30, code=2)
    assert told.endswith("use a whole number, 1 to 9223372036854775807")


@pytest.mark.parametrize(
    ("messages", "options"),
    [
        ([b"x" * 1000, b"small"], {"message_max": 1000}),
        # More than one frame may be.
        (
            [b"%d" % number * 20_000 for number in range(4)],
            {"message_max": 20_000, "frame_max": 65_536},
        ),
    ],
)
def test_a_dead_letter_that_is_too_large_to_hold_its_message_is_put_back_from_where_that_is(
    serve, messages, options
):
    node = serve(**options)
    node.put_many("jobs", messages)
    with Queue(url(node), "jobs", group_options=OPTIONS) as queue:
        for _ in messages:
            queue.get().dead("no way")
        wait_until(lambda: node.control("group_lag", group="workers")[b"jobs"]["messages"] == 0)
        redriven = poe_here("queue", "redrive", "workers", port=node.address[1])
        assert redriven.stdout == b"%d messages put back\n" % len(messages)
        assert {queue.get().value for _ in messages} == set(messages)


@pytest.mark.parametrize("pointer", [b"9" * 5000, b"9" * 17, b"7", b"", b"x"])
@pytest.mark.parametrize("topic", [b"jobs", b"x" * 300, b"gone", b"poe.groups", b""])
def test_what_others_have_put_among_dead_letters_keeps_none_from_being_put_back(
    node, run, topic, pointer
):
    node.put("jobs", b"poison")
    with Queue(url(node), "jobs", group_options=OPTIONS) as queue:
        queue.get().dead("no way")
        wait_until(lambda: b"workers.dead" in node.topics())
        headers = {"poe.topic": topic, "poe.pointer": pointer, "poe.large": b"1"}
        node.put("workers.dead", encode(None, b"", headers))
        assert len(run("queue", "dead", "workers").splitlines()) == 2
        passed = "" if topic in {b"jobs", b""} else PASSED
        assert run("queue", "redrive", "workers") == f"1 message put back{passed}\n"


@pytest.mark.parametrize(
    ("partition", "back"), [(b"jobs-1", [b"v1"]), (b"", []), (b"orders", []), (b"jobs-7", [])]
)
def test_of_two_messages_of_one_pointer_that_of_the_letters_partition_is_put_back(
    node, run, partition, back, monkeypatch
):
    """Pointers are those of a partition."""
    node.create_topic("jobs", partitions=2)
    with monkeypatch.context() as patch:
        now_us = time_ns() // 1000
        patch.setattr(HybridClock, "now_us", lambda _: now_us)
        pointers = [node.put(name, b"v" + name[-1:]) for name in (b"jobs-0", b"jobs-1", b"orders")]
    assert pointers == [now_us] * 3
    with Consumer(url(node), "jobs", group="mapping.m"):
        pass
    headers = {"poe.topic": b"jobs", "poe.pointer": b"%d" % now_us, "poe.large": b"1"}
    if partition:
        headers["poe.partition"] = partition
    node.put("mapping.m.dead", encode(None, b"", headers))
    count = "1 message" if back else "0 messages"
    assert run("queue", "redrive", "mapping.m") == f"{count} put back\n"
    values = [v for name in ("jobs-0", "jobs-1") for _, v in read_by_next(node, name)]
    assert sorted(values) == sorted([b"v0", b"v1", *back])


def letters_go_to_their_partitions(node, run):
    """Have letters of ten keys put back onto the three partitions of `jobs`, and look where."""
    keys = [b"%d" % number for number in range(10)]
    headers = {"poe.topic": b"jobs", "poe.envelope": b""}
    node.put_many("mapping.m.dead", [encode(key, b"v", headers) for key in keys])
    assert run("queue", "redrive", "mapping.m") == "10 messages put back\n"
    for number in range(3):
        there = [decode(each) for _, each in read_by_next(node, b"jobs-%d" % number)]
        wanted = [key for key in keys if (murmur2(key) & 0x7FFFFFFF) % 3 == number]
        assert [each.key for each in there] == wanted


def test_letters_of_a_topic_with_partitions_are_put_back_by_their_keys(node, run):
    """Those of a mapping name the topic, and no partition of it."""
    node.create_topic("jobs", partitions=3, envelope=True)
    with Consumer(url(node), "jobs", group="mapping.m"):
        pass
    letters_go_to_their_partitions(node, run)


@pytest.mark.parametrize("taken", [["jobs"], ["jobs-0", "jobs-1"]])
def test_letters_go_where_producers_put_their_keys_whatever_partitions_the_group_knows(
    node, run, taken
):
    node.create_topic("jobs", partitions=2, envelope=True)
    with Consumer(url(node), taken, group="mapping.m"):
        pass
    node.alter_topic("jobs", partitions=3)
    letters_go_to_their_partitions(node, run)


def test_a_message_without_a_key_is_put_back_onto_the_partition_that_is_called_like_its_topic(
    node, run
):
    """The first one, of a topic that had no other before."""
    node.create_topic("jobs", envelope=True)
    with Consumer(url(node), "jobs", group="mapping.m"):
        pass
    node.alter_topic("jobs", partitions=2)
    node.put("mapping.m.dead", encode(None, b"v", {"poe.topic": b"jobs", "poe.envelope": b""}))
    assert run("queue", "redrive", "mapping.m") == "1 message put back\n"
    assert [each for _, each in read_by_next(node, "jobs")] == [encode(None, b"v")]


def test_a_topic_is_put_onto_by_no_group_of_one_that_would_be_a_partition_of_it(node, run):
    node.put_many("jobs-1", VALUES)
    node.put("jobs", b"x")
    with Consumer(url(node), "jobs-1", group="mapping.m"):
        pass
    node.put("mapping.m.dead", encode(None, b"forged", {"poe.topic": b"jobs"}))
    assert run("queue", "redrive", "mapping.m") == f"0 messages put back{PASSED}\n"
    assert [each for _, each in read_by_next(node, "jobs")] == [b"x"]
    assert [each for _, each in read_by_next(node, "jobs-1")] == VALUES


def test_where_letters_belong_is_asked_once_however_often_they_change_their_topic(node):
    for topic in ("a", "b"):
        node.create_topic(topic, envelope=True)
    with Consumer(url(node), ["a", "b"], group="mapping.m"):
        pass
    topics = [b"a", b"b"] * 5
    letters = [encode(None, b"v", {"poe.topic": topic}) for topic in topics]
    node.put_many("mapping.m.dead", letters)
    asked = []
    with connect(node) as connection:
        find = connection.find_topic

        def find_topic(topic):
            asked.append(topic)
            return find(topic)

        connection.find_topic = find_topic
        redrive(connection, url(node), "mapping.m", {})
    assert sorted(asked) == [b"a", b"b", b"mapping.m.dead"]
    assert [len(read_by_next(node, topic)) for topic in ("a", "b")] == [5, 5]


def test_what_is_given_up_again_at_once_is_put_back_by_the_next_redrive(node, monkeypatch):
    """As by a mapping that runs; else a redrive would never end."""
    letters = [encode(None, b"poison", {"poe.topic": b"jobs"})] * 2
    with (
        Consumer(url(node), "jobs", group="mapping.m"),
        connect(node) as connection,
    ):
        node.put_many("mapping.m.dead", letters)
        put = connection.write

        def give_up_again(topic, messages):
            assert len(read_by_next(node, "mapping.m.dead")) < 10
            put(topic, messages)
            node.put_many("mapping.m.dead", letters)

        monkeypatch.setattr(connection, "write", give_up_again)
        for _ in range(2):
            assert redrive(connection, url(node), "mapping.m", {}).done_count == 2
        assert discard(connection, url(node), "mapping.m", {}) == 2
        assert discard(connection, url(node), "mapping.m", {}) == 0


def test_a_letter_that_does_not_tell_of_an_envelope_gets_one_where_its_topic_has_envelopes(
    node, run
):
    """A mapping on Spark does not know whether a message without key and headers was in one."""
    node.create_topic("boxed", envelope=True)
    node.create_topic("plain")
    with Consumer(url(node), ["boxed", "plain"], group="mapping.m"):
        pass
    for topic in (b"boxed", b"plain"):
        node.put("mapping.m.dead", encode(None, b"v", {"poe.topic": topic}))
    assert run("queue", "redrive", "mapping.m") == "2 messages put back\n"
    there = [read_by_next(node, topic)[0][1] for topic in ("boxed", "plain")]
    assert there == [encode(None, b"v"), b"v"]


@pytest.mark.parametrize("topic", [b"payroll", b"jobs.other", b"x" * 300, b"poe.groups"])
def test_nobody_has_a_message_put_onto_another_topic_by_what_looks_like_a_dead_letter(
    node, run, topic
):
    """Who may put among the letters may not what who puts them back may."""
    node.put("jobs", b"poison")
    with Queue(url(node), "jobs", group_options=OPTIONS) as queue:
        queue.get().dead("no way")
        wait_until(lambda: b"workers.dead" in node.topics())
        node.put("workers.dead", encode(None, b"forged", {"poe.topic": topic}))
        assert run("queue", "redrive", "workers") == f"1 message put back{PASSED}\n"
        with queue.get() as job:
            assert job.value == b"poison"
    assert topic not in node.topics()


def test_letters_that_are_passed_over_are_put_back_once_the_group_takes_from_there(node, run):
    with Consumer(url(node), "jobs", group="mapping.m"):
        pass
    node.put_many("mapping.m.dead", [encode(None, b"v", {"poe.topic": b"later"})])
    assert run("queue", "redrive", "mapping.m") == f"0 messages put back{PASSED}\n"
    run("group", "delete", "mapping.m", "--yes")
    with Consumer(url(node), ["jobs", "later"], group="mapping.m"):
        pass
    assert run("queue", "redrive", "mapping.m") == "0 messages put back\n"
    run("group", "reset", "mapping.m.redrive", "--to", "oldest")
    assert run("queue", "redrive", "mapping.m") == "1 message put back\n"


@pytest.mark.parametrize("properties", [None, {"envelope": True}, {"partitions": 2}])
def test_dead_letters_are_told_and_put_back(node, run, properties):
    if properties is not None:
        node.create_topic("workers.dead", **properties)
    pointer = node.put("jobs", b"poison\n")
    with Queue(url(node), "jobs", group_options=OPTIONS) as queue:
        for _ in range(2):
            queue.get().nack(reason="no way")
        wait_until(lambda: any(each.startswith(b"workers.dead") for each in node.topics()))
        assert run("queue", "dead", "workers") == (
            f"jobs\t{pointer}\t2 attempts\tno way\tpoison\\n\n"
        )
        (row,) = rows(run("queue", "dead", "workers", "--format", "json"))
        assert (row["topic"], row["message"], row["reason"]) == ("jobs", "poison\n", "no way")
        assert run("queue", "redrive", "workers") == "1 message put back\n"
        assert run("queue", "redrive", "workers") == "0 messages put back\n"
        with queue.get() as job:
            assert (job.value, job.attempts) == (b"poison\n", 0)
            job.dead("no use")
        wait_until(lambda: node.control("group_lag", group="workers")[b"jobs"]["messages"] == 0, 20)
        assert run("queue", "redrive", "workers", "--reason", "way") == "0 messages put back\n"
        assert run("queue", "discard", "workers", "--reason", "NO USE") == "1 message discarded\n"
        assert run("queue", "redrive", "workers") == "0 messages put back\n"


def test_letters_that_were_deleted_keep_no_others_from_being_put_back(serve):
    node = serve(count_limit=1, check_interval=0.01)
    with Queue(url(node), "jobs", group_options=OPTIONS) as queue:
        queue.get(timeout_s=0.01)
        wait_until(lambda: node.control("groups"))

        def letter(value):
            return node.put("workers.dead", encode(None, value, {"poe.topic": b"jobs"}))

        def redrive():
            return poe_here("queue", "redrive", "workers", port=node.address[1]).stdout

        letter(b"first")
        assert redrive() == b"1 message put back\n"
        gone = letter(b"gone")
        wait_until(lambda: node.control("trim", topic="workers.dead", pointer=gone))
        letter(b"last")
        assert redrive() == b"1 message put back\n"
        assert [queue.get().value for _ in range(2)] == [b"first", b"last"]


def test_work_may_be_put_for_later(node, run):
    node.create_topic("jobs", partitions=2, envelope=True)
    assert run("queue", "put", "jobs", "a", "b", "--delay", 0.1) == "2 messages, due in 0.1 s\n"
    with Queue(url(node), "jobs") as queue:
        assert [queue.get().value for _ in range(2)] == [b"a", b"b"]


def test_work_without_a_byte_is_told_as_such(run):
    assert "message 2 is empty" in run("queue", "put", "jobs", "a", "", "--delay", 1, code=2)


def test_a_dash_is_no_work(node, run):
    """Elsewhere it stands for standard input, and was put as a message."""
    assert "only `poe put QUEUE -` reads lines" in run("queue", "put", "jobs", "-", code=2)
    assert node.control("topics") == []


@pytest.mark.slow
def test_a_program_is_run_for_each_message(node, tmp_path):
    last = node.put_many("jobs", [b"one", b"two", b"three"])
    program = (
        "import os, sys; line = sys.stdin.read(); sys.stderr.write('bad ' + line); "
        "open(sys.argv[1] + line, 'w').write(os.environ['JOB_POINTER']); sys.exit(line == 'two')"
    )
    command = (sys.executable, "-c", program, f"{tmp_path}/")
    node.control("group_create", group="workers", mode="shared", topics=["jobs"], options=OPTIONS)
    with Background("work", "jobs", "--", *command, port=node.address[1]) as running:
        wait_until(lambda: b"workers.dead" in node.topics(), 20)
        wait_until(lambda: node.control("group", group="workers")["units"][0]["floor"] == last, 20)
        running.process.terminate()
        assert running.process.wait(20) == 0
    found = {each.name: each.read_text() for each in tmp_path.iterdir() if each.is_file()}
    pointers = {"one": last - 2, "two": last - 1, "three": last}
    assert found == {name: str(pointer) for name, pointer in pointers.items()}
    told = poe_here("queue", "dead", "workers", port=node.address[1]).stdout.decode()
    assert told == f"jobs\t{last - 1}\t2 attempts\texit code 1: bad two\ttwo\n"


@pytest.mark.slow
def test_a_program_that_runs_on_after_the_end_is_told_to_end(node, tmp_path):
    node.put("jobs", b"slow")
    program = (
        "import os, sys, time; "
        "open(sys.argv[1] + '_new', 'w').write(str(os.getpid())); "
        "os.rename(sys.argv[1] + '_new', sys.argv[1]); time.sleep(60)"
    )
    command = (sys.executable, "-c", program, f"{tmp_path}/pid")
    told = ("work", "jobs", "--stop-timeout", "0.2", "--", *command)
    with Background(*told, port=node.address[1]) as running:
        wait_until((tmp_path / "pid").exists, 20)
        running.process.terminate()
        assert running.process.wait(20) == 0
        assert running.process.stderr.read().decode() == (
            "poe: 0 messages done, 0 failed\n"
            "poe: 1 program was still running after --stop-timeout (0.2 s), and told to end\n"
        )
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    with Queue(url(node), "jobs") as queue:
        assert queue.get().attempts == 0


def test_a_message_is_done_though_nobody_reads_what_its_program_says(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        job = SimpleNamespace(topic=b"jobs", pointer=1, ordinal=0, attempts=0, value=b"x")
        for _ in range(2):
            _Programs(["sh", "-c", "echo said >&2"]).run(job)  # type: ignore[arg-type]


def test_a_program_that_cannot_be_run_is_told_in_a_sentence_as_the_reason_of_its_message(
    tmp_path, capsys
):
    """As a script without `#!`."""
    program = tmp_path / "job"
    program.write_text("echo done\n")
    program.chmod(0o755)
    reasons = []

    def nack(*, reason):
        reasons.append(reason)

    job = SimpleNamespace(topic=b"jobs", pointer=1, ordinal=0, attempts=0, value=b"x", nack=nack)
    _Programs([str(program)]).run(job)  # type: ignore[arg-type]
    told = f"{str(program)!r} cannot be run (Exec format error)"
    assert reasons == [told]
    assert capsys.readouterr().err == f"poe: {told}\n"


def test_a_message_for_whose_program_the_machine_has_no_room_has_not_failed(node, monkeypatch):
    monkeypatch.setattr("poe.cli.work._NO_ROOM_S", 0)

    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    node.put("jobs", b"x")
    with Queue(url(node), "jobs", group_options={**OPTIONS, "attempts_max": 1}) as queue:
        with monkeypatch.context() as patch:
            patch.setattr("subprocess.Popen", refuse)
            _Programs(["cat"]).run(queue.get())
        again = queue.get()
        assert (again.value, again.attempts) == (b"x", 0)
        again.ack()


def test_a_program_that_is_not_there_is_refused(run):
    assert "is no program" in run("work", "jobs", "--", "no-such-program", code=2)


@pytest.mark.slow
def test_work_that_its_group_refuses_says_so_once(run, billing):
    told = run("work", "orders", "--group", "billing", "--", "cat", code=1, command=poe)
    assert "group 'billing' is of mode 'ordered'" in told


@pytest.mark.slow
def test_work_needs_a_server():
    ended = poe("work", "jobs", "--", "cat", port=1)
    assert ended.returncode == 3
