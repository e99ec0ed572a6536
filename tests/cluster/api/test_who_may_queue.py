"""Grants on queues of a cluster: those of a topic of the same name."""

from types import SimpleNamespace

import pytest

from poe.errors import NotAuthorized
from tests.broker.test_permission import Asker, Granted
from tests.cluster.linked_nodes import LinkedNode, Links

WRITE, CREATE, DESCRIBE = (
    {"operations": (operation,), "prefixes": (b"jobs",)}
    for operation in ("write", "create", "describe")
)
GROUPS = {"operations": ("create",), "groups": (b"workers",)}
JOIN = {"group": "workers", "member": bytes(16), "mode": "shared", "topics": ["jobs"]}


class SeenNode(LinkedNode):
    """A node whose routes somebody else may use, as a connection does."""

    @property
    def routes(self):
        return self._routes


@pytest.fixture
def node(tmp_path):
    with SeenNode(Links(), tmp_path / "data", "a", port=None, copies=1) as node:
        yield node


@pytest.fixture
def asking(node):
    """Returns who asks with grants that may be changed."""

    def asking(*grants):
        granted = Granted(*grants)
        return Asker(SimpleNamespace(system=node.system, routes=node.routes), granted), granted

    return asking


def put(asker):
    return asker.control("queue_put", topic="jobs", messages=[b"a"])


def test_the_first_put_onto_a_queue_needs_to_create_it(asking):
    asker, granted = asking(WRITE)
    with pytest.raises(NotAuthorized, match="create"):
        put(asker)
    granted.set(WRITE, CREATE)
    assert put(asker)["copies"] == 1
    granted.set(WRITE)
    assert put(asker)["copies"] == 1


def test_who_joins_a_group_of_a_queue_that_there_is_not_needs_to_create_it(asking, node):
    asker, granted = asking(GROUPS)
    with pytest.raises(NotAuthorized, match="jobs"):
        asker.control("group_join", **JOIN)
    assert node.control("queues") == []
    granted.set(GROUPS, CREATE)
    assert asker.control("group_join", **JOIN)["heartbeat_s"] > 0


def test_who_may_not_make_a_group_of_a_queue_is_told_so(asking, node):
    node.control("queue_put", topic="jobs", messages=[b"a"])
    asker, _ = asking()
    with pytest.raises(NotAuthorized, match="workers"):
        asker.control("group_join", **JOIN)


def test_queues_are_listed_to_who_may_describe_them(asking, node):
    for name in ("jobs", "secret"):
        node.control("queue_put", topic=name, messages=[b"a"])
    asker, _ = asking(DESCRIBE)
    assert [row["name"] for row in asker.control("queues")] == [b"jobs"]
