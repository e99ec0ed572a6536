"""Members that are not of good will, over the socket: a named error or a limit, and nobody else is
disturbed; no position is lost, or ahead of what was acknowledged."""

import gc
import resource
import socket
from contextlib import suppress

import pytest

from poe import protocol
from poe.broker.connection.connection import Connection
from poe.broker.requests.groups import Undelivered, address_of
from poe.errors import (
    GroupActive,
    GroupError,
    GroupFenced,
    GroupFull,
    InvalidGroupName,
    LocalProtocolError,
    OptionError,
    PoeError,
    RangeNotLeased,
    RemoteProtocolError,
    UnknownGroup,
)
from poe.protocol import Done, Failed, LeaseRequest, exchange
from tests.waiting import wait_until

ANN, BOB = (bytes([number]) * 16 for number in (1, 2))
OPERATIONS = ("group", "group_positions", "group_lag", "group_pause", "group_delete")


@pytest.fixture
def node(serve):
    return serve()


@pytest.fixture
def client(node):
    with protocol.socket(*node.address, timeout_s=10) as client:
        yield client


def join(client, group, member=ANN, mode="shared", **more):
    named = {"group": group, "mode": mode, "topics": ["jobs"], **more}
    return client.control("group_join", member=member, **named)


def lease(client, member=ANN, limit=10, **more):
    return client.lease(LeaseRequest("g", member, limit, 1 << 20, **more)).lease


def floor(client):
    [unit] = client.control("group", group="g")["units"]
    return unit["floor"]


def test_a_group_that_there_is_not_is_named(client):
    for op in OPERATIONS:
        with pytest.raises(UnknownGroup):
            client.control(op, group="g")
    with pytest.raises(UnknownGroup):
        lease(client)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".g", "a/b", "../../etc", "a\0b", "a\n", "ä", "a" * 201, "a" * 60_000, 7, b"g"],
)
def test_a_name_that_is_none_reaches_nothing(client, name):
    for op in (*OPERATIONS, "group_join", "group_create"):
        with pytest.raises(InvalidGroupName) as caught:
            client.control(op, group=name, member=ANN, mode="shared", topics=["jobs"])
        assert len(str(caught.value)) < 5000
    assert client.control("groups") == []


def test_a_generation_to_come_and_one_that_is_over_move_nothing(client):
    client.write(b"jobs", [b"0"])
    joined = join(client, "g", mode="ordered")
    wanted = {"group": "g", "member": ANN, "positions": {b"jobs": 5}}
    with pytest.raises(GroupFenced):
        client.control("group_commit", **wanted, generation=joined["generation"] + 1000)
    assert client.control("group_commit", **wanted, generation=0) == {}
    with pytest.raises(GroupFenced):
        client.control("group_commit", **{**wanted, "member": BOB}, generation=0)
    assert client.control("group_positions", group="g") == {b"jobs": None}


@pytest.mark.parametrize("wait_s", [0.0, 1.0])
@pytest.mark.parametrize("size", [10, 100_000])
def test_what_is_leased_to_who_has_gone_is_given_back_at_once(node, client, size, wait_s):
    client.write(b"jobs", [bytes([1]) * size] * 10)
    join(client, "g", options={"lease_s": 60, "session_s": 60})
    asked = LeaseRequest("g", ANN, 10, 1 << 20, wait_s)
    frames = exchange.wait(b"other", 0, 0.1).frame + exchange.lease(asked).frame
    for _ in range(5):
        with socket.create_connection(node.address) as peer:
            peer.sendall(frames)  # the first of them holds the other up until it is closed
    wait_until(lambda: node.control("group", group="g")["counts"].get("redelivered", 0) >= 4, 5)
    wait_until(lambda: not node.control("group", group="g")["units"][0]["leases"], 5)


def test_what_somebody_has_read_is_its_own_though_what_it_asks_next_comes_too_late(node, client):
    def connections_count():
        return sum(type(each) is Connection for each in gc.get_objects())

    client.write(b"jobs", [b"x"])
    join(client, "g", options={"lease_s": 60, "session_s": 60})
    before_count = connections_count()  # other tests may have left some
    with socket.create_connection(node.address) as peer:
        asked = exchange.lease(LeaseRequest("g", ANN, 10, 1 << 20, 0.0))
        peer.sendall(asked.frame)
        assert peer.recv(1 << 16)
        peer.sendall(exchange.wait(b"other", 0, 0.1).frame * 3)
    wait_until(lambda: connections_count() <= before_count)
    assert node.control("group", group="g")["units"][0]["leases"] == 1


def test_what_was_leased_of_a_group_whose_name_another_one_has_is_no_business_of_that(node, client):
    client.write(b"jobs", [b"x"])
    join(client, "g")
    told = lease(client)
    client.control("group_delete", group="g", force=True)
    join(client, "g", mode="ordered")
    node.system.cast(address_of("g"), Undelivered(told))
    assert len(client.control("group", group="g")["members"]) == 1


