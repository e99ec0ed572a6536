"""How a GenServer is suspended, inspected and ended."""

import pytest

from poe.actors import CallTimeout, Stop
from poe.errors import NameTaken
from tests.actors.puppet import (
    Puppet,
    child_of,
    log_of,
    raise_boom,
    raise_boom_later,
    start_blocked,
)

# ---- suspend, resume, state ----------------------------------------------------------------------


def test_a_suspended_actor_keeps_its_messages_in_order_until_it_is_resumed(system):
    ref = system.start(Puppet)
    system.suspend(ref)
    system.suspend(ref)
    system.cast(ref, 1)
    system.post_from_outside(ref.cell, 2, None)
    assert system.get_state(ref)["log"] == []
    system.resume(ref)
    system.resume(ref)
    assert log_of(system, ref) == [("cast", 1), ("info", 2)]


def test_the_state_can_be_replaced_while_suspended(system):
    ref = system.start(Puppet)
    system.suspend(ref)
    assert system.replace_state(ref, lambda state: {**state, "log": ["new"]})["log"] == ["new"]
    system.resume(ref)
    assert log_of(system, ref) == ["new"]


def test_a_failing_replacement_leaves_the_state_alone(system):
    ref = system.start(Puppet, ["old"])
    with pytest.raises(KeyError):
        system.replace_state(ref, lambda state: state["missing"])
    assert log_of(system, ref) == ["old"]


def test_a_suspended_actor_can_be_stopped_and_killed(system):
    log: list[object] = []
    ref = system.start(Puppet, log)
    system.suspend(ref)
    system.stop(ref, "enough")
    assert log == [("terminate", "enough")]
    ref = system.start(Puppet)
    system.suspend(ref)
    system.exit(ref, "kill")
    assert not system.is_alive(ref)


def test_a_suspended_actor_obeys_its_parent(system):
    log: list[object] = []
    parent = system.start(Puppet, trap_exits=True)
    child = child_of(system, parent, log, trap_exits=True)
    system.suspend(child)
    system.call(parent, lambda puppet, _: puppet.exit(child, "shutdown"))
    assert log == [("terminate", "shutdown")]


# ---- the end -------------------------------------------------------------------------------------


def test_stop_waits_for_the_callback_that_runs(system):
    ref, gate, log = start_blocked(system)

    async def open_later(puppet):
        await puppet.sleep(0)
        puppet.cast(gate, "open")

    system.cast(system.start(Puppet), open_later)
    stop_in_callback = []

    async def stop(puppet):
        monitor = puppet.monitor(ref)
        stop_in_callback.append(await puppet.wait_down(monitor))

    system.cast(system.start(Puppet), stop)
    with pytest.raises(CallTimeout):
        system.stop(ref, "enough", timeout_s=0.0)
    assert log == []
    system.advance(0)
    assert log == [("gate", "open"), ("terminate", "enough")]
    assert stop_in_callback == ["enough"]


def test_terminate_may_wait_and_the_actor_lives_until_it_is_done(system):
    async def clean_up(puppet):
        await puppet.sleep(1.0)
        puppet.log.append("cleaned up")

    log: list[object] = []
    ref = system.start(Puppet, log, on_terminate=clean_up)
    system.cast(ref, lambda _: Stop("enough"))
    system.cast(ref, "too late")
    assert system.is_alive(ref)
    system.advance(1.0)
    assert not system.is_alive(ref)
    assert log == [("terminate", "enough"), "cleaned up"]


def test_an_exception_in_terminate_becomes_the_reason(system):
    ref = system.start(Puppet, on_terminate=raise_boom)
    later = system.start(Puppet, on_terminate=raise_boom_later)

    async def watch(puppet):
        reasons = []
        for target in (ref, later):
            monitor = puppet.monitor(target)
            puppet.cast(target, lambda _: Stop("enough"))
            reasons.append(await puppet.wait_down(monitor))
        puppet.log.extend(reasons)

    watcher = system.start(Puppet)
    system.cast(watcher, watch)
    system.advance(0)
    assert [type(reason) for reason in log_of(system, watcher)] == [ValueError, ValueError]


def test_a_crash_is_logged_with_its_traceback_and_an_orderly_end_is_not(system, caplog):
    system.cast(system.start(Puppet), lambda _: Stop("normal"))
    system.cast(system.start(Puppet), lambda _: Stop(("shutdown", "because")))
    assert caplog.records == []
    system.cast(system.start(Puppet), raise_boom)
    (record,) = caplog.records
    assert record.exc_info[0] is ValueError
    assert "crashed: ValueError" in record.message


def test_a_name_is_free_before_anyone_hears_of_the_end(system):
    log: list[object] = []
    ref = system.start(Puppet, name="name")

    async def succeed(puppet):
        await puppet.wait_down(puppet.monitor(ref))
        log.append(puppet.whereis("name"))
        log.append(await puppet.start_link(Puppet, name="name") is not None)

    system.cast(system.start(Puppet), succeed)
    system.exit(ref, "kill")
    assert log == [None, True]


def test_a_taken_name_is_refused_before_anything_is_started(system):
    first = system.start(Puppet, name="name")
    log: list[object] = []
    with pytest.raises(NameTaken) as caught:
        system.start(Puppet, log, name="name", on_init=lambda puppet: puppet.log.append("ran"))
    assert caught.value.ref is first
    assert log == []
