"""What a node does for somebody who may not do everything: through a request handler, as served."""

import pytest

from poe.actors import Call, Error, GenServer
from poe.broker.connection.reply import make_reply
from poe.broker.requests.byte_budget import ByteBudget, Holding, Room
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import NotAuthorized, PoeError, UnknownTopic
from poe.protocol import FRAME_MAX, ControlReply, ControlRequest, PutId, decode_reply
from poe.protocol.frames import split_frame
from poe.security.policy import Grant, Policy


class Granted:
    """The permissions of one user; other grants may be set at any time."""

    def __init__(self, *grants):
        self.set(*grants)

    def set(self, *grants):
        self.policy = Policy([Grant(principals=("alice",), **each) for each in grants])

    def may(self, need):
        return self.policy.may("alice", *need)

    def wrote(self, size_bytes):
        """Have no limit."""

    def refusal(self, need):
        return None if self.may(need) else need.refusal


class Asking(GenServer):
    """Carries requests out with some permissions: functions that are given a request handler."""

    def init(self, routes, permissions):
        room = Room(Holding(ByteBudget(FRAME_MAX, 1), lambda: None), FRAME_MAX)
        self.handler = RequestHandler(self, routes, room=room, permissions=permissions)

    async def handle_call(self, request, caller: Call):
        try:
            return await request(self.handler)
        except PoeError as error:
            return Error(error)


class Asker:
    """Asks a simulated node on behalf of a user."""

    def __init__(self, sim, permissions):
        self._system = sim.system
        self._ref = sim.system.start(Asking, sim.routes, permissions)

    def do(self, request):
        return self._system.call(self._ref, request)

    def control(self, op, **arguments):
        async def ask(handler):
            request = ControlRequest(op, 1, arguments)
            return (await make_reply(handler, request, None, handler.room))[0]

        told = decode_reply(ControlReply, *split_frame(bytes(self.do(ask))))
        if isinstance(told, PoeError):
            raise told
        return told.result

    def put(self, topic, message=b"m"):
        return self.do(lambda handler: handler.put(topic, [message]))


READ_A = {"operations": ("read",), "prefixes": (b"a",)}


@pytest.fixture
def sim(simulate):
    sim = simulate()
    for name in (b"a1", b"b1", b"a2", b"b2", b"a3", b"c"):
        sim.node.put(name, b"m")
    return sim


def test_listings_tell_only_what_may_be_described(sim):
    asker = Asker(sim, Granted(READ_A))
    seen = [b"a1", b"a2", b"a3"]
    assert asker.control("topics") == seen
    for op in ("status", "info", "topic_list"):
        assert list(asker.control(op)) == seen


@pytest.mark.parametrize("op", ["topics", "status", "info", "topic_list"])
def test_pages_count_only_what_is_told(sim, op):
    asker = Asker(sim, Granted({"operations": ("describe",), "topics": (b"a3", b"b2")}))
    assert list(asker.control(op, count=1)) == [b"a3"]
    assert list(asker.control(op, count=1, after=b"a3")) == [b"b2"]
    assert list(asker.control(op, count=1, after=b"b2")) == []


@pytest.mark.parametrize("op", ["topics", "status", "info", "topic_list"])
def test_who_may_describe_nothing_is_told_nothing(sim, op):
    assert list(Asker(sim, Granted()).control(op)) == []


def test_a_page_may_lie_behind_many_that_nobody_is_told_of(simulate):
    sim = simulate()
    for number in range(120):
        sim.node.put(b"b%03d" % number, b"m")
    sim.node.put(b"last", b"m")
    asker = Asker(sim, Granted({"operations": ("describe",), "topics": (b"last",)}))
    assert list(asker.control("status", count=1)) == [b"last"]


def test_partitions_are_told_to_who_may_describe_their_topic(simulate):
    sim = simulate()
    sim.node.create_topic(b"t", partitions=2)
    sim.node.put(b"t-1", b"m")
    asker = Asker(sim, Granted({"operations": ("describe",), "topics": (b"t",)}))
    assert asker.control("topics") == [b"t-1"]
    assert list(asker.control("topic_list")) == [b"t"]


