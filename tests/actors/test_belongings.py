"""What an actor has of others, and what waits for it, is gone when it is: nothing adds up."""

import time

import pytest

from poe.actors import NO_REPLY, ActorDead, Down, GenServer, StartFailed
from poe.actors.reply_deadline import ReplyDeadline
from poe.supervision import ChildSpec, CountChildren, Restart, Supervisor, SupervisorFlags
from poe.tables import Table
from tests.actors.puppet import Gate, Puppet, in_actor, log_of, raise_boom

HOUR_S = 3600.0


def timers_of(system):
    return len(system.run_queue.timers)


def status(system, ref):
    return system.get_status(ref)


ENDS = {
    "crash": lambda system, ref: system.cast(ref, raise_boom),
    "kill": lambda system, ref: system.exit(ref, "kill"),
    "exit": lambda system, ref: system.exit(ref, "boom"),
    "stop": lambda system, ref: system.stop(ref),
}


@pytest.fixture(params=ENDS)
def end(request, system):
    return lambda ref: ENDS[request.param](system, ref)


# ---- monitors ------------------------------------------------------------------------------------


def test_the_monitors_of_actors_that_have_ended_are_gone(system, end):
    watched = system.start(Puppet)
    for _ in range(50):
        watcher = system.start(Puppet)
        system.cast(watcher, lambda puppet: puppet.monitor(watched) and None)
        assert status(system, watched).monitors_count == 1
        end(watcher)
        assert status(system, watched).monitors_count == 0
    assert watched.cell.monitors is None


def test_a_watcher_that_ends_in_init_or_while_it_waits_leaves_no_monitor(system):
    watched = system.start(Puppet)

    def watch_and_fail(puppet):
        puppet.monitor(watched)
        raise_boom(puppet)

    with pytest.raises(StartFailed):
        system.start(Puppet, on_init=watch_and_fail)

    async def wait(puppet):
        await puppet.wait_down(puppet.monitor(watched), HOUR_S)

    watcher = system.start(Puppet)
    system.cast(watcher, wait)
    assert (watched.cell.monitors is None, timers_of(system)) == (False, 1)
    system.exit(watcher, "kill")
    assert (watched.cell.monitors, timers_of(system)) == (None, 0)


def test_the_monitors_of_the_living_are_left_alone(system):
    watched, dead, alive = (system.start(Puppet) for _ in range(3))
    for ref in dead, alive:
        system.cast(ref, lambda puppet: puppet.monitor(watched) and None)
    system.exit(dead, "kill")
    system.exit(watched, "kill")
    ((_, down),) = log_of(system, alive)
    assert (type(down), down.ref, down.reason) == (Down, watched, "killed")


def test_a_look_at_children_leaves_no_monitors(system):
    specs = [ChildSpec(id=each, actor=Puppet) for each in range(3)]
    supervisor = system.start(Supervisor, SupervisorFlags(), specs)
    for _ in range(20):
        assert system.call(supervisor, CountChildren()).active == 3
    assert [child.monitors for child in supervisor.cell.links] == [None] * 3
    assert supervisor.cell.monitors is None


def test_a_stop_that_gives_up_waiting_leaves_no_monitor(system):
    async def never(puppet):
        await puppet.sleep(HOUR_S)

    ref = system.start(Puppet, trap_exits=True, on_terminate=never)
    for _ in range(3):
        with pytest.raises(Exception, match="within"):
            system.stop(ref, timeout_s=0.0)
    assert ref.cell.monitors is None


def test_a_down_on_its_way_is_not_delivered_once_its_monitor_is_taken_back(system):
    watched, watcher = system.start(Puppet), system.start(Puppet)

    def watch_and_regret(puppet):
        monitor = puppet.monitor(watched)
        watched.cell.end("boom")  # its notice is queued now
        puppet.demonitor(monitor)
        puppet.demonitor(monitor)

    system.cast(watcher, watch_and_regret)
    assert log_of(system, watcher) == []


def test_an_actor_takes_back_its_own_monitors_only(system):
    watched, watcher, other = (system.start(Puppet) for _ in range(3))
    monitor = system.call(watcher, lambda puppet, _: puppet.monitor(watched))
    system.cast(other, lambda puppet: puppet.demonitor(monitor))
    system.exit(watched, "kill")
    assert [down.monitor for _, down in log_of(system, watcher)] == [monitor]


