"""A bound for messages, none for signals, and nothing lost on the way out."""

import pytest

from poe.actors import ActorDead, Down, MailboxFull, Monitor
from poe.actors.call import Call
from poe.actors.mailbox import Mailbox
from poe.actors.message import ExitSignal, SystemRequest
from tests.actors.puppet import Puppet


@pytest.fixture
def cell(system):
    return system.start(Puppet).cell


def test_messages_beyond_the_bound_are_refused_and_signals_are_not(cell):
    mailbox = Mailbox(cell, 1)
    refused = Call("request", None, cell, None)
    mailbox.put("first", None)
    mailbox.put(refused, None)
    mailbox.put("second", None)
    kept = [
        ExitSignal(cell.address, "boom"),
        Down(cell.address, "boom", Monitor(cell.address)),
        Call(SystemRequest("stop", "enough"), None, cell, None),
    ]
    for message in kept:
        mailbox.put(message, None)
    assert [message for message, _ in mailbox] == ["first", *kept]
    with pytest.raises(MailboxFull):
        refused.result()


def test_take_removes_what_matches_and_keeps_the_order_of_the_rest(cell):
    mailbox = Mailbox(cell, 10)
    for number in range(6):
        mailbox.put(number, None)
    assert mailbox.take(lambda number: number % 2 == 0) == [0, 2, 4]
    assert mailbox.take(lambda number: number > 9) == []
    assert [number for number, _ in mailbox] == [1, 3, 5]


def test_giving_up_fails_every_call_that_waits(system, cell):
    mailbox = Mailbox(cell, 10)
    calls = [Call("request", None, cell, None) for _ in range(2)]
    for message in (calls[0], "message", calls[1]):
        mailbox.put(message, None)
    system.run_outside(lambda: mailbox.give_up(ActorDead(cell.address, "boom")))
    for call in calls:
        with pytest.raises(ActorDead):
            call.result()
    assert len(mailbox) == 0