def test_groups_are_listed_to_who_may_describe_them(sim):
    for name in ("mine", "other"):
        sim.node.control("group_create", group=name, mode="shared", topics=[b"a1"])
    asker = Asker(sim, Granted({"operations": ("describe",), "groups": (b"mine",)}))
    assert [each["group"] for each in asker.control("groups")] == ["mine"]


def test_who_numbers_puts_is_known_in_full_to_who_administers(sim):
    """Whoever puts under the id of another has what that one puts taken for stored, and lost."""
    producer = bytes(range(16))
    sim.node.put_many("a1", [b"m"], PutId(producer, 1, 0))
    told = []
    for grants in ((READ_A,), (READ_A, {"operations": ("admin",)})):
        [row] = Asker(sim, Granted(*grants)).control("producers", topic=b"a1")
        told.append(row["producer"])
    assert told == [producer[:4].hex(), producer.hex()]


def test_health_tells_versions_and_files_to_who_administers(sim):
    assert set(Asker(sim, Granted()).control("health")) == {"status", "read_only"}
    admin = Asker(sim, Granted({"operations": ("admin",)}))
    assert admin.control("health") == sim.node.control("health")


# ---- what would have to be made -----------------------------------------------------------------


WRITE = {"operations": ("write",), "prefixes": (b"",)}
CREATE = {"operations": ("create",), "prefixes": (b"new",)}


def test_putting_onto_what_is_there_needs_no_right_to_create(sim):
    assert Asker(sim, Granted(WRITE)).put(b"c") > 0


def test_putting_onto_what_is_not_there_needs_the_right_to_create(sim):
    asker = Asker(sim, Granted(WRITE, CREATE))
    with pytest.raises(NotAuthorized, match="not authorized to create topic 'absent'"):
        asker.put(b"absent")
    assert asker.put(b"new-one") > 0
    assert sim.node.topics() == [b"a1", b"a2", b"a3", b"b1", b"b2", b"c", b"new-one"]


def test_the_first_put_onto_a_partition_makes_no_topic(sim):
    sim.node.create_topic(b"t", partitions=2)
    assert Asker(sim, Granted(WRITE)).put(b"t-1") > 0


def test_a_topic_that_rests_is_there(simulate):
    sim = simulate()
    sim.node.put(b"t", b"m")
    sim.stop()
    sim.start()
    assert Asker(sim, Granted(WRITE)).put(b"t") > 0


def test_putting_later_onto_what_is_not_there_needs_the_right_to_create(sim):
    asker = Asker(sim, Granted(WRITE, CREATE))
    later = {"due_us": sim.wall.now_us() + 10**9, "messages": [b"m"]}
    with pytest.raises(NotAuthorized, match="create topic 'absent'"):
        asker.control("queue_put", topic=b"absent", **later)
    assert asker.control("queue_put", topic=b"c", **later)["waiting"] == 1
    assert asker.control("queue_put", topic=b"new", **later)["waiting"] == 2


def test_a_topic_that_is_deleted_meanwhile_is_not_made_again_by_who_reads(simulate):
    """The registry was asked to wake it, and has deleted it before."""
    sim = simulate()
    sim.node.put(b"t", b"m")
    sim.stop()
    sim.start()
    sim.node.control("delete", topic=b"t")
    sim.routes.waking.add(b"t")  # as the one who asks has seen it
    asker = Asker(sim, Granted(WRITE))
    with pytest.raises(UnknownTopic):
        asker.do(lambda handler: handler.next(b"t", 0))
    sim.routes.waking.discard(b"t")
    assert sim.node.topics() == []


def test_joining_a_group_that_is_not_there_needs_the_right_to_create_it(sim):
    given = {"operations": ("create",), "groups": (b"mine",)}
    asker = Asker(sim, Granted(given))
    join = {"member": bytes(16), "mode": "ordered", "topics": [b"a1"]}
    with pytest.raises(NotAuthorized, match="create group 'other'"):
        asker.control("group_join", group="other", **join)
    assert asker.control("group_join", group="mine", **join)["generation"] > 0
    assert [each["group"] for each in sim.node.control("groups")] == ["mine"]
    sim.node.control("group_create", group="other", mode="ordered", topics=[b"a1"])
    assert asker.control("group_join", group="other", **join)["generation"] > 0
