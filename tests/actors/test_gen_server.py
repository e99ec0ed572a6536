"""The runtime of a GenServer: start, callbacks, their order, and callbacks that wait."""

import asyncio
import contextlib

import pytest
from thespian.actors import Actor

from poe.actors import (
    IGNORE,
    ActorDead,
    Continue,
    Error,
    GenServer,
    MailboxFull,
    Reply,
    StartFailed,
    Stop,
)
from tests.actors.puppet import (
    Gate,
    Puppet,
    SmallPuppet,
    child_of,
    in_actor,
    log_of,
    raise_boom,
    raise_boom_later,
    start_blocked,
)

# ---- start ---------------------------------------------------------------------------------------


def test_init_gets_the_start_arguments(system):
    ref = system.start(Puppet, ["given"], trap_exits=True)
    assert system.get_state(ref)["log"] == ["given"]
    assert system.get_state(ref)["trap_exits"]


@pytest.mark.parametrize("on_init", [raise_boom, raise_boom_later, lambda _: Stop("no")])
def test_a_failed_init_reaches_the_starter_and_frees_the_name(system, on_init):
    async def start(puppet, _):
        for _ in range(2):
            try:
                await puppet.start_link(Puppet, puppet.log, on_init=on_init, name="name")
            except StartFailed as error:
                puppet.log.append(error.reason)
        return puppet.whereis("name")

    parent = system.start(Puppet)
    system.call(parent, lambda *_: None)
    calls = []
    system.cast(parent, lambda puppet: calls.append(1))
    result = []

    async def run(puppet):
        result.append(await start(puppet, None))

    system.cast(parent, run)
    system.advance(0)
    assert result == [None]
    reasons = log_of(system, parent)
    assert [str(reason) for reason in reasons] in (["boom", "boom"], ["no", "no"])
    assert system.is_alive(parent)


def test_a_failed_init_reaches_the_application_thread(system):
    with pytest.raises(StartFailed) as caught:
        system.start(Puppet, on_init=lambda _: Stop("no"), name="name")
    assert caught.value.reason == "no"
    assert system.whereis("name") is None


def test_a_failed_init_does_not_run_terminate(system):
    log: list[object] = []
    with pytest.raises(StartFailed):
        system.start(Puppet, log, on_init=raise_boom)
    assert log == []


def test_a_failed_init_tells_a_trapping_starter_once(system):
    parent = system.start(Puppet, trap_exits=True)
    with pytest.raises(ActorDead):
        child_of(system, parent, on_init=lambda _: Stop("no"))
    parent = system.start(Puppet, trap_exits=True)

    async def start(puppet, _):
        try:
            await puppet.start_link(Puppet, on_init=lambda _: Stop("no"))
        except StartFailed as error:
            return error.reason

    assert system.call(parent, start) == "no"
    assert log_of(system, parent) == []


def test_an_ignored_start_gives_none_and_leaves_nothing_behind(system):
    assert system.start(Puppet, on_init=lambda _: IGNORE, name="name") is None
    assert system.whereis("name") is None
    parent = system.start(Puppet, trap_exits=True)
    assert child_of(system, parent, on_init=lambda _: IGNORE) is None
    assert log_of(system, parent) == []


def test_calls_to_an_actor_whose_init_fails_are_answered_with_the_reason(system):
    log: list[object] = []

    async def fail_later(puppet):
        await puppet.sleep(1.0)
        return Stop("no")

    async def start(puppet):
        starting = puppet.start_link(Puppet, on_init=fail_later, name="slow")
        call = puppet.call("slow", "request", None)
        for awaited in (starting, call):
            try:
                await awaited
            except (StartFailed, ActorDead) as error:
                log.append((type(error), error.reason))

    system.cast(system.start(Puppet), start)
    system.advance(1.0)
    assert log == [(StartFailed, "no"), (ActorDead, "no")]


def test_arguments_that_init_does_not_take_fail_the_start(system):
    with pytest.raises(StartFailed):
        system.start(GenServer, "unexpected")


# ---- callbacks -----------------------------------------------------------------------------------