def test_taking_back_many_monitors_takes_no_longer_for_each_than_few(system):
    watched = system.start(Puppet)

    def watch_often(puppet):
        monitors = [puppet.monitor(watched) for _ in range(50_000)]
        for monitor in reversed(monitors):
            puppet.demonitor(monitor)

    started_s = time.process_time()
    in_actor(system, watch_often)
    assert time.process_time() - started_s < 10  # a walk through all for each takes a minute
    assert watched.cell.monitors is None


def test_unlinks_and_waits_do_not_walk_through_a_long_mailbox(system):
    gate, ref = system.start(Gate), system.start(Puppet)
    others = [system.start(Puppet, trap_exits=True) for _ in range(1_000)]

    async def be_busy(puppet):
        await puppet.call(gate, "wait", None)
        for other in others:
            puppet.link(other)
            monitor = puppet.monitor(other)
            puppet.unlink(other)
            other.cell.end("boom")
            assert await puppet.wait_down(monitor) == "boom"

    system.cast(ref, be_busy)
    for number in range(30_000):
        system.cast(ref, number)
    started_s = time.process_time()
    system.cast(gate, "open")
    assert time.process_time() - started_s < 10  # a walk for each takes a minute
    assert log_of(system, ref) == [("cast", number) for number in range(30_000)]


def test_a_down_that_came_while_its_actor_was_busy_is_found_by_a_later_wait(system):
    watched, ref, gate = system.start(Puppet), system.start(Puppet), system.start(Gate)

    async def watch(puppet):
        monitor = puppet.monitor(watched)
        await puppet.call(gate, "wait", None)
        puppet.log.append(await puppet.wait_down(monitor, 1.0))

    system.cast(ref, watch)
    system.exit(watched, "kill")
    system.cast(gate, "open")
    system.advance(2)
    assert log_of(system, ref) == ["killed"]  # and no second time as a message


# ---- timers --------------------------------------------------------------------------------------


def test_the_timers_of_an_actor_end_with_it(system, end):
    ref = system.start(Puppet)

    def set_timers(puppet):
        for _ in range(3):
            puppet.send_after(HOUR_S, "too late")
        puppet.sleep(HOUR_S)  # nobody awaits it

    system.cast(ref, set_timers)
    assert timers_of(system) == 4
    end(ref)
    assert timers_of(system) == 0
    system.advance(2 * HOUR_S)


def test_crashes_and_restarts_leave_one_timer_each(system):
    class Ticking(GenServer):
        def init(self):
            self.send_after(HOUR_S, "tick")

    spec = ChildSpec(id="ticking", actor=Ticking, name="ticking")
    system.start(Supervisor, SupervisorFlags(intensity=10_000), [spec])
    for _ in range(300):
        system.exit(system.whereis("ticking"), "boom")
    assert timers_of(system) == 1


def test_a_timer_that_fired_or_was_cancelled_belongs_to_nobody(system):
    ref = system.start(Puppet)
    timers = system.call(ref, lambda puppet, _: [puppet.send_after(at_s, at_s) for at_s in (1, 2)])
    timers[1].cancel()
    timers[1].cancel()
    system.advance(1)
    timers[0].cancel()
    assert not ref.cell.belongings
    assert log_of(system, ref) == [("info", 1)]


@pytest.mark.slow
def test_taking_back_many_timers_takes_no_longer_for_each_than_few(system):
    def set_many(puppet):
        timers = [puppet.send_after(HOUR_S, number) for number in range(50_000)]
        for timer in reversed(timers):
            timer.cancel()

    started_s = time.process_time()
    in_actor(system, set_many)
    assert time.process_time() - started_s < 10
    assert timers_of(system) == 0


def test_the_timer_of_a_reply_deadline_ends_with_its_actor(system):
    gate, ref = system.start(Gate), system.start(Puppet)

    async def wait(puppet):
        await ReplyDeadline(HOUR_S).wait(puppet.call(gate, "wait", None))

    system.cast(ref, wait)
    assert timers_of(system) == 1
    system.exit(ref, "kill")
    assert timers_of(system) == 0


