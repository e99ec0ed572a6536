"""What the runtime tells of an actor: status, counts and log (sys_SUITE: stats, log, install)."""

import pytest

from poe.actors import IdleTimeout
from tests.actors.puppet import Puppet, log_of, raise_boom, start_blocked

SECRET = "a payload"


def test_the_status_tells_how_an_actor_is(system):
    parent = system.start(Puppet)

    async def start(puppet, _):
        ref = await puppet.start_link(Puppet, name="child")
        puppet.monitor(ref)
        return ref

    child = system.call(parent, start)
    status = system.get_status(child)
    assert (status.actor_class, status.name, status.parent) == ("Puppet", "child", parent)
    assert (status.links, status.monitors_count) == ({parent}, 1)
    assert (status.is_suspended, status.is_busy, status.mailbox_length) == (False, False, 0)
    assert (status.messages_in, status.log) == (None, ())


def test_the_status_of_a_suspended_actor_counts_what_waits(system):
    ref = system.start(Puppet)
    system.suspend(ref)
    system.cast(ref, SECRET)
    system.cast(ref, SECRET)
    status = system.get_status(ref)
    assert (status.is_suspended, status.mailbox_length) == (True, 2)


def test_an_inspected_actor_counts_and_keeps_the_last_messages_without_their_content(system):
    ref = system.start(Puppet)
    system.inspect(ref, log_max=2)
    system.cast(ref, SECRET)
    system.run_outside(lambda: ref.cell.post(SECRET))
    system.advance(1.5)
    caller = system.start(Puppet)

    async def ask(puppet, _):
        await puppet.call(ref, log_of_it)

    system.call(caller, ask)
    status = system.get_status(ref)
    assert status.messages_in == 3
    info, call = status.log
    assert (info.kind, info.at_s) == ("info str", 0)
    assert (call.kind, call.at_s, call.sender) == ("call function", 1.5, caller)
    assert SECRET not in str(status)


def log_of_it(puppet, _):
    return len(puppet.log)


def test_a_message_that_had_to_wait_is_counted_once_when_it_is_handled(system):
    ref, gate, log = start_blocked(system)
    system.suspend(gate)
    system.inspect(gate)
    system.cast(gate, "open")
    assert system.get_status(gate).messages_in == 0
    system.resume(gate)
    assert system.get_status(gate).messages_in == 1
    assert log == [("gate", "open")]
    assert not system.get_status(ref).is_busy


def test_after_an_inspection_an_actor_is_as_before(system):
    ref = system.start(Puppet)
    system.inspect(ref)
    state = system.get_state(ref)
    system.inspect(ref, None)
    system.cast(ref, "unseen")
    status = system.get_status(ref)
    assert (status.messages_in, status.log) == (None, ())
    assert system.get_state(ref) == state
    assert log_of(system, ref) == [("cast", "unseen")]


@pytest.mark.parametrize("is_first", [False, True])
def test_an_idle_time_out_goes_on_when_an_inspection_begins_or_ends(system, is_first):
    ref = system.start(Puppet)
    if is_first:
        system.inspect(ref)
    system.cast(ref, lambda _: IdleTimeout(1))
    system.inspect(ref, None if is_first else 10)
    system.advance(1)
    assert len(log_of(system, ref)) == 1
    system.cast(ref, "next")
    assert system.get_status(ref).messages_in == (None if is_first else 3)


def test_an_actor_that_crashes_while_it_is_inspected_ends(system):
    ref = system.start(Puppet)
    system.inspect(ref)
    system.cast(ref, raise_boom)
    assert not system.is_alive(ref)


def test_a_change_that_fails_restores_the_attributes_and_copies_nothing(system):
    ref = system.start(Puppet)
    system.call(ref, lambda puppet, _: setattr(puppet, "table", {"x": 1}))

    def change(state):
        state["table"]["x"] = 2
        state["table"] = {}
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        system.replace_state(ref, change)
    assert system.get_state(ref)["table"] == {"x": 2}
