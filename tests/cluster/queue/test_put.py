"""A put: on how many nodes it is, and what is said of that."""

from itertools import pairwise

import pytest

from poe.cluster.frames import Store, decode
from poe.cluster.identity import StreamId
from poe.cluster.queue.effects import HandingOver, PutDone
from poe.cluster.queue.hand_over import AT_ONCE_BYTES
from poe.cluster.queue.queue import RESTORE_COUNT_MAX
from poe.cluster.queue.spread import PATIENCE_US
from poe.errors import InvalidMessage, TooFewNodes
from poe.storage.formats.record import decode_records
from tests.cluster.queue.wired import SECOND_US, Wired

MESSAGES = [b"message %d" % number for number in range(20)]


def messages_of(queue, stream):
    """Return all that a node holds of a stream."""
    found = queue.copies.find(stream, 0, 1 << 55, 1 << 20, 1 << 30)
    return [] if found is None else [message for _, message in decode_records(found.records)]


def holders_of(nodes, stream):
    """Return the numbers of the nodes that hold something of a stream."""
    return [number for number in range(len(nodes.refs)) if len(nodes[number].copies.held(stream))]


def test_a_put_on_one_node_is_answered_at_once():
    nodes = Wired(1, copies=1)
    nodes.put(0, MESSAGES)
    nodes.collect()
    result = nodes.results["put"]
    assert result[:3] == ("ok", 1, 1)
    assert result.stream == StreamId(*nodes.refs[0])
    assert result.pointer - result.first == len(MESSAGES) - 1
    assert messages_of(nodes[0], result.stream) == MESSAGES


def test_a_put_is_on_so_many_nodes_when_it_is_answered():
    nodes = Wired(5, copies=3)
    nodes.put(0, MESSAGES)
    nodes.collect()
    assert not nodes.results
    nodes.settle()
    result = nodes.results["put"]
    assert result[:3] == ("ok", 3, 3)
    holders = holders_of(nodes, result.stream)
    assert len(holders) == 3
    assert 0 in holders
    for number in holders:
        assert messages_of(nodes[number], result.stream) == MESSAGES


def test_a_put_of_more_copies_than_nodes_is_refused_and_nothing_is_stored():
    nodes = Wired(2)
    with pytest.raises(TooFewNodes) as refused:
        nodes.put(0, MESSAGES, copies=3)
    assert (refused.value.wanted, refused.value.live) == (3, 2)
    assert nodes[0].copies.messages_count == 0


def test_a_put_that_is_no_put_is_refused_and_nothing_is_stored():
    nodes = Wired(1, copies=1)
    with pytest.raises(InvalidMessage):
        nodes.put(0, [b"", b"x"])
    with pytest.raises(InvalidMessage):
        nodes.put(0, [])
    assert nodes[0].copies.messages_count == 0


def test_pointers_rise_whatever_the_clock_says():
    nodes = Wired(1, copies=1)
    nodes.put(0, MESSAGES, "first")
    nodes.now_us -= 5_000_000
    nodes.put(0, [b"x"], "second")
    nodes.collect()
    assert nodes.results["second"].first == nodes.results["first"].pointer + 1
    assert len(nodes[0].copies.held(nodes.results["first"].stream)) == 1


def test_a_node_that_goes_is_replaced():
    nodes = Wired(3)
    nodes.put(0, MESSAGES)
    nodes.collect()
    _, asked, _ = nodes.under_way[0]
    nodes.part(0, nodes.refs.index(asked))
    nodes.settle()
    result = nodes.results["put"]
    assert result[:2] == ("ok", 2)
    assert nodes.refs.index(asked) not in holders_of(nodes, result.stream)


def test_a_node_that_says_nothing_is_replaced():
    nodes = Wired(3)
    nodes.put(0, MESSAGES)
    nodes.lose()
    nodes.wait(0.5)
    assert nodes.results["put"][:2] == ("ok", 2)


