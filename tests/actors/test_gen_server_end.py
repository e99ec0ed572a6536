"""How a GenServer is suspended, inspected and ended."""

import pytest

from poe.actors import (
    IGNORE,
    KILL,
    NO_REPLY,
    ActorExit,
    CallTimeout,
    Continue,
    NotSuspended,
    Reply,
    StartFailed,
    Stop,
)
from poe.actors.message import SystemRequest
from poe.errors import ActorDead, NameTaken
from tests.actors.puppet import (
    Gate,
    Puppet,
    child_of,
    log_of,
    raise_boom,
    raise_boom_later,
    start_blocked,
)

# ---- suspend, resume, state ---------------------------------------------------------------------


def test_a_suspended_actor_keeps_its_messages_in_order_until_it_is_resumed(system):
    ref = system.start(Puppet)
    system.suspend(ref)
    system.suspend(ref)
    system.cast(ref, 1)
    system.run_queue.post_from_outside(ref.cell, 2, None)
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


class NoTruth:
    def __bool__(self):
        msg = "no truth value"
        raise ValueError(msg)


def ask_meanwhile(system, ref, *ops):
    """Send a busy actor requests of the runtime; return their calls."""
    return [system.run_queue.call_from_outside(ref.cell, SystemRequest(op)) for op in ops]


def test_what_was_asked_behind_a_suspend_while_the_actor_was_busy_is_served(system):
    ref, gate, log = start_blocked(system)
    system.cast(ref, 1)
    calls = ask_meanwhile(system, ref, "suspend", "get_state")
    system.cast(ref, 2)
    calls += ask_meanwhile(system, ref, "resume", "suspend", "suspend")
    system.cast(ref, 3)
    system.cast(gate, "open")
    assert all(call.is_done for call in calls)
    assert log == [("gate", "open"), ("cast", 1), ("cast", 2)]
    system.resume(ref)
    assert log[3:] == [("cast", 3)]


def test_an_actor_that_was_suspended_and_stopped_while_it_was_busy_ends(system):
    ref, gate, log = start_blocked(system)
    ask_meanwhile(system, ref, "suspend")
    late = system.run_queue.call_from_outside(ref.cell, "request")
    system.run_outside(lambda: system.actors.request_stop(ref.cell, "enough"))
    later = ask_meanwhile(system, ref, "get_state")
    system.cast(gate, "open")
    assert log == [("gate", "open"), ("terminate", "enough")]
    assert not system.is_alive(ref)
    assert [type(call.error) for call in (late, *later)] == [ActorDead, ActorDead]


def test_who_waits_behind_what_cuts_a_suspended_actor_short_hears_of_its_end(system):
    gate, ref = system.start(Gate), system.start(Puppet, trap_exits=True)

    async def wait(puppet):
        await puppet.call(gate, "wait", None)

    system.cast(ref, wait)
    ask_meanwhile(system, ref, "suspend")
    system.exit(ref, "boom")
    late = system.run_queue.call_from_outside(ref.cell, "request")
    ref.cell.instance.trap_exits = NoTruth()  # with which the signal is looked at once more
    system.cast(gate, "open")
    assert not system.is_alive(ref)
    assert type(late.error) is ActorDead


def test_an_actor_that_was_suspended_while_it_was_busy_obeys_its_parent(system):
    log: list[object] = []
    parent = system.start(Puppet, trap_exits=True)
    child = child_of(system, parent, log, trap_exits=True)
    gate = system.start(Gate)

    async def wait(puppet):
        await puppet.call(gate, "wait", None)

    system.cast(child, wait)
    ask_meanwhile(system, child, "suspend")
    system.call(parent, lambda puppet, _: puppet.exit(child, "shutdown"))
    system.cast(gate, "open")
    assert log == [("terminate", "shutdown")]


# ---- the end ------------------------------------------------------------------------------------


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


# ---- another code --------------------------------------------------------------------------------


class Versioned(Puppet):
    """Changes its log when its code is changed, and may fail half-way."""

    def code_change(self, argument):
        self.log = ["changed"]
        if argument == "fail":
            raise_boom(self)
        self.version = argument


def test_code_is_changed_while_the_actor_is_suspended(system):
    ref = system.start(Versioned)
    system.suspend(ref)
    system.change_code(ref, 2)
    system.resume(ref)
    state = system.get_state(ref)
    assert (state["log"], state["version"]) == (["changed"], 2)


def test_a_change_of_code_that_fails_changes_nothing(system):
    ref = system.start(Versioned)
    system.suspend(ref)
    with pytest.raises(ValueError, match="boom"):
        system.change_code(ref, "fail")
    state = system.get_state(ref)
    assert state["log"] == []
    assert "version" not in state


def test_code_is_not_changed_under_a_running_actor(system):
    ref = system.start(Versioned)
    with pytest.raises(NotSuspended):
        system.change_code(ref, 2)
    assert system.get_state(ref)["log"] == []


def test_an_actor_without_code_change_goes_on(system):
    ref = system.start(Puppet)
    system.suspend(ref)
    with pytest.raises(TypeError, match="no code_change"):
        system.change_code(ref)
    system.resume(ref)
    assert log_of(system, ref) == []


# ---- ends out of the depth, and results that mean nothing ----------------------------------------


def raise_exit(_):
    raise ActorExit("enough")


def reason_of_call(system, ref, action):
    with pytest.raises(ActorDead) as error:
        system.call(ref, action)
    return error.value.reason


def test_actor_exit_ends_with_its_reason_after_terminate(system):
    log: list[object] = []
    ref = system.start(Puppet, log)
    assert reason_of_call(system, ref, lambda *_: raise_exit(None)) == "enough"
    assert log == [("terminate", "enough")]


def test_actor_exit_in_terminate_replaces_the_reason(system):
    ref = system.start(Puppet, on_terminate=raise_exit)
    assert reason_of_call(system, ref, lambda *_: Stop("normal")) == "enough"


def test_actor_exit_in_init_is_the_reason_of_the_failed_start(system):
    with pytest.raises(StartFailed) as error:
        system.start(Puppet, on_init=raise_exit)
    assert error.value.reason == "enough"


def test_an_ignore_outside_init_ends_the_actor(system):
    log: list[object] = []
    ref = system.start(Puppet, log)
    assert reason_of_call(system, ref, lambda *_: IGNORE) == ("bad_return_value", IGNORE)
    assert log == [("terminate", ("bad_return_value", IGNORE))]


def test_a_reply_to_nobody_ends_the_actor(system):
    ref = system.start(Puppet)
    system.cast(ref, lambda _: Reply("to whom?", Continue("never")))
    assert not system.is_alive(ref)


def test_a_start_cannot_be_answered_later(system):
    with pytest.raises(StartFailed) as error:
        system.start(Puppet, on_init=lambda _: NO_REPLY)
    assert error.value.reason == ("bad_return_value", NO_REPLY)


async def sleep_for_ever(puppet):
    await puppet.sleep(1e9)


def test_killed_actor_leaves_no_timer_of_what_it_waited_for(system):
    ref = system.start(Puppet)
    system.cast(ref, sleep_for_ever)
    assert not system.run_queue.is_quiet()
    system.exit(ref, KILL)
    assert not system.is_alive(ref)
    assert system.run_queue.is_quiet()
