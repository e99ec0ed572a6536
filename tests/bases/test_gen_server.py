"""What a GenServer does, on each base: calls, exit reasons, links, monitors, names."""

import threading

import pytest

from poe.actors import (
    IGNORE,
    KILL,
    NO_REPLY,
    TIMED_OUT,
    Continue,
    Down,
    Error,
    Exit,
    IdleTimeout,
    LoopSystem,
    Reply,
    Stop,
)
from poe.errors import (
    ActorDead,
    CallTimeout,
    LoopSystemOnly,
    NameTaken,
    NotPicklable,
    NotSuspended,
    PointerOutOfRange,
    StartFailed,
    SystemShutDown,
)
from tests.bases.actors import Doer, log_of
from tests.waiting import wait_until


def log(system, ref):
    return system.call(ref, (log_of,))


def wait_for_log(system, ref, *entries):
    wait_until(lambda: len(log(system, ref)) >= len(entries), 20)
    assert log(system, ref) == list(entries)


# ---- calls ---------------------------------------------------------------------------------------


def echo(doer, value):
    del doer
    return value


def note(doer, value):
    doer.log.append(value)


def fail(doer, value):
    del doer
    return Error(PointerOutOfRange(value, oldest=3))


class Sleeper(Doer):
    hibernate_after_s = 0.0


def has_mailbox(doer):
    return doer.ref.cell.mailbox is not None  # what hibernation gives back


def test_idle_actor_hibernates_by_itself(system):
    ref = system.start(Sleeper)
    system.suspend(ref)
    system.cast(ref, "waits")
    system.resume(ref)
    wait_until(lambda: not system.call(ref, (has_mailbox,)))
    assert log(system, ref) == [("cast", "waits")]


def boom(doer):
    del doer
    msg = "boom"
    raise ValueError(msg)


def stop(doer, reason, *reply):
    del doer
    return Stop(reason, *reply)


def answer_later(doer):
    doer.waiting = doer.caller
    return NO_REPLY


def is_waiting(doer):
    return hasattr(doer, "waiting")


def answer_now(doer, value):
    doer.reply(doer.waiting, value)


def reply_and_continue(doer, value):
    del doer
    return Reply(value, Continue("on"))


def idle(doer, after_s):
    del doer
    return Reply("idle", IdleTimeout(after_s))


async def call_other(doer, ref, request, timeout_s=5.0):
    return await doer.call(ref, request, timeout_s)


async def error_of_call(doer, ref, request, timeout_s=5.0):
    try:
        await doer.call(ref, request, timeout_s)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test compares it
        return type(error), getattr(error, "reason", None)


def test_call_gets_the_reply(system):
    ref = system.start(Doer)
    assert system.call(ref, (echo, {"a": [1, b"2", None]})) == {"a": [1, b"2", None]}


def test_addresses_stay_the_same_on_their_way(system):
    one, other = system.start(Doer), system.start(Doer)
    returned = system.call(one, (echo, [other, one, {other: one}]))
    assert returned == [other, one, {other: one}]
    assert returned[0] is other


def test_casts_of_one_sender_keep_their_order(system):
    ref = system.start(Doer)
    for number in range(200):
        system.cast(ref, (note, number))
    assert log(system, ref) == list(range(200))


def test_error_answer_is_raised_with_its_values_and_the_server_lives(system):
    ref = system.start(Doer)
    with pytest.raises(PointerOutOfRange) as caught:
        system.call(ref, (fail, 1))
    assert (caught.value.pointer, caught.value.oldest) == (1, 3)
    assert system.is_alive(ref)


def test_crash_fails_the_call_with_the_exception_as_reason(system):
    ref = system.start(Doer)
    with pytest.raises(ActorDead) as caught:
        system.call(ref, (boom,))
    assert isinstance(caught.value.reason, ValueError)
    assert str(caught.value.reason) == "boom"
    assert caught.value.ref is ref
    assert not system.is_alive(ref)


def test_stop_without_reply_fails_the_call_with_its_reason(system):
    ref = system.start(Doer)
    with pytest.raises(ActorDead) as caught:
        system.call(ref, (stop, ("shutdown", 7)))
    assert caught.value.reason == ("shutdown", 7)


def test_stop_with_reply_answers_and_ends(system):
    ref = system.start(Doer)
    assert system.call(ref, (stop, "normal", "bye")) == "bye"
    wait_until(lambda: not system.is_alive(ref))


def test_call_to_an_ended_actor_fails_as_noproc(system):
    ref = system.start(Doer)
    system.stop(ref)
    with pytest.raises(ActorDead) as caught:
        system.call(ref, (echo, 1))
    assert caught.value.reason == "noproc"