def test_casts_and_messages_reach_their_callbacks_in_the_order_they_were_sent(system):
    ref = system.start(Puppet)

    def send(puppet):
        for number in range(3):
            puppet.cast(ref, number)
            ref.cell.post(number, puppet.ref)

    in_actor(system, send)
    assert log_of(system, ref) == [(way, n) for n in range(3) for way in ("cast", "info")]


def test_a_cast_to_nobody_is_no_error(system):
    dead = system.start(Puppet)
    system.stop(dead)
    for target in (dead, "nobody"):
        system.cast(target, "message")
        in_actor(system, lambda puppet, target=target: puppet.cast(target, "message"))
    assert not system.is_alive(dead)


def test_continue_of_init_runs_before_messages_that_init_sent_to_itself(system):
    def on_init(puppet):
        puppet.cast(puppet.ref, "sent in init")
        return Continue("go on")

    ref = system.start(Puppet, on_init=on_init)
    assert log_of(system, ref) == [("continue", "go on"), ("cast", "sent in init")]


def test_continue_after_a_reply_runs_before_the_next_message(system):
    ref = system.start(Puppet)

    async def ask(puppet):
        calls = [puppet.call(ref, lambda *_: Reply("reply", Continue("go on")))]
        puppet.cast(ref, "next")
        return await calls[0]

    assert in_actor(system, ask) == "reply"
    assert log_of(system, ref) == [("continue", "go on"), ("cast", "next")]


def test_continue_may_follow_continue_thousands_of_times(system):
    left = [5000, 5000]

    def count_down(_):
        left[0] -= 1
        return Continue(count_down) if left[0] else None

    async def count_down_async(_):
        left[1] -= 1
        return Continue(count_down_async) if left[1] else None

    ref = system.start(Puppet)
    system.cast(ref, lambda _: Continue(count_down))
    system.cast(ref, lambda _: Continue(count_down_async))
    assert left == [0, 0]
    assert system.is_alive(ref)


def test_a_crash_in_continue_ends_the_actor_and_not_its_caller(system):
    ref = system.start(Puppet)
    assert system.call(ref, lambda *_: Reply("reply", Continue(raise_boom))) == "reply"
    assert not system.is_alive(ref)


def test_an_error_reply_to_a_cast_ends_only_the_actor(system):
    ref = system.start(Puppet)
    system.cast(ref, lambda _: Error(ValueError()))
    assert not system.is_alive(ref)
    with pytest.raises(StartFailed):
        system.start(Puppet, on_init=lambda _: Error(ValueError()))


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError()])
def test_an_attempt_to_end_the_program_ends_only_the_actor(system, error):
    def leave(_):
        raise error

    ref = system.start(Puppet)
    system.cast(ref, leave)
    assert not system.is_alive(ref)


# ---- suspended callbacks -------------------------------------------------------------------------


def test_own_messages_wait_in_order_while_a_callback_is_suspended(system):
    ref, gate, log = start_blocked(system)
    for number in range(3):
        system.cast(ref, number)
    assert log == []
    system.cast(gate, "open")
    assert log == [("gate", "open"), ("cast", 0), ("cast", 1), ("cast", 2)]


def test_other_actors_go_on_while_a_callback_is_suspended(system):
    start_blocked(system)
    assert system.call(system.start(Puppet), lambda *_: "served") == "served"


def test_a_second_suspended_callback_lets_the_rest_wait_again(system):
    ref, gate, log = start_blocked(system)

    async def wait_again(puppet):
        log.append(("again", await puppet.call(gate, "wait", None)))

    system.cast(ref, wait_again)
    system.cast(ref, "last")
    system.cast(gate, 1)
    assert log == [("gate", 1)]
    system.cast(gate, 2)
    assert log == [("gate", 1), ("again", 2), ("cast", "last")]


def test_a_full_mailbox_refuses_calls(system):
    ref, gate, log = start_blocked(system, SmallPuppet)
    system.cast(ref, 1)
    system.cast(ref, 2)
    with pytest.raises(MailboxFull):
        system.call(ref, "one too many")
    system.cast(gate, "open")
    assert log == [("gate", "open"), ("cast", 1), ("cast", 2)]


