"""What each request needs, by the table of all there are."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.broker.access.permission import Need, first_refusal
from poe.broker.groups.options import matches
from poe.broker.requests.control import _OPERATIONS
from poe.broker.requests.needs import OPERATION_NEEDS, check_complete, needs_of, pattern_needs
from poe.errors import LocalProtocolError
from poe.protocol import (
    ControlRequest,
    LeaseRequest,
    PointerRequest,
    PutId,
    PutRequest,
    RangeRequest,
)
from poe.protocol.messages import REQUESTS
from poe.protocol.put import QueuePutRequest, SequencedPutRequest
from poe.security.policy import Grant, Policy

TOPIC, OTHER, GROUP = b"orders", b"sources", "workers"
MEMBER = bytes(16)
ARGUMENTS = {
    "topic": TOPIC,
    "source": OTHER,
    "group": GROUP,
    "topics": [TOPIC],
    "pointer": 0,
    "properties": {"partitions": 2},
}
"""Whatever an operation reads of them to say what it needs."""

NEEDED = {
    "health": [],
    "topics": [],
    "topic_list": [],
    "status": [],
    "info": [],
    "groups": [],
    "segments": ["describe topic"],
    "describe": ["describe topic"],
    "removed": ["read topic"],
    "wait": ["read topic"],
    "span": ["read topic"],
    "ordinal": ["read topic"],
    "pointer": ["read topic"],
    "last_put": ["write topic"],
    "queue_put": ["write topic"],
    "queues": [],
    "queue_create": ["create topic"],
    "queue_delete": ["delete topic"],
    "queue_browse": ["read topic"],
    "queue_dump": ["read topic"],
    "cluster": ["admin"],
    "cluster_members": ["admin"],
    "cluster_forget": ["admin"],
    "cluster_report": ["admin"],
    "cluster_logs": ["admin"],
    "cluster_verify": ["admin"],
    "cluster_move": ["admin"],
    "sync": ["write topic"],
    "copy": ["read source", "write topic"],
    "create": ["create topic"],
    "topic_create": ["create topic"],
    "topic_alter": ["create topic"],
    "topic_adopt": ["create topic"],
    "trim": ["delete topic"],
    "delete": ["delete topic"],
    "auth": [],
    "authorize": ["authorize"],
    "reload": ["admin"],
    "security": ["admin"],
    "tree": ["admin"],
    "counters": [],
    "events": ["admin"],
    "scan": ["read topic"],
    "connections": ["admin"],
    "producers": ["describe topic"],
    "config": ["admin"],
    "pipelines": ["admin"],
    "pipeline_report": ["admin"],
    "pipeline_stop": ["admin"],
    "group": ["describe group"],
    "group_lag": ["describe group"],
    "group_create": ["create group", "read topic"],
    "group_delete": ["delete group"],
    "group_join": ["read group", "read source", "read topic"],
    "group_heartbeat": ["read group", "read source"],
    "group_leave": ["read group"],
    "group_commit": ["read group", "read source"],
    "group_positions": ["read group", "read source"],
    "group_extend": ["read group", "read source"],
    "group_reset": ["write group"],
    "group_pause": ["write group"],
    "group_resume": ["write group"],
    PointerRequest: ["read topic"],
    RangeRequest: ["read topic"],
    PutRequest: ["write topic"],
    QueuePutRequest: ["write topic"],
    SequencedPutRequest: ["write topic"],
    LeaseRequest: ["read group", "read source"],
}
"""As the specification has it. The group `workers` is one of topic `sources`."""

OF_TYPE = {
    PointerRequest: PointerRequest(TOPIC, 0, 1),
    RangeRequest: RangeRequest(TOPIC, 0, 1, 1, 1),
    PutRequest: PutRequest(TOPIC, [b"m"]),
    QueuePutRequest: QueuePutRequest(TOPIC, [b"m"]),
    SequencedPutRequest: SequencedPutRequest(TOPIC, [b"m"], PutId(bytes(16), 0, 0)),
    LeaseRequest: LeaseRequest(GROUP, MEMBER, 1, 1, 0.0),
}


def topics_of(group):
    assert group == GROUP
    return (OTHER,)


def request_for(key):
    return OF_TYPE[key] if key in OF_TYPE else ControlRequest(key, 1, dict(ARGUMENTS))


def need(words):
    operation, _, what = words.partition(" ")
    match what:
        case "topic":
            return Need.of_topic(operation, TOPIC)
        case "source":
            return Need.of_topic(operation, OTHER)
        case "group":
            return Need.of_group(operation, GROUP.encode())
    return Need.of_node(operation)


class Granted:
    """The permissions that some grants give."""

    def __init__(self, *grants):
        self.policy = Policy(grants)

    def may(self, need):
        return self.policy.may("alice", *need)

    def wrote(self, size_bytes):
        """Have no limit."""

    def refusal(self, need):
        return None if self.may(need) else need.refusal


def grant_for(need, *, by_prefix):
    """Make the grant that meets one need and no more."""
    given = {"principals": ("alice",), "operations": (need.operation,)}
    if need.kind == "node":
        return Grant(**given)
    names = {"topic": ("topics", "prefixes"), "group": ("groups", "group_prefixes")}[need.kind]
    return Grant(**given, **{names[by_prefix]: (need.name[:-1] if by_prefix else need.name,)})


def test_nothing_is_without_needs():
    assert NEEDED.keys() == {*_OPERATIONS, *REQUESTS.values()} - {ControlRequest}
    assert OPERATION_NEEDS.keys() == _OPERATIONS.keys()


@pytest.mark.parametrize("key", NEEDED, ids=str)
def test_each_request_needs_what_is_written_down(key):
    assert list(needs_of(request_for(key), topics_of)) == [need(each) for each in NEEDED[key]]


@pytest.mark.parametrize("by_prefix", [False, True], ids=["literal", "prefix"])
@pytest.mark.parametrize("key", NEEDED, ids=str)
def test_all_grants_that_are_needed_are_enough_and_no_fewer(key, by_prefix):
    needs = [need(each) for each in NEEDED[key]]
    grants = [grant_for(each, by_prefix=by_prefix) for each in needs]
    request = request_for(key)
    assert first_refusal(Granted(*grants), needs_of(request, topics_of)) is None
    for some in itertools.combinations(range(len(grants)), max(len(grants) - 1, 0)):
        missing = next((each for at, each in enumerate(needs) if at not in some), None)
        refusal = first_refusal(Granted(*(grants[at] for at in some)), needs_of(request, topics_of))
        assert str(refusal) == str(missing and missing.refusal)


def test_what_lets_messages_go_needs_the_right_to_delete():
    request = ControlRequest("topic_alter", 1, {"topic": TOPIC, "properties": {"max_age": 1}})
    assert list(needs_of(request, topics_of)) == [need("create topic"), need("delete topic")]


def test_syncing_everything_is_for_who_administers():
    assert list(needs_of(ControlRequest("sync", 1, {}), topics_of)) == [need("admin")]


def test_the_topic_for_dead_letters_needs_the_right_to_put_there():
    options = {"dead_letter_topic": "orders"}
    request = ControlRequest("group_create", 1, {**ARGUMENTS, "topics": [], "options": options})
    needed = [need("create group"), need("write topic"), need("create topic")]
    assert list(needs_of(request, topics_of)) == needed


def test_an_operation_that_there_is_not_needs_nothing_and_is_refused_as_such():
    assert list(needs_of(ControlRequest("fly", 1, {}), topics_of)) == []


def test_the_topics_of_a_group_are_not_looked_up_for_who_may_not_read_it():
    def never(group):
        pytest.fail(group)

    request = request_for(LeaseRequest)
    assert str(first_refusal(Granted(), needs_of(request, never))).startswith(
        "not authorized to read group 'workers'"
    )


@pytest.mark.parametrize(
    ("grant", "is_enough"),
    [
        ({"prefixes": (b"team.",)}, True),
        ({"prefixes": (b"",)}, True),
        ({"prefixes": (b"team.a",)}, False),
        ({"topics": (b"team.",)}, False),
        ({"topics": (b"team.*",)}, False),
    ],
)
def test_a_pattern_needs_a_prefix_that_covers_all_it_could_stand_for(grant, is_enough):
    permissions = Granted(Grant(principals=("alice",), operations=("read",), **grant))
    assert (first_refusal(permissions, pattern_needs("read", [b"team.*.x"])) is None) == is_enough


_NAMES = st.lists(st.sampled_from([b"poe", b".", b"staging", b"a", b"-1", b"p"]), max_size=4)


@given(
    st.lists(st.sampled_from([b"*", b"poe", b".", b"staging", b"a", b"p"]), min_size=1, max_size=4),
    _NAMES,
    _NAMES,
)
@example([b"*"], [], [b"poe", b".", b"a"])
def test_who_may_have_a_pattern_may_read_all_that_it_stands_for(pattern, prefix, topic):
    grant = Grant(principals=("alice",), operations=("read",), prefixes=(b"".join(prefix),))
    name = b"".join(topic)
    allowed = Granted(grant)
    if matches(b"".join(pattern), name):
        whole = first_refusal(allowed, pattern_needs("read", [b"".join(pattern)])) is None
        assert not whole or allowed.may(Need.of_topic("read", name))


def test_a_table_that_lacks_an_operation_or_has_one_too_many_is_no_table():
    with pytest.raises(LocalProtocolError, match=r"what each operation needs: \['fly'\]"):
        check_complete("operation", ["topics", "fly"], ["topics"])
    with pytest.raises(LocalProtocolError, match="walk"):
        check_complete("operation", ["topics"], ["topics", "walk"])