def test_what_was_lost_is_sent_again_where_nobody_else_is_left():
    nodes = Wired(2)
    nodes.put(0, MESSAGES)
    nodes.lose()
    nodes.wait(0.5)
    assert nodes.results["put"][:2] == ("ok", 2)
    assert messages_of(nodes[1], nodes.results["put"].stream) == MESSAGES


def test_a_put_that_comes_twice_is_stored_once():
    nodes = Wired(2)
    nodes.put(0, MESSAGES)
    nodes.collect()
    nodes.under_way.extend(list(nodes.under_way))
    nodes.settle()
    assert nodes.results["put"][:2] == ("ok", 2)
    assert nodes[1].copies.messages_count == len(MESSAGES)


def test_a_deadline_tells_how_many_copies_there_are():
    nodes = Wired(3, copies=3)
    nodes.cut = {frozenset(nodes.refs[:2])}  # nobody has noticed yet
    nodes.put(0, MESSAGES, deadline_s=1.0)
    nodes.wait(0.9)
    assert not nodes.results
    nodes.wait(0.2)
    assert nodes.results["put"][:3] == ("under", 2, 3)


def test_a_slow_node_is_not_asked():
    nodes = Wired(3)
    nodes[0].peer_pace(nodes.refs[1], nodes.now_us, is_slow=True)
    for number in range(20):
        nodes.put(0, [b"x"], number)
        nodes.wait(1.1)
    assert {result.state for result in nodes.results.values()} == {"ok"}
    assert nodes[1].copies.messages_count == 0


def test_of_much_that_nobody_can_be_asked_to_hold_a_part_is_tried_at_a_time():
    """Copied anew is what is on too few nodes, and not to one that is slow."""
    nodes = Wired(2)
    nodes[0].peer_pace(nodes.refs[1], nodes.now_us, is_slow=True)
    for number in range(100):
        nodes.now_us += 1
        nodes.put(0, [b"x"], number, copies=1)
    tried = []
    for _ in range(60):
        nodes.wait(1)
        tried.append(nodes[0].counters().get("copied again under", 0))
    assert tried[-1]
    assert max(now - before for before, now in pairwise(tried)) <= RESTORE_COUNT_MAX


def test_a_node_that_is_called_slow_is_waited_for_where_nobody_can_take_its_place():
    nodes = Wired(2)
    nodes.cut = {frozenset(nodes.refs)}
    nodes.put(0, MESSAGES, deadline_s=5.0)
    nodes[0].peer_pace(nodes.refs[1], nodes.now_us, is_slow=True)
    nodes.wait(0.1)
    assert not nodes.results
    nodes.cut = set()
    nodes[0].peer_pace(nodes.refs[1], nodes.now_us, is_slow=False)
    nodes.wait(0.4)
    assert nodes.results["put"][:3] == ("ok", 2, 2)


def test_a_slow_node_is_asked_where_there_is_no_other():
    nodes = Wired(2)
    nodes[0].peer_pace(nodes.refs[1], nodes.now_us, is_slow=True)
    nodes.put(0, MESSAGES)
    nodes.settle()
    assert nodes.results["put"][:3] == ("ok", 2, 2)


def test_a_slow_node_that_has_no_room_is_not_asked_for_a_while_though_there_is_no_other():
    nodes = Wired(2, messages_max=len(MESSAGES))
    nodes.put(1, MESSAGES, "fills", copies=1)
    nodes.settle()
    nodes[0].peer_pace(nodes.refs[1], nodes.now_us, is_slow=True)
    for number, is_asked in enumerate((True, False)):
        nodes.put(0, [b"x"], number)
        nodes.collect()
        asked = [decode(body) for _, _, body in nodes.under_way]
        assert any(isinstance(each, Store) for each in asked) is is_asked
        nodes.settle()
        assert nodes.results[number][:3] == ("under", 1, 2)


