"""Real nodes whose fabric is a few actors: membership, queues, groups, and what survives what."""

import contextlib
import datetime as dt
import os
import shutil
import time
from pathlib import Path

import pytest

from poe.broker.requests.queue_messages import QUEUES, ClusterRequest, FindQueue
from poe.cluster.actor_messages import FABRIC, TellNodes
from poe.cluster.fabric.envelope import FRAME_MAX_BYTES, encode_envelope
from poe.cluster.fabric.interface import Published
from poe.cluster.identity import NodeRef
from poe.cluster.node_frames import encode_records
from poe.cluster.queue_record import TIME_MAX_US, QueueRecord
from poe.cluster.queues import Queues
from poe.errors import (
    ActorDead,
    CallTimeout,
    CopyNotReached,
    CorruptIdentity,
    ForeignCluster,
    IdentityConflict,
    NodeAlive,
    NodeForgotten,
    NoQuorum,
    OptionError,
    PutUnconfirmed,
    QueueBusy,
    QueueExists,
    StorageError,
    TooFewNodes,
    UnderCopies,
    UnknownQueue,
)
from poe.testing.simulated_log import SimulatedLog
from tests.broker.users_file import UsersFile, connect_as
from tests.cluster.linked_nodes import LinkedNode
from tests.tls import Certificates
from tests.waiting import wait_until


@pytest.fixture
def cluster(tmp_path, links):
    """Starts nodes by name; each is stopped at the end."""
    with contextlib.ExitStack() as stack:

        def start(*names, **options):
            nodes = [LinkedNode(links, tmp_path / name, name, **options) for name in names]
            for node in nodes:
                node.start()
                stack.callback(node.stop)
            return nodes

        yield start


def live(node):
    return node.control("cluster")["live"]


def wait_for_live(count, *nodes):
    def all_see():
        with contextlib.suppress(ActorDead):  # it is being started anew
            return all(live(node) == count for node in nodes)
        return False

    wait_until(all_see, 20)


def states(node):
    return {
        each["name"]: (each["state"], each["liveness"]) for each in node.control("cluster_members")
    }


def put(node, name, *messages, **arguments):
    return node.control("queue_put", topic=name, messages=list(messages), **arguments)


def held(node, name):
    found: list[bytes] = []
    unit, pointer = b"", 0
    while True:
        told = node.control("queue_browse", topic=name, unit=unit, pointer=pointer)
        if not told["unit"]:
            return found
        unit, pointer = told["unit"], told["last"]
        found += [message for _, message in told["messages"]]


def test_nodes_know_each_other_and_keep_who_crashed_as_a_member(cluster):
    a, b, c = cluster("a", "b", "c")
    wait_for_live(3, a, b, c)
    assert states(a)["a"] == ("joined", "me")
    b.system.shutdown()  # as a crash: nobody says farewell
    a.links.close(b.me.ref)
    wait_until(lambda: states(a)["b"] == ("joined", "down"), 5)
    wait_for_live(2, c)


def test_a_node_that_is_stopped_leaves_and_joins_again_as_the_same(cluster, tmp_path, links):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    before = b.me.ref
    b.stop()
    wait_until(lambda: states(a)["b"] == ("left", "down"), 5)
    b.start()
    wait_for_live(2, a, b)
    assert b.me.ref.id == before.id
    assert b.me.ref.epoch > before.epoch
    assert states(a)["b"] == ("joined", "live")


@pytest.mark.parametrize("queue", ["jobs", "new"])
def test_what_is_put_at_a_node_that_is_about_to_leave_is_on_others(cluster, queue):
    """Its clients are served until their connections end; the others hear of it until then."""
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    put(b, "jobs", b"before", copies=1)
    a.system.call(QUEUES, ClusterRequest("leave", {}))
    assert put(a, queue, b"after", copies=1)["copies"] == 1
    assert b"after" in held(b, queue)
    a.stop()
    wait_until(lambda: states(b)["a"] == ("left", "down"), 5)
    assert {*held(b, "jobs"), *held(b, queue)} == {b"before", b"after"}


def test_a_stop_that_is_interrupted_while_it_leaves_the_cluster_releases_the_folder(cluster):
    """As by Ctrl-C: nobody could stop it any more, or start another one there."""
    (node,) = cluster("a")
    system = node.system

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    system.call = interrupt
    with pytest.raises(KeyboardInterrupt):
        node.stop()
    node.start()
    assert node.topics() == []


