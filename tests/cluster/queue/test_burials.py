"""Messages that have failed for good: put onto another queue with ids of their own, once."""

import pytest

from poe.cluster.batch import BATCH_BYTES_MAX, PUT_BYTES_MAX, STARTS, Batch
from poe.cluster.frames import Known, News
from poe.cluster.queue.effects import Bury, HandingOver
from poe.errors import PutTooLarge
from poe.protocol import envelope
from poe.protocol.leases import Failed, LeaseRequest
from poe.record import RECORD_HEADER_BYTES
from poe.storage.formats.record import decode_records
from tests.cluster.queue.sharing import ITS, MINE, Node, Sharers, X, Y
from tests.cluster.queue.wired import SECOND_US, Wired


def buried(node):
    node.collect()
    found = [each for each in node.others if isinstance(each, Bury)]
    node.others = []
    return found


def dying(count=2, **options):
    node = Node(attempts_max=1, **options)
    node.hold(MINE, 0, count)
    node.said(node.take()[0], "retry")
    return node


def test_what_has_failed_too_often_is_buried_and_done_when_that_is_held():
    node = dying()
    [bury] = buried(node)
    assert (bury.group, bury.queue) == ("workers", b"workers.dead")
    [batch] = bury.batches
    letters = decode_records(batch.records)
    assert [pointer for pointer, _ in letters] == [1, 2]
    key, value, headers = envelope.decode(letters[0][1])
    assert (key, value) == (None, b"001")
    assert headers is not None
    assert headers["poe.attempts"] == b"1"
    assert headers["poe.reason"] == b"no"
    assert headers["poe.pointer"] == b"1"
    assert list(node.share.done(MINE)) == []
    node.share.buried(bury.number, node.now_us)
    assert list(node.share.done(MINE)) == [(0, 2)]
    assert buried(node) == []
    assert node.share.next_deadline_us() - node.now_us > SECOND_US


def test_what_nobody_says_is_held_is_asked_for_again_and_is_the_same():
    node = dying()
    [first] = buried(node)
    node.sleep(1)
    assert buried(node) == []
    node.sleep(5)
    [again] = buried(node)
    assert again[2:] == first[2:]
    node.share.buried(first.number, node.now_us)
    assert list(node.share.done(MINE)) == []
    node.share.buried(again.number, node.now_us)
    assert list(node.share.done(MINE)) == [(0, 2)]


def test_what_is_said_to_be_held_of_a_group_before_its_options_changed_ends_nothing_of_it_now():
    [asked] = buried(dying())
    now = Node(attempts_max=1)
    now.sleep(0.1)
    now.hold(MINE, 0, 2)
    now.said(now.take()[0], "retry")
    [asked_now] = buried(now)
    now.share.buried(asked.number, now.now_us)
    assert list(now.share.done(MINE)) == []
    now.share.buried(asked_now.number, now.now_us)
    assert list(now.share.done(MINE)) == [(0, 2)]


def test_two_nodes_bury_a_message_under_one_id():
    ids = []
    for node in (dying(), dying()):
        [bury] = buried(node)
        ids.append((bury.stream, [each[:3] for each in bury.batches]))
    assert ids[0] == ids[1]
    assert ids[0][0] not in (MINE, ITS)


@pytest.mark.parametrize("other", [{"group": "others"}, {"queue": b"mails"}])
def test_letters_of_several_groups_or_queues_on_one_queue_have_ids_of_their_own(other):
    [one] = buried(dying(dead_letter_topic="dead"))
    [two] = buried(dying(dead_letter_topic="dead", **other))
    assert one.queue == two.queue == b"dead"
    assert one.stream != two.stream


def test_what_is_gone_is_done_without_a_letter():
    node = Node(attempts_max=1)
    node.hold(MINE, 0, 2)
    lease, _ = node.take()
    node.copies.drop(MINE, 0, 2)
    node.said(lease, "dead")
    assert buried(node) == []
    assert list(node.share.done(MINE)) == [(0, 2)]


def test_what_is_dropped_by_the_options_of_the_group_is_done_at_once():
    node = dying(on_dead="drop")
    assert buried(node) == []
    assert list(node.share.done(MINE)) == [(0, 2)]


def borrowed_and_given_up():
    """Return two nodes; the second has given up what it has borrowed of the first."""
    nodes = Sharers((X,), (Y,), attempts_max=1)
    nodes[0].hold(MINE, 0, 2)
    nodes[1].lease(Y, 10, wait_s=2.0, token="waits")
    nodes.sleep(0.1)
    nodes[1].said(nodes[1].answers.pop("waits").lease, "dead", Y)
    return nodes


def test_what_was_borrowed_is_buried_by_who_has_seen_it_fail():
    nodes = borrowed_and_given_up()
    [bury] = buried(nodes[1])
    assert [batch[:3] for batch in bury.batches] == [(0, 2, 2)]


def test_what_was_borrowed_and_cannot_be_buried_is_not_done_where_its_owner_is_gone():
    """As where the network is cut, so that nobody else holds letters: others have the message."""
    nodes = borrowed_and_given_up()
    assert len(buried(nodes[1])) == 1
    nodes.part(0, 1)
    nodes[1].sleep(6)
    assert buried(nodes[1]) == []
    assert list(nodes[1].share.done(MINE)) == []


