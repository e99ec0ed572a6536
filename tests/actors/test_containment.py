"""Whatever is raised in one actor's turn ends that actor; another's caller never hears of it."""

import signal
import threading
from contextlib import suppress
from functools import partial

import pytest

from poe.actors import ActorDead, GenServer, StartFailed
from poe.supervision import ChildSpec, Supervisor, SupervisorFlags
from tests.actors.puppet import Puppet, log_of
from tests.waiting import wait_until


class Stranger(BaseException):
    """As pytest's `fail` and `skip`, and other libraries', have it."""


class NoTruth:
    def __bool__(self):
        msg = "no truth value"
        raise Stranger(msg)


class Untold(GenServer):
    """Raises in a place where no callback runs: when the runtime reads its setting."""

    @property
    def trap_exits(self):  # type: ignore[override]
        msg = "no such setting"
        raise Stranger(msg)


def raise_in_callback(error):
    def act(*_):
        raise error

    return act


def raise_after_await(error):
    async def act(puppet, *_):
        await puppet.sleep(0.001)
        raise error

    return act


ERRORS = [Stranger("x"), SystemExit(3), GeneratorExit(), ValueError("x")]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("act", [raise_in_callback, raise_after_await])
def test_any_exception_of_a_callback_is_the_reason_of_its_actor_s_end(live, act, error):
    ref, other = live.start(Puppet), live.start(Puppet)
    with pytest.raises(ActorDead) as dead:
        live.call(ref, act(error))
    assert dead.value.reason is error
    assert live.call(other, lambda *_: "well") == "well"


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_the_caller_of_another_actor_that_runs_it_by_the_way_does_not_hear_of_it(system, error):
    ref, other = system.start(Puppet), system.start(Puppet)

    def cast_on(puppet, _):
        puppet.cast(ref, raise_in_callback(error))
        return "answer"

    assert system.call(other, cast_on) == "answer"
    assert not system.is_alive(ref)
    assert system.is_alive(other)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_what_terminate_and_init_raise_stays_with_the_actor(system, error):
    ref = system.start(Puppet, on_terminate=raise_in_callback(error))
    system.stop(ref)
    assert not system.is_alive(ref)
    with pytest.raises(StartFailed) as failure:
        system.start(Puppet, on_init=raise_in_callback(error))
    assert failure.value.reason is error


def test_what_is_raised_where_no_callback_runs_ends_the_actor_and_its_calls(system, caplog):
    ref, other = system.start(Untold), system.start(Puppet)

    def signal_on(puppet, _):
        puppet.exit(ref, "boom")
        return "answer"

    assert system.call(other, signal_on) == "answer"
    assert not system.is_alive(ref)
    assert "was cut short" in caplog.text
    waiting = system.start(Puppet)
    system.suspend(waiting)
    type(waiting.cell.instance).trap_exits, before = NoTruth(), Puppet.trap_exits
    try:
        system.exit(waiting, "boom")
    finally:
        Puppet.trap_exits = before
    assert not system.is_alive(waiting)


def test_a_supervisor_replaces_an_actor_that_was_cut_short(system):
    spec = ChildSpec(id="child", actor=Puppet, name="child")
    system.start(Supervisor, SupervisorFlags(), [spec])
    system.cast("child", raise_in_callback(Stranger()))
    assert system.is_alive("child")


def test_whoever_is_told_of_an_end_from_outside_may_fail(system, caplog):
    ref, other = system.start(Puppet), system.start(Puppet)
    system.when_ended(ref, raise_in_callback(Stranger("told")))
    system.exit(ref, "boom")
    assert system.call(other, lambda *_: "well") == "well"
    assert "was cut short" in caplog.text


# ---- what is meant for the program ---------------------------------------------------------------


class TimeLimit(Exception):
    """As queues of jobs, and pytest-timeout, have it."""


class Raise:
    """A handler of signals: an object, which has a method, too."""

    def __init__(self, error):
        self.error = error

    def __call__(self, *_):
        raise self.error

    handle = __call__


def raise_it(error, *_):
    raise error


@pytest.fixture(
    params=[
        (error, make_handler)
        for error in (KeyboardInterrupt, SystemExit, TimeLimit)
        for make_handler in (
            raise_in_callback,
            Raise,
            lambda error: Raise(error).handle,
            lambda error: partial(raise_it, error),
            lambda error: partial(Raise(error)),
        )
    ]
)
def handler(request):
    """Raise something in the main thread when SIGUSR1 comes."""
    error, make_handler = request.param
    before = signal.signal(signal.SIGUSR1, make_handler(error))
    yield error
    signal.signal(signal.SIGUSR1, before)


def interrupt(*_):
    signal.raise_signal(signal.SIGUSR1)


async def interrupt_after_await(puppet, _):
    await puppet.call(puppet.log[0], interrupt)


def test_what_a_signal_handler_raises_reaches_the_main_thread_and_all_goes_on(live, handler):
    ref, other = live.start(Puppet), live.start(Puppet)
    with pytest.raises(handler):
        live.call(ref, interrupt)
    assert not live.is_alive(ref)
    assert live.call(other, lambda *_: "well") == "well"
    inner = live.start(Puppet)
    outer = live.start(Puppet, [inner])
    with pytest.raises(handler):
        live.call(outer, interrupt_after_await)
    assert not live.is_alive(inner)
    assert live.call(other, lambda *_: "well") == "well"
    live.cast(other, lambda puppet: puppet.send_after(0.001, "timers go on"))
    wait_until(lambda: ("info", "timers go on") in log_of(live, other))


def test_it_reaches_the_main_thread_that_ran_another_actor_by_the_way(live, handler):
    ref, other = live.start(Puppet), live.start(Puppet)
    with pytest.raises(handler):
        live.call(other, lambda puppet, _: puppet.cast(ref, interrupt))
    assert not live.is_alive(ref)
    assert live.is_alive(other)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_in_another_thread_it_is_a_crash_like_any_other(live, error):
    ref, told = live.start(Puppet), []

    def call():
        with suppress(ActorDead):
            live.call(ref, raise_in_callback(error))
        told.append("went on")

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(10)
    assert told == ["went on"]
    assert not live.is_alive(ref)


def test_sys_exit_in_a_callback_ends_the_actor_and_not_the_program(live):
    ref = live.start(Puppet)
    with pytest.raises(ActorDead) as dead:
        live.call(ref, raise_in_callback(SystemExit(1)))
    assert isinstance(dead.value.reason, SystemExit)