def test_two_full_actors_do_not_tell_each_other_for_ever(system):
    first, _, _ = start_blocked(system, SmallPuppet)
    second, _, _ = start_blocked(system, SmallPuppet)
    for ref in (first, second):
        system.cast(ref, 1)
        system.cast(ref, 2)
    system.run_queue.post_from_outside(first.cell, "one too many", second)
    assert system.is_alive(first)


def test_a_full_mailbox_still_takes_exits_and_downs(system):
    gate = system.start(Gate)
    ref = system.start(SmallPuppet, trap_exits=True)
    child = child_of(system, ref)
    system.call(ref, lambda puppet, _: puppet.monitor(child) and None)

    async def wait(puppet):
        await puppet.call(gate, "wait", None)

    system.cast(ref, wait)
    system.cast(ref, 1)
    system.cast(ref, 2)
    system.stop(child, "reason")
    system.cast(gate, "open")
    kinds = [type(message).__name__ for _, message in log_of(system, ref)]
    assert kinds == ["int", "int", "Exit", "Down"]


def test_awaiting_something_foreign_crashes_the_actor_instead_of_hanging_it(system):
    async def sleep(*_):
        await asyncio.sleep(0)

    with pytest.raises(ActorDead) as caught:
        system.call(system.start(Puppet), sleep)
    assert isinstance(caught.value.reason, TypeError)


class Foreign:
    """What another framework awaits."""

    def __await__(self):
        yield self


def test_awaiting_something_foreign_is_an_error_where_it_is_awaited(system, caplog):
    async def catch(puppet, _):
        with pytest.raises(TypeError, match="awaits calls, wait_down and sleep, not Foreign"):
            await Foreign()
        return await puppet.call(other, lambda *_: "went on")

    async def insist(*_):
        while True:
            with contextlib.suppress(TypeError):
                await Foreign()

    async def await_it(*_):
        await Foreign()

    ref, other = system.start(Puppet), system.start(Puppet)
    assert system.call(ref, catch) == "went on"
    with pytest.raises(ActorDead, match="not Foreign"):
        system.call(ref, insist)
    with pytest.raises(ActorDead, match="not Foreign"):
        system.call(system.start(Puppet), await_it)
    assert "await Foreign()" in caplog.text


def test_a_crash_after_an_await_fails_the_call(system):
    async def crash(puppet, _):
        await puppet.start_link(Puppet)
        raise_boom(puppet)

    with pytest.raises(ActorDead) as caught:
        system.call(system.start(Puppet), crash)
    assert isinstance(caught.value.reason, ValueError)


def test_kill_ends_an_actor_in_the_middle_of_a_callback(system):
    ref, gate, log = start_blocked(system, trap_exits=True)
    system.exit(ref, "kill")
    assert not system.is_alive(ref)
    system.cast(gate, "open")
    assert log == []


def test_kill_answers_those_who_wait_for_the_killed(system):
    ref, _, _ = start_blocked(system)
    log: list[object] = []

    async def ask(puppet):
        try:
            await puppet.call(ref, "request", None)
        except ActorDead as error:
            log.append(error.reason)

    system.cast(system.start(Puppet), ask)
    system.exit(ref, "kill")
    assert log == ["killed"]


def test_the_finally_block_of_a_killed_callback_runs_and_cannot_hurt(system, caplog):
    log: list[object] = []

    async def stubborn(puppet):
        try:
            await puppet.sleep(10)
        finally:
            log.append("cleaned up")
            await puppet.sleep(10)

    ref = system.start(Puppet)
    system.cast(ref, stubborn)
    system.exit(ref, "kill")
    assert log == ["cleaned up"]
    assert "did not end cleanly" in caplog.text


def test_a_users_class_sees_nothing_of_thespian():
    ours = {name for name in dir(GenServer) if not name.startswith("__")}
    assert ours & set(dir(Actor)) == set()
    assert len([name for name in ours if not name.startswith("_")]) <= 39