def test_time_out_of_a_call_leaves_the_server_alone_and_drops_the_late_reply(system):
    ref = system.start(Doer)
    with pytest.raises(CallTimeout):
        system.call(ref, (answer_later,), timeout_s=0.02)
    system.cast(ref, (answer_now, "late"))
    assert system.call(ref, (echo, "next")) == "next"


def test_reply_may_come_later(system):
    ref = system.start(Doer)
    replies = []
    caller = threading.Thread(target=lambda: replies.append(system.call(ref, (answer_later,))))
    caller.start()
    wait_until(lambda: system.call(ref, (is_waiting,)))
    assert system.call(ref, (echo, "meanwhile")) == "meanwhile"
    system.cast(ref, (answer_now, "at last"))
    caller.join(10)
    assert replies == ["at last"]


def test_unanswered_call_fails_when_the_server_ends(system):
    one, other = system.start(Doer), system.start(Doer)
    system.cast(one, (note_error_of, other, (answer_later,)))
    wait_until(lambda: system.call(other, (is_waiting,)))
    system.cast(other, (stop, "gone"))
    wait_for_log(system, one, (ActorDead, "gone"))


async def note_error_of(doer, ref, request, timeout_s=5.0):
    doer.log.append(await error_of_call(doer, ref, request, timeout_s))


def test_actors_call_each_other(system):
    one, other = system.start(Doer), system.start(Doer)
    assert system.call(one, (call_other, other, (echo, 5))) == 5
    assert system.call(one, (error_of_call, other, (answer_later,), 0.01)) == (CallTimeout, None)
    assert system.call(one, (error_of_call, one, (echo, 1))) == (ActorDead, "calling_self")
    died, reason = system.call(one, (error_of_call, other, (boom,)))
    assert died is ActorDead
    assert isinstance(reason, ValueError)
    assert system.call(one, (error_of_call, other, (echo, 1))) == (ActorDead, "noproc")


def test_continue_and_idle_time_out(system):
    ref = system.start(Doer)
    assert system.call(ref, (reply_and_continue, 1)) == 1
    assert log(system, ref) == [("continue", "on")]
    assert system.call(ref, (idle, 0.01)) == "idle"
    # A message would end the idle time: only look when it must be over.
    threading.Event().wait(0.2)
    assert log(system, ref)[1:] == [TIMED_OUT]


# ---- init and the end ----------------------------------------------------------------------------


def return_it(doer, value):
    del doer
    return value


def ignore(doer):
    del doer
    return IGNORE


def test_init_that_raises_fails_the_start(system):
    with pytest.raises(StartFailed) as caught:
        system.start(Doer, boom)
    assert isinstance(caught.value.reason, ValueError)


def test_init_that_stops_fails_the_start(system):
    with pytest.raises(StartFailed) as caught:
        system.start(Doer, stop, "no room")
    assert caught.value.reason == "no room"


def test_init_may_ignore(system):
    assert system.start(Doer, ignore) is None


async def start_child(doer, *setup, name=None):
    doer.child = await doer.start_link(Doer, *setup, name=name)
    return doer.child


async def failure_of_start(doer, *setup, name=None):
    try:
        await doer.start_link(Doer, *setup, name=name)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test compares it
        return type(error), getattr(error, "reason", None)


async def hang(doer):
    await doer.sleep(1e9)


async def failure_of_slow_start(doer, name):
    try:
        await doer.start_link(Doer, hang, name=name, start_timeout_s=0.1)
    except StartFailed as error:
        return error.reason


async def failure_of_named_start(doer, name):
    return await failure_of_start(doer, boom, name=name)


def test_start_that_takes_too_long_is_killed_and_its_starter_lives_on(system):
    ref = system.start(Doer)
    assert system.call(ref, (failure_of_slow_start, "slow")) == "timeout"
    # Its name is free once it is gone.
    wait_until(lambda: system.call(ref, (failure_of_named_start, "slow"))[0] is StartFailed)
    assert log(system, ref) == []


def test_start_by_the_application_may_have_a_time_limit(system):
    with pytest.raises(StartFailed) as caught:
        system.start(Doer, hang, start_timeout_s=0.1)
    assert caught.value.reason == "timeout"


def test_status_tells_name_and_messages(system):
    ref = system.start(Doer, name="watched")
    system.inspect(ref)
    system.cast(ref, "one")
    status = system.get_status(ref)
    assert (status.actor_class, status.name, status.messages_in) == ("Doer", "watched", 1)
    assert [each.kind for each in status.log] == ["cast str"]


def test_failed_start_link_does_not_end_the_starter(system):
    ref = system.start(Doer)
    assert system.call(ref, (failure_of_start, stop, "no room")) == (StartFailed, "no room")
    assert system.call(ref, (start_child, ignore)) is None
    assert log(system, ref) == []


