"""Consumers that are members of a group: they share partitions, and go on where the group was."""

import asyncio
import contextlib
import time
from datetime import UTC, datetime

import pytest

from poe import Node
from poe.client import AsyncConsumer, AsyncSocket, Queue, Received
from poe.client.consumer.hand import Hand
from poe.client.consumer.source import ConsumerOptions
from poe.client.group.group_source import GroupSource
from poe.client.group.membership import Membership
from poe.errors import (
    ConnectFailed,
    GroupFenced,
    GroupMismatch,
    MessagesLost,
    OptionError,
    PoeError,
    RemoteProtocolError,
    UnknownGroup,
)
from poe.protocol.envelope import encode
from poe.protocol.server import Server
from tests.client.consumers import VALUES, put_segments, url, values
from tests.ports import free_port
from tests.waiting import wait_until


def positions(node):
    return {
        unit: position and position[0]
        for unit, position in node.control("group_positions", group="billing").items()
    }


def owners(node):
    """Return who has which unit; a member that has only begun to join has made no group yet."""
    try:
        told = node.control("group", group="billing")
    except UnknownGroup:
        return {}
    return {each["unit"]: each["owner"] for each in told["units"]}


def members_count(node):
    return len(node.control("group", group="billing")["members"])


def receive_all(readers, count):
    """Receive with some readers in turn until they have so many messages."""
    found: list[Received] = []

    def have_all():
        for reader in readers:
            found.extend(reader.receive(0))
        return len(found) >= count

    wait_until(have_all)
    return found


def test_a_group_goes_on_where_it_was(node, member):
    last = node.put_many("t", VALUES[:5])
    with member() as reader:
        assert values(reader) == VALUES[:5]
    assert positions(node) == {b"t": last}
    node.put_many("t", VALUES[5:])
    with member() as reader:
        assert values(reader) == VALUES[5:]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_topic_that_is_made_with_several_partitions_while_a_member_reads_it_is_read(
    node, member, is_there
):
    """Until the group has told of them it was an error that the topic is no partition of itself."""
    if is_there:
        node.put("t", b"old")
    # A member whose session ends on a busy machine gets again what it has not committed.
    with member(follow=True, group_options={"session_s": 60, "heartbeat_s": 0.2}) as reader:
        assert values_in_time(reader, int(is_there)) == [b"old"] * is_there
        wait_until(lambda: reader.receive(0) == [] and any(owners(node).values()), 20)
        if is_there:
            node.control("delete", topic="t")
        node.create_topic("t", partitions=2)
        for number in range(2):
            node.put(f"t-{number}", b"new")
        assert values_in_time(reader, 2) == [b"new"] * 2


def values_in_time(reader, count):
    found: list[bytes | None] = []
    while len(found) < count and (some := reader.receive(20)):
        found += [each.value for each in some]
    return found


def test_what_is_in_hand_when_an_error_ends_the_block_comes_again(node, member):
    node.put_many("t", VALUES)

    def handle():
        with member() as reader:
            for received in reader:
                if received.value == VALUES[3]:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        handle()
    with member() as reader:
        assert values(reader) == VALUES[3:]


def test_a_batch_is_dealt_with_when_the_next_one_is_asked_for(node, member):
    pointer = node.put_many("t", VALUES)
    reader = member(batch=4)
    reader.receive()
    reader.receive()
    wait_until(lambda: positions(node) == {b"t": pointer - 6})
    reader.close()
    assert positions(node) == {b"t": pointer - 6}


def test_what_was_handed_out_is_dealt_with_when_the_block_ends(node, member):
    pointer = node.put_many("t", VALUES)
    with member(batch=4) as reader:
        assert values(reader.receive()) == VALUES[:4]
    assert positions(node) == {b"t": pointer - 6}


def test_nothing_is_committed_but_by_hand_where_that_was_asked_for(node, member):
    pointer = node.put_many("t", VALUES)
    with member(batch=4, commit="manual") as reader:
        reader.receive()
        assert reader.commit(b"a plan") == {b"t": pointer - 6}
        assert reader.commit() == {}
        reader.receive()
    told = node.control("group_positions", group="billing")
    assert {unit: tuple(position) for unit, position in told.items()} == {
        b"t": (pointer - 6, b"a plan")
    }


