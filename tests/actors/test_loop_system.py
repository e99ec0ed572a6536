"""What application threads do with a system: start, stop, and the end of it all."""

import threading
from typing import Any

import pytest

from poe.actors import NO_REPLY, ActorDead, CallTimeout, LoopSystem, SystemShutDown
from poe.testing import SimulatedClock
from tests.actors.puppet import PinnedPuppet, Puppet, child_of
from tests.waiting import wait_until


def test_stop_terminates_with_the_reason_and_returns_when_the_actor_is_gone(system):
    log: list[object] = []
    ref = system.start(Puppet, log)
    system.stop(ref, "enough")
    assert not system.is_alive(ref)
    assert log == [("terminate", "enough")]


def test_stop_of_a_dead_actor_tells_so_at_once(system):
    ref = system.start(Puppet)
    system.stop(ref)
    with pytest.raises(ActorDead, match="noproc"):
        system.stop(ref)
    assert not system.is_alive(ref)


def test_stop_gives_up_waiting_but_the_actor_still_ends(system):
    async def hang(puppet):
        await puppet.sleep(10.0)

    ref = system.start(Puppet, on_terminate=hang)
    with pytest.raises(CallTimeout):
        system.stop(ref, timeout_s=0.0)
    assert system.is_alive(ref)
    system.advance(10.0)
    assert not system.is_alive(ref)


def test_an_exit_from_outside_ends_an_actor_that_was_started_from_outside(system):
    log: list[object] = []
    ref = system.start(Puppet, log, trap_exits=True)
    system.exit(ref, "shutdown")
    assert log == [("terminate", "shutdown")]


def test_an_exit_from_outside_is_a_message_for_somebodys_trapping_child(system):
    parent = system.start(Puppet)
    child = child_of(system, parent, trap_exits=True)
    system.exit(child, "boom")
    assert system.is_alive(child)


def test_shutdown_ends_every_actor_and_every_thread():
    before = set(threading.enumerate())
    base: Any = LoopSystem()
    refs = [base.start(Puppet), base.start(PinnedPuppet), base.start(Puppet)]
    base.call(refs[0], lambda puppet, _: puppet.send_after(60.0, "never") and None)
    assert set(threading.enumerate()) - before
    base.shutdown()
    assert not set(threading.enumerate()) - before
    assert not any(base.is_alive(ref) for ref in refs)
    base.shutdown()


def test_shutdown_answers_a_thread_that_waits_for_a_reply():
    base: Any = LoopSystem()
    server = base.start(Puppet)
    is_asked = threading.Event()
    reasons: list[object] = []

    def ask():
        def wait(*_):
            is_asked.set()
            return NO_REPLY

        with pytest.raises(ActorDead) as caught:
            base.call(server, wait, None)
        reasons.append(caught.value.reason)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(is_asked.is_set)
    base.shutdown()
    thread.join()
    assert reasons == ["killed"]


def test_shutdown_tells_of_each_end_however_many_there_are():
    base, reasons = LoopSystem(), list[object]()
    refs = [base.start(Puppet) for _ in range(10_000)]
    for ref in refs:
        assert ref is not None
        base.when_ended(ref, reasons.append)
    base.shutdown()
    assert reasons == ["killed"] * len(refs)


@pytest.mark.parametrize("puppet_class", [Puppet, PinnedPuppet])
def test_a_call_after_shutdown_fails_at_once(puppet_class):
    base: Any = LoopSystem()
    ref = base.start(puppet_class)
    base.shutdown()
    with pytest.raises(ActorDead):
        base.call(ref, "request", None)


def test_an_actor_that_is_started_while_a_system_shuts_down_is_refused(monkeypatch):
    base = LoopSystem()
    run_outside, refusals = base.run_queue.run_outside, []

    def let_another_thread_in(action):
        run_outside(action)
        with pytest.raises(SystemShutDown) as caught:
            base.start(Puppet)
        refusals.append(caught.value)

    monkeypatch.setattr(base.run_queue, "run_outside", let_another_thread_in)
    base.shutdown()
    assert len(refusals) == 1


def test_shutdown_inside_an_actor_comes_when_the_actor_is_done(live):
    ref = live.start(Puppet)
    assert live.call(ref, lambda *_: live.shutdown() or "done") == "done"
    wait_until(lambda: not live.is_alive(ref))


def test_shutdown_closes_callbacks_that_still_wait():
    base: Any = LoopSystem(clock=SimulatedClock())
    log: list[object] = []

    async def wait(puppet):
        try:
            await puppet.sleep(10.0)
        finally:
            log.append("closed")

    base.cast(base.start(Puppet), wait)
    base.shutdown()
    assert log == ["closed"]


def test_two_systems_share_nothing():
    first = LoopSystem(clock=SimulatedClock())
    second = LoopSystem(clock=SimulatedClock())
    first.start(Puppet, name="name")
    assert second.whereis("name") is None
    second.start(Puppet, name="name")
    first.shutdown()
    assert second.whereis("name") is not None
    second.shutdown()
