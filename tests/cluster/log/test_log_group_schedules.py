"""Who coordinates the groups of replicated topics is lost, comes back, and is believed no more."""

import contextlib
import errno
from functools import partial

import pytest

from poe.broker import control
from poe.broker.requests.groups import lease_messages
from poe.broker.requests.log_messages import LOGS, DescribeLogs
from poe.broker.requests.request_handler import RequestHandler
from poe.cluster.log.claims import CLAIM_KEY
from poe.cluster.log.replica import PUT_MAX_BYTES
from poe.errors import GroupFenced, NotAuthorized, PoeError
from poe.protocol import Done, Failed, LeaseRequest, envelope
from poe.security.policy import TOPIC
from poe.storage import decode_records
from poe.testing.simulated_log import CALM, Hazards
from tests.cluster.log.scheduled import Nodes
from torture.simulated_log_nodes import read_all

ME = b"m" * 16
YOU = b"y" * 16


class GroupNodes(Nodes):
    """With groups, which any node may be asked for."""

    def control(self, name, op, within_s=30.0, **arguments):
        answer = self.asked(name, partial(control, op=op, arguments=arguments), within_s)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def begin(self, name, op, **arguments):
        """Ask without waiting for an answer."""
        return self.ask(name, partial(control, op=op, arguments=arguments))

    def join(self, name, member=ME, mode="ordered", **options):
        told = self.control(
            name,
            "group_join",
            group="g",
            member=member,
            mode=mode,
            topics=[b"t"],
            options=options,
        )
        return told["generation"]

    def committed(self, generation, pointer, member=ME):
        return {
            "group": "g",
            "member": member,
            "generation": generation,
            "positions": {b"t": pointer},
        }

    def commit(self, name, generation, pointer, member=ME):
        told = self.committed(generation, pointer, member)
        return self.control(name, "group_commit", **told)

    def position(self, name):
        told = self.control(name, "group_positions", group="g", member=ME)[b"t"]
        return told and told[0]

    def put_some(self, name, count):
        """Put messages, and return their pointers."""
        return [
            self.asked(name, lambda handler, n=number: handler.put(b"t", [b"%d" % n]))
            for number in range(count)
        ]

    def lease(self, name, limit=1, member=ME, **told):
        """Ask for messages; return the lease, and what they say."""
        request = LeaseRequest("g", member, limit, 1 << 20, **told)
        answer = self.asked(name, lambda handler: _leased(handler, request), 40.0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def begin_lease(self, name, limit, member=ME, **told):
        """Tell of leases without waiting for an answer."""
        request = LeaseRequest("g", member, limit, 1 << 20, **told)
        return self.ask(name, lambda handler: _leased(handler, request))

    def coordinator(self, asked):
        told = self.asked(
            asked, lambda handler: handler.actor.call(LOGS, DescribeLogs(), timeout_s=None)
        )
        return told["groups"]["node"]

    @property
    def groups(self):
        """The stream of what is known of groups, which was made last."""
        return list(self.log.streams.values())[-1]

    def kill(self, name):
        node = self.nodes[name]
        node.die(node.disk.kill)


async def _leased(handler, request):
    lease, found = await lease_messages(handler, request)
    if found is None:
        return lease, []
    return lease, [message for _, message in decode_records(found.records.read())]


@pytest.fixture
def nodes():
    return GroupNodes()


def test_positions_survive_the_node_that_coordinates(nodes):
    pointers = nodes.put_some("a", 5)
    nodes.commit("a", nodes.join("a"), pointers[2])
    assert nodes.coordinator("b") == "a"
    nodes.kill("a")
    assert nodes.position("b") == pointers[2]
    assert nodes.coordinator("c") == "b"
    with pytest.raises(GroupFenced):
        nodes.commit("c", 1, pointers[3])
    nodes.commit("c", nodes.join("c"), pointers[3])
    nodes.start(nodes.nodes["a"])
    nodes.pass_time(2.0)
    assert nodes.position("a") == pointers[3]


def test_a_coordinator_that_is_cut_off_changes_nothing_when_it_is_back(nodes):
    pointers = nodes.put_some("a", 6)
    generation = nodes.join("a")
    nodes.commit("a", generation, pointers[1])
    nodes.log.cut("a")
    late = nodes.begin("a", "group_commit", **nodes.committed(generation, pointers[5]))
    nodes.pass_time(1.0)
    nodes.commit("b", nodes.join("b", YOU), pointers[3], YOU)
    stale = nodes.begin("a", "group_positions", group="g", member=ME)
    nodes.pass_time(0.5)
    assert not stale, "who is cut off does not know what is true"
    nodes.log.heal("a")
    nodes.pass_time(20.0)
    [refused] = late
    assert isinstance(refused, PoeError)
    assert nodes.position("a") == nodes.position("c") == pointers[3]
    [told] = stale
    assert isinstance(told, PoeError) or told[b"t"][0] == pointers[3]


def test_attempts_survive_the_node_that_coordinates(nodes):
    nodes.put_some("a", 1)
    nodes.join("a", mode="shared", attempts_max=3, retry_s=0.0)
    for attempts in range(2):
        lease, messages = nodes.lease("b", wait_s=5.0)
        assert (lease.attempts, messages) == (attempts, [b"0"])
        failed = Failed(lease.id, lease.after, lease.last)
        nodes.lease("c", 0, failed=[failed])
    nodes.kill("a")
    nodes.join("b", mode="shared")
    lease, _ = nodes.lease("b", wait_s=5.0)
    assert lease.attempts == 2


def test_a_message_that_failed_for_good_is_buried_once_on_a_replicated_topic(nodes):
    nodes.put_some("a", 1)
    nodes.join("a", mode="shared", attempts_max=1, retry_s=0.0)
    lease, _ = nodes.lease("b", wait_s=5.0)
    nodes.lease("b", 0, failed=[Failed(lease.id, lease.after, lease.last)])
    nodes.pass_time(3.0)
    nodes.kill("a")
    nodes.join("c", mode="shared")
    nodes.pass_time(3.0)
    for name in "bc":
        told = nodes.control(name, "describe", topic=b"g.dead")
        assert told["properties"]["replicas"] == 3
        assert [each["messages"] for each in told["partitions"]] == [1]


def test_a_lease_of_who_coordinates_no_more_is_worth_nothing(nodes):
    nodes.put_some("a", 4)
    nodes.join("a", mode="shared")
    old, _ = nodes.lease("a", 2)
    nodes.log.cut("a")
    nodes.pass_time(1.0)
    nodes.join("b", YOU, mode="shared")
    lease, messages = nodes.lease("b", 4, YOU, wait_s=5.0)
    assert messages == [b"0", b"1", b"2", b"3"], "leases are not kept"
    nodes.log.heal("a")
    nodes.pass_time(5.0)
    nodes.join("a", mode="shared")
    told, _ = nodes.lease("a", 1, done=[Done(old.id)])
    assert told.lost == (old.id,)
    told, _ = nodes.lease("c", 0, YOU, done=[Done(lease.id)])
    assert not told.lost


def test_two_nodes_that_claim_at_once_agree_on_one(nodes):
    pointers = nodes.put_some("a", 2)
    begun = [
        nodes.begin(
            name, "group_join", group="g", member=member, mode="ordered", topics=[b"t"], options={}
        )
        for name, member in (("a", ME), ("b", YOU))
    ]
    nodes.pass_time(10.0)
    assert [isinstance(told[0], dict) for told in begun] == [True, True]
    [coordinator] = {nodes.coordinator(name) for name in "abc"}
    assert coordinator in {"a", "b"}
    assert len(nodes.control("c", "group", group="g")["members"]) == 2
    epochs = [told[0]["generation"] for told in begun]
    nodes.commit("c", max(epochs), pointers[0])
    assert nodes.position("a") == nodes.position("b")


def test_a_commit_whose_acknowledgement_is_lost_is_made_once_and_answered(nodes):
    pointers = nodes.put_some("a", 3)
    generation = nodes.join("b")
    for at in range(3):
        nodes.log.acks_to_lose = 3
        assert b"t" in nodes.commit("c", generation, pointers[at])
    assert nodes.position("a") == pointers[2]
    nodes.kill("b")
    assert nodes.position("c") == pointers[2]


def test_who_coordinates_ends_a_life_and_begins_another_without_being_waited_for(nodes):
    pointers = nodes.put_some("a", 3)
    nodes.commit("a", nodes.join("a"), pointers[0])
    nodes.nodes["a"].kill_actor("log_groups_writer")
    began_s = nodes.now_s
    nodes.commit("b", nodes.join("b"), pointers[1])
    assert nodes.position("c") == pointers[1]
    assert nodes.coordinator("c") == "a"
    assert nodes.now_s - began_s < 3.0


class OnlyGroups:
    """Permissions of who may do everything with groups, and with topics nothing."""

    def may(self, need):
        return need.kind != TOPIC

    def refusal(self, need):
        return None if self.may(need) else need.refusal

    def wrote(self, size_bytes):
        del size_bytes


@pytest.mark.parametrize("name", "abc")
def test_who_may_not_read_the_topics_of_a_group_gets_nothing_of_it_at_any_node(nodes, name):
    nodes.put_some("a", 2)
    nodes.join("a", mode="shared")

    def as_stranger(request):
        def ask(handler):
            permissions = OnlyGroups()
            return request(RequestHandler(handler.actor, handler.routes, permissions=permissions))

        return nodes.asked(name, ask, 30.0)

    lease = LeaseRequest("g", ME, 10, 1 << 20)
    assert isinstance(as_stranger(lambda handler: lease_messages(handler, lease)), NotAuthorized)
    arguments = {"group": "g", "member": ME, "generation": 0, "owned": []}
    beat = partial(control, op="group_heartbeat", arguments=arguments)
    assert isinstance(as_stranger(beat), NotAuthorized)


@pytest.mark.parametrize("steps", range(54, 62, 2))
def test_who_still_answers_is_waited_for_before_another_node_does(nodes, steps):
    """A node is claimed from while it is well, and hears of nothing from about then on."""
    pointers = nodes.put_some("a", 3)
    nodes.commit("a", nodes.join("a"), pointers[0])
    nodes.log.hazards = Hazards(lose_ask=1.0)
    joined = nodes.begin(
        "b", "group_join", group="g", member=YOU, mode="ordered", topics=[b"t"], options={}
    )
    for _ in range(steps):
        nodes.begin("a", "group_positions", group="g", member=ME)
        nodes.pass_time(0.05)
    nodes.log.pause("a")
    nodes.log.hazards = CALM
    while not joined:
        nodes.pass_time(0.02)
    committed = nodes.committed(joined[0]["generation"], pointers[2], YOU)
    told = nodes.begin("b", "group_commit", **committed)
    while not told:
        nodes.pass_time(0.02)
    late = nodes.begin("a", "group_positions", group="g", member=ME)
    nodes.pass_time(0.02)
    assert not late, "it may not tell what was true once"
    nodes.log.resume("a")
    nodes.pass_time(10.0)
    assert late[0][b"t"][0] == pointers[2]


def test_what_was_leased_is_not_taken_for_gone_by_who_coordinates_with_a_copy_that_is_behind(nodes):
    [stream] = nodes.log.streams
    nodes.put_some("a", 2)
    nodes.join("a", mode="shared")
    lease, _ = nodes.lease("a", 2, wait_s=5.0)
    nodes.lease("a", 0, done=[Done(lease.id)])
    nodes.log.may = lambda lane: lane != ("b", "stream", stream)
    nodes.put_some("a", 6)
    nodes.lease("a", 5, wait_s=5.0)
    last, _ = nodes.lease("a", 1, wait_s=5.0)
    nodes.lease("a", 0, done=[Done(last.id)])
    nodes.kill("a")
    nodes.join("b", YOU, mode="shared")
    assert nodes.coordinator("b") == "b"
    assert nodes.lease("b", 10, YOU, wait_s=3.0)[1] == []
    nodes.log.may = None
    nodes.pass_time(5.0)
    assert nodes.lease("b", 10, YOU, wait_s=3.0)[1] == [b"%d" % number for number in range(5)]


def test_a_dead_letter_waits_for_a_copy_that_is_behind(nodes):
    nodes.put_some("a", 1)
    [stream] = nodes.log.streams
    nodes.join("a", mode="shared", attempts_max=1)
    nodes.log.may = lambda lane: lane != ("b", "stream", stream)
    pointer = nodes.asked("a", lambda handler: handler.put(b"t", [b"bad"]))
    lease, messages = nodes.lease("a", 2, wait_s=5.0)
    assert messages == [b"0", b"bad"]
    # It is written that the message is dying; the topic for it is not made any more.
    nodes.log.may = lambda lane: lane not in {("b", "stream", stream), ("a", "ask", "")}
    failed = Failed(lease.id, pointer - 1, pointer, "dead", reason="bad")
    nodes.begin_lease("a", 0, done=[Done(lease.id)], failed=[failed])
    nodes.pass_time(0.5)
    nodes.kill("a")
    nodes.log.may = lambda lane: lane != ("b", "stream", stream)
    nodes.join("b", YOU, mode="shared")
    nodes.pass_time(3.0)
    nodes.log.may = None
    nodes.pass_time(10.0)
    [letter] = [each for _, each in nodes.asked("b", partial(read_all, b"g.dead"))]
    assert envelope.decode(letter)[1] == b"bad"


def test_of_letters_that_are_too_much_for_one_put_those_that_fit_are_whole(nodes):
    """One lease may hold as much, to which comes what is said of each message."""
    values = [b"x" * (PUT_MAX_BYTES - (7 << 20) - 100), b"y" * (7 << 20), b"small"]
    last = nodes.asked("a", lambda handler: handler.put(b"t", values))
    nodes.join("a", mode="shared")
    request = LeaseRequest("g", ME, 3, 1 << 27, wait_s=5.0)
    lease, messages = nodes.asked("a", lambda handler: _leased(handler, request), 40.0)
    assert messages == values
    nodes.lease("a", 0, failed=[Failed(lease.id, lease.after, last, "dead", reason="bad")])
    nodes.pass_time(5.0)
    letters = [envelope.decode(each) for _, each in nodes.asked("a", partial(read_all, b"g.dead"))]
    assert [value for _, value, _ in letters] == [b"", *values[1:]]
    is_large = ["poe.large" in (headers or {}) for _, _, headers in letters]
    assert is_large == [True, False, False]


def test_a_dead_letter_of_a_deleted_topic_holds_up_no_other(nodes):
    [stream] = nodes.log.streams
    made = {"topic": b"u", "properties": {"replicas": 3}}
    nodes.control("a", "topic_create", **made)
    nodes.log.may = lambda lane: lane != ("b", "stream", stream)
    nodes.put_some("a", 1)
    group = {"group": "g", "mode": "shared", "topics": [b"t", b"u"]}
    nodes.control("a", "group_join", member=ME, options={"attempts_max": 1}, **group)
    lease, _ = nodes.lease("a", wait_s=5.0)
    # The topic for it is not made any more, and the next one's copy of `t` is behind.
    nodes.log.may = lambda lane: lane not in {("b", "stream", stream), ("a", "ask", "")}
    nodes.begin_lease("a", 0, failed=[Failed(lease.id, lease.after, lease.last, "dead")])
    nodes.pass_time(0.5)
    nodes.kill("a")
    nodes.log.may = lambda lane: lane != ("b", "stream", stream)
    nodes.control("b", "group_join", member=YOU, options={}, **group)
    nodes.control("b", "delete", topic=b"t")
    nodes.asked("b", lambda handler: handler.put(b"u", [b"bad"]))
    lease, _ = nodes.lease("b", member=YOU, wait_s=5.0)
    assert lease.topic == b"u"
    nodes.begin_lease("b", 0, YOU, failed=[Failed(lease.id, lease.after, lease.last, "dead")])
    nodes.pass_time(10.0)
    letters = [each for _, each in nodes.asked("b", partial(read_all, b"g.dead"))]
    assert envelope.decode(letters[-1])[1] == b"bad"


def test_what_was_leased_and_is_trimmed_is_gone_whoever_coordinates(nodes):
    pointers = nodes.put_some("a", 4)
    nodes.join("a", mode="shared")
    nodes.lease("a", 3, wait_s=5.0)
    last, _ = nodes.lease("a", 1, wait_s=5.0)
    nodes.lease("a", 0, done=[Done(last.id)])
    nodes.control("a", "trim", topic=b"t", pointer=pointers[-1])
    nodes.pass_time(3.0)
    nodes.kill("a")
    nodes.join("b", YOU, mode="shared")
    assert nodes.lease("b", 10, YOU, wait_s=3.0)[1] == []
    [unit] = nodes.control("b", "group", group="g")["units"]
    assert (unit["floor"], unit["done_ranges"]) == (pointers[-1], 0)


def ask_until(nodes, is_so, seconds=0.05):
    """Have b asked, which goes on to answer, until something is so."""
    for _ in range(1000):
        nodes.begin("b", "group_positions", group="g", member=ME)
        nodes.pass_time(seconds)
        if is_so():
            return
    pytest.fail("it never came to that")


def test_who_claims_again_since_it_was_in_doubt_waits_for_who_coordinated_before_it(nodes):
    pointers = nodes.put_some("a", 5)
    nodes.commit("b", nodes.join("b"), pointers[1])
    assert nodes.coordinator("a") == "b"
    nodes.log.may = lambda lane: lane != ("b", "event", "")  # it hears late of claims
    nodes.log.hazards = Hazards(lose_ask=1.0, lose_ack=1.0)
    joined = nodes.begin(
        "a", "group_join", group="g", member=YOU, mode="ordered", topics=[b"t"], options={}
    )
    claimed = nodes.log.catalog[CLAIM_KEY]

    ask_until(nodes, lambda: nodes.log.catalog[CLAIM_KEY] != claimed)
    nodes.log.hazards = Hazards(lose_ask=1.0)
    doubtful = nodes.log.catalog[CLAIM_KEY]
    ask_until(nodes, lambda: nodes.log.catalog[CLAIM_KEY] != doubtful)
    nodes.log.hazards = CALM
    ask_until(nodes, lambda: joined, 0.005)
    told = nodes.committed(joined[0]["generation"], pointers[3], YOU)
    committed = nodes.begin("a", "group_commit", **told)
    ask_until(nodes, lambda: committed, 0.005)
    late = nodes.begin("b", "group_positions", group="g", member=ME)
    nodes.pass_time(0.005)
    assert not [each for each in late if isinstance(each, dict) and each[b"t"][0] != pointers[3]]


def test_without_a_majority_a_member_of_who_knows_what_is_told_soon_to_join_anew(nodes):
    """Its group may be that of a queue, which goes on without a majority."""
    nodes.join("a")
    nodes.pass_time(3.0)
    nodes.log.cut("c")
    beat = partial(
        control,
        op="group_heartbeat",
        arguments={"group": "q", "member": ME, "generation": 0, "owned": []},
    )
    told = nodes.asked("c", beat, 4.0)
    assert isinstance(told, PoeError)
    lease = nodes.asked("c", partial(_leased, request=LeaseRequest("q", ME, 1, 100)), 4.0)
    assert isinstance(lease, PoeError)


def test_what_who_coordinated_wanted_gone_takes_no_group_with_it_that_was_made_since():
    """Of the log of groups, of which it knew none any more."""
    nodes = GroupNodes(count_limit=3)
    pointers = nodes.put_some("a", 3)
    generation = nodes.join("a")
    for at in range(3):
        nodes.commit("a", generation, pointers[at])
    for _ in range(8):
        nodes.position("a")
        nodes.pass_time(2.5)
    [stream] = [name for name in nodes.log.streams if nodes.log.streams[name] is nodes.groups]
    nodes.control("a", "group_delete", group="g", force=True)
    nodes.log.may = lambda lane: lane != ("a", "publish", stream)
    nodes.pass_time(31.0)
    nodes.log.pause("a")
    nodes.commit("b", nodes.join("b"), pointers[1])
    nodes.log.may = None
    nodes.log.resume("a")
    nodes.pass_time(5.0)
    nodes.kill("b")
    assert nodes.position("c") == pointers[1]


def test_who_coordinates_with_a_full_disk_is_replaced(nodes):
    pointers = nodes.put_some("a", 3)
    nodes.commit("a", nodes.join("a"), pointers[0])
    nodes.nodes["a"].disk.failing.fail(0, errno.ENOSPC, is_for_ever=True)
    for _ in range(10):
        with contextlib.suppress(PoeError):
            nodes.commit("b", nodes.join("b"), pointers[1])
            break
    assert nodes.coordinator("c") == "b"
    assert nodes.position("c") == pointers[1]


@pytest.mark.parametrize("is_killed", [True, False])
def test_who_said_what_is_done_and_waits_for_more_hears_of_no_trouble_then(nodes, is_killed):
    """It would say so again, and hear that it was too late."""
    nodes.put_some("a", 1)
    nodes.join("a", mode="shared")
    lease, _ = nodes.lease("b", wait_s=5.0)
    told = nodes.begin_lease("b", 1, done=[Done(lease.id)], wait_s=20.0)
    nodes.pass_time(3.0)
    if is_killed:
        nodes.kill("a")
    else:
        nodes.log.cut("b")
    nodes.pass_time(40.0)
    [(nothing, messages)] = told
    assert (nothing.id, nothing.lost, messages) == (0, (), [])


def test_who_begins_anew_soon_after_its_first_put_waits_for_who_coordinated_before(nodes):
    pointers = nodes.put_some("a", 5)
    nodes.commit("b", nodes.join("b"), pointers[1])
    assert nodes.coordinator("a") == "b"
    [stream] = [name for name, each in nodes.log.streams.items() if each is nodes.groups]

    def hold_up(*lanes):
        nodes.log.may = lambda lane: lane not in {("b", "event", ""), *lanes}

    hold_up(("a", "publish", stream))
    nodes.log.hazards = Hazards(lose_ask=1.0)
    joined = nodes.begin(
        "a", "group_join", group="g", member=YOU, mode="ordered", topics=[b"t"], options={}
    )
    claimed = nodes.log.catalog[CLAIM_KEY]
    ask_until(nodes, lambda: nodes.log.catalog[CLAIM_KEY] != claimed, 0.05)
    until_s = nodes.now_s + 3.0
    ask_until(nodes, lambda: nodes.now_s > until_s, 0.05)
    place = nodes.groups.last_place
    hold_up(("b", "publish", stream))
    ask_until(nodes, lambda: nodes.groups.last_place > place, 0.005)
    nodes.nodes["a"].kill_actor("log_groups_writer")
    ask_until(nodes, lambda: joined, 0.005)
    told = nodes.committed(joined[0]["generation"], pointers[3], YOU)
    committed = nodes.begin("a", "group_commit", **told)
    ask_until(nodes, lambda: committed, 0.005)
    late = nodes.begin("b", "group_positions", group="g", member=ME)
    nodes.pass_time(0.005)
    assert not [each for each in late if isinstance(each, dict) and each[b"t"][0] != pointers[3]]


@pytest.mark.parametrize("op", ["group_delete", "group_create"])
def test_what_is_not_asked_twice_waits_for_who_coordinates_next_where_nobody_has_heard_it(
    nodes, op
):
    nodes.join("a")
    nodes.kill("a")
    if op == "group_delete":
        nodes.control("b", op, group="g", force=True)
    else:
        nodes.control("b", op, group="h", mode="shared", topics=[b"t"], options={})
    assert nodes.coordinator("b") == "b"
