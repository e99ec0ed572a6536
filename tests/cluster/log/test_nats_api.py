"""What is said to the engine, and what its answers mean."""

import json

import pytest

from poe.cluster.log.engine import NotStored, Stored
from poe.cluster.log.names import Names
from poe.cluster.log.nats_api import (
    answer_to_publish,
    changed_settings,
    check_answer,
    is_entry,
    is_reached,
    next_request,
    place_of,
    stream_settings,
)
from poe.errors import ClusterError, NoQuorum

WANTED = stream_settings("c=s", "poe.c.stream.s", 3, 1 << 30)
# As a server answers: with what it adds, and without what it has by default.
FOUND = WANTED | {"max_consumers": -1, "metadata": {"_nats.ver": "2.15.1"}, "sealed": False}


@pytest.mark.parametrize(
    "reply",
    [
        b"$JS.ACK.c=s.dcyV0IJi.1.41.7.1795828803398625999.12",
        b"$JS.ACK._.ACCHASH.c=s.dcyV0IJi.1.41.7.1795828803398625999.12",
        b"$JS.ACK.hub.ACCHASH.c=s.dcyV0IJi.1.41.7.1795828803398625999.12.random",
    ],
)
def test_what_an_entry_is_comes_from_the_subject_of_its_acknowledgement(reply):
    assert is_entry(reply)
    assert place_of(reply) == (41, 7, 1795828803398625, 12)


@pytest.mark.parametrize("reply", [b"", b"$JS.FC.c=s.x.y", b"_INBOX.a.7"])
def test_what_the_engine_says_of_a_consumer_is_no_entry(reply):
    assert not is_entry(reply)


@pytest.mark.parametrize(
    ("answer", "became"),
    [
        ({"stream": "c=s", "seq": 7}, Stored(7)),
        ({"stream": "c=s", "seq": 7, "duplicate": True}, Stored(7)),
        (
            {"error": {"code": 503, "err_code": 10008, "description": "away"}, "seq": 0},
            NotStored(True, "away"),
        ),
        # The one before it with the same id may be stored yet.
        (
            {"error": {"code": 409, "err_code": 10158, "description": "in process"}, "seq": 0},
            NotStored(False, "in process"),
        ),
        # The leader's own disk took nothing, of what a majority may have.
        (
            {"error": {"code": 503, "err_code": 10077, "description": "no space left"}, "seq": 0},
            NotStored(False, "no space left"),
        ),
        (
            {"error": {"code": 500, "err_code": 19999, "description": "new"}, "seq": 0},
            NotStored(False, "new"),
        ),
        ({}, NotStored(False, "the engine gave no answer that is one")),
        ({"seq": "7"}, NotStored(False, "the engine gave no answer that is one")),
    ],
)
def test_an_acknowledgement_says_what_became_of_an_entry(answer, became):
    assert answer_to_publish(answer) == became


def test_a_refusal_without_a_leader_can_be_tried_again_and_another_says_what_it_is():
    check_answer({"config": {}}, "it")
    with pytest.raises(NoQuorum):
        check_answer({"error": {"code": 503, "err_code": 10008}}, "it")
    answer = {"error": {"code": 500, "err_code": 10047, "description": "no room"}}
    with pytest.raises(ClusterError) as caught:
        check_answer(answer, "stream 's'")
    assert type(caught.value) is ClusterError
    assert "stream 's': no room (10047)" in str(caught.value)


def test_a_stream_as_it_was_made_has_not_changed():
    assert changed_settings(WANTED, FOUND) == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_replicas", 1),
        ("storage", "memory"),
        ("retention", "workqueue"),
        ("discard", "new"),
        ("max_age", 10**9),
        ("max_msgs", 100),
        ("deny_delete", False),
        ("duplicate_window", 10**9),
        ("subjects", ["poe.c.stream.s", "other"]),
        ("sealed", True),
        ("republish", {"src": ">", "dest": "x"}),
        ("sources", [{"name": "other"}]),
        ("persist_mode", "async"),
    ],
)
def test_what_somebody_else_has_changed_of_a_stream_is_named(key, value):
    (changed,) = changed_settings(WANTED, FOUND | {key: value})
    assert changed.startswith(f"{key}: {value!r}, not ")


def test_names_of_a_cluster_are_its_own_whatever_it_is_called():
    names = [Names(each) for each in ("a", "a.b", "a-b", "c", "x" * 63, "x" * 62 + "y")]
    streams = {each.stream("s" * 200) for each in names}
    assert len(streams) == len(names)
    for name in streams:
        assert len(name) <= 255
        assert not set(name) & set(".*> \t/\\")
    assert names[1].subject("s") == "poe.a~b.stream.s"
    assert names[0].catalog != names[0].stream("catalog")
    assert names[0].node("10.0.0.1:5557 > *").split(".")[:3] == ["poe", "a", "node"]
    assert len(names[0].node("10.0.0.1:5557 > *").split(".")) == 4


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ({"current": True, "active": 120_000_000}, True),
        ({"current": False, "active": 900_000_000, "lag": 7}, True),
        ({"current": True, "active": 0}, True),
        ({"current": False, "active": 0}, False),
        ({"current": False, "active": 5_000_000_000}, False),
        ({"current": True, "active": 1, "offline": True}, False),
    ],
)
def test_a_server_is_reached_that_was_heard_a_moment_ago(peer, expected):
    assert is_reached(peer) is expected


def test_durations_are_in_nanoseconds():
    assert json.loads(next_request(7, 8, 30.0, 0.5)) == {
        "batch": 7,
        "max_bytes": 8,
        "expires": 30_000_000_000,
        "idle_heartbeat": 500_000_000,
    }