@pytest.mark.slow
def test_a_node_whose_queues_are_busy_for_long_is_stopped_all_the_same(cluster, monkeypatch):
    """They are at work until others answer, or a disk does, and hear of the end behind that."""
    (node,) = cluster("a")

    async def wait(queues):
        await queues.sleep(60.0)

    monkeypatch.setattr(Queues, "_status", wait)
    with pytest.raises(CallTimeout):
        node.system.call(QUEUES, ClusterRequest("cluster", {}), timeout_s=0.1)
    node.stop()


def test_of_the_groups_of_a_queue_those_are_told_that_may_be_known_of(cluster, tmp_path):
    users = UsersFile(tmp_path / "users.toml")
    token = users.token("alice", "ci")
    users.grant("alice", "write", topics="jobs")
    users.grant("alice", "describe", groups="mine")
    users.write()
    [node] = cluster("a", port=0, users=users.path, reload_interval=0)
    put(node, "jobs", b"m", copies=1)
    for group in ("mine", "other"):
        node.control("group_create", group=group, mode="shared", topics=[b"jobs"])
    with connect_as(node, token) as client:
        [listed] = client.control("queues")
        described = client.control("describe", topic="jobs")["queue"]
    assert [*listed["groups"], *described["groups"]] == ["mine", "mine"]
    assert sorted(node.control("queues")[0]["groups"]) == ["mine", "other"]