def test_what_is_committed_before_never_comes_twice(node, member):
    pointer = node.put_many("t", VALUES)
    reader = member(batch=4, commit="before")
    assert values(reader.receive()) == VALUES[:4]
    assert positions(node) == {b"t": pointer - 6}
    iterator = iter(reader)
    next(iterator)
    assert positions(node) == {b"t": pointer - 2}
    reader.close()  # in good order, so that the others of that batch are not lost
    assert positions(node) == {b"t": pointer - 5}


def test_members_share_the_units(node, member):
    topics = ["t-0", "t-1", "t-2", "t-3"]
    first = member(topics, follow=True)
    first.receive(0)
    second = member(topics, follow=True)
    second.receive(0)

    def is_shared():
        first.receive(0)
        second.receive(0)
        found = list(owners(node).values())
        return sorted(map(found.count, set(found))) == [2, 2]

    wait_until(is_shared)
    for topic in topics:
        node.put_many(topic, [topic.encode()] * 3)
    found = receive_all((first, second), 12)
    assert {(each.topic, each.value) for each in found} == {
        (t.encode(), t.encode()) for t in topics
    }


def test_who_leaves_hands_on_at_once_what_it_had(node, member):
    node.put_many("t", VALUES)
    options = {"follow": True, "group_options": {"session_s": 60, "heartbeat_s": 0.2}}
    first, second = member(**options), member(**options)
    assert values(first.receive()) == VALUES
    assert second.receive(0.01) == []
    first.close()
    begin_s = time.monotonic()
    assert values(second.receive()) == VALUES  # nothing of it was dealt with
    assert time.monotonic() - begin_s < 30, "the session of who has left was waited for"


def test_who_takes_over_asks_for_nothing_but_messages(node, member, monkeypatch):
    asked = []
    control = AsyncSocket.control

    def note_op(socket, op, **arguments):
        if op != "group_heartbeat":
            asked.append(op)
        return control(socket, op, **arguments)

    node.put_many("t", VALUES)
    first = member(follow=True, commit_interval_s=60)
    first.receive()
    second = member(follow=True)
    wait_until(lambda: second.receive(0.01) == [] and members_count(node) == 2)
    monkeypatch.setattr(AsyncSocket, "control", note_op)
    first.receive(0)
    first.close()
    node.put("t", b"more")
    assert values(second.receive(10)) == [b"more"]
    assert asked == ["group_leave"]


async def test_what_was_committed_before_and_not_handed_out_is_another_members(node, monkeypatch):
    """Its reader has given up while the group was told."""
    node.put_many("t", VALUES)
    is_committed = asyncio.get_running_loop().create_future()
    ask = Membership.ask

    async def commit(membership, op, **said):
        told = await ask(membership, op, **said)
        if op == "group_commit":
            is_committed.get_loop().call_soon_threadsafe(is_committed.set_result, None)
            await asyncio.Event().wait()
        return told

    options = {"group": "billing", "commit": "before"}
    with monkeypatch.context() as patch:
        patch.setattr(Membership, "ask", commit)
        async with AsyncConsumer(url(node), "t", **options) as reader:
            reading = asyncio.create_task(reader.receive())
            await asyncio.wait_for(is_committed, 20)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    async with AsyncConsumer(url(node), "t", **options) as reader:
        assert [each.value for each in await reader.receive()] == VALUES


@pytest.fixture
def refused(monkeypatch):
    """Have the first commit refused, as where the group has given the member up; whether it was."""
    ask = Membership.ask
    refused: list[str] = []

    async def commit(membership, op, **said):
        if op == "group_commit" and not refused:
            refused.append(op)
            await ask(membership, "group_leave")
        return await ask(membership, op, **said)

    monkeypatch.setattr(Membership, "ask", commit)
    return refused


def test_a_member_that_commits_before_joins_anew_when_it_is_known_no_more(node, member, refused):
    node.put_many("t", VALUES)
    assert values(member(commit="before")) == VALUES
    assert refused


def test_a_member_that_commits_before_waits_for_no_group_that_keeps_it_waiting(
    node, member, refused, monkeypatch
):
    """What it was to hand out is others' to have as soon as it is known no more."""

    async def wait(membership, instance):
        await asyncio.Event().wait()

    monkeypatch.setattr(Membership, "_check_instance", wait)
    monkeypatch.setattr(GroupSource, "_patience_s", lambda _: 1000.0)
    node.put_many("t", VALUES)
    with member(commit="before", instance="a", follow=True) as reader:
        wait_until(lambda: reader.receive(0) == [] and refused)


