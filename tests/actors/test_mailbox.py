"""A bound for messages, none for signals, and nothing lost on the way out."""

import pytest

from poe.actors import ActorDead, MailboxFull, Monitor
from poe.actors.call import Call
from poe.actors.mailbox import Mailbox
from poe.actors.message import DownSignal, ExitSignal, SystemRequest
from tests.actors.puppet import Puppet


@pytest.fixture
def cell(system):
    return system.start(Puppet).cell


def test_calls_beyond_the_bound_are_refused_and_signals_are_not(cell):
    mailbox = Mailbox(cell, 1)
    refused = Call("request", None, cell, None)
    mailbox.put("first", None)
    mailbox.put(refused, None)
    kept = [
        ExitSignal(cell.address, "boom"),
        DownSignal(cell.address, "boom", Monitor(cell.address)),
        Call(SystemRequest("stop", "enough"), None, cell, None),
    ]
    for message in kept:
        mailbox.put(message, None)
    assert [message for message, _ in mailbox] == ["first", *kept]
    with pytest.raises(MailboxFull):
        refused.result()


def test_only_as_many_are_admitted_as_there_is_room_for_with_those_on_their_way(cell):
    mailbox = Mailbox(cell, 3)
    mailbox.put("first", None)
    mailbox.admit()
    mailbox.admit()
    with pytest.raises(MailboxFull) as full:
        mailbox.admit()
    assert (full.value.ref, full.value.mailbox_max) == (cell.address, 3)
    mailbox.put("second", None)  # one of those that were admitted
    with pytest.raises(MailboxFull):
        mailbox.admit()


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
