"""Queues of a cluster over HTTP: put, taken by members of a group, and looked at."""

import contextlib

import pytest

from tests.broker.users_file import UsersFile
from tests.cluster.linked_nodes import LinkedNode, Links
from tests.gateway.http.front import Front
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def links():
    return Links()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, links):
    folder = tmp_path_factory.mktemp("nodes")
    nodes = [LinkedNode(links, folder / name, name, port=0) for name in "ab"]
    with contextlib.ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node)
        for node in nodes:
            wait_until(lambda: node.control("cluster")["live"] == 2, 5)  # noqa: B023 - at once
        yield nodes


@pytest.fixture(scope="module")
def front(nodes):
    with Front(nodes[0]) as front:
        yield front


def put(front, queue, body=b"work", **parameters):
    return front.http.post(f"/queues/{queue}", content=body, params=parameters)


def test_messages_are_put_and_taken_by_a_member_of_a_group(front, nodes):
    reply = put(front, "jobs", copies=2)
    assert (reply.status_code, reply.json()["delivered"]) == (200, 1)
    group = {"mode": "shared", "topics": ["jobs"]}
    joined = front.http.post("/groups/workers/members", json=group).json()
    member = f"/groups/workers/members/{joined['member']}"
    told = front.http.post(f"{member}/lease", json={"wait_s": 5}).json()
    assert [each["value"] for each in told["messages"]] == ["work"]
    assert told["unit"].startswith("jobs%40")
    done = {"done": [{"lease": told["lease"]}]}
    assert front.http.post(f"{member}/acknowledge", json=done).json() == {"lost": []}
    rows = front.http.get("/queues").json()["queues"]
    assert [(row["name"], row["copies"]) for row in rows] == [("jobs", 2)]


def test_members_of_a_queue_s_group_that_read_are_told_that_it_is_shared(front):
    assert put(front, "unread").status_code == 200
    group = {"mode": "shared", "topics": ["unread"]}
    member = front.http.post("/groups/readers/members", json=group).json()["member"]
    told = front.http.post(f"/groups/readers/members/{member}/read", json={"wait_s": 60})
    assert (told.status_code, told.json()["error"]["name"]) == (409, "GroupMismatch")
    assert "is of mode 'shared'" in told.json()["error"]["message"]


def test_more_copies_than_nodes_are_refused_and_may_be_asked_for_again(front):
    reply = put(front, "many", copies=3)
    assert (reply.status_code, reply.json()["error"]["name"]) == (503, "TooFewNodes")
    assert reply.headers["Retry-After"]


def test_fewer_copies_are_told(front, nodes, links):
    a, b = nodes
    assert put(front, "fewer", copies=2).status_code == 200
    links.lose(a.me.ref, b.me.ref)
    try:
        reply = put(front, "fewer", copies=2, deadline_s=0.3)
        assert reply.status_code == 202
        assert reply.json() == {"accepted": 1, "copies": 1, "wanted": 2}
    finally:
        links.heal(a.me.ref, b.me.ref)


def test_messages_for_later_come_later(front, nodes):
    reply = put(front, "later", delay_s=0.1)
    assert (reply.status_code, reply.json()["accepted"]) == (202, 1)
    with nodes[1].queue("later", group="later") as queue, queue.get(timeout_s=10) as job:
        assert job.value == b"work"


@pytest.mark.parametrize(
    "wrong",
    [{"copies": "x"}, {"copies": 65}, {"copies": 1.5}, {"deadline_s": -1}, {"key": "a"}],
    ids=str,
)
def test_wrong_parameters_are_refused(front, wrong):
    assert put(front, "jobs", **wrong).status_code == 400


def test_the_cluster_is_told(front):
    told = front.http.get("/cluster").json()
    assert told["cluster"] == "test"
    assert {each["name"] for each in told["nodes"]} == {"a", "b"}


@pytest.mark.parametrize("route", ["/topics/jobs", "/topics/jobs/properties"])
def test_a_queue_is_not_read_as_a_topic_and_has_no_properties_of_one(front, route):
    put(front, "jobs", copies=2)
    reply = front.http.get(route)
    assert (reply.status_code, reply.json()["error"]["name"]) == (409, "NotATopic")


def test_a_server_without_a_cluster_has_queues_of_its_own(shared_node):
    with Front(shared_node) as front:
        assert put(front, "own").json()["delivered"] == 1
        assert front.http.get("/queues").json() == {"queues": []}
        assert front.http.get("/cluster").status_code == 404
        assert put(front, "own", copies=2).status_code == 404


@contextlib.contextmanager
def secured(tmp_path, *grants):
    """A node of a cluster, its gateway, and how alice asks it, who has these grants."""
    users = UsersFile(tmp_path / "users.toml")
    everything = {"prefixes": "", "group_prefixes": ""}
    users.grant("gateway", "authorize")
    users.grant("gateway", "read write create delete describe", **everything)
    for operations, names in grants:
        users.grant("alice", operations, **names)
    token_file = tmp_path / "gateway.token"
    token_file.touch(mode=0o600)
    token_file.write_text(users.token("gateway", "gateway"))
    headers = {"Authorization": f"Bearer {users.token('alice', 'alice')}"}
    users.write()
    options = "--authentication", "bearer", "--token-file", token_file
    with (
        LinkedNode(Links(), tmp_path / "node", "a", port=0, copies=1, users=users.path) as node,
        Front(node, *options) as front,
    ):
        yield node, front, headers


@pytest.mark.parametrize("is_joined", [True, False], ids=["join", "make"])
def test_who_may_not_make_a_queue_makes_none_by_a_group_that_takes_from_it(tmp_path, is_joined):
    group = {"mode": "shared", "topics": ["jobs"]}
    grants = ("read", {"topics": "jobs"}), ("read create", {"groups": "workers"})

    def ask(front, headers):
        if is_joined:
            return front.http.post("/groups/workers/members", json=group, headers=headers)
        return front.http.put("/groups/workers", json=group, headers=headers)

    with secured(tmp_path, *grants) as (node, front, headers):
        reply = ask(front, headers)
        assert (reply.status_code, reply.json()["error"]["name"]) == (403, "NotAuthorized")
        assert node.control("queues") == []
        node.control("queue_create", topic="jobs")
        assert ask(front, headers).status_code in {200, 201}


def test_of_the_groups_of_a_queue_those_are_told_that_the_client_may_know_of(tmp_path):
    grants = ("describe", {"topics": "jobs"}), ("describe", {"groups": "mine"})
    with secured(tmp_path, *grants) as (node, front, headers):
        node.control("queue_create", topic="jobs")
        for group in ("mine", "other"):
            node.control("group_create", group=group, mode="shared", topics=[b"jobs"])
        [row] = front.http.get("/queues", headers=headers).json()["queues"]
        assert list(row["groups"]) == ["mine"]