def test_what_may_not_be_handed_out_any_more_keeps_nothing_of_what_follows(
    node, member, monkeypatch
):
    """As where its unit goes to another member while its reader is busy."""
    admit, asked = GroupSource.admit, []

    async def admit_others(source, fetched):
        asked.append(fetched)
        return len(asked) != 2 and await admit(source, fetched)

    monkeypatch.setattr(GroupSource, "admit", admit_others)
    last = node.put_many("t", [b"%d" % number for number in range(25)])
    with member(batch=1) as reader:
        assert values(reader) == [b"%d" % number for number in (*range(10), *range(20, 25))]
    assert positions(node) == {b"t": last}


def test_a_unit_waits_for_what_is_in_hand_before_another_member_has_it(node, member):
    topics = ["a", "b"]
    for topic in topics:
        node.put_many(topic, VALUES)
    first = member(topics, follow=True, batch=3)
    in_hand = first.receive()
    second = member(topics, follow=True)
    taken = second.receive(0.3)
    if in_hand[0].topic == b"b":  # the one that is to go
        assert taken == []
    # Of what it has taken, the other one may have been given the unit that nobody has in hand.
    taken += first.receive(0)
    found = receive_all((first, second), 20 - len(in_hand) - len(taken))
    topic = in_hand[0].topic
    again = [each for each in [*taken, *found] if each.topic == topic and each in in_hand]
    assert again == []


def test_a_unit_waits_no_longer_than_it_may(node, member):
    topics = ["a", "b"]
    for topic in topics:
        node.put_many(topic, VALUES)
    first = member(topics, follow=True, handover_s=0.05)
    first.receive()
    second = member(topics, follow=True)
    assert second.receive(20)


@pytest.mark.parametrize("start", ["oldest", "newest", "time", "pointer"])
def test_where_a_group_begins_that_was_never_there(node, member, start):
    pointer = node.put_many("t", VALUES)
    node.put_many("t", [b"later"])
    places = {"time": datetime.fromtimestamp((pointer - 4) / 1e6, UTC), "pointer": pointer - 2}
    with member(start=places.get(start, start)) as reader:
        found = values(reader)
    expected = {"oldest": VALUES, "newest": [], "time": VALUES[5:], "pointer": VALUES[8:]}[start]
    assert found == ([] if start == "newest" else [*expected, b"later"])
    with member(start=places.get(start, start)) as reader:
        assert values(reader) == []


def test_a_consumer_without_a_group_begins_at_a_time_too(node, consumers):
    pointer = node.put_many("t", VALUES)
    reader = consumers(node, start=datetime.fromtimestamp((pointer - 2) / 1e6, UTC))
    assert values(reader) == VALUES[7:]


def test_newest_is_what_came_since_the_group_was_made(node, member):
    with member(["t", "u"], start="newest"):
        pass
    node.put("u", b"while nobody was there")
    with member(["t", "u"], start="newest") as reader:
        assert values(reader) == [b"while nobody was there"]


def test_a_group_of_other_topics_is_refused(node, member):
    with member():
        pass
    with pytest.raises(GroupMismatch, match="topics"):
        member("u").receive()


def test_what_a_group_has_is_told_as_people_write_it(node, member):
    node.put("w2", b"one")
    with member("w2"):
        pass
    with pytest.raises(GroupMismatch, match="has topics 'w2', not 'u', 'w1'; give those"):
        member(["u", "w1"]).receive()
    with pytest.raises(GroupMismatch, match="'ordered', not 'shared'; a `Queue`"):
        Queue(url(node), "w2", group="billing").get(1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"group": ""}, 'use a name, as in group="billing"'),
        ({"group": "g", "instance": ""}, 'use a name, as in instance="billing"'),
        ({"group": "g", "start": {"t": 1}}, "the topic of a partition"),
    ],
)
def test_options_of_members_are_checked_at_once(consumers, options, why):
    with pytest.raises(OptionError, match=why):
        consumers("poe://localhost", **options)


def test_groups_are_not_for_kafka(consumers):
    with pytest.raises(OptionError, match="group"):
        consumers("kafka://localhost:9092", group="billing")


def test_many_topics_are_for_groups(consumers):
    with pytest.raises(OptionError, match="topics"):
        consumers("poe://localhost", ["a", "b"])


def test_only_members_commit(node, consumers):
    with pytest.raises(OptionError, match="group"):
        consumers(node).commit()