# ---- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_s", [None, HOUR_S])
@pytest.mark.parametrize("is_awaited", [True, False])
def test_calls_of_an_actor_that_has_ended_are_given_up(system, timeout_s, is_awaited):
    class Holder(GenServer):
        def handle_call(self, request, caller):
            return NO_REPLY

    holder = system.start(Holder)

    async def call(puppet):
        calls = [puppet.call(holder, "hold", timeout_s) for _ in range(3)]
        if is_awaited:
            await calls[0]

    for _ in range(10):
        ref = system.start(Puppet)
        system.cast(ref, call)
        assert status(system, holder).unanswered_count == 3
        system.exit(ref, "kill")
        assert status(system, holder).unanswered_count == 0
    assert timers_of(system) == 0


def test_a_reply_that_comes_after_the_end_of_the_caller_is_dropped(system):
    gate, ref = system.start(Gate), system.start(Puppet)

    async def wait(puppet):
        await puppet.call(gate, "wait", HOUR_S)

    system.cast(ref, wait)
    system.exit(ref, "kill")
    system.cast(gate, "open")
    assert system.is_alive(gate)


def test_a_caller_that_ends_in_the_same_turn_leaves_no_call(system):
    gate, ref = system.start(Gate), system.start(Puppet)

    def call_and_fail(puppet):
        puppet.call(gate, "wait", HOUR_S)
        raise_boom(puppet)

    system.cast(ref, call_and_fail)
    assert (timers_of(system), status(system, gate).unanswered_count) == (0, 0)


@pytest.mark.parametrize("call_timeout_s", [None, 5.0])
def test_a_reply_that_was_waited_for_leaves_no_timer_and_no_call(system, call_timeout_s):
    server, caller = system.start(Gate), system.start(Puppet)

    async def ask(puppet):
        call = puppet.call(server, "wait", call_timeout_s)
        puppet.log.append(await puppet.wait_reply(call, HOUR_S))

    system.cast(caller, ask)
    assert timers_of(system) == 1
    system.cast(server, "answer")
    assert log_of(system, caller) == ["answer"]
    assert (timers_of(system), list(caller.cell.belongings)) == (0, [])


def test_a_call_through_which_its_server_ended_fails_as_ever(system):
    ref = system.start(Puppet)

    async def call(puppet, _):
        try:
            await puppet.call(ref, raise_boom_in_call, HOUR_S)
        except ActorDead as dead:
            return type(dead.reason)

    assert system.call(system.start(Puppet), call) is ValueError
    assert timers_of(system) == 0


def raise_boom_in_call(puppet, _):
    raise_boom(puppet)


# ---- links, names, tables, children --------------------------------------------------------------


def test_links_and_names_of_actors_that_have_ended_are_gone(system, end):
    long_lived = system.start(Puppet, trap_exits=True)
    for _ in range(20):
        ref = system.start(Puppet, name="short-lived")
        system.cast(ref, lambda puppet: puppet.link(long_lived))
        end(ref)
        assert not long_lived.cell.links
        assert system.whereis("short-lived") is None


def test_an_actor_with_many_tables_ends_as_fast_for_each_as_one_with_few(system):
    ref = system.start(Puppet)
    tables = system.call(ref, lambda puppet, _: [Table.new(puppet) for _ in range(20_000)])
    started_s = time.process_time()
    system.exit(ref, "kill")
    assert time.process_time() - started_s < 10
    assert all(table.is_gone for table in tables)


def test_a_temporary_child_that_waits_for_its_reply_leaves_nothing(system):
    gate = system.start(Gate)

    class Asking(GenServer):
        def init(self):
            self.call(gate, "wait", HOUR_S)
            self.monitor(gate)
            self.send_after(HOUR_S, "tick")

    spec = ChildSpec(id="asking", actor=Asking, name="asking", restart=Restart.TEMPORARY)
    supervisor = system.start(Supervisor, SupervisorFlags(), [spec])
    system.stop(supervisor)
    assert timers_of(system) == 0
    assert status(system, gate).unanswered_count == 0
    assert gate.cell.monitors is None