def test_stop_runs_to_the_end(system):
    ref = system.start(Doer)
    system.stop(ref, "shutdown")
    assert not system.is_alive(ref)


# ---- links and monitors --------------------------------------------------------------------------


def link(doer, ref):
    doer.link(ref)


def unlink(doer, ref):
    doer.unlink(ref)


def monitor(doer, ref):
    doer.watched = doer.monitor(ref)


def demonitor(doer):
    doer.demonitor(doer.watched)


def send_exit(doer, ref, reason):
    doer.exit(ref, reason)


def trapping(system):
    return system.start(Doer, trap_exits=True)


def test_linked_actor_that_traps_hears_of_the_end(system):
    ref = trapping(system)
    child = system.call(ref, (start_child,))
    system.cast(child, (stop, "boom"))
    wait_for_log(system, ref, Exit(child, "boom"))


def test_linked_actor_that_does_not_trap_ends_with_the_same_reason(system):
    ref = trapping(system)
    middle = system.call(ref, (start_child,))
    last = system.call(middle, (start_child,))
    system.cast(last, (stop, "boom"))
    wait_for_log(system, ref, Exit(middle, "boom"))


def test_normal_end_spreads_along_no_link(system):
    ref = system.start(Doer)
    child = system.call(ref, (start_child,))
    system.stop(child)
    assert system.call(ref, (echo, 1)) == 1


def wait_heard(system, ref, other):
    """Wait until `other` has got all that `ref` sent it; other senders' messages may be faster."""
    system.call(ref, (call_other, other, (echo, 1)))


def test_link_works_in_both_directions_and_can_be_undone(system):
    one, other, third = trapping(system), trapping(system), system.start(Doer)
    system.call(one, (link, other))
    system.call(one, (link, third))
    system.call(one, (unlink, third))
    wait_heard(system, one, other)
    wait_heard(system, one, third)
    system.stop(third, "boom")
    system.stop(one, "boom")
    wait_for_log(system, other, Exit(one, "boom"))


def test_link_to_an_ended_actor_is_noproc(system):
    ref, ended = trapping(system), system.start(Doer)
    system.stop(ended)
    system.call(ref, (link, ended))
    wait_for_log(system, ref, Exit(ended, "noproc"))


def test_monitor_tells_once_and_can_be_taken_back(system):
    ref, watched = system.start(Doer), system.start(Doer)
    system.call(ref, (monitor, watched))
    system.call(ref, (demonitor,))
    system.call(ref, (monitor, watched))
    wait_heard(system, ref, watched)
    system.cast(watched, (stop, "boom"))
    wait_until(lambda: log(system, ref), 20)
    (down,) = log(system, ref)
    assert isinstance(down, Down)
    assert (down.ref, down.reason) == (watched, "boom")


def test_monitor_of_an_ended_actor_is_noproc(system):
    ref, ended = system.start(Doer), system.start(Doer)
    system.stop(ended)
    system.call(ref, (monitor, ended))
    wait_until(lambda: log(system, ref), 20)
    assert [entry.reason for entry in log(system, ref)] == ["noproc"]


def test_exit_signal_is_trapped_and_kill_is_not(system):
    one, other = system.start(Doer), trapping(system)
    watcher = system.start(Doer)
    system.call(watcher, (monitor, other))
    wait_heard(system, watcher, other)
    system.call(one, (send_exit, other, "please"))
    wait_for_log(system, other, Exit(one, "please"))
    system.call(one, (send_exit, other, KILL))
    wait_until(lambda: log(system, watcher), 20)
    assert [entry.reason for entry in log(system, watcher)] == ["killed"]
    assert not system.is_alive(other)


# ---- names ---------------------------------------------------------------------------------------


def cast_to(doer, name, message):
    doer.cast(name, message)


def test_named_actor_is_called_cast_and_monitored_by_name(system):
    ref, named = system.start(Doer), system.start(Doer, name="the one")
    assert system.call("the one", (echo, 1)) == 1
    assert system.call(ref, (call_other, "the one", (echo, 2))) == 2
    system.call(ref, (cast_to, "the one", (note, 3)))
    wait_for_log(system, named, 3)
    system.call(ref, (monitor, "the one"))
    # The name is looked up elsewhere; a call by name goes the same way, behind it.
    system.call(ref, (call_other, "the one", (echo, 4)))
    system.stop(named, "boom")
    wait_until(lambda: log(system, ref), 20)
    (down,) = log(system, ref)
    assert (down.ref, down.reason, down.monitor.name) == (named, "boom", "the one")