def test_a_node_leaves_when_the_queues_that_would_outlive_it_are_deleted(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    a.control("queue_create", topic="jobs", copies=2, persist=True)
    wait_until(lambda: b.control("queues"), 5)
    b.control("queue_delete", topic="jobs")
    b.stop()
    wait_until(lambda: states(a)["b"] == ("left", "down"), 5)


@pytest.mark.parametrize("is_deleted_again", [False, True])
def test_a_queue_that_was_deleted_while_a_node_was_away_stays_so_though_all_are_started_anew(
    cluster, is_deleted_again
):
    """It was made anew without `persist`, and that is not written down."""
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    a.control("queue_create", topic="jobs", copies=2, persist=True)
    put(a, "jobs", b"before")
    b.stop()
    a.control("queue_delete", topic="jobs")
    put(a, "jobs", b"anew", copies=1)
    if is_deleted_again:
        a.control("queue_delete", topic="jobs")
    a.control("queue_create", topic="other", copies=2, persist=True)
    a.stop()
    a.start()
    b.start()
    wait_for_live(2, a, b)
    wait_until(lambda: [each["name"] for each in b.control("queues")] == [b"other"], 5)
    assert [each["name"] for each in a.control("queues")] == [b"other"]


def test_a_put_makes_a_queue_whose_messages_are_on_as_many_nodes_as_it_says(cluster):
    a, b, c = cluster("a", "b", "c")
    wait_for_live(3, a, b, c)
    told = put(a, "jobs", b"one", b"two", copies=3)
    assert told["copies"] == 3
    for node in (a, b, c):
        wait_until(lambda: held(node, "jobs") == [b"one", b"two"], 5)  # noqa: B023 - called at once
    assert [each["name"] for each in c.control("queues")] == [b"jobs"]


def test_a_node_that_is_stopped_hands_over_what_nobody_else_holds(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    for number in range(100):
        put(a, "jobs", b"%d" % number, copies=1)
    with a.queue("jobs") as queue:
        done = [queue.get(timeout_s=5) for _ in range(10)]
        for job in done:
            job.ack()
    a.stop()
    with b.queue("jobs") as queue:
        found = {queue.get(timeout_s=5).value for _ in range(90)}
    assert found == {b"%d" % number for number in range(100)} - {job.value for job in done}


def test_a_node_that_is_stopped_hands_over_more_than_a_peer_takes_at_once(cluster, monkeypatch):
    monkeypatch.setattr("poe.cluster.queues._HAND_OVER_S", 60.0)
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    large = bytes(1 << 20)
    for _ in range(24):
        put(a, "jobs", large, copies=1)
    a.stop(timeout_s=120.0)
    assert b.control("queues")[0]["messages"] == 24


def test_a_node_that_is_stopped_hands_all_queues_over_at_once(cluster, monkeypatch, links):
    monkeypatch.setattr("poe.cluster.queues._HAND_OVER_S", 0.5)
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    for number in range(10):
        put(a, f"jobs{number}", b"one", copies=1)
    links.lose(a.me.ref, b.me.ref)  # nobody answers
    begin_s = time.monotonic()
    a.stop()
    assert 0.5 <= time.monotonic() - begin_s < 4.0  # one after the other would take 5 s


def test_dead_letters_are_not_handed_out_at_most_once(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    put(a, "jobs", b"bad")
    with a.queue("jobs", group="mailers") as queue, queue.get(timeout_s=5) as job:
        job.dead("no hope")
    wait_until(lambda: held(a, "mailers.dead"), 5)
    once = {"delivery": "at-most-once"}
    with (
        pytest.raises(OptionError, match="at-least-once: the queue has dead letters"),
        a.queue("mailers.dead", group="once", group_options=once) as queue,
    ):
        queue.get(timeout_s=5)
    with a.queue("mailers.dead", group="again") as queue, queue.get(timeout_s=5) as job:
        assert b"bad" in job.value


def test_too_few_nodes_are_told_at_once_and_nothing_is_stored(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    put(a, "jobs", b"one")
    with pytest.raises(TooFewNodes):
        put(a, "jobs", b"two", copies=3)
    assert held(a, "jobs") == [b"one"]


def test_a_put_that_a_node_was_asked_to_hold_and_did_not_answer_is_told_to_be_in_doubt(
    cluster, links
):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    a.control("queue_create", topic="jobs", copies=1, messages_max=1)
    put(a, "jobs", b"fills")
    links.lose(a.me.ref, b.me.ref)
    with pytest.raises(PutUnconfirmed, match=r"onto jobs was not confirmed in .* may be"):
        a.control("queue_put", topic="jobs", messages=[b"one"], copies=1, deadline_s=0.3)


def test_a_queue_that_is_full_names_the_limit_that_the_put_would_exceed(cluster):
    (a,) = cluster("a", copies=1)
    a.control("queue_create", topic=b"jobs", messages_max=2, bytes_max=1000)
    with pytest.raises(QueueBusy, match="messages_max of 2 is reached"):
        put(a, "jobs", b"one", b"two", b"three")
    put(a, "jobs", b"one")
    with pytest.raises(QueueBusy, match="messages_max of 2 is reached"):
        put(a, "jobs", b"two", b"three")
    with pytest.raises(QueueBusy, match="bytes_max of 1000 is reached"):
        put(a, "jobs", bytes(1000))


def test_a_queue_that_drops_its_oldest_all_the_time_leaves_room_for_other_events(cluster):
    [a] = cluster("a")
    a.control("queue_create", topic="jobs", copies=1, messages_max=1, on_full="drop-oldest")
    before = a.control("cluster")["events"]
    for number in range(300):
        put(a, "jobs", b"%d" % number)
    told = a.control("cluster")
    assert told["counts"]["dropped"] == 299
    assert told["events"][: len(before)] == before
    assert 1 <= [kind for _, kind, _ in told["events"]].count("dropped") < 20


def test_a_node_that_sees_no_other_says_so_once(cluster, monkeypatch):
    monkeypatch.setattr("poe.cluster.members_actor._GOSSIP_S", 0.02)
    (a,) = cluster("a", seeds=("127.0.0.1:9",))

    def told():
        return [each for each in a.control("cluster")["events"] if "alone" in each]

    wait_until(told, 5)
    [[_, _, why]] = told()
    assert "127.0.0.1:9" in why


def test_a_node_says_in_time_that_its_certificate_expires(cluster, tmp_path, caplog):
    certificates = Certificates.make(tmp_path)
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    certificates.issue("new", "localhost", not_after=now + 90 * day)
    certificates.issue("old", "localhost", not_after=now + 5.5 * day)
    certificates.issue("dead", "localhost", not_before=now - 2 * day, not_after=now - day)
    files = {
        name: {
            "cluster_certificate": certificates.file(f"{name}.pem"),
            "cluster_key": certificates.file(f"{name}.key"),
            "cluster_ca": certificates.file("ca.pem"),
        }
        for name in ("new", "old", "dead")
    }

    def told(name):
        (node,) = cluster(name, **files[name])
        return [why for _, what, why in node.control("cluster")["events"] if what == "certificate"]

    assert told("new") == []
    assert told("old") == [
        "cluster_certificate expires in 5.5 days; renew it, and start this node anew"
    ]
    assert told("dead") == []
    assert "no client would accept it: certificate has expired" in caplog.text


def test_a_queue_that_is_known_nowhere_is_told_so(cluster):
    (a,) = cluster("a")
    with pytest.raises(UnknownQueue):
        a.control("queue_browse", topic="jobs")


def test_a_queue_is_known_by_gossip_and_deleted_everywhere(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    a.control("queue_create", topic="jobs", copies=1, on_full="drop-oldest")
    wait_until(lambda: [each["name"] for each in b.control("queues")] == [b"jobs"], 5)
    assert b.control("queues")[0]["on_full"] == "drop-oldest"
    with pytest.raises(QueueExists):
        b.control("queue_create", topic="jobs")
    b.control("queue_delete", topic="jobs")
    wait_until(lambda: a.control("queues") == [], 5)
    (c,) = cluster("c")
    wait_for_live(3, c)
    assert c.control("queues") == []


def test_of_a_queue_that_two_sides_of_a_split_have_made_the_younger_ones_properties_hold(
    cluster, links
):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    links.cut(a.me.ref, b.me.ref)
    wait_for_live(1, a, b)
    a.control("queue_create", topic="jobs", copies=1, messages_max=2)
    b.control("queue_create", topic="jobs", copies=2, messages_max=3)
    links.heal(a.me.ref, b.me.ref)
    wait_for_live(2, a, b)
    for node in (a, b):
        wait_until(lambda: node.control("queues")[0]["messages_max"] == 3, 5)  # noqa: B023
    assert put(a, "jobs", b"one", b"two", b"three")["copies"] == 2


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_a_former_queue_held_does_not_come_back_with_a_node_that_was_away(
    cluster, links, is_restarted
):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    a.control("queue_create", topic="jobs", persist=True)
    put(a, "jobs", b"one")
    if is_restarted:
        b.stop()
    else:
        links.cut(a.me.ref, b.me.ref)
    wait_for_live(1, a)
    a.control("queue_delete", topic="jobs")
    a.control("queue_create", topic="jobs", persist=True)
    if is_restarted:
        a.stop()
        a.start()
        b.start()
    else:
        links.heal(a.me.ref, b.me.ref)
    wait_for_live(2, a, b)
    created_us = [each["created_us"] for each in a.control("queues")]
    wait_until(lambda: [each["created_us"] for each in b.control("queues")] == created_us, 5)
    assert held(b, "jobs") == []
    assert put(b, "jobs", b"two")["copies"] == 2


def test_who_comes_later_learns_which_queues_there_are(cluster):
    (a,) = cluster("a", copies=1)
    put(a, "jobs", b"one")
    (b,) = cluster("b")
    wait_until(lambda: [each["name"] for each in b.control("queues")] == [b"jobs"], 5)


def test_jobs_are_done_at_any_node_and_seen_by_all(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    for number in range(20):
        put(a, "jobs", b"%d" % number)
    with a.queue("jobs") as queue:
        done = set()
        for job in queue:
            done.add(job.value)
            job.ack()
            if len(done) == 20:
                break
    assert done == {b"%d" % number for number in range(20)}
    wait_until(lambda: held(a, "jobs") == held(b, "jobs") == [], 5)
    assert [each["group"] for each in b.control("groups")] == ["workers"]


def test_what_has_failed_for_good_is_on_a_queue_for_dead_letters_once(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    put(a, "jobs", b"bad", b"good")
    with b.queue("jobs", group="g") as queue:
        for job in queue:
            if job.value == b"good":
                job.ack()
            else:
                job.dead("no hope")
                break
        wait_until(lambda: b"g.dead" in [each["name"] for each in a.control("queues")], 5)
        wait_until(lambda: len(held(a, "g.dead")) == 1, 5)
    assert b"no hope" in held(a, "g.dead")[0]
    wait_until(lambda: len(held(b, "g.dead")) == 1, 5)


def test_the_report_names_what_came_twice(cluster, links):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    put(a, "jobs", b"one")
    assert a.control("cluster_report") == []
    wait_until(lambda: held(b, "jobs") == [b"one"], 5)
    links.cut(a.me.ref, b.me.ref)
    wait_for_live(1, a, b)
    for node in (a, b):
        with node.queue("jobs", group="g") as queue:
            for job in queue:
                job.ack()
                break
    links.heal(a.me.ref, b.me.ref)
    wait_for_live(2, a, b)
    for node in (a, b):
        wait_until(
            lambda: [each["certainty"] for each in node.control("cluster_report")] == ["certain"],  # noqa: B023
            15,
        )


def test_a_queue_that_crashes_goes_on_with_what_it_held(cluster):
    (a,) = cluster("a", copies=1)
    put(a, "jobs", b"one")
    ref = a.system.call(
        "queues",
        FindQueue(b"jobs"),
    )
    a.system.exit(ref, "kill")
    wait_until(lambda: a.control("cluster")["counts"].get("queues restarted") == 1, 5)
    wait_until(lambda: held(a, "jobs") == [b"one"], 5)


def test_a_queue_that_crashes_again_and_again_is_started_after_longer_and_longer_waits(cluster):
    (a,) = cluster("a", copies=1)
    put(a, "jobs", b"one")
    began_s = time.monotonic()
    for count in range(1, 6):
        a.system.exit(a.system.call("queues", FindQueue(b"jobs")), "kill")
        wait_until(lambda: a.control("cluster")["counts"].get("queues restarted") == count, 5)  # noqa: B023
        wait_until(lambda: held(a, "jobs") == [b"one"], 5)
    assert time.monotonic() - began_s >= 0.05 + 0.1 + 0.2 + 0.4 + 0.8


@pytest.mark.parametrize("name", ["members", "queues", "fabric"])
def test_the_cluster_goes_on_with_what_it_held_whichever_actor_is_killed(cluster, name):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    put(a, "jobs", b"one", copies=2)
    a.system.exit(name, "kill")
    wait_until(lambda: a.system.whereis("queues") is not None, 5)
    wait_for_live(2, a, b)
    wait_until(lambda: held(a, "jobs") == [b"one"], 5)
    put(a, "jobs", b"two", copies=2)
    wait_until(lambda: held(b, "jobs") == [b"one", b"two"], 5)


class Wall:
    """A clock that can be set wrong."""

    offset_us = 0

    def now_us(self):
        return time.time_ns() // 1000 + self.offset_us


def test_a_group_that_two_sides_of_a_split_have_made_is_deleted_though_a_clock_is_ahead(
    cluster, links
):
    ahead = Wall()
    ahead.offset_us = 3_600_000_000
    (a,), (b,) = cluster("a"), cluster("b", clock=ahead)
    wait_for_live(2, a, b)
    put(a, "jobs", b"one")
    wait_until(lambda: b.control("queues"), 5)
    links.cut(a.me.ref, b.me.ref)
    wait_for_live(1, a, b)
    for node, lease_s in ((a, 7.0), (b, 8.0)):
        options = {"lease_s": lease_s}
        node.control("group_create", group="g", mode="shared", topics=[b"jobs"], options=options)
    links.heal(a.me.ref, b.me.ref)
    wait_until(lambda: a.control("group", group="g")["options"]["lease_s"] == 8.0, 20)
    a.control("group_delete", group="g")
    wait_until(lambda: b.control("groups") == [], 20)


def test_a_clock_that_is_set_back_before_a_crash_takes_no_queue_back_in_time(cluster):
    wall = Wall()
    (a,) = cluster("a", copies=1, clock=wall)
    put(a, "jobs", b"one")
    wall.offset_us = -3_600_000_000
    a.system.exit("queues", "kill")
    wait_until(lambda: a.system.whereis("queues") is not None, 5)
    wait_until(lambda: held(a, "jobs") == [b"one"], 5)
    put(a, "later", b"two")
    later, jobs = sorted(a.control("queues"), key=lambda each: each["name"] == b"jobs")
    assert later["created_us"] > jobs["created_us"]


def test_a_queue_that_persists_is_there_after_a_restart_of_all(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    a.control("queue_create", topic="jobs", persist=True, copies=2)
    put(a, "jobs", b"one", b"two")
    b.stop()
    a.stop()
    a.start()
    assert states(a)["b"] == ("joined", "down")
    wait_until(lambda: held(a, "jobs") == [b"one", b"two"], 5)
    b.start()
    wait_for_live(2, a, b)
    wait_until(lambda: held(b, "jobs") == [b"one", b"two"], 5)
    a.control("queue_delete", topic="jobs")
    wait_until(lambda: b"poe.queue.jobs" not in a.control("topics", all=True), 5)


@pytest.mark.slow
def test_it_is_told_that_dead_letters_wait_for_nodes_to_hold_them(cluster, caplog):
    (a,) = cluster("a", copies=1)
    a.control("queue_create", topic="g.dead", copies=2)
    put(a, "jobs", b"one")
    with a.queue("jobs", group="g") as queue, queue.get(timeout_s=5) as job:
        job.dead("no hope")
    wait_until(lambda: "dead letters wait: 2 copies were asked for" in caplog.text, 5)
    cluster("b")
    wait_until(lambda: len(held(a, "g.dead")) == 1, 10)


def test_dead_letters_outlive_the_processes_as_the_queue_does_that_they_come_from(cluster):
    (a,) = cluster("a", copies=1)
    a.control("queue_create", topic="jobs", persist=True)
    put(a, "jobs", b"one")
    with a.queue("jobs", group="g") as queue, queue.get(timeout_s=5) as job:
        job.dead("no hope")
    wait_until(lambda: b"g.dead" in [each["name"] for each in a.control("queues")], 5)
    wait_until(lambda: len(held(a, "g.dead")) == 1, 20)
    a.stop()
    a.start()
    # Those that were not written by then are buried again, 5 s after the first time.
    wait_until(lambda: len(held(a, "g.dead")) == 1, 20)


def test_what_a_deleted_queue_held_does_not_come_back_where_the_node_died_before_it_was_gone(
    cluster, tmp_path
):
    (a,) = cluster("a", copies=1)
    a.control("queue_create", topic="jobs", persist=True)
    put(a, "jobs", b"one")
    a.stop()
    log = tmp_path / "a" / "topics" / "poe.queue.jobs"
    shutil.copytree(log, tmp_path / "log")
    a.start()
    a.control("queue_delete", topic="jobs")
    a.stop()
    shutil.copytree(tmp_path / "log", log, dirs_exist_ok=True)
    a.start()
    wait_until(lambda: b"poe.queue.jobs" not in a.control("topics", all=True), 5)
    a.control("queue_create", topic="jobs", persist=True)
    assert held(a, "jobs") == []


def test_the_log_of_a_queue_is_deleted_with_it_though_it_is_one_of_no_log_after_a_split(
    cluster, links
):
    a, b = cluster("a", "b", copies=1)
    wait_for_live(2, a, b)
    links.cut(a.me.ref, b.me.ref)
    wait_for_live(1, a)
    wait_for_live(1, b)
    a.control("queue_create", topic="jobs", persist=True)
    put(a, "jobs", b"one")
    b.control("queue_create", topic="jobs")
    links.heal(a.me.ref, b.me.ref)
    [made] = b.control("queues")
    wait_until(lambda: a.control("queues")[0]["created_us"] == made["created_us"], 10)
    a.control("queue_delete", topic="jobs")
    wait_until(lambda: b"poe.queue.jobs" not in a.control("topics", all=True), 5)
    a.control("queue_create", topic="jobs", persist=True)
    assert held(a, "jobs") == []


def test_the_log_of_a_queue_that_is_written_anew_at_each_start_does_not_grow(
    cluster, tmp_path, monkeypatch
):
    (a,) = cluster("a", copies=1, size_limit=10_000)
    a.control("queue_create", topic="jobs", persist=True)
    for _ in range(10):
        put(a, "jobs", *[bytes(1000)] * 10)
    with a.queue("jobs", group="g") as queue:
        for _ in range(90):
            queue.get(timeout_s=5).ack()
    monkeypatch.setattr("poe.cluster.queue.log.LOG_BYTES_MIN", 10_000)
    sizes = []
    for number in range(4):
        a.stop()
        a.start()
        wait_until(lambda: len(held(a, "jobs")) == 10 + number, 5)  # noqa: B023
        put(a, "jobs", b"behind all that is written anew")
        log = (tmp_path / "a" / "topics" / "poe.queue.jobs").glob("*_data")
        sizes.append(sum(each.stat().st_size for each in log))
    assert max(sizes) < 50_000, sizes


@pytest.mark.parametrize("ack", ["memory", "flushed", "fsync"])
def test_what_a_queue_that_persists_has_taken_is_synced_whatever_topics_do(
    cluster, tmp_path, monkeypatch, ack
):
    synced: dict[Path, int] = {}
    sync = os.fdatasync

    def note(fd):
        sync(fd)
        synced[Path(f"/proc/self/fd/{fd}").readlink()] = os.fstat(fd).st_size

    monkeypatch.setattr(os, "fdatasync", note)
    nodes = cluster("a", "b", ack=ack, sync_interval=60)
    wait_for_live(2, *nodes)
    nodes[0].control("queue_create", topic="jobs", persist=True, copies=2)
    put(nodes[0], "jobs", b"one")
    for name in "ab":
        [log] = (tmp_path / name / "topics" / "poe.queue.jobs").glob("*_data")
        assert 0 < log.stat().st_size == synced.get(log)


def test_a_node_that_is_forgotten_stays_out_until_its_folder_is_another(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    with pytest.raises(NodeAlive):
        a.control("cluster_forget", node="b")
    b.system.shutdown()
    a.links.close(b.me.ref)
    wait_until(lambda: states(a)["b"][1] == "down", 5)
    assert a.control("cluster_forget", node="b")["state"] == "forgotten"
    with contextlib.suppress(Exception):
        b.stop()
    b.start()
    wait_until(lambda: b.control("cluster")["state"] == "fenced", 5)
    wait_for_live(1, a)
    with pytest.raises(NodeForgotten):
        put(b, "jobs", b"one")
    assert b.put("local", b"still served") > 0


def test_of_a_copied_folder_the_earlier_life_leaves_and_serves_its_topics_on(
    cluster, tmp_path, links
):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    twin = LinkedNode(links, tmp_path / "twin", "twin")
    (tmp_path / "twin").mkdir()
    for name in ("node.identity", "node.members"):
        shutil.copy(tmp_path / "b" / name, tmp_path / "twin" / name)
    with twin:
        wait_until(lambda: b.control("cluster")["state"] == "fenced", 5)
        assert "a folder was copied" in b.control("cluster")["why"]
        with pytest.raises(IdentityConflict):
            put(b, "jobs", b"one", copies=1)
        assert b.put("local", b"still served") > 0
        wait_until(lambda: states(a).get("twin") == ("joined", "live"), 5)
        wait_for_live(2, twin)


@pytest.mark.parametrize("name", ["node.identity", "node.members", "node.queues"])
def test_a_damaged_file_is_told_by_its_path_and_the_folder_is_free_again(tmp_path, links, name):
    node = LinkedNode(links, tmp_path / "a", "a", copies=1)
    with node:
        node.control("queue_create", topic="jobs", persist=True)
    path = tmp_path / "a" / name
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptIdentity, match=f"{name} cannot be used"):
        node.start()
    content[9] ^= 1
    path.write_bytes(content)
    with node:
        assert [each["name"] for each in node.control("queues")] == [b"jobs"]


def test_a_folder_of_another_cluster_is_refused(tmp_path, links):
    with LinkedNode(links, tmp_path / "a", "a"):
        pass
    other = LinkedNode(links, tmp_path / "a", "a", cluster="other")
    with pytest.raises(ForeignCluster, match="'test', and not 'other'"):
        other.start()


def test_a_queue_that_cannot_be_written_down_is_not_made(cluster, tmp_path):
    (a,) = cluster("a", copies=1)
    (tmp_path / "a" / "node.queues_new").mkdir()
    with pytest.raises(StorageError, match=r"node\.queues"):
        a.control("queue_create", topic="jobs", persist=True)
    assert a.control("queues") == []
    (tmp_path / "a" / "node.queues_new").rmdir()
    a.control("queue_create", topic="jobs", persist=True)


def test_both_sides_of_a_cut_take_puts_and_join_after_it(cluster, links):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    put(a, "jobs", b"before", copies=2)
    links.cut(a.me.ref, b.me.ref)
    wait_for_live(1, a, b)
    put(a, "jobs", b"of a", copies=1)
    put(b, "jobs", b"of b", copies=1)
    links.heal(a.me.ref, b.me.ref)
    wait_for_live(2, a, b)
    everything = [b"before", b"of a", b"of b"]

    def known():
        return sorted({*held(a, "jobs"), *held(b, "jobs")}) == everything

    wait_until(known, 5)


def test_the_tree_shows_the_cluster(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)
    put(a, "jobs", b"one")
    rows = {row["id"]: row for row in a.control("tree", all=True)}
    assert {"cluster_sup", "members", "fabric", "queue_sup", "queues"} <= rows.keys()


def test_what_a_peer_or_a_stranger_sends_that_no_node_would_costs_nobody_anything(cluster):
    a, b = cluster("a", "b")
    wait_for_live(2, a, b)

    def hear(sender, *frames):
        a.fabric.hear(Published(sender, encode_envelope(frames)))

    names = (b"poe.trash", b"far", b"x" * 250)
    records = [
        QueueRecord(name, 1, persist=len(name) > 200, created_us=TIME_MAX_US, created_by=b"a" * 8)
        for name in names
    ]
    hear(b.me.ref, encode_records(records, is_answer=True))
    wait_until(lambda: a.control("cluster")["counts"].get("queues refused") == 2, 5)
    assert [row["queue"] for row in a.control("queues")] == [b"far"]
    a.control("queue_delete", topic=b"far")
    with pytest.raises(OptionError):
        a.control("queue_create", topic=b"far")
    for number in range(9):
        hear(NodeRef(number.to_bytes(8), 1), bytes(15 << 20))

    def dropped():
        """Where too much waits for the fabric's actor it drops some before they are looked at."""
        told = a.control("cluster")
        return told["counts"].get("frames of strangers", 0) + told["fabric"]["envelopes_dropped"]

    wait_until(lambda: dropped() == 5, 10)
    a.system.cast(FABRIC, TellNodes((b.me.ref,), bytes(FRAME_MAX_BYTES + 1)))
    wait_until(lambda: a.control("cluster")["fabric"]["frames_unsent"] == 1, 5)

    def is_on_both():
        with contextlib.suppress(UnderCopies):  # where it has kept the machine busy, b is slow
            return put(a, b"jobs", b"m", copies=2)["copies"] == 2
        return False

    wait_until(is_on_both, 20)


def test_a_node_is_forgotten_though_the_engine_of_the_log_has_no_majority(tmp_path, links):
    log = SimulatedLog(["a", "b"], lambda: 0)
    a, b = (LinkedNode(links, tmp_path / name, name, log_engine=log.engine(name)) for name in "ab")
    with a:
        with b:
            wait_for_live(2, a, b)
        log.cut("b")
        wait_until(lambda: states(a)["b"][1] == "down", 5)
        with pytest.raises(NoQuorum) as told:
            a.control("cluster_forget", node="b")
        assert str(told.value).startswith("node 'b' (")
        assert "is forgotten, and queues wait for it no more; but no majority" in str(told.value)
        assert states(a)["b"][0] == "forgotten"
        log.heal("b")
        assert a.control("cluster_forget", node="b")["state"] == "forgotten"


def test_a_topic_is_not_moved_to_a_node_that_is_not_reached_and_the_error_names_both(
    tmp_path, links
):
    log = SimulatedLog(["a", "b", "c"], lambda: 0)
    with contextlib.ExitStack() as stack:
        a, *_ = (
            stack.enter_context(
                LinkedNode(links, tmp_path / name, name, log_engine=log.engine(name))
            )
            for name in "abc"
        )
        wait_for_live(3, a)
        make_replicated(a, "t")
        log.cut("c")
        with pytest.raises(CopyNotReached, match="node 'c' cannot lead replicated topic 't'"):
            a.control("cluster_move", topic=b"t", node="c")
        log.cut("b")
        with pytest.raises(NoQuorum, match="agrees on who leads topic t just now; what was asked"):
            a.control("cluster_move", topic=b"t", node="b")


def make_replicated(node, topic):
    """Make a topic as soon as enough nodes reach each other."""

    def is_made():
        with contextlib.suppress(NoQuorum, TooFewNodes):
            node.control("topic_create", topic=topic, properties={"replicas": 3})
            return True
        return False

    wait_until(is_made, 10)