def test_a_slow_node_is_not_asked_while_another_one_may_answer_yet():
    nodes = Wired(3)
    nodes[0].peer_pace(nodes.refs[1], nodes.now_us, is_slow=True)
    nodes.put(0, MESSAGES)
    nodes.collect()
    nodes.now_us += PATIENCE_US // 2
    nodes[0].tick(nodes.now_us)
    nodes.settle()
    assert nodes.results["put"][:3] == ("ok", 2, 2)
    assert nodes[1].copies.messages_count == 0


def test_a_node_that_is_called_slow_is_replaced_at_once():
    nodes = Wired(3)
    nodes.put(0, MESSAGES)
    nodes.collect()
    asked = nodes.under_way.pop()[1]
    nodes[0].peer_pace(asked, nodes.now_us, is_slow=True)
    nodes.settle()
    assert nodes.results["put"][:3] == ("ok", 2, 2)


def test_a_full_node_is_replaced():
    nodes = Wired(3, messages_max=len(MESSAGES))
    nodes.put(1, MESSAGES, "fills", copies=1)
    nodes.settle()
    nodes.put(0, MESSAGES)
    nodes.settle()
    assert nodes.results["put"][:2] == ("ok", 2)
    assert nodes[2].copies.messages_count == len(MESSAGES)


def test_a_put_is_busy_where_no_node_has_room_and_nothing_is_stored():
    nodes = Wired(3, messages_max=len(MESSAGES) - 1)
    nodes.put(0, MESSAGES)
    nodes.settle()
    assert nodes.results["put"][:2] == ("busy", 0)
    assert {nodes[number].copies.messages_count for number in range(3)} == {0}


def test_what_was_busy_leaves_no_gap_and_its_pointers_to_nobody():
    nodes = Wired(2, messages_max=10)
    nodes.make_group(0)
    nodes.put(0, MESSAGES[:10], "fills")
    for number in range(10):
        nodes.put(0, MESSAGES[:10], f"busy {number}")
        nodes.put(0, MESSAGES[:10], f"busy again {number}")
        nodes.wait(1.2)
        nodes.done(0, nodes.take(0, 1)[0])
        nodes.wait(0.2)
        nodes.put(0, MESSAGES[:1], f"fits {number}")
        nodes.settle()
    states = [result.state for result in nodes.results.values()]
    assert states == ["ok", *["busy", "busy", "ok"] * 10]
    ranges = [(result.first, result.pointer) for result in nodes.results.values()]
    assert all(one[1] < other[0] for one, other in pairwise(ranges))
    for queue in nodes.queues.values():
        [known] = queue.known("work").values()
        assert len(known.done) == len(queue.copies.held(known.stream)) == 1
        assert [len(granted) for _, granted in known.granted] == [1]


def test_a_put_is_not_called_busy_where_a_node_that_was_asked_may_hold_it():
    nodes = Wired(2, messages_max=len(MESSAGES))
    nodes.put(0, MESSAGES, "fills", copies=1)
    nodes.settle()
    nodes.put(0, MESSAGES, deadline_s=0.2)
    nodes.collect()
    _, _, body = nodes.under_way[0]
    nodes[1].hear(nodes.refs[0], decode(body), nodes.now_us)
    nodes.lose()
    nodes.wait(0.3)
    assert nodes[1].copies.messages_count == len(MESSAGES)
    assert nodes.results["put"][:2] == ("none", 0)


def test_the_oldest_are_dropped_where_the_queue_says_so_and_that_is_told():
    nodes = Wired(1, copies=1, messages_max=30, on_full="drop-oldest")
    nodes.put(0, MESSAGES, "first")
    nodes.put(0, MESSAGES, "second")
    nodes.collect()
    result = nodes.results["second"]
    assert result.state == "ok"
    assert nodes[0].counters()["dropped"] == len(MESSAGES)
    assert [event.kind for event in nodes.events] == ["dropped"]
    assert messages_of(nodes[0], result.stream) == MESSAGES


