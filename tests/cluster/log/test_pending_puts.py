"""What a replica does about its puts that are not answered."""

from poe.cluster.log.engine import NotStored, Stored
from poe.cluster.log.pending_puts import (
    GIVE_UP_AFTER_S,
    REFUSE_AFTER_S,
    TRY_S,
    Answer,
    PendingPuts,
    Publish,
)
from poe.errors import NoQuorum, PutUnconfirmed

REFUSED = NotStored(is_sure=True, why="no majority")
IN_DOUBT = NotStored(is_sure=False, why="the acknowledgement was lost")


def pending():
    puts = PendingPuts("t")
    puts.add(puts.next_number(), b"1", None, 0.0)
    return puts


def outcomes(effects):
    return [type(each.outcome) for each in effects if isinstance(each, Answer)]


def test_what_was_refused_for_a_while_and_never_in_doubt_is_refused():
    puts = pending()
    assert list(puts.told(1, REFUSED, 0.1)) == []
    assert list(puts.due(0.2)) == [Publish(1, b"1")]
    [refused] = puts.told(1, REFUSED, REFUSE_AFTER_S)
    assert isinstance(refused, Answer)
    assert isinstance(refused.outcome, NoQuorum)
    assert str(refused.outcome).startswith("topic t takes no puts at this node: no majority; ")


def test_what_was_in_doubt_once_is_not_refused():
    puts = pending()
    assert list(puts.told(1, IN_DOUBT, 0.1)) == []
    assert list(puts.told(1, REFUSED, REFUSE_AFTER_S + 1)) == []
    assert outcomes(puts.told(1, REFUSED, GIVE_UP_AFTER_S)) == [PutUnconfirmed]


def test_what_a_copy_that_stands_still_cannot_take_is_given_up_as_soon_as_it_would_be_refused():
    puts = pending()
    assert list(puts.told(1, Stored(5), 0.1)) == []
    assert list(puts.told(1, REFUSED, TRY_S, stands_still=True)) == []
    assert outcomes(puts.told(1, REFUSED, REFUSE_AFTER_S, stands_still=True)) == [PutUnconfirmed]
    assert len(puts) == 0


def test_what_is_stored_and_never_comes_is_given_up_before_the_engine_forgets_its_name():
    puts = pending()
    assert list(puts.told(1, Stored(5), 0.1)) == []
    assert list(puts.due(0.1 + TRY_S)) == [Publish(1, b"1")]
    assert outcomes(puts.told(1, Stored(5), GIVE_UP_AFTER_S)) == [PutUnconfirmed]
    assert list(puts.due(1000.0)) == []


def test_what_is_in_doubt_is_not_published_again_after_its_node_stood_still_for_long():
    puts = pending()
    assert list(puts.told(1, IN_DOUBT, 0.1)) == []
    assert outcomes(puts.due(GIVE_UP_AFTER_S + 30.0)) == [PutUnconfirmed]
    assert len(puts) == 0


def test_what_was_never_in_doubt_is_published_however_late_that_is():
    puts = pending()
    assert list(puts.told(1, REFUSED, 0.1)) == []
    assert list(puts.due(GIVE_UP_AFTER_S + 30.0)) == [Publish(1, b"1")]


def test_what_the_copy_has_got_by_another_way_is_given_up_at_once():
    puts = pending()
    assert list(puts.told(1, Stored(5), 0.1)) == []
    assert puts.passed(4, 1.0) == []
    assert outcomes(puts.passed(5, 1.0)) == [PutUnconfirmed]
    assert len(puts) == 0


def test_what_is_told_to_be_where_the_copy_is_behind_is_given_up_at_once():
    puts = pending()
    assert outcomes(puts.told(1, Stored(5), 0.1, copy_place=5)) == [PutUnconfirmed]