def test_topics_that_come_later_are_read_by_a_pattern(node, member):
    node.put("web.1", b"one")
    node.put("other", b"other")
    with member(["web.*"], follow=True) as reader:
        assert values(reader.receive()) == [b"one"]
        node.put("web.2", b"two")
        (received,) = reader.receive(20)
        assert (received.topic, received.value) == (b"web.2", b"two")


def test_messages_tell_topic_and_partition_and_positions_the_unit(node, member):
    node.create_topic("web.a", partitions=2)
    pointer = node.put("web.a-1", b"one")
    with member(["web.*"]) as reader:
        (received,) = reader
        assert received[:4] == (b"web.a", 1, received.pointer, None)
        assert reader.position()[b"web.a-1"] == pointer == received.pointer


def test_keys_and_headers_come_where_the_topic_has_them(node, member):
    node.create_topic("t", envelope=True)
    node.put("t", encode(b"key", b"value", {"a": b"b"}))
    with member() as reader:
        (received,) = reader
        assert (received.key, received.value, received.headers) == (b"key", b"value", {"a": b"b"})


def test_a_topic_that_is_made_while_a_member_waits_for_it_is_read_as_it_is(node, member):
    with member(follow=True) as reader:
        assert reader.receive(0.05) == []
        node.create_topic("t", envelope=True)
        node.put("t", encode(b"key", b"value", None))
        (received,) = reader.receive(20)
        assert (received.key, received.value) == (b"key", b"value")


@pytest.mark.parametrize("start", ["oldest", "newest"])
def test_a_topic_that_is_deleted_under_a_member_is_read_anew(node, member, start):
    with member(start=start, follow=True) as reader:
        reader.receive(0.01)
        node.put_many("t", VALUES)
        assert values(reader.receive(20)) == VALUES
        reader.receive(0)
        wait_until(lambda: positions(node)[b"t"])
        node.control("delete", topic="t")
        assert positions(node) == {b"t": None}
        pointer = node.put_many("t", VALUES[:3])
        assert values(receive_all([reader], 3)) == VALUES[:3]
        reader.receive(0)
        wait_until(lambda: positions(node) == {b"t": pointer})


def test_a_member_that_was_ended_joins_anew(node, member):
    node.put_many("t", VALUES)
    reader = member(follow=True)
    assert values(reader.receive()) == VALUES
    reader.receive(0)
    wait_until(lambda: positions(node)[b"t"])
    node.control("group_reset", group="billing", to="oldest", force=True)
    assert values(reader.receive(20)) == VALUES


def test_a_node_whose_members_have_left_stops_at_once(node, member):
    with member(follow=True, group_options={"session_s": 60}) as reader:
        reader.receive(0.01)
    begin_s = time.monotonic()
    node.stop()
    assert time.monotonic() - begin_s < 30  # half of its session


def test_a_server_that_starts_again_is_joined_again(serve, consumers, tmp_path):
    node = serve(dir=tmp_path / "data")
    port = node.address[1]
    node.put_many("t", VALUES)
    reader = consumers(node, group="billing", follow=True, commit_interval_s=0.01)
    assert values(reader.receive()) == VALUES
    reader.receive(0)
    wait_until(lambda: positions(node)[b"t"])
    node.stop()
    node = serve(dir=tmp_path / "data", port=port)
    node.put("t", b"more")
    assert values(reader.receive(20)) == [b"more"]


def test_another_start_of_an_instance_has_what_the_first_had(node, member):
    node.put_many("t", VALUES)
    first = member(instance="a", follow=True)
    first.receive()
    second = member(instance="a", follow=True)
    assert values(second.receive(20)) == VALUES
    with pytest.raises(GroupFenced, match="started again"):
        first.receive(20)


def test_a_seek_moves_the_group_too(node, member):
    pointer = node.put_many("t", VALUES)
    with member() as reader:
        list(reader)
        assert reader.position() == {b"t": pointer}
        reader.seek({b"t": pointer - 3})
        assert values(reader) == VALUES[7:]
        reader.seek("oldest")
        assert values(reader) == VALUES