def test_taken_name_fails_the_start_and_init_does_not_run(system):
    holder = system.start(Doer, name="taken")
    with pytest.raises(NameTaken) as caught:
        system.start(Doer, boom, name="taken")
    assert caught.value.ref is holder
    assert system.is_alive(holder)


def test_name_is_free_as_soon_as_the_end_is_known(system):
    ref = trapping(system)
    for _ in range(3):
        child = system.call(ref, (start_child_named, "mine"))
        system.call(ref, (send_exit, child, "boom"))
        wait_until(lambda: log(system, ref), 20)
        assert system.call(ref, (take_log,)) == [Exit(child, "boom")]


async def start_child_named(doer, name):
    return await doer.start_link(Doer, name=name)


def take_log(doer):
    log, doer.log = doer.log, []
    return log


def test_name_of_a_failed_start_is_free(system):
    with pytest.raises(StartFailed):
        system.start(Doer, boom, name="again")
    assert system.start(Doer, name="again") is not None


def test_unknown_name_is_noproc(system):
    with pytest.raises(ActorDead) as caught:
        system.call("nobody", (echo, 1))
    assert caught.value.reason == "noproc"
    ref = system.start(Doer)
    assert system.call(ref, (error_of_call, "nobody", 1)) == (ActorDead, "noproc")
    system.call(ref, (monitor, "nobody"))
    wait_until(lambda: log(system, ref), 20)
    assert [entry.reason for entry in log(system, ref)] == ["noproc"]


# ---- the runtime's own requests ------------------------------------------------------------------


def raised(state):
    return {**state, "log": ["raised"]}


def test_state_is_seen_and_replaced_while_the_actor_is_suspended(system):
    ref = system.start(Doer)
    system.suspend(ref)
    system.cast(ref, (note, 1))
    assert system.get_state(ref)["log"] == []
    system.replace_state(ref, raised)
    assert system.get_state(ref)["log"] == ["raised"]
    system.resume(ref)
    assert log(system, ref) == ["raised", 1]
    with pytest.raises(NotSuspended):
        system.change_code(ref)


# ---- what only the hosted bases have to care about -----------------------------------------------


class Unpicklable(Exception):
    def __init__(self, number, text):
        self.number = number
        super().__init__(text)


def return_lambda(doer):
    del doer
    return lambda: 1


def raise_unpicklable(doer):
    del doer
    raise Unpicklable(1, "cannot be made again")


class Pinned(Doer):
    pinned_to_loop = True


def whereis(doer, name):
    return doer.whereis(name)


@pytest.fixture
def hosted(system):
    if isinstance(system, LoopSystem):
        pytest.skip("messages are not pickled where all actors share one process")
    return system


def test_what_cannot_be_pickled_fails_its_own_call_only(hosted):
    ref = hosted.start(Doer)
    with pytest.raises(NotPicklable, match="function cannot be sent"):
        hosted.call(ref, lambda: 1)
    with pytest.raises(NotPicklable):
        hosted.call(ref, (return_lambda,))
    hosted.cast(ref, lambda: 1)
    assert hosted.call(ref, (echo, 1)) == 1
    with pytest.raises((NotPicklable, StartFailed)):
        hosted.start(Doer, lambda: 1)


def test_exception_that_cannot_be_restored_arrives_with_its_name_and_text(hosted):
    ref = hosted.start(Doer)
    with pytest.raises(ActorDead) as caught:
        hosted.call(ref, (raise_unpicklable,))
    assert str(caught.value.reason) == "Unpicklable: cannot be made again"


def test_operations_that_need_one_process_are_refused(hosted):
    ref = hosted.start(Doer)
    with pytest.raises(LoopSystemOnly):
        hosted.start(Pinned)
    with pytest.raises(ActorDead) as caught:
        hosted.call(ref, (whereis, "x"))
    assert isinstance(caught.value.reason, LoopSystemOnly)


def test_threads_do_not_take_each_others_answers(system):
    ref = system.start(Doer)
    answers = {}

    def ask(number):
        answers[number] = [system.call(ref, (echo, (number, turn))) for turn in range(10)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {n: [(n, turn) for turn in range(10)] for n in range(4)}


@pytest.mark.parametrize("reason", ["boom", KILL])
def test_an_exit_signal_may_be_sent_to_a_name(system, reason):
    ref = system.start(Doer, name="named")
    system.exit("nobody", reason)
    system.exit("named", reason)
    wait_until(lambda: not system.is_alive(ref), 20)


def test_a_system_that_was_shut_down_starts_nobody_and_may_be_shut_down_again(system):
    ref = system.start(Doer)
    system.shutdown()
    with pytest.raises(SystemShutDown):
        system.start(Doer)
    with pytest.raises(ActorDead):
        system.call(ref, (echo, 1))
    system.shutdown()
