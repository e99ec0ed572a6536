"""What an actor leaves is gone at once: nothing waits for the garbage collector, which is off."""

import gc
import logging
import threading
import weakref

import pytest

from poe.actors import NO_REPLY, Error, GenServer, IdleTimeout, LoopSystem, Reply, Stop
from poe.actors.actor_cell import ActorCell
from poe.actors.actor_table import ActorTable
from poe.actors.run_queue import RunQueue
from poe.errors import ActorDead, CallTimeout, StartFailed
from poe.testing import SimulatedClock
from tests.waiting import wait_until


class Payload:
    """Something that a message brings along."""


class Worker(GenServer):
    """Does what it is called with."""

    def handle_call(self, request, caller):
        self.last = caller
        return request(self)

    def handle_cast(self, message):
        return message(self)

    def handle_info(self, message):
        pass


class Patient(Worker):
    """Waits for what it does."""

    async def handle_call(self, request, caller):
        del caller
        return await request(self)


class Trapping(Worker):
    """Ends in good order."""

    trap_exits = True


class Unstarted(Worker):
    """Does not start."""

    def init(self):
        raise_boom(self)


def raise_boom(_):
    message = "boom"
    raise ValueError(message)


async def raise_later(worker):
    await worker.sleep(0)
    raise_boom(worker)


def call(system, ref, request, timeout_s=5.0):
    try:
        return system.call(ref, request, timeout_s)
    except (ActorDead, CallTimeout, ValueError) as error:
        return type(error)


def stopped(system):
    system.stop(system.start(Worker))


def stopped_by_itself(system):
    call(system, system.start(Trapping), lambda _: Stop("enough", 1))


def killed(system):
    system.exit(system.start(Worker), "kill")


def crashed(system):
    assert call(system, system.start(Worker), raise_boom) is ActorDead


def crashed_later(system):
    assert call(system, system.start(Patient), raise_later) is ActorDead


def crashed_in_cast(system):
    system.cast(system.start(Worker), raise_boom)


def crashed_while_handling(system):
    def wrap(worker):
        try:
            raise_boom(worker)
        except ValueError as error:
            raise RuntimeError from error

    call(system, system.start(Worker), wrap)


def refused(system):
    """The server lives on; its error has passed through its frames, which hold the call."""

    def refuse(worker):
        try:
            raise_boom(worker)
        except ValueError as error:
            return Error(error)

    ref = system.start(Worker)
    assert call(system, ref, refuse) is ValueError
    killed_ref(system, ref)


def called_when_dead(system):
    ref = system.start(Worker)
    system.stop(ref)
    assert call(system, ref, raise_boom) is ActorDead


def killed_while_it_waits(system):
    ref = system.start(Patient)
    assert call(system, ref, lambda worker: worker.sleep(100), 0.001) is CallTimeout
    system.cast(ref, raise_boom)
    killed_ref(system, ref)


def left_unanswered(system):
    ref = system.start(Worker)
    assert call(system, ref, lambda _: NO_REPLY, 0.001) is CallTimeout
    killed_ref(system, ref)


def caller_of_one_that_crashes(system):
    server, caller = system.start(Worker), system.start(Patient)

    async def ask(worker):
        try:
            await worker.call(server, raise_boom)
        except ActorDead:
            return 1

    assert call(system, caller, ask) == 1
    killed_ref(system, caller)


def parent_and_child(system):
    parent = system.start(Patient)
    call(system, parent, lambda worker: worker.start_link(Worker))
    system.stop(parent, "shutdown")


def watched(system):
    watcher, target = system.start(Worker), system.start(Worker)
    call(system, watcher, lambda worker: worker.monitor(target) and None)
    system.stop(target)
    system.stop(watcher)


def idle(system):
    ref = system.start(Worker)
    call(system, ref, lambda _: Reply(1, IdleTimeout(100.0)))
    killed_ref(system, ref)


def inspected(system):
    ref = system.start(Worker)
    system.inspect(ref)
    call(system, ref, lambda _: 1)
    killed_ref(system, ref)


def not_started(system):
    with pytest.raises(StartFailed):
        system.start(Unstarted)


def killed_ref(system, ref):
    system.exit(ref, "kill")


ENDINGS = [
    stopped,
    stopped_by_itself,
    killed,
    crashed,
    crashed_later,
    crashed_in_cast,
    crashed_while_handling,
    refused,
    called_when_dead,
    killed_while_it_waits,
    left_unanswered,
    caller_of_one_that_crashes,
    parent_and_child,
    watched,
    idle,
    inspected,
    not_started,
]


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_an_actor_that_has_ended_leaves_nothing_behind(end):
    made: list[weakref.ref[object]] = []

    class Watched(ActorTable):
        def enliven(self, cell, instance):
            made.extend((weakref.ref(instance), weakref.ref(cell.address)))
            super().enliven(cell, instance)

    actors = Watched(RunQueue(None if end in LIVE else SimulatedClock()))
    with LoopSystem(actors=actors) as system:
        before = count_cells()
        end(system)
        system.run_queue.run_ready()
        wait_until(lambda: [each() for each in made if each() is not None] == [])
        assert made
        assert count_cells() == before


LIVE = {crashed_later, killed_while_it_waits, left_unanswered}
"""Who waits needs time that passes."""


def count_cells():
    return sum(isinstance(each, ActorCell) for each in gc.get_objects())


@pytest.mark.usefixtures("uncollected")
def test_a_log_record_that_is_kept_does_not_keep_the_actor(caplog):
    with LoopSystem(clock=SimulatedClock()) as system, caplog.at_level(logging.ERROR):
        instances = []
        ref = system.start(Worker)
        call(system, ref, lambda worker: instances.append(weakref.ref(worker)))
        call(system, ref, raise_boom)
        assert instances[0]() is None
    assert "raise_boom" in caplog.text
    assert "ValueError: boom" in caplog.records[-1].exc_text


@pytest.mark.usefixtures("uncollected")
def test_a_request_goes_with_its_error():
    payload = Payload()
    seen = weakref.ref(payload)

    def refuse(_, held=payload):
        raise_boom(held)

    with LoopSystem(clock=SimulatedClock()) as system:
        assert call(system, system.start(Worker), refuse) is ActorDead
        del payload, refuse
        assert seen() is None


def test_an_exception_that_the_caller_is_handling_keeps_its_traceback():
    with LoopSystem(clock=SimulatedClock()) as system:
        ref = system.start(Worker)
        tracebacks = []
        try:
            raise_boom(None)
        except ValueError as mine:
            call(system, ref, raise_boom)
            tracebacks.append(mine.__traceback__)
        assert tracebacks != [None]


def test_the_address_of_an_actor_that_has_ended_is_the_same_as_long_as_somebody_has_it(system):
    ref = system.start(Worker)
    cell, text = ref.cell, str(ref)
    system.stop(ref)
    assert cell.address is ref
    with pytest.raises(ActorDead) as dead:
        system.call(ref, raise_boom)
    assert dead.value.ref is ref
    del ref, dead
    assert str(cell.address) == text
    assert cell.address.cell is cell


def test_who_waits_in_another_thread_leaves_nothing_either(live):
    gc.collect()
    gc.disable()
    try:
        ref = live.start(Worker)
        thread = threading.Thread(target=call, args=(live, ref, lambda _: NO_REPLY))
        thread.start()
        cell = ref.cell
        wait_until(lambda: live.get_status(ref).unanswered_count == 1)
        instance = weakref.ref(cell.instance)
        killed_ref(live, ref)
        thread.join()
        assert instance() is None
    finally:
        gc.enable()
