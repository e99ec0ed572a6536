"""An actor that asks for it hears when nothing comes for a while, or sleeps with little memory."""

import pytest

from poe.actors import HIBERNATE, NO_REPLY, TIMED_OUT, Call, Continue, IdleTimeout, Reply, Stop
from poe.actors.message import SystemRequest
from poe.errors import InvalidTimeout
from tests.actors.puppet import PinnedPuppet, Puppet, log_of, start_blocked
from tests.waiting import wait_until

TIME_OUT = ("info", TIMED_OUT)


def start_idle(system, after_s=1.0, **kwargs):
    """Start a puppet whose `init` asks for an idle time-out, and its log."""
    log: list[object] = []
    return system.start(Puppet, log, on_init=lambda _: IdleTimeout(after_s), **kwargs), log


# ---- which results ask for it --------------------------------------------------------------------


async def later(puppet):
    await puppet.sleep(0)
    return IdleTimeout(1.0)


@pytest.mark.parametrize("result", [lambda _: IdleTimeout(1.0), later])
@pytest.mark.parametrize("way", ["init", "cast", "info", "call"])
def test_each_callback_may_ask_for_an_idle_time_out(system, way, result):
    log: list[object] = []
    if way == "init":
        system.cast(
            system.start(Puppet), lambda parent: parent.start_link(Puppet, log, on_init=result)
        )
        system.advance(0)
    ref = system.start(Puppet, log)
    if way == "cast":
        system.cast(ref, result)
    elif way == "info":
        system.run_queue.post_from_outside(ref.cell, result, None)
    elif way == "call":
        system.cast(system.start(Puppet), lambda puppet: puppet.call(ref, lambda p, _: result(p)))
    system.advance(0.99)
    assert log == []
    system.advance(0.02)
    assert log == [TIME_OUT]
    system.advance(10)
    assert log == [TIME_OUT], "it comes once"


def test_a_reply_may_come_with_an_idle_time_out(system):
    ref, log = start_idle(system, 100)
    assert system.call(ref, lambda *_: Reply("now", IdleTimeout(1.0))) == "now"
    system.advance(1)
    assert log == [TIME_OUT]


def test_an_answer_that_comes_later_may_be_waited_for_with_an_idle_time_out(system):
    server = system.start(Puppet)
    waiting = []

    def keep(_, caller):
        waiting.append(caller)
        return Reply(NO_REPLY, IdleTimeout(1.0))

    caller = system.start(Puppet)

    async def ask(puppet):
        puppet.log.append(await puppet.call(server, keep, None))

    system.cast(caller, ask)
    system.advance(1)
    assert log_of(system, server) == [TIME_OUT]
    system.cast(server, lambda puppet: puppet.reply(waiting[0], "late"))
    assert log_of(system, caller) == ["late"]


def test_it_may_follow_a_continue(system):
    log: list[object] = []
    system.start(Puppet, log, on_init=lambda _: Continue(lambda _: IdleTimeout(1.0)))
    system.advance(1)
    assert log == [TIME_OUT]


@pytest.mark.parametrize("after_s", [-1, float("inf"), float("nan"), 10**400, "5", None, True])
def test_a_time_that_never_comes_is_refused(after_s):
    with pytest.raises(InvalidTimeout, match="use 0 or more seconds"):
        IdleTimeout(after_s)


# ---- what ends it --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["cast", "info", "call"])
def test_any_message_ends_it(system, way):
    ref, log = start_idle(system)
    system.advance(0.5)
    if way == "cast":
        system.cast(ref, "message")
    elif way == "info":
        system.run_queue.post_from_outside(ref.cell, "message", None)
    else:
        system.call(ref, lambda *_: None)
    system.advance(10)
    assert TIME_OUT not in log


def test_a_message_may_ask_for_it_again(system):
    ref, log = start_idle(system)
    for _ in range(5):
        system.advance(0.9)
        system.cast(ref, lambda _: IdleTimeout(1.0))
    assert log == []
    system.advance(1)
    assert log == [TIME_OUT]