def test_a_queue_holds_letters_under_their_ids_once():
    nodes = Wired(3)
    [bury] = buried(dying())
    for number in (0, 0, 1):
        nodes.results.clear()
        now_us = nodes.now_us
        nodes[number].hold(bury.stream, bury.batches[0], "put", now_us, deadline_us=now_us + 9)
        nodes.settle()
        assert nodes.results["put"].state == "ok"
    held = [len(queue.copies.held(bury.stream)) for queue in nodes.queues.values()]
    assert 2 <= sum(held) <= 3
    for queue in nodes.queues.values():
        found = queue.copies.find(bury.stream, 0, 10, 10, 1 << 20)
        assert found is None or found.count == 2


def test_letters_that_come_again_while_they_are_handed_over_are_answered_and_so_is_that():
    nodes = Wired(2, copies=1)
    [bury] = buried(dying())
    leaves = HandingOver("leaves")
    for token in ("put", "again"):
        until_us = nodes.now_us + SECOND_US
        nodes[0].hold(bury.stream, bury.batches[0], token, nodes.now_us, deadline_us=until_us)
        if token == "put":
            nodes.settle()
            nodes.part(0, 1)
            nodes.heal(0, 1)
            assert nodes[0].hand_over(leaves, nodes.now_us, deadline_us=until_us) == 1
            nodes.lose()
    nodes.wait(2)
    assert nodes.results["again"].state == "ok"
    assert leaves in nodes.results


def test_letters_that_an_at_most_once_group_does_not_get_are_told():
    nodes = Wired(2)
    nodes.make_group(0, delivery="at-most-once")
    [bury] = buried(dying())
    now_us = nodes.now_us
    nodes[0].hold(bury.stream, bury.batches[0], "put", now_us, deadline_us=now_us + 9)
    nodes.settle()
    assert "letters kept back" in [each.kind for each in nodes.events]
    assert nodes.work(0) == []


@pytest.mark.parametrize("count", [1, 3])
def test_letters_are_of_their_messages(count):
    [bury] = buried(dying(count))
    pointers = [pointer for each in bury.batches for pointer, _ in decode_records(each.records)]
    assert pointers == list(range(1, count + 1))


def test_letters_that_are_together_too_much_come_in_several_batches_and_what_is_too_large_not():
    node = Node(attempts_max=1)
    size = PUT_BYTES_MAX // 2 - 20
    node.hold(MINE, 0, 2, size)
    node.copies.add(MINE, Batch.encode([bytes(BATCH_BYTES_MAX - 20)], 2, 3))
    node.share.arrived(MINE, 2, 3, node.now_us)
    while (leased := node.lease(limit=2)).found is not None:
        node.said(leased.lease, "dead")
    letters = [batch for bury in bury_all(node) for batch in bury.batches]
    assert [(batch.first, batch.last) for batch in letters] == [(1, 1), (2, 2)]
    for batch in letters:
        batch.check()
    assert list(node.share.done(MINE)) == [(0, 3)]


def bury_all(node):
    found = []
    while buries := buried(node):
        found += buries
        node.share.buried(buries[-1].number, node.now_us)
    return found


def test_the_largest_message_that_can_be_put_can_fail_for_good():
    nodes = Wired(2)
    nodes.make_group(0)
    with pytest.raises(PutTooLarge):
        nodes.put(0, [bytes(PUT_BYTES_MAX)])
    nodes.put(0, [bytes(PUT_BYTES_MAX - RECORD_HEADER_BYTES - STARTS.itemsize)])
    nodes.settle()
    lease, _ = nodes.take(0)
    dead = Failed(lease.id, lease.after, lease.last, "dead")
    nodes.ask(0, LeaseRequest("work", nodes.join(0), 0, 1 << 24, 0.0, failed=(dead,)))
    assert nodes.work(0) == []


@pytest.mark.slow
def test_many_small_messages_that_fit_no_envelope_are_refused():
    nodes = Wired(2)
    with pytest.raises(PutTooLarge):
        nodes.put(0, [b"x", b"yy"] * 500_000)


@pytest.mark.parametrize("seconds", [0, 10, 11, 12])
def test_a_stream_that_is_over_is_kept_until_its_letters_are_buried(seconds):
    """Another node may have buried them, while this one finds no room for them: it goes on."""
    nodes = Wired(2)
    nodes.make_group(0, attempts_max=1)
    nodes.put(0, [b"bad"])
    nodes.settle()
    old = nodes.results["put"].stream
    nodes.kill(0)
    nodes.wait(30)
    lease, _ = nodes.take(1)
    nodes.restart(0)
    nodes.wait(20)
    dead = Failed(lease.id, lease.after, lease.last, "dead")
    nodes.ask(1, LeaseRequest("work", nodes.join(1), 0, 1 << 24, 0.0, failed=(dead,)))
    nodes.wait(seconds)
    known = Known("work", old, ((lease.after, lease.last),), (), ())
    for number in range(2):
        news = News(b"jobs", 1, 0, 0, (), (known,), ())
        nodes[number].hear(nodes.refs[1 - number], news, nodes.now_us)
    nodes.wait(120)
    for number in range(2):
        assert old not in nodes[number].known("work")
