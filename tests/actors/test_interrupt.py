"""Ctrl-C in a thread that runs actors: the interrupted actor ends, everything else goes on."""

import pytest

from poe.actors import GenServer, IdleTimeout, LoopSystemBase, SimulatedClock
from poe.supervision import ChildSpec, Supervisor, SupervisorFlags


class Interrupted(GenServer):
    def init(self):
        self.served = 0

    def handle_call(self, request, caller):
        if request == "interrupt":
            raise KeyboardInterrupt
        self.served += 1
        return self.served


class Idle(GenServer):
    def init(self):
        return IdleTimeout(0.5)

    def handle_info(self, message):
        raise KeyboardInterrupt


class Asker(GenServer):
    async def handle_call(self, request, caller):
        return await self.call(request, "interrupt")


@pytest.fixture
def system():
    system = LoopSystemBase()
    yield system
    system.shutdown()


def test_the_interrupted_actor_ends_and_the_caller_sees_the_interrupt(system):
    ref, other = system.start(Interrupted), system.start(Interrupted)
    with pytest.raises(KeyboardInterrupt):
        system.call(ref, "interrupt")
    assert not system.is_alive(ref)
    assert system.call(other, "more") == 1


def test_an_interrupt_within_nested_calls_ends_all_that_were_cut_short(system):
    ref, asker = system.start(Interrupted), system.start(Asker)
    with pytest.raises(KeyboardInterrupt):
        system.call(asker, ref)
    assert not system.is_alive(ref)
    assert not system.is_alive(asker)


def test_a_supervisor_replaces_the_interrupted_child(system):
    spec = ChildSpec(id="child", actor=Interrupted, name="child")
    system.start(Supervisor, SupervisorFlags(), [spec])
    with pytest.raises(KeyboardInterrupt):
        system.call("child", "interrupt")
    system.run_ready()
    assert system.call("child", "again") == 1


def test_an_interrupt_between_lock_and_work_is_healed_by_the_next_call(system):
    ref = system.start(Interrupted)
    system._enter()  # noqa: SLF001 - as if Ctrl-C had come right after it
    assert system.call(ref, "more") == 1
    assert not system.is_running_here()


def test_an_interrupt_while_a_time_out_is_handled_ends_the_actor():
    system = LoopSystemBase(clock=SimulatedClock())
    ref = system.start(Idle)
    assert ref is not None
    with pytest.raises(KeyboardInterrupt):
        system.advance(1.0)
    assert not system.is_alive(ref)
