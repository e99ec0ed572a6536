"""`poe topic`: topics are made, changed, told and deleted from a terminal."""

import json

import pytest

from tests.cli.processes import complaint, poe, poe_here


def runner(command, node):
    """Return what runs commands against a node, and returns what they said."""

    def run(*arguments, code=0):
        ended = command(*arguments, port=node.address[1])
        assert ended.returncode == code, ended
        return ended.stdout.decode() if code == 0 else complaint(ended)

    return run


@pytest.fixture
def run(node):
    return runner(poe_here, node)


def test_a_topic_goes_through_its_life(run, node):
    assert run("topic", "create", "t", "--partitions", 2, "--envelope", "--ack", "fsync") == (
        "t\t2 partitions, envelopes\n  ack fsync\n"
        "0\tt-0\t0 messages, 0 bytes in 0 segments\n1\tt-1\t0 messages, 0 bytes in 0 segments\n"
    )
    pointer = node.put("t-1", b"1")
    run("topic", "alter", "t", "--partitions", 3, "--ack", "default", "--max-age", "none")
    told = json.loads(run("topic", "describe", "t", "--format", "json"))
    assert told["version"] == 2
    assert told["properties"]["ack"] is None
    assert told["properties"]["max_age"] == "none"
    assert [each["messages"] for each in told["partitions"]] == [0, 1, 0]
    assert told["partitions"][1]["newest"] == pointer
    assert told["partitions"][1]["next_ordinal"] == 1
    place = f", {pointer} to {pointer}, ordinals 0 to 0\n"
    assert place in run("topic", "describe", "t")
    assert run("topic", "delete", "t", "--yes") == "topic t, 1 message: deleted\n"
    assert "is not known" in run("topic", "describe", "t", code=1)


def test_topics_are_listed_with_what_they_have(run, node):
    node.create_topic("many", partitions=3, envelope=True)
    node.put("many-1", b"1")
    node.put("plain", b"1")
    node.control("create", topic="poe.groups")
    assert (
        run("topic", "list") == "many\t3 partitions, envelopes\nplain\t1 partition, made by a put\n"
    )
    rows = [
        json.loads(line) for line in run("topic", "list", "--all", "--format", "json").splitlines()
    ]
    assert [each["name"] for each in rows] == ["many", "plain", "poe.groups"]


def test_topics_are_adopted(run, node):
    for number in range(2):
        node.put(f"t-{number}", b"1")
    assert run("topic", "adopt", "t", "--partitions", 2).startswith(
        "t\t2 partitions\n0\tt-0\t1 message,"
    )
    assert "already" in run("topic", "adopt", "t", "--partitions", 2, code=1)


def test_who_adopts_what_is_not_there_is_told_to_say_how_many_there_are(run, node):
    """And not to put onto the topic, after which nothing could be adopted."""
    for number in range(2):
        node.put(f"t-{number}", b"1")
    told = "use how many of t-0, t-1 … there are, or 1 for t itself"
    assert f"option '--partitions' is 1; {told}" in run("topic", "adopt", "t", code=2)
    assert told in run("topic", "adopt", "t", "--envelope", code=2)
    assert "is 3; use how many" in run("topic", "adopt", "nope", "--partitions", 3, code=2)


def test_groups_to_keep_messages_for_are_named(run, node):
    run("topic", "create", "t", "--keep-unread", "a,b", "--keep-unread", "c")
    assert node.describe("t").properties.keep_unread == ("a", "b", "c")
    assert "  keep_unread a, b, c\n" in run("topic", "describe", "t")
    run("topic", "alter", "t", "--keep-unread", "none")
    assert node.describe("t").properties.keep_unread == ()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--partitions", 0], "option '--partitions' is '0'; use 1 to 1024"),
        (["--partitions", "default"], "option '--partitions' is 'default'; use 1 to 1024"),
        (
            ["--ack", "never"],
            "option '--ack' is 'never'; use memory or flushed or fsync, or default",
        ),
        (
            ["--max-age", "-1"],
            "option '--max-age' is '-1'; use more than 0 (finite seconds) or none",
        ),
        (["--max-bytes", "1.5"], "option '--max-bytes' is '1.5'; use"),
        (["--keep-unread", ".x"], "option '--keep-unread' is"),
    ],
)
def test_a_wrong_value_is_told_as_it_was_typed(run, arguments, told):
    assert told in run("topic", "create", "t", *arguments, code=2)


def test_what_cannot_change_is_told_with_both_values(run, node):
    node.create_topic("t", partitions=3)
    assert "is 3 and cannot become 2" in run("topic", "alter", "t", "--partitions", 2, code=1)


@pytest.mark.slow
def test_a_topic_with_partitions_is_read_and_put_onto_without_an_option(node):
    run = runner(poe, node)
    node.create_topic("t", partitions=2, envelope=True)
    for number in range(4):
        assert run("put", "t", f"m{number}").startswith("1 message, last pointer ")
    run("put", "t", "--partition", 1, "last")
    assert sorted(run("read", "t").splitlines()) == ["last", "m0", "m1", "m2", "m3"]
    assert "last" in run("read", "t", "--partition", 1).splitlines()
    rows = [json.loads(line) for line in run("read", "t", "--format", "json").splitlines()]
    assert {each["partition"] for each in rows} <= {0, 1}
    assert len(rows) == 5
    assert len(run("read", "t", "--limit", 3).splitlines()) == 3
    assert "--partition" in run("read", "t", "--follow", code=2)
    assert "--partition" in run("read", "t", "--pointer", 1, code=2)
    assert "2 partitions" in run("read", "t", "--partition", 2, code=2)


@pytest.mark.slow
def test_what_is_no_envelope_is_read_as_it_is(node):
    """As of topics that were adopted with envelopes, and have none: they could not be read."""
    node.create_topic("t", envelope=True)
    run = runner(poe, node)
    run("put", "t", "first")
    node.put("t", b"plain")
    run("put", "t", "last")
    assert run("read", "t") == "first\nplain\nlast\n"
    rows = [json.loads(line) for line in run("read", "t", "--format", "json").splitlines()]
    assert [each["message"] for each in rows] == ["first", "plain", "last"]
