"""Actors that hibernate by themselves (gen_server_SUITE: auto_hibernate)."""

from poe.actors import IdleTimeout
from tests.actors.puppet import Puppet, log_of, start_blocked


class Sleeper(Puppet):
    hibernate_after_s = 2.0


def start_used(system):
    """Start a sleeper whose mailbox has been used at time 0."""
    ref, gate, log = start_blocked(system, Sleeper)
    system.cast(ref, "waits")
    system.cast(gate, 1)
    return ref, log


def has_mailbox(ref):
    return ref.cell.mailbox is not None


def test_an_idle_actor_hibernates_after_its_time_and_keeps_its_state(system):
    ref, log = start_used(system)
    state = system.get_state(ref)
    system.advance(1.9)
    assert has_mailbox(ref)
    assert system.get_state(ref) == state
    system.advance(1.9)
    assert has_mailbox(ref)  # the look at its state began the time anew
    system.advance(0.2)
    assert not has_mailbox(ref)
    assert system.get_state(ref) == state
    system.cast(ref, "morning")
    assert log[-1] == ("cast", "morning")


def test_each_message_begins_the_time_anew_with_one_timer_for_all(system):
    ref, _ = start_used(system)
    for _ in range(5):
        system.advance(1)
        system.cast(ref, "busy")
    assert has_mailbox(ref)
    system.advance(3)
    assert not has_mailbox(ref)
    assert system.run_queue.next_deadline_s() is None


def test_an_actor_that_waits_in_a_callback_does_not_hibernate(system):
    ref, gate, log = start_blocked(system, Sleeper)
    system.cast(ref, "waits")
    system.advance(10)
    assert has_mailbox(ref)
    system.cast(gate, 1)
    assert log == [("gate", 1), ("cast", "waits")]


class Dozer(Puppet):
    hibernate_after_s = 0


def test_nobody_looks_at_an_actor_that_waits_in_a_callback(system):
    """One that hibernates at once was looked at without a pause, and simulated time stood still."""
    ref, gate, log = start_blocked(system, Dozer)
    system.cast(ref, "waits")
    system.advance(10)
    assert system.run_queue.next_deadline_s() is None
    system.cast(gate, 1)
    assert log == [("gate", 1), ("cast", "waits")]
    system.advance(0)
    assert not has_mailbox(ref)


def test_an_idle_time_out_comes_as_ever(system):
    ref = system.start(Sleeper)
    system.cast(ref, lambda _: IdleTimeout(1))
    system.advance(5)
    assert len(log_of(system, ref)) == 1


def test_an_actor_that_has_ended_is_left_alone(system):
    ref, _ = start_used(system)
    system.exit(ref, "kill")
    system.advance(10)
    assert system.run_queue.next_deadline_s() is None