def test_at_zero_it_comes_only_if_nothing_is_on_its_way(system):
    ref = system.start(Puppet)

    def hurry(puppet):
        puppet.cast(puppet.ref, "first")
        return IdleTimeout(0)

    system.cast(ref, hurry)
    assert log_of(system, ref) == [("cast", "first")]
    system.cast(ref, lambda _: IdleTimeout(0))
    assert log_of(system, ref) == [("cast", "first"), TIME_OUT]


def test_what_waited_while_the_callback_did_comes_first(system):
    ref, gate, log = start_blocked(system)

    async def wait_again(puppet):
        await puppet.call(gate, "wait", None)
        return IdleTimeout(0)

    system.cast(ref, wait_again)
    system.cast(ref, "waited")
    system.cast(gate, 1)
    system.cast(gate, 2)
    system.advance(10)
    assert log == [("gate", 1), ("cast", "waited")]


def test_an_ignored_exit_signal_is_no_message(system):
    ref, log = start_idle(system)
    system.advance(0.5)
    system.exit(ref, "normal")
    system.advance(0.5)
    assert log == [TIME_OUT]


def test_a_trapped_exit_signal_is_a_message(system):
    ref, log = start_idle(system, trap_exits=True)
    system.exit(ref, "boom")
    system.advance(10)
    assert len(log) == 1
    assert TIME_OUT not in log


def test_a_notice_of_an_end_that_is_told_to_nobody_is_no_message(system):
    watched = system.start(Puppet)
    ref, log = start_idle(system, 100)

    def watch_and_regret(puppet):
        monitor = puppet.monitor(watched)
        watched.cell.end("boom")  # its notice is queued now
        puppet.demonitor(monitor)
        return IdleTimeout(1.0)

    system.cast(ref, watch_and_regret)
    system.advance(1)
    assert log == [TIME_OUT]


def test_a_notice_of_an_end_that_was_waited_for_is_no_message(system):
    watched = system.start(Puppet)
    ref, gate, log = start_blocked(system)

    async def wait_twice(puppet):
        monitor = puppet.monitor(watched)
        await puppet.call(gate, "wait", None)  # meanwhile the notice comes into the mailbox
        await puppet.wait_down(monitor)
        return IdleTimeout(1.0)

    system.cast(ref, wait_twice)
    system.cast(gate, 1)
    system.exit(watched, "kill")
    system.cast(gate, 2)
    system.advance(1)
    assert log == [("gate", 1), TIME_OUT]


def test_the_exit_of_an_actor_that_is_unlinked_meanwhile_is_no_message(system):
    linked = system.start(Puppet)
    ref, log = start_idle(system, 100, trap_exits=True)

    def link_and_regret(puppet):
        puppet.link(linked)
        linked.cell.end("boom")  # its exit is queued now
        puppet.unlink(linked)
        return IdleTimeout(1.0)

    system.cast(ref, link_and_regret)
    system.advance(1)
    assert log == [TIME_OUT]


# ---- requests of the runtime ---------------------------------------------------------------------


def test_a_look_at_the_state_starts_it_over(system):
    ref, log = start_idle(system)
    system.advance(0.5)
    system.get_state(ref)
    system.advance(0.99)
    assert log == []
    system.advance(0.02)
    assert log == [TIME_OUT]


def test_it_does_not_come_while_the_actor_is_suspended(system):
    ref, log = start_idle(system)
    system.suspend(ref)
    system.advance(10)
    assert log == []
    system.resume(ref)
    system.advance(0.99)
    assert log == []
    system.advance(0.02)
    assert log == [TIME_OUT]


def test_what_came_while_the_actor_was_suspended_ends_it(system):
    ref, log = start_idle(system)
    system.suspend(ref)
    system.cast(ref, "message")
    system.resume(ref)
    system.advance(10)
    assert log == [("cast", "message")]


