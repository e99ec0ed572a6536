"""The report: each message that came twice is in it, with its cause; certain is what came twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.broker.groups.ranges import RangeSet
from poe.cluster.frames import Again, Known, News, decode
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.gossip import HELD_US
from poe.cluster.queue.knowledge import UNHEARD, Knowledge
from poe.cluster.queue.lending import HEARD_US
from poe.cluster.queue.queue import COLLECT_US
from poe.cluster.queue.report import ROWS_MAX, SPLIT, repeated
from poe.cluster.ranges import intersect, union
from tests.cluster.queue.sharing import ITS, ME, MINE, OTHER, Node, Sharers, X, Y
from tests.cluster.queue.wired import SECOND_US, Wired, node_ref, peer_of

THIRD = node_ref(3)


def rows(knowledge, *heard):
    return [tuple(each)[1:] for each in repeated(knowledge, heard)]


def told(node, certainty=None):
    return [
        (each.after, each.last, each.certainty, each.cause, each.nodes)
        for each in node.share.report()
        if certainty in (None, each.certainty)
    ]


def test_what_two_nodes_have_handed_out_is_certain_and_a_split_where_neither_knew():
    knowledge = Knowledge("g", ME)
    granted = ((ME, ((0, 10),)), (OTHER, ((5, 15),)), (THIRD, ((8, 9),)))
    knowledge.join(Known("g", MINE, (), granted, ()))
    assert rows(knowledge, ME, OTHER) == [
        (5, 10, "certain", SPLIT, (ME, OTHER), 0),
        (8, 9, "certain", SPLIT, (ME, THIRD), 0),
        (8, 9, "certain", SPLIT, (OTHER, THIRD), 0),
    ]


def test_of_many_nodes_that_handed_out_nothing_twice_few_are_compared(monkeypatch):
    compared = []

    def compare(one, other):
        compared.append((one, other))
        return intersect(one, other)

    monkeypatch.setattr("poe.cluster.queue.report.intersect", compare)
    knowledge = Knowledge("g", ME)
    granted = tuple((node_ref(7, number), ((number, number + 1),)) for number in range(500))
    knowledge.join(Known("g", MINE, (), granted, ()))
    assert rows(knowledge) == []
    assert len(compared) < 1000


@pytest.mark.slow
def test_what_is_told_of_a_group_counts_no_more_repeats_than_the_report_names():
    nodes = Wired(2)
    nodes.make_group(0)
    granted = tuple((node_ref(7, number), ((0, 1),)) for number in range(300))
    news = News(b"jobs", 1, 0, 0, (), (Known("work", MINE, (), granted, ()),), ())
    nodes[0].hear(nodes.refs[1], news, nodes.now_us)
    assert nodes[0].describe()["groups"]["work"]["repeats"] == {"certain": ROWS_MAX}
    assert len(nodes[0].report()) == ROWS_MAX


def test_who_has_known_says_why():
    knowledge = Knowledge("g", ME)
    granted = ((ME, ((0, 10),)), (OTHER, ((0, 10),)))
    again = (Again("taken over", OTHER, ME, 7, ((2, 5),)),)
    knowledge.join(Known("g", MINE, (), granted, again))
    assert rows(knowledge) == [
        (2, 5, "certain", "taken over", (OTHER, ME), 7),
        (0, 2, "certain", SPLIT, (ME, OTHER), 0),
        (5, 10, "certain", SPLIT, (ME, OTHER), 0),
    ]


def test_what_a_node_that_is_gone_held_may_have_come_twice_until_it_is_heard_again():
    knowledge = Knowledge("g", ME)
    again = (Again(UNHEARD, ME, OTHER, 7, ((0, 20),)),)
    knowledge.join(Known("g", MINE, (), ((ME, ((5, 30),)),), again))
    assert rows(knowledge, ME) == [(5, 20, "may", UNHEARD, (ME, OTHER), 7)]
    knowledge.join(Known("g", MINE, (), ((OTHER, ((5, 8),)),), ()))
    assert rows(knowledge, ME, OTHER) == [(5, 8, "certain", SPLIT, (ME, OTHER), 0)]
    assert rows(knowledge, ME)[1:] == [(8, 20, "may", UNHEARD, (ME, OTHER), 7)]


def test_a_node_that_takes_over_names_what_has_come_and_what_may_have():
    node = Node()
    node.share.peer_up(peer_of(OTHER), node.now_us)
    node.held[OTHER, ITS] = [(0, 6)]
    node.share.learn(Known("workers", ITS, (), ((OTHER, ((0, 2),)),), ()), node.now_us)
    node.share.peer_down(OTHER, node.now_us)
    assert told(node) == []
    node.hold(ITS, 0, 10)
    node.take()
    assert told(node) == [
        (0, 2, "certain", "taken over", (ME, OTHER)),
        (2, 6, "may", UNHEARD, (ME, OTHER)),
    ]


def test_what_was_handed_out_before_a_holder_fell_silent_may_come_from_that_as_well():
    node = Node()
    node.share.peer_up(peer_of(OTHER), node.now_us)
    node.hold(MINE, 0, 10)
    node.take(X, 4)
    node.held[OTHER, MINE] = [(0, 10)]
    node.share.peer_down(OTHER, node.now_us)
    assert told(node) == [(0, 4, "may", UNHEARD, (ME, OTHER))]


def test_what_a_silent_node_gets_from_others_counts_as_well():
    node = Node()
    node.share.peer_up(peer_of(OTHER), node.now_us)
    node.share.peer_down(OTHER, node.now_us)
    node.hold(MINE, 0, 10)
    node.held[OTHER, MINE] = [(2, 4)]
    node.take()
    assert told(node) == [(2, 4, "may", UNHEARD, (ME, OTHER))]


def test_what_a_silent_node_holds_and_another_one_gets_may_have_come_from_both():
    nodes = Sharers((X,), (Y,))
    gone = node_ref(9)
    nodes[0].share.peer_up(peer_of(gone), nodes[0].now_us)
    nodes[0].share.peer_down(gone, nodes[0].now_us)
    nodes[0].held[gone, MINE] = [(0, 2)]  # it was heard of later
    nodes[0].hold(MINE, 0, 2)
    nodes[1].lease(Y, 10, wait_s=1.0)
    nodes.sleep(0.1)
    nodes.gossip()
    assert told(nodes[0]) == [(0, 2, "may", UNHEARD, (nodes[0].ref, gone))]


def test_what_was_lent_and_taken_back_before_the_node_was_known_to_be_gone_may_have_come_from_it():
    nodes = Sharers((X,), (Y,), lease_s=5.0)
    nodes[0].hold(MINE, 0, 2)
    nodes[1].lease(Y, 10, wait_s=1.0)
    nodes.sleep(0.1)
    refs = nodes[0].ref, nodes[1].ref
    nodes.lost |= {refs, refs[::-1]}
    nodes[0].sleep(6.0)
    nodes.part(0, 1)
    _, [pointer] = nodes[0].take(X)  # alone: it may be why the other one was not heard
    assert told(nodes[0]) == [(0, pointer, "may", UNHEARD, refs)]


def test_who_was_heard_for_a_while_since_it_lost_a_lease_has_told_what_it_did():
    nodes = Sharers((X,), (Y,), lease_s=5.0)
    nodes[0].hold(MINE, 0, 2)
    nodes[1].lease(Y, 10, wait_s=1.0)
    nodes.sleep(0.1)
    nodes.lost.add((nodes[1].ref, nodes[0].ref))
    nodes[0].sleep(6.0)
    nodes.lost.clear()
    nodes[0].sleep(HEARD_US / 1e6)
    nodes.part(0, 1)
    nodes[0].join(X)
    assert nodes[0].take(X)[1]
    assert told(nodes[0]) == []


def test_what_was_lent_to_a_node_that_is_gone_may_have_come_from_it():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 2)
    nodes[1].lease(Y, 10, wait_s=1.0)
    nodes.sleep(0.1)
    nodes.part(0, 1)
    nodes[0].take(X)
    assert told(nodes[0]) == [(0, 2, "may", UNHEARD, (nodes[0].ref, nodes[1].ref))]
    nodes[1].share.knowledge.take_news()
    nodes.heal(0, 1)
    nodes[0].share.learn(nodes[1].share.knowledge.known(MINE), nodes[0].now_us)
    assert told(nodes[0]) == [(0, 2, "certain", SPLIT, (nodes[0].ref, nodes[1].ref))]


def test_what_is_known_after_a_silence_is_not_asked_of_the_next_one():
    node = Node(session_s=100)
    node.share.peer_up(peer_of(OTHER), node.now_us)
    node.held[OTHER, MINE] = [(0, 10)]
    node.hold(MINE, 0, 20)
    node.take(X, 10)
    node.share.peer_down(OTHER, node.now_us)
    assert [each[:2] for each in told(node)] == [(0, 10)]
    node.share.peer_up(peer_of(OTHER), node.now_us)
    assert told(node) == []
    node.sleep(20)
    node.held[OTHER, MINE] = [(12, 20)]
    node.share.peer_down(OTHER, node.now_us)
    node.take(X, 20)
    assert [each[:2] for each in told(node, "may")] == [(12, 20)]


def test_a_range_that_one_node_hands_out_again_is_told_with_its_cause():
    node = Node()
    node.hold(MINE, 0, 4)
    node.said(node.take()[0], "retry")
    node.take()
    assert told(node) == [(0, 4, "again", "retried", (ME, ME))]
    [row] = [each.as_map() for each in node.share.report()]
    assert row == {
        "stream": "0101010101010101.1",
        "after": 0,
        "last": 4,
        "certainty": "again",
        "cause": "retried",
        "nodes": ["0101010101010101.1", "0101010101010101.1"],
        "since_us": node.now_us,
    }


def test_what_came_twice_is_told_when_its_stream_is_forgotten():
    node = Node()
    node.hold(MINE, 0, 4)
    node.said(node.take()[0], "retry")
    node.done(node.take()[0])
    rows = list(node.share.report())
    assert rows
    node.share.forget(MINE)
    assert list(node.share.report()) == rows


@pytest.mark.parametrize("how", ["under way", "over", "slow"])
def test_who_was_asked_to_hold_messages_and_never_answered_may_have_handed_them_out(how):
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, [b"a"], deadline_s=0.1 if how == "over" else 9.0)
    hear_and_say_nothing(nodes)
    if how == "over":
        nodes.cut.add(frozenset(nodes.refs))
        nodes.wait(0.2)
        assert nodes.results["put"].state == "under"
    elif how == "slow":
        nodes[0].peer_pace(nodes.refs[1], nodes.now_us, is_slow=True)
    nodes.part(0, 1)
    assert nodes.take(1)[1] == [b"a"]
    nodes.kill(1)
    assert nodes.take(0)[1] == [b"a"]
    [row] = nodes[0].repeated("work")
    assert (row.certainty, row.nodes) == ("may", (nodes.refs[0], nodes.refs[1]))


def test_who_was_asked_to_hold_messages_and_refused_has_not_handed_them_out():
    nodes = Wired(2, messages_max=1)
    nodes.make_group(0)
    nodes.put(1, [b"full"], token="full", copies=1)
    nodes.settle()
    nodes.put(0, [b"a"], deadline_s=0.1)
    nodes.wait(0.2)
    assert nodes.results["put"].state == "under"
    nodes.kill(1)
    assert nodes.take(0)[1] == [b"a"]
    assert list(nodes[0].repeated("work")) == []


@pytest.mark.parametrize("is_held_missed", [False, True])
def test_who_let_messages_go_before_it_was_heard_why_may_have_handed_them_out(is_held_missed):
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, [b"a"])
    nodes.wait(1)
    nodes.done(0, nodes.take(0)[0])
    if is_held_missed:  # so that it is asked for all that it holds
        nodes.put(0, [b"b"], token="b", copies=1)
    say_and_have_nobody_hear(nodes)
    nodes.wait((COLLECT_US + HELD_US) / SECOND_US)
    held = nodes[1].holders()[StreamId(*nodes.refs[0])]
    assert len(held.get(nodes.refs[0], [])) == is_held_missed
    nodes.kill(0)
    assert nodes.take(1)[1] == [b"a"]
    [row] = nodes[1].repeated("work")
    assert (row.certainty, row.nodes) == ("may", (nodes.refs[1], nodes.refs[0]))


def test_who_told_later_why_it_let_messages_go_leaves_nothing_open():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, [b"a"])
    nodes.wait(1)
    nodes.done(0, nodes.take(0)[0])
    say_and_have_nobody_hear(nodes)
    nodes.wait(60)
    nodes.kill(0)
    assert nodes[1].known("work")[StreamId(*nodes.refs[0])].again == ()


def test_what_was_dropped_for_room_was_not_handed_out_in_silence_where_all_was_heard():
    nodes = Wired(2, messages_max=5, on_full="drop-oldest")
    nodes.make_group(0)
    for number in range(10):
        nodes.put(0, [b"message"], token=number)
        nodes.wait(0.2)
    [lease, _] = nodes.take(0, limit=1)
    nodes.wait(0.2)
    nodes.kill(0)
    again = nodes[1].known("work")[StreamId(*nodes.refs[0])].again
    held = list(nodes[1].copies.held(StreamId(*nodes.refs[0])))
    assert [each.ranges for each in again] == [tuple(held)]
    assert lease.last in range(held[0][0], held[0][1])


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_life_that_is_over_may_have_handed_out_for_a_group_that_is_heard_of_only_later(
    is_forgotten,
):
    nodes = Wired(2)
    nodes.put(0, [b"a"])
    nodes.settle()
    nodes.part(0, 1)
    nodes.make_group(1)
    assert nodes.take(1)[1] == [b"a"]
    old = nodes.refs[1]
    nodes.kill(1)
    if is_forgotten:
        nodes[0].forget(old.id, nodes.now_us)
    else:
        nodes.cut.clear()
        nodes.restart(1)
    nodes.make_group(0)
    assert nodes.take(0)[1] == [b"a"]
    [row] = nodes[0].repeated("work")
    assert (row.certainty, row.nodes) == ("may", (nodes.refs[0], old))


def test_who_is_gone_may_have_handed_out_for_a_group_that_was_deleted_and_made_anew():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, [b"a"])
    nodes.wait(1)
    [group] = nodes[0].groups()
    nodes[0].make_group(group.deleted(nodes.now_us), nodes.now_us)
    nodes.wait(1)
    nodes.part(0, 1)
    nodes.make_group(1)
    assert nodes.take(1)[1] == [b"a"]
    nodes.kill(1)
    nodes.make_group(0)
    assert nodes.take(0)[1] == [b"a"]
    [row] = nodes[0].repeated("work")
    assert (row.certainty, row.nodes) == ("may", (nodes.refs[0], nodes.refs[1]))


KEPT = 50


@pytest.fixture
def in_turns(monkeypatch):
    """Return nodes that have handed out many messages in turns, and the first ones twice."""
    monkeypatch.setattr("poe.cluster.queue.knowledge.GRANTED_MAX", KEPT)

    def hand_out(*dead):
        nodes = Wired(3)
        nodes.make_group(0)
        nodes.wait(60)
        for number in dead:
            nodes.kill(number)
        stream, ranges = StreamId(node_ref(9).id, 1), [(n, n + 1) for n in range(3 * KEPT)]
        granted = tuple((ref, ((0, 3), *ranges[3 + n :: 3])) for n, ref in enumerate(nodes.refs))
        known = Known("work", stream, ((0, 3 * KEPT),), granted, ())
        for queue in nodes.queues.values():
            queue.hear(nodes.refs[0], News(b"jobs", 1, 0, 0, (), (known,), ()), nodes.now_us)
        return nodes, stream

    return hand_out


def granted_count(queue, stream):
    return sum(len(ranges) for _, ranges in queue.known("work")[stream].granted)


def test_of_what_is_done_it_is_kept_of_the_last_ranges_alone_who_was_handed_them(in_turns):
    nodes, stream = in_turns()
    rows = nodes[0].report()
    assert len(rows) == 3
    nodes.wait(60)
    for queue in nodes.queues.values():
        assert KEPT <= granted_count(queue, stream) <= 2 * KEPT
        assert queue.known("work")[stream] == nodes[0].known("work")[stream]
        assert queue.report() == rows


def test_where_nothing_is_done_what_is_old_is_sought_once_until_that_changes(monkeypatch):
    monkeypatch.setattr("poe.cluster.queue.knowledge.GRANTED_MAX", KEPT)
    within, looks = RangeSet.within, []

    def look(ranges, after, last):
        looks.append((after, last))
        return within(ranges, after, last)

    knowledge, stream = Knowledge("work", node_ref(1)), StreamId(node_ref(9).id, 1)
    for n in range(3 * KEPT):
        knowledge.grant(stream, 2 * n, 2 * n + 1)
    with monkeypatch.context() as patched:
        patched.setattr(RangeSet, "within", look)
        for _ in range(3):
            knowledge.digest(stream)  # as each digest of a peer has it reckoned
            assert knowledge.take_old() == []
    assert len(looks) == 1
    knowledge.finish(stream, 0, 9)
    [(_, old)] = knowledge.take_old()
    assert list(old.granted[node_ref(1)]) == [(2 * n, 2 * n + 1) for n in range(5)]


def test_while_a_node_is_away_it_is_kept_of_all_who_was_handed_it(in_turns):
    nodes, stream = in_turns(2)
    nodes.wait(60)
    assert granted_count(nodes[0], stream) > 2 * KEPT
    nodes.restart(2)
    nodes.wait(90)
    assert granted_count(nodes[0], stream) <= 2 * KEPT


def test_what_came_to_no_client_may_have_come_twice_at_most():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, [b"a"])
    nodes.settle()
    nodes[0].undelivered("work", nodes.take(0)[0], nodes.now_us)
    nodes.wait(0.1)
    nodes.kill(0)
    assert nodes.take(1)[1] == [b"a"]
    [row] = nodes[1].repeated("work")
    assert (row.certainty, row.cause, set(row.nodes)) == ("may", "undelivered", set(nodes.refs))


def test_what_one_node_hands_out_again_since_it_came_to_no_client_may_have_come_twice():
    node = Node()
    node.hold(MINE, 0, 4)
    lease, _ = node.take(X, 2)
    node.share.undelivered(lease, node.now_us)
    node.take(X, 4)
    assert told(node) == [(0, 2, "may", "undelivered", (ME, ME))]


def test_what_came_to_clients_twice_though_to_one_of_three_it_did_not_is_named_as_well():
    node = Node()
    node.hold(MINE, 0, 4)
    node.said(node.take()[0], "retry")
    node.share.undelivered(node.take()[0], node.now_us)
    node.take()
    assert {each[2:4] for each in told(node)} == {("may", "undelivered")}


def hear_and_say_nothing(nodes):
    """Have all heard that is under way, and nothing of what is said then."""
    nodes.collect()
    for sender, node, body in [nodes.under_way.popleft() for _ in list(nodes.under_way)]:
        nodes.queues[node].hear(sender, decode(body), nodes.now_us)
    nodes.lose()


def say_and_have_nobody_hear(nodes):
    """Have the first node say what it has to say by now, and nobody hear it."""
    nodes.now_us += HELD_US
    nodes[0].tick(nodes.now_us)
    nodes.lose()


ranges = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 5)).map(lambda each: (each[0], sum(each))),
    max_size=4,
).map(lambda some: tuple(union(*([each] for each in some))) if some else ())
nodes = st.sampled_from([ME, OTHER, THIRD])


@given(
    st.lists(st.tuples(nodes, ranges), max_size=5),
    st.lists(st.tuples(nodes, nodes, ranges), max_size=3),
    st.sets(nodes),
)
def test_all_that_two_nodes_have_handed_out_is_certain_and_nothing_else(granted, silent, heard):
    knowledge = Knowledge("g", ME)
    again = tuple(Again(UNHEARD, one, other, 3, some) for one, other, some in silent)
    knowledge.join(Known("g", MINE, (), tuple(granted), again))
    by_node: dict[NodeRef, set[int]] = {}
    for node, some in granted:
        by_node.setdefault(node, set()).update(_numbers(some))
    twice = {n for some in by_node.values() for n in some
             if sum(n in each for each in by_node.values()) > 1}  # fmt: skip
    rows = list(repeated(knowledge, heard))
    certain = [(each.after, each.last) for each in rows if each.certainty == "certain"]
    assert _numbers(certain) == twice
    for each in rows:
        if each.certainty == "may":
            assert _numbers([(each.after, each.last)]) <= set().union(*by_node.values())


def _numbers(ranges):
    return {number for after, last in ranges for number in range(after + 1, last + 1)}