def test_a_seek_of_one_unit_leaves_nothing_out_of_another(node, member):
    """Of which something was fetched, and nothing was handed out yet."""
    node.create_topic("t", partitions=2)
    for number in range(3):
        for unit in ("t-0", "t-1"):
            node.put(unit, b"%s %d" % (unit.encode(), number))
    with member(follow=True):
        reader = member(follow=True, commit="manual")
    got = reader.receive(20)
    reader.receive(0)  # which begins to fetch what follows
    time.sleep(0.3)
    reader.seek({b"t-%d" % got[0].partition: 0})
    found = receive_all([reader], 6)
    assert len({received.value for received in found}) == 6


@pytest.mark.slow
def test_a_seek_that_fails_leaves_a_consumer_where_it_was(tmp_path, consumers):
    port = free_port()
    with Node(dir=tmp_path, port=port) as node:
        node.put_many("t", VALUES[:3])
        reader = consumers(node, group="billing", follow=True, timeout_s=0.5)
        assert values(reader.receive(20)) == VALUES[:3]
    with pytest.raises(ConnectFailed):
        reader.seek("newest")
    with Node(dir=tmp_path, port=port) as node:
        node.put("t", VALUES[3])
        found: list[Received] = []

        def is_found():
            with contextlib.suppress(PoeError):
                found.extend(reader.receive(0.5))
            return found

        wait_until(is_found, 30)
        assert values(found) == [VALUES[3]]
        reader.close()


def test_a_seek_leaves_each_partition_its_number(node, member):
    node.create_topic("t", partitions=2)
    node.put("t-1", b"one")
    with member() as reader:
        list(reader)
        reader.seek("oldest")
        (received,) = reader
        assert received.partition == 1


def test_what_was_deleted_before_the_group_has_read_it_is_told(shedding, consumers):
    pointers = put_segments(shedding, *VALUES[:4])
    with consumers(shedding, group="billing", batch=1) as reader:
        assert values(reader.receive()) == VALUES[:1]
    shedding.control("trim", topic="t", pointer=pointers[2])
    with consumers(shedding, group="billing") as reader:
        with pytest.raises(MessagesLost) as lost:
            reader.receive()
        assert (lost.value.topic, lost.value.pointer_high) == (b"t", pointers[2])
        reader.seek({lost.value.topic: lost.value.pointer_high})
        assert values(reader) == VALUES[3:4]


@pytest.mark.slow
def test_a_busy_event_loop_costs_no_membership(node):
    node.put_many("t", VALUES)
    members: list[bytes | None] = []

    async def read():
        options = {"group": "billing", "group_options": {"session_s": 2}}
        async with AsyncConsumer(url(node), "t", **options) as reader:
            members.append(owners(node)[b"t"])
            async for received in reader:
                if received.value == VALUES[0]:
                    time.sleep(4)  # noqa: ASYNC251 - a handler that computes
            members.append(owners(node)[b"t"])

    asyncio.run(read())
    first, second = members
    assert first == second is not None


@pytest.mark.parametrize("answer", [None, 7, [], {}, {"created_us": None}, {"created_us": 2**64}])
async def test_a_group_that_tells_without_sense_when_it_was_made_is_an_error(monkeypatch, answer):
    """Else it would end the heartbeats of its member in silence."""

    async def ask(membership, op):
        return answer

    monkeypatch.setattr(Membership, "ask", ask)
    options = ConsumerOptions(group="g", start="newest")
    source = GroupSource([Server("localhost", 1)], [b"t"], options, Hand(b"t"))
    with pytest.raises(RemoteProtocolError, match="the answer to group is"):
        await source.heard({b"t": (b"t", 0, None)}, ())
    assert source.owned() == []
    await source.close()


async def test_a_unit_that_cannot_be_begun_leaves_no_other_one_to_begin_unasked(monkeypatch):
    """What begins when its grant is forgotten already is read without being owned, or twice."""
    is_back = asyncio.Event()
    asked = []

    async def ask(membership, op):
        asked.append(op)
        if len(asked) == 1:
            raise GroupFenced("g", "it is not known")
        await is_back.wait()
        return {"created_us": 0}

    monkeypatch.setattr(Membership, "ask", ask)
    options = ConsumerOptions(group="g", start="newest")
    source = GroupSource([Server("localhost", 1)], [b"t"], options, Hand(b"t"))
    granted = {b"t0": (b"t", 0, None), b"t1": (b"t", 1, None)}
    with pytest.raises(GroupFenced):
        await source.heard(granted, ())
    is_back.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert source.owned() == []
    await source.heard(granted, ())
    assert source.owned() == [b"t0", b"t1"]
    await source.close()