# ---- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["kill", "boom", "normal"])
def test_an_actor_that_ends_leaves_no_time_out_behind(system, reason):
    async def slow_end(puppet):
        await puppet.sleep(5)

    ref, log = start_idle(system, on_terminate=slow_end)
    if reason == "normal":
        system.run_outside(lambda: ref.cell.post(stop_request()))
    else:
        system.exit(ref, reason)
    system.advance(10)
    assert not system.is_alive(ref)
    assert TIME_OUT not in log
    assert system.run_queue.is_quiet()


def stop_request():
    return Call(SystemRequest("stop", "normal"), None, None, None)


def test_a_suspended_actor_with_a_time_out_still_obeys_its_parent(system):
    parent = system.start(Puppet)

    async def start(puppet, _):
        return await puppet.start_link(
            Puppet, trap_exits=True, on_init=lambda _: IdleTimeout(1.0), on_terminate=wait_a_little
        )

    child = system.call(parent, start)
    system.suspend(child)
    system.call(parent, lambda puppet, _: puppet.exit(child, "shutdown"))
    system.advance(1)
    assert not system.is_alive(child)


async def wait_a_little(puppet):
    await puppet.sleep(0.1)


def test_the_time_out_may_stop_the_actor(system):
    class Impatient(Puppet):
        def handle_info(self, message):
            return Stop("bored") if message is TIMED_OUT else None

    log: list[object] = []
    ref = system.start(Impatient, log, on_init=lambda _: IdleTimeout(1.0))
    system.advance(1)
    assert not system.is_alive(ref)
    assert log == [("terminate", "bored")]


@pytest.mark.parametrize("puppet_class", [Puppet, PinnedPuppet])
@pytest.mark.parametrize("after_s", [0, 0.01])
def test_it_comes_in_real_time(live, puppet_class, after_s):
    log: list[object] = []
    live.start(puppet_class, log, on_init=lambda _: IdleTimeout(after_s))
    wait_until(lambda: log == [TIME_OUT])


# ---- hibernation ---------------------------------------------------------------------------------


def test_an_actor_that_hibernates_keeps_its_state_and_nothing_else(system):
    ref, gate, log = start_blocked(system)
    system.cast(ref, "waits")
    assert ref.cell.mailbox is not None
    system.cast(gate, 1)
    state = system.get_state(ref)
    assert system.call(ref, lambda *_: Reply("good night", HIBERNATE)) == "good night"
    assert ref.cell.mailbox is None
    assert system.get_state(ref) == state
    system.cast(ref, "morning")
    assert log == [("gate", 1), ("cast", "waits"), ("cast", "morning")]


@pytest.mark.parametrize("way", ["init", "cast", "call"])
def test_each_callback_may_ask_for_hibernation(system, way):
    log: list[object] = []
    ref = system.start(Puppet, log, on_init=(lambda _: HIBERNATE) if way == "init" else None)
    if way == "cast":
        system.cast(ref, lambda _: HIBERNATE)
    elif way == "call":
        assert system.call(ref, lambda *_: HIBERNATE) is None
    system.cast(ref, "awake")
    assert log == [("cast", "awake")]


def test_messages_that_wait_already_wake_it_at_once(system):
    ref, gate, log = start_blocked(system)

    async def wait_again(puppet):
        await puppet.call(gate, "wait", None)
        return HIBERNATE

    system.cast(ref, wait_again)
    system.cast(ref, "first")
    system.cast(ref, "second")
    system.cast(gate, 1)
    system.cast(gate, 2)
    assert log == [("gate", 1), ("cast", "first"), ("cast", "second")]


def test_who_waits_for_an_answer_of_a_hibernating_actor_gets_it(system):
    server, caller = system.start(Puppet), system.start(Puppet)
    waiting = []

    def keep(_, call):
        waiting.append(call)
        return Reply(NO_REPLY, HIBERNATE)

    async def ask(puppet):
        puppet.log.append(await puppet.call(server, keep, None))

    system.cast(caller, ask)
    system.cast(server, lambda puppet: puppet.reply(waiting[0], "answer"))
    assert log_of(system, caller) == ["answer"]
