"""At most once, where the origin does not hold its messages: it leaves them to who does, once."""

from poe.cluster.batch import Batch
from poe.cluster.frames import Ceded, Claim
from tests.cluster.queue.sharing import MINE, Sharers, X, Y


def held_elsewhere(count=4):
    """Two nodes, of which the second holds what the first has put and does not hold."""
    nodes = Sharers((X,), (Y,), delivery="at-most-once")
    messages = [b"%03d" % (number + 1) for number in range(count)]
    nodes[0].copies.take_place(MINE, count)
    nodes[1].copies.add(MINE, Batch.encode(messages, 0, 1))
    return nodes


def test_what_the_origin_does_not_hold_is_left_to_who_does():
    nodes = held_elsewhere()
    nodes[1].share.arrived(MINE, 0, 4, nodes[1].now_us)
    nodes.settle()
    nodes.gossip()
    assert list(nodes[0].share.done(MINE)) == [(0, 4)]
    assert nodes[1].share.is_at_work_on(MINE)  # all know it to be done, and it is to come yet
    assert nodes[1].take(Y)[1] == [1, 2, 3, 4]
    assert not nodes[1].share.is_at_work_on(MINE)
    nodes[1].join(Y)
    assert nodes[1].lease(Y).found is None
    nodes.sleep(2)
    assert nodes[1].share.next_deadline_us() > nodes[1].now_us + 2_000_000


def test_what_the_origin_has_handed_out_or_holds_is_not_left_to_others():
    nodes = held_elsewhere()
    nodes[0].hold(MINE, 0, 2)
    assert nodes[0].take(X, 1)[1] == [1]
    nodes[0].copies.drop(MINE, 0, 1)
    nodes[1].share.set_owned(MINE, [(0, 3)], nodes[1].now_us)
    nodes.settle()
    assert nodes[1].take(Y)[1] == [3]
    assert nodes[0].take(X)[1] == [2]


def test_an_answer_that_is_lost_is_given_again_and_counts_once():
    nodes = held_elsewhere()
    nodes.lost = {(nodes[0].ref, nodes[1].ref)}
    nodes[1].share.arrived(MINE, 0, 4, nodes[1].now_us)
    nodes.settle()
    assert list(nodes[0].share.done(MINE)) == [(0, 4)]
    assert nodes[1].lease(Y).found is None
    nodes.lost.clear()
    nodes.sleep(1.1)
    [_, (sender, _, ceded)] = nodes.frames(Ceded)
    assert nodes[1].take(Y)[1] == [1, 2, 3, 4]
    nodes[1].share.hear(sender, ceded, nodes[1].now_us)
    assert nodes[1].lease(Y).found is None


def test_two_that_hold_it_do_not_both_get_it():
    nodes = Sharers((X,), (Y,), (b"z" * 16,), delivery="at-most-once")
    nodes[0].copies.take_place(MINE, 1)
    for number in (1, 2):
        nodes[number].copies.add(MINE, Batch.encode([b"001"], 0, 1))
        nodes[number].share.arrived(MINE, 0, 1, nodes[number].now_us)
    nodes.settle()
    got = [nodes[1].lease(Y).found, nodes[2].lease(b"z" * 16).found]
    assert got.count(None) == 1


def test_nobody_is_asked_who_is_not_there():
    nodes = held_elsewhere()
    nodes.part(0, 1)
    nodes[1].share.arrived(MINE, 0, 4, nodes[1].now_us)
    nodes.settle()
    assert not nodes.frames(Claim)
    assert nodes[1].lease(Y).found is None
    nodes.heal(0, 1)
    nodes.sleep(1.1)
    assert nodes[1].take(Y)[1] == [1, 2, 3, 4]
