"""A message to a full mailbox is an error to its sender, whoever that is, and never just lost."""

import pytest
from thespian.actors import Actor

from poe.actors import MailboxFull
from tests.actors.puppet import Puppet, SmallPuppet, log_of, start_blocked
from tests.thespian.loop import thespians


def fill(system, **kwargs):
    """Start an actor that is busy, and whose mailbox is full."""
    ref, gate, log = start_blocked(system, SmallPuppet, **kwargs)
    system.cast(ref, 1)
    system.cast(ref, 2)
    return ref, gate, log


WAYS = {
    "cast": lambda system, ref: system.cast(ref, "too many"),
    "call": lambda system, ref: system.call(ref, "too many"),
    "tell": lambda system, ref: thespians.actor_system_of(system).tell(ref, "too many"),
    "ask": lambda system, ref: thespians.actor_system_of(system).ask(ref, "too many", 0.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_application_thread_is_told_at_once(system, way):
    ref, gate, log = fill(system)
    for _ in range(3):
        with pytest.raises(MailboxFull) as full:
            WAYS[way](system, ref)
        assert (full.value.ref, full.value.mailbox_max) == (ref, 2)
    system.cast(gate, "open")
    assert log == [("gate", "open"), ("cast", 1), ("cast", 2)]
    system.cast(ref, 3)
    assert log[-1] == ("cast", 3)


def test_a_suspended_actor_has_a_full_mailbox_too(system):
    ref = system.start(SmallPuppet)
    system.suspend(ref)
    system.cast(ref, 1)
    system.cast(ref, 2)
    with pytest.raises(MailboxFull):
        system.cast(ref, 3)
    system.resume(ref)
    system.cast(ref, 4)
    assert log_of(system, ref) == [("cast", 1), ("cast", 2), ("cast", 4)]


def test_an_actor_is_told_at_once_also_of_what_has_not_arrived(system):
    ref, gate, log = start_blocked(system, SmallPuppet)
    sender = system.start(Puppet)

    def flood(puppet, _):
        sent = 0
        try:
            for sent in range(10):
                puppet.cast(ref, sent)
        except MailboxFull:
            return sent
        return None

    assert system.call(sender, flood) == 2
    system.cast(gate, "open")
    assert [entry[1] for entry in log] == ["open", 0, 1]


def test_an_actor_that_does_not_mind_ends_alone(system):
    ref, gate, _ = fill(system)
    sender = system.start(Puppet)
    system.cast(sender, lambda puppet: puppet.cast(ref, "too many"))
    assert not system.is_alive(sender)
    assert system.is_alive(ref)
    system.cast(gate, "open")
    assert len(log_of(system, ref)) == 3


def test_to_itself_an_actor_sends_no_more_either(system):
    gate, ref = fill(system)[1::-1]

    async def wait_and_cast(puppet):
        await puppet.call(gate, "wait", None)
        with pytest.raises(MailboxFull):
            puppet.cast(puppet.ref, "too many")

    system.cast(gate, "open")
    system.cast(ref, wait_and_cast)
    system.cast(ref, 3)
    system.cast(ref, 4)
    system.cast(gate, "open")
    assert system.is_alive(ref)


class Plain(Actor):  # type: ignore[misc]  # Thespian is untyped
    """Sends on what it gets to whom it got first; counts what it was given."""

    def __init__(self):
        self.got = []
        self.target = None

    def receiveMessage(self, message, sender):  # noqa: N802 - Thespian's name
        if self.target is None:
            self.target = message
        elif message == "what?":
            self.send(sender, self.got)
        else:
            self.got.append(message)
            if not isinstance(message, MailboxFull):
                self.send(self.target, message)


def test_a_plain_actor_gets_the_error_as_a_message_and_is_not_run_again(system):
    ref, _, _ = fill(system)
    plain = thespians.actor_system_of(system).createActor(Plain)
    thespians.actor_system_of(system).tell(plain, ref)
    thespians.actor_system_of(system).tell(plain, "too many")
    got = thespians.actor_system_of(system).ask(plain, "what?", 0.0)
    assert [type(each) for each in got] == [str, MailboxFull]


def test_timers_signals_and_requests_of_the_runtime_are_never_refused(system):
    child: list[object] = []
    ref, gate, log = start_blocked(system, SmallPuppet, trap_exits=True)

    async def wait_again(puppet):
        puppet.send_after(1, "tick")
        child.append(await puppet.start_link(Puppet))
        puppet.monitor(child[0])
        await puppet.call(gate, "wait", None)

    system.cast(ref, wait_again)
    system.cast(gate, "open")
    system.cast(ref, 1)
    system.cast(ref, 2)
    system.advance(2)
    system.exit(child[0], "boom")
    with pytest.raises(MailboxFull):
        system.cast(ref, 3)
    system.cast(gate, "open")
    kinds = [type(entry[1]).__name__ for entry in log]
    assert kinds == ["str", "int", "int", "str", "Exit", "Down"]


def test_room_is_counted_anew_once_the_mailbox_was_served(system):
    ref, gate, log = fill(system)
    for number in range(5):
        system.cast(gate, "open")
        wait = start_wait(gate)
        system.cast(ref, wait)
        system.cast(ref, ("a", number))
        system.cast(ref, ("b", number))
        with pytest.raises(MailboxFull):
            system.cast(ref, "too many")
    system.cast(gate, "open")
    assert [entry[1] for entry in log if isinstance(entry[1], tuple)] == [
        (letter, number) for number in range(5) for letter in "ab"
    ]


def start_wait(gate):
    async def wait(puppet):
        await puppet.call(gate, "wait", None)

    return wait
