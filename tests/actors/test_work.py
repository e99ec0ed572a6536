"""Blocking functions beside the actors: the actor goes on meanwhile, and hears of the end."""

import sys
import threading
import weakref
from functools import partial

import pytest

from poe.actors import GenServer, LoopSystem, Work
from poe.actors.work import WORK_RUNNING_MAX, Threads
from poe.testing import SimulatedClock
from tests.actors.puppet import Puppet, log_of
from tests.forks import exit_code_of, fork
from tests.waiting import wait_until


class Worker(GenServer):
    """Runs what it is called with by a thread, and keeps what came back."""

    def init(self, begun, done):
        self.begun = begun
        self.done = done

    def handle_call(self, request, caller):
        if request == "ping":
            return "pong"
        if request == "wait for many":
            self.begun += [Work(self, do_nothing) for _ in range(100)]
            self.begun[-1].wait()
            return "waited"
        self.begun.append(Work(self, request))
        if request is not wait_for_it:
            return None
        self.begun[-1].wait()
        return "waited"

    def handle_info(self, message):
        self.done.append(message)


def wait_for_it():
    """Do what the actor itself waits for."""


def do_nothing():
    pass


def fail():
    raise OSError(5, "Input/output error")


@pytest.fixture
def system():
    system = LoopSystem()
    yield system
    system.shutdown()


@pytest.fixture
def begun():
    return []


@pytest.fixture
def done():
    return []


@pytest.fixture
def worker(system, begun, done):
    return system.start(Worker, begun, done)


def test_the_actor_answers_while_a_thread_works_and_gets_the_work_back(system, worker, begun, done):
    gate = threading.Event()
    system.call(worker, gate.wait)
    assert system.call(worker, "ping") == "pong"
    assert done == []
    gate.set()
    wait_until(lambda: done == begun)
    assert done[0].error is None


def test_what_the_function_raises_is_the_error_of_the_work(system, worker, done):
    system.call(worker, fail)
    wait_until(lambda: done)
    assert str(done[0].error) == "[Errno 5] Input/output error"
    assert system.is_alive(worker)


def test_a_function_that_leaves_by_sys_exit_is_heard_of_and_costs_no_thread(system, worker, done):
    for _ in range(WORK_RUNNING_MAX + 1):
        system.call(worker, sys.exit)
    wait_until(lambda: len(done) == WORK_RUNNING_MAX + 1)
    assert {type(each.error) for each in done} == {SystemExit}
    assert system.call(worker, wait_for_it) == "waited"


def test_an_actor_may_wait_for_its_work_and_still_hears_of_it(system, worker, done):
    assert system.call(worker, wait_for_it) == "waited"
    wait_until(lambda: done)


def test_an_actor_may_wait_for_the_last_of_more_works_than_there_are_threads(
    system, worker, begun, done
):
    """The threads once waited for the actors, one of which waited for a work without a thread."""
    assert system.call(worker, "wait for many") == "waited"
    wait_until(lambda: len(done) == 100)
    assert set(done) == set(begun)


def test_without_another_thread_those_that_are_there_do_the_work(
    system, worker, begun, done, monkeypatch
):
    assert system.call(worker, wait_for_it) == "waited"
    wait_until(lambda: done)
    gate = threading.Event()
    monkeypatch.setattr(threading.Thread, "start", start_none)
    for _ in range(40):  # more than there may be threads
        system.call(worker, gate.wait)
    gate.set()
    wait_until(lambda: len(done) == 41)
    assert set(done) == set(begun)


def test_once_the_system_gives_threads_again_nothing_waits_for_what_hangs(monkeypatch):
    threads, gate, done = Threads("poe-test", 8), threading.Event(), threading.Semaphore(0)
    threads.submit(gate.wait)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_none)
        for _ in range(4):  # they wait for the one thread that is there
            threads.submit(done.release)
    gate.set()
    assert all(done.acquire(timeout=20) for _ in range(4))
    hangs = threading.Event()
    threads.submit(hangs.wait)
    threads.submit(done.release)
    assert done.acquire(timeout=20)
    hangs.set()


def test_work_for_which_there_was_no_thread_keeps_no_other_from_one(system, monkeypatch):
    monkeypatch.setattr("poe.actors.work._shares._threads", Threads("poe-test", 8))
    puppet = system.start(Puppet)
    system.run_queue.event_loop()

    def try_in_vain(puppet, _):
        for _ in range(WORK_RUNNING_MAX):
            with pytest.raises(RuntimeError, match="new thread"):
                Work(puppet, do_nothing)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_none)
        system.call(puppet, try_in_vain)
    work = system.call(puppet, lambda puppet, _: Work(puppet, do_nothing))
    wait_until(lambda: log_of(system, puppet) == [("info", work)])


def start_none(_thread):
    msg = "can't start new thread"
    raise RuntimeError(msg)


def test_work_whose_actor_has_ended_is_told_to_nobody(system, worker):
    gate = threading.Event()
    other = system.start(Worker, [], [])
    system.call(worker, gate.wait)
    system.exit(worker, "kill")
    gate.set()
    system.call(other, wait_for_it)
    assert system.call(other, "ping") == "pong"


def test_what_no_thread_has_begun_is_taken_back_and_never_done(system, worker, begun, done):
    waiting = []

    class Later:
        """Threads that have no time yet."""

        def submit(self, job):
            waiting.append(job)

    called: list[str] = []
    system.call(worker, do_nothing)
    actor = worker.cell.instance
    function = partial(called.append, "taken back")
    held = weakref.ref(function)
    taken_back = Work(actor, function, Later())
    kept = Work(actor, partial(called.append, "kept"), Later())
    del function
    assert taken_back.withdraw()
    assert held() is None, "it may hold files"
    taken_back.wait()
    for job in waiting:
        job()
    assert called == ["kept"]
    assert not kept.withdraw()
    wait_until(lambda: kept in done)
    assert taken_back not in done


def test_in_simulated_time_the_work_is_done_at_once_and_told_afterwards(begun, done):
    system = LoopSystem(clock=SimulatedClock())
    before = set(threading.enumerate())
    worker = system.start(Worker, begun, done)
    assert worker is not None
    ran_in: list[threading.Thread] = []
    system.call(worker, lambda: ran_in.append(threading.current_thread()))
    assert ran_in == [threading.current_thread()]
    assert done == begun
    assert not set(threading.enumerate()) - before
    system.shutdown()


def test_a_process_that_was_forked_has_threads_of_its_own(system, worker, done):
    """Those of its parent are not there, though the memory says that they wait for work."""
    system.call(worker, do_nothing)
    wait_until(lambda: done)

    def have_work_done():
        own = LoopSystem()
        other = own.start(Worker, [], [])
        assert other is not None
        assert own.call(other, wait_for_it) == "waited"

    assert exit_code_of(fork(have_work_done)) == 0