@pytest.mark.parametrize("count", [1, 3])
def test_what_nobody_holds_any_more_does_not_split_for_ever_what_is_done(count):
    nodes = Wired(count, copies=min(count, 2), messages_max=30, on_full="drop-oldest")
    nodes.make_group(0)
    for number in range(40):
        for name in ("one", "other"):
            nodes.put(0, MESSAGES[:10], f"{name} {number}")
            nodes.settle()
        lease, _ = nodes.take(0, 10)
        nodes.done(0, lease)
        nodes.wait(5)
    assert nodes[0].counters()["dropped"] > 300
    for queue in nodes.queues.values():
        [known] = queue.known("work").values()
        assert len(known.done) < 10


def test_what_was_busy_while_others_were_put_does_not_split_for_ever_what_is_done():
    nodes = Wired(2, messages_max=10)
    nodes.make_group(0)
    for number in range(40):
        nodes.put(0, MESSAGES[:11], f"busy {number}")
        nodes.put(0, MESSAGES[:1], f"fits {number}")
        nodes.settle()
        nodes.work(0)
        nodes.wait(5)
    assert [result.state for result in nodes.results.values()] == ["busy", "ok"] * 40
    for queue in nodes.queues.values():
        [known] = queue.known("work").values()
        assert len(known.done) < 10


def test_what_others_hold_since_there_was_no_room_here_leaves_nothing_behind():
    nodes = Wired(2, copies=1, messages_max=10)
    nodes.make_group(0)
    for number in range(40):
        nodes.put(0, MESSAGES[:10], f"here {number}")
        nodes.put(0, MESSAGES[:10], f"there {number}")
        nodes.settle()
        for node in (0, 1):
            nodes.work(node)
        nodes.wait(1)
    assert {result.state for result in nodes.results.values()} == {"ok"}
    [share] = nodes[0]._shares.values()  # noqa: SLF001 - nobody is told of what is owned
    assert not any(map(len, share._ledger.owned.values()))  # noqa: SLF001 - as above


def test_what_a_member_works_on_is_not_done_though_it_was_dropped_meanwhile():
    nodes = Wired(1, copies=1, messages_max=30, on_full="drop-oldest")
    nodes.make_group(0, lease_s=100.0, session_s=100.0)
    nodes.put(0, MESSAGES[:10], "first")
    lease, _ = nodes.take(0)
    for number in range(20):
        nodes.put(0, MESSAGES[:10], number)
        nodes.done(0, nodes.take(0)[0])
        nodes.wait(4)
    assert not nodes[0].known("work")[nodes.results["first"].stream].done[0][0] <= lease.after
    member = nodes.join(0)
    assert nodes.ask(0, nodes.acknowledgement(member, lease)).lease.lost == ()


def test_what_is_put_while_a_node_hands_over_what_it_has_is_on_others():
    nodes = Wired(2, copies=1)
    nodes.put(0, MESSAGES, "before")
    until_us = nodes.now_us + SECOND_US
    assert nodes[0].hand_over(HandingOver("leaves"), nodes.now_us, deadline_us=until_us) == 1
    nodes.put(0, MESSAGES, "after")
    nodes.settle()
    assert {result.state for result in nodes.results.values()} == {"ok"}
    assert nodes[1].copies.messages_count == 2 * len(MESSAGES)
    assert nodes[0].copies.messages_count == len(MESSAGES)