def test_who_acknowledges_what_it_never_had_moves_nothing(client):
    pointers = [client.write(b"jobs", [b"%d" % number]) for number in range(4)]
    join(client, "g")
    join(client, "g", BOB)
    held = lease(client, limit=2)
    for ranges in ([(0, pointers[3])], [(pointers[0], pointers[2])], [(pointers[2], pointers[3])]):
        with pytest.raises(RangeNotLeased):
            lease(client, limit=0, done=[Done(held.id, ranges)])
        with pytest.raises(RangeNotLeased):
            lease(client, limit=0, failed=[Failed(held.id, ranges[0][0], ranges[0][1], "dead")])
    numbers = [held.id + each for each in (1, 2, 1 << 32)] + [0, 2**64 - 1]
    told = lease(client, limit=0, done=[Done(each) for each in numbers])
    assert sorted(told.lost) == sorted(numbers)
    assert floor(client) == 0
    assert lease(client, limit=0, done=[Done(held.id)]).lost == ()
    assert floor(client) == pointers[1]


def test_a_group_with_members_is_not_reset_under_them(client):
    client.write(b"jobs", [b"0"])
    joined = join(client, "g", mode="ordered")
    with pytest.raises(GroupActive):
        client.control("group_reset", group="g", to="newest")
    with pytest.raises(PoeError):
        client.control("group_reset", group="g", to={b"other": 1}, force=True)
    assert client.control("group_positions", group="g") == {b"jobs": None}
    beat = {"generation": joined["generation"], "owned": []}
    client.control("group_heartbeat", group="g", member=ANN, **beat)


def test_what_is_too_much_is_refused_and_changes_nothing(node):
    """In process, where no frame bounds what may be asked for."""
    named = {"group": "g", "member": ANN, "mode": "ordered", "topics": ["jobs"]}
    many = [b"unit-%d" % number for number in range(100_000)]
    for more in ({"metadata": b"x" * (64 * 1024 + 1)}, {"name": "x" * 256}):
        with pytest.raises(OptionError):
            node.control("group_join", **{**named, **more})
    with pytest.raises(RemoteProtocolError):
        node.control("group_join", **{**named, "topics": many})
    generation = node.control("group_join", **named)["generation"]
    asked = {"group": "g", "member": ANN, "generation": generation}
    with pytest.raises(RemoteProtocolError):
        node.control("group_heartbeat", **asked, owned=many)
    assert node.control("group_commit", **asked, positions=dict.fromkeys(many, 1)) == {}
    with pytest.raises(PoeError):
        node.control("group_reset", group="g", to=dict.fromkeys(many, 1), force=True)
    assert node.control("group_positions", group="g") == {b"jobs": None}
    node.control("group_heartbeat", **asked, owned=[])


def test_a_frame_of_the_network_is_bounded_before_that(client):
    with pytest.raises(LocalProtocolError):
        join(client, "g", metadata=b"x" * (256 * 1024))
    join(client, "g")


def test_a_member_of_thousands_of_partitions_is_heard_of(client):
    """They were more than a request might tell of, and so nobody could read them alone."""
    topics = [f"{number}-{'x' * 40}" for number in range(4)]
    for topic in topics:
        client.control("topic_create", topic=topic, properties={"partitions": 1000})
    told = join(client, "g", mode="ordered", topics=topics)
    assert len(told["units"]) == 4000
    said = {"group": "g", "member": ANN, "generation": told["generation"]}
    beat = client.control("group_heartbeat", **said, owned=told["units"])
    assert (len(beat["keep"]), beat["revoke"], beat["granted"]) == (4000, [], {})
    positions = dict.fromkeys(told["units"], 7)
    assert client.control("group_commit", **said, positions=positions) == positions
    client.control("group_leave", **said, positions=positions)


def test_a_member_that_takes_all_leases_comes_to_a_limit(client):
    client.write(b"jobs", [b"x"] * 1000)
    join(client, "g", options={"leases_max": 100})
    leases = [lease(client, limit=1) for _ in range(150)]
    assert len({each.id for each in leases if each.id}) == 100
    described = client.control("group", group="g")
    assert (described["state"], described["full"][0]) == ("full", "leases_max")
    join(client, "g", BOB)
    assert lease(client, limit=0, done=[Done(leases[0].id)]).lost == ()
    assert lease(client, BOB, limit=1).id, "who has more than its share gets nothing before others"


def test_there_is_room_for_only_so_many_members_of_a_group(client):
    for number in range(3):
        join(client, "g", bytes([number]) * 16, options={"members_max": 3})
    with pytest.raises(GroupFull):
        join(client, "g", b"x" * 16)
    join(client, "g", bytes(16))


@pytest.mark.slow
def test_members_that_join_and_leave_for_ever_leave_nothing_behind(client):
    def come_and_go(count):
        for number in range(count):
            member = number.to_bytes(16, "big")
            join(client, "g", member, metadata=b"x" * 1024)
            client.control("group_leave", group="g", member=member)
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    come_and_go(2000)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert come_and_go(4000) - before_kb < 8 * 1024


@pytest.mark.slow
def test_clients_that_ask_and_go_hold_nothing_up_for_longer_than_a_lease(node, client):
    client.write(b"jobs", [b"0"])
    join(client, "g", options={"session_s": 600, "lease_s": 1})
    first = lease(client)
    lease(client, limit=0, done=[Done(first.id)])
    request = LeaseRequest("g", ANN, 10, 1 << 20, 60.0).encode()
    for _ in range(300):
        with socket.create_connection(node.address, timeout=5) as gone:
            gone.sendall(request)
    join(client, "g", BOB)
    client.write(b"jobs", [b"1"])
    found = []

    def comes():
        with suppress(GroupError):
            found.append(lease(client, BOB, wait_s=1.0))
        return bool(found and found[-1].id)

    wait_until(comes, 20)
