"""What a hostile client can do to queues across nodes: be told an error, and nothing else.

A request is one that a client may send, and some of its arguments are anything that msgpack holds.
"""

from contextlib import suppress
from socket import create_connection
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe import protocol
from poe.broker.requests.queue_messages import QUEUES
from poe.errors import PoeError
from poe.protocol.frames import LEASE_REQUEST, frame_header
from tests.cluster.linked_nodes import LinkedNode, Links
from tests.waiting import wait_until

WAIT_S = 4
MEMBER = b"m" * 16
EDGES = [-(2**63), -1, 0, 1, 2, 65, 2**31, 2**56, 2**63, 2**64 - 1]
NUMBERS = st.sampled_from(EDGES) | st.integers(min(EDGES), max(EDGES))
TEXTS = st.sampled_from(["", "jobs", "g", "poe.queue.jobs", ".x", "a/b", "x" * 255])
SCALARS = (
    st.none() | st.booleans() | NUMBERS | st.floats() | TEXTS | st.text(max_size=9)
    | st.sampled_from([b"", b"jobs", b"\xff", b"x" * 70_000])
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXTS, each, max_size=3),
    max_leaves=6,
)
SHARED: dict[str, Any] = {
    "group": "g",
    "mode": "shared",
    "topics": [b"jobs"],
    "options": {"retry_s": 0},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "queue_put": {
        "topic": b"jobs", "messages": [b"a", b"bc"], "copies": 2, "deadline_s": 0.01,
        "due_us": None, "queue": True,
    },
    "queue_create": {
        "topic": b"new", "copies": 2, "persist": False, "bytes_max": 1 << 20,
        "messages_max": 1000, "on_full": "busy",
    },
    "queue_delete": {"topic": b"new"},
    "queue_browse": {"topic": b"jobs", "unit": b"jobs@0", "pointer": 0, "limit": 9},
    "queue_dump": {"topic": b"jobs", "unit": b"jobs@0", "pointer": 0, "limit": 9},
    "queues": {},
    "topic": {"topic": b"jobs", "queue": True},
    "cluster": {"node": ""},
    "cluster_members": {"node": ""},
    "cluster_forget": {"node": "eve"},
    "cluster_report": {"topic": b"jobs"},
    "group": {"group": "g"},
    "groups": {},
    "group_create": SHARED,
    "group_join": {**SHARED, "member": MEMBER, "name": "n", "instance": None, "metadata": b""},
    "group_heartbeat": {
        "group": "g", "member": MEMBER, "generation": 0, "owned": [b"jobs@0"], "wait_s": 0
    },
    "group_leave": {"group": "g", "member": MEMBER, "positions": {}},
    "group_commit": {"group": "g", "member": MEMBER, "generation": 0, "positions": {b"jobs@0": 7}},
    "group_positions": {"group": "g"},
    "group_extend": {"group": "g", "member": MEMBER, "leases": [1, 2], "seconds": 1},
    "group_reset": {"group": "g", "to": "oldest", "units": [b"jobs@0"], "dry": True, "force": True},
    "group_pause": {"group": "g"},
    "group_resume": {"group": "g"},
    "group_lag": {"group": "g"},
    "group_delete": {"group": "h", "force": True},
}  # fmt: skip
LEASE: list[Any] = [
    "leased",
    MEMBER,
    4,
    1 << 20,
    0,
    [[1, None]],
    [[1, 0, 2**56 - 1, "retry", None, "why"]],
]
NO_TIMES: st.SearchStrategy[Any] = st.sampled_from(
    [-1, -0.5, float("nan"), float("inf"), "0", None, True, []]
)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    links, folder = Links(), tmp_path_factory.mktemp("nodes")
    ada = LinkedNode(links, folder / "a", "ada", port=0)
    bob = LinkedNode(links, folder / "b", "bob")
    with ada, bob:
        wait_until(lambda: ada.control("cluster")["live"] == 2, 5)
        ada.put("mine", b"a topic of its own")
        ada.control("queue_put", topic="jobs", messages=[b"one"])
        ada.control("group_join", **REQUESTS["group_join"])
        yield ada


@st.composite
def requests(draw):
    """An operation, and its arguments, of which up to two are something else, or left out."""
    op = draw(st.sampled_from(sorted(REQUESTS)))
    arguments = dict(REQUESTS[op])
    wrong = draw(st.lists(st.sampled_from(sorted(arguments) or ["topic"]), max_size=2))
    for name in wrong:
        if draw(st.integers(0, 5)):
            arguments[name] = draw(ANYTHING)
        else:
            arguments.pop(name, None)
    return op, arguments


@st.composite
def leases(draw):
    """The body of a request for messages, of which a field or two are something else."""
    fields = list(LEASE)
    for number in draw(st.lists(st.integers(0, len(fields) - 1), max_size=2)):
        ranges = st.lists(st.lists(SCALARS, max_size=6), max_size=3)
        fields[number] = draw(NO_TIMES if number == WAIT_S else ANYTHING | ranges)
    return msgpack.packb(fields)


def crashes(node):
    """Return which actors of queues there are, having seen that they do what they are for."""
    assert node.control("queue_put", topic="jobs", messages=[b"sound"])["copies"] == 2
    told = node.control("cluster")["counts"]
    return told.get("queues restarted", 0), node.system.whereis(QUEUES)


@pytest.mark.slow
@given(asked=st.lists(requests(), min_size=1, max_size=8))
def test_whatever_a_client_asks_of_queues_is_answered_and_ends_no_actor(node, asked):
    before = crashes(node)
    with protocol.socket(*node.address, timeout_s=10) as socket:
        for op, arguments in asked:
            with suppress(PoeError):
                socket.control(op, **arguments)
        assert socket.is_usable
    assert crashes(node) == before


@pytest.mark.slow
@given(asked=st.lists(leases(), min_size=1, max_size=8))
def test_whatever_is_asked_of_a_group_of_a_queue_is_answered_and_ends_no_actor(node, asked):
    before = crashes(node)
    node.control("group_join", **REQUESTS["group_join"] | {"group": "leased"})
    for body in asked:
        with create_connection(node.address, timeout=10) as socket:
            socket.sendall(frame_header(LEASE_REQUEST, len(body)) + body)
            assert socket.recv(1 << 16), "it is told what is wrong, or what was asked for"
    assert crashes(node) == before