def test_more_is_handed_over_than_goes_to_a_node_at_once():
    nodes = Wired(2, copies=1)
    for number in range(10):
        nodes.put(0, [bytes(AT_ONCE_BYTES // 2)], number)
    leaves, until_us = HandingOver("leaves"), nodes.now_us + SECOND_US
    assert nodes[0].hand_over(leaves, nodes.now_us, deadline_us=until_us) == 10
    nodes.collect()
    assert len(nodes.under_way) == 2
    done = []
    while nodes.under_way:
        sender, node, body = nodes.under_way.popleft()
        nodes.queues[node].hear(sender, decode(body), nodes.now_us)
        nodes.collect()
        done += [nodes.results.pop(leaves)] if leaves in nodes.results else []
    assert [result.state for result in done] == ["ok"] * 10
    assert nodes[1].copies.messages_count == 10


def test_what_is_handed_over_goes_to_a_slow_node_where_there_is_no_other():
    nodes = Wired(2, copies=1)
    nodes.put(0, MESSAGES)
    nodes.settle()
    nodes[0].peer_pace(nodes.refs[1], nodes.now_us, is_slow=True)
    leaves, until_us = HandingOver("leaves"), nodes.now_us + SECOND_US
    assert nodes[0].hand_over(leaves, nodes.now_us, deadline_us=until_us) == 1
    nodes.settle()
    assert nodes.results[leaves].state == "ok"
    assert nodes[1].copies.messages_count == len(MESSAGES)


def test_what_nobody_takes_in_time_is_answered_when_a_node_hands_over_what_it_has():
    nodes = Wired(2, copies=1)
    for number in range(10):
        nodes.put(0, [bytes(AT_ONCE_BYTES)], number)
    nodes.collect()
    nodes.cut.add(frozenset(nodes.refs))
    until_us = nodes.now_us + SECOND_US
    leaves = HandingOver("leaves")
    assert nodes[0].hand_over(leaves, nodes.now_us, deadline_us=until_us) == 10
    nodes.lose()
    nodes.now_us = until_us
    nodes[0].tick(until_us)
    done = [each for each in nodes[0].take_effects() if isinstance(each, PutDone)]
    assert [each.result.state for each in done] == ["under"] * 10


def test_copies_are_in_other_zones_first():
    nodes = Wired(4, zones="aabc", copies=3)
    nodes.put(0, MESSAGES)
    nodes.settle()
    assert holders_of(nodes, nodes.results["put"].stream) == [0, 2, 3]


def test_the_same_nodes_are_asked_for_a_second():
    nodes = Wired(9)
    for number in range(10):
        nodes.put(0, MESSAGES, number)
        nodes.settle()
    assert len(holders_of(nodes, nodes.results[0].stream)) == 2


def test_a_copy_of_a_node_that_has_gone_since_does_not_count():
    nodes = Wired(4, copies=3)
    nodes.put(0, MESSAGES)
    nodes.collect()
    _, first, _ = nodes.under_way[0]
    sender, node, body = nodes.under_way.popleft()
    nodes.queues[node].hear(sender, decode(body), nodes.now_us)
    nodes.under_way.clear()
    nodes.settle()
    nodes.kill(nodes.refs.index(first))
    nodes.settle()
    nodes.wait(0.5)
    result = nodes.results["put"]
    assert result[:2] == ("ok", 3)
    there = [queue for queue in nodes.queues.values() if queue.copies.held(result.stream)]
    assert len(there) == 3


def test_what_a_node_has_said_before_it_died_is_not_believed_after_that():
    nodes = Wired(3)
    nodes.put(0, MESSAGES, deadline_s=0.2)
    nodes.collect()
    sender, node, body = nodes.under_way.popleft()
    nodes.queues[node].hear(sender, decode(body), nodes.now_us)
    nodes.collect()
    late = nodes.under_way.copy()
    nodes.under_way.clear()
    nodes.kill(nodes.refs.index(node))
    nodes.cut = {frozenset(nodes.refs)}  # the others hear nothing
    nodes.lose()
    for sender, _, body in late:
        nodes[0].hear(sender, decode(body), nodes.now_us)
    nodes.cut = {frozenset((nodes.refs[0], each)) for each in nodes.refs[1:]}
    nodes.wait(0.3)
    assert nodes.results["put"][:2] == ("under", 1)
