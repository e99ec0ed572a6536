"""What an actor does to others: links, monitors, exits, waits, timers, threads, names."""

import pytest

from poe.actors import IGNORE, TIMED_OUT, Down, Exit, Stop
from poe.errors import ActorDead, CallTimeout, NameTaken
from tests.actors.puppet import (
    Gate,
    Puppet,
    child_of,
    in_actor,
    log_of,
    raise_boom,
    start_blocked,
)


def exits_of(system, ref):
    return [(e.ref, e.reason) for _, e in log_of(system, ref) if isinstance(e, Exit)]


def downs_of(system, ref):
    return [(e.ref, e.reason) for _, e in log_of(system, ref) if isinstance(e, Down)]


def linked_pair(system, **kwargs):
    first, second = system.start(Puppet, **kwargs), system.start(Puppet)
    system.call(first, lambda puppet, _: puppet.link(second))
    return first, second


# ---- links and exit signals ---------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["boom", "shutdown", "killed", ("shutdown", 1)])
def test_a_link_spreads_every_reason_but_normal(system, reason):
    first, second = linked_pair(system)
    system.stop(second, reason)
    assert not system.is_alive(first)


def test_a_link_spreads_no_normal_end(system):
    first, second = linked_pair(system)
    system.stop(second, "normal")
    assert system.is_alive(first)


def test_a_link_works_both_ways(system):
    first, second = linked_pair(system)
    system.stop(first, "boom")
    assert not system.is_alive(second)


def test_the_reason_travels_along_a_chain_of_links(system):
    top = system.start(Puppet, trap_exits=True)
    middle = child_of(system, top)
    bottom = child_of(system, middle)
    system.exit(bottom, "boom")
    assert exits_of(system, top) == [(middle, "boom")]


@pytest.mark.parametrize("reason", ["boom", "normal"])
def test_a_trapping_actor_sees_the_end_of_a_linked_one_as_a_message(system, reason):
    first, second = linked_pair(system, trap_exits=True)
    system.stop(second, reason)
    assert exits_of(system, first) == [(second, reason)]


def test_two_links_to_one_actor_give_one_exit(system):
    first, second = linked_pair(system, trap_exits=True)
    system.call(first, lambda puppet, _: puppet.link(second))
    system.stop(second, "boom")
    assert len(exits_of(system, first)) == 1


def test_a_link_to_itself_does_nothing(system):
    ref = system.start(Puppet)
    system.call(ref, lambda puppet, _: puppet.link(puppet.ref))
    assert system.is_alive(ref)


def test_a_link_to_a_dead_actor_gives_its_exit_at_once(system):
    dead = system.start(Puppet)
    system.stop(dead)
    trapping = system.start(Puppet, trap_exits=True)
    system.call(trapping, lambda puppet, _: puppet.link(dead))
    assert exits_of(system, trapping) == [(dead, "noproc")]


def test_a_link_to_a_dead_actor_is_an_error_where_exits_are_not_trapped(system):
    dead = system.start(Puppet)
    system.stop(dead)

    def link(puppet):
        with pytest.raises(ActorDead) as error:
            puppet.link(dead)
        return error.value.reason

    assert in_actor(system, link) == "noproc"


def test_no_exit_comes_after_unlink(system):
    first, second = linked_pair(system, trap_exits=True)
    system.call(first, lambda puppet, _: puppet.unlink(second))
    system.stop(second, "boom")
    assert exits_of(system, first) == []


def test_unlink_drops_an_exit_that_already_waits(system):
    parent = system.start(Puppet, trap_exits=True)
    child = child_of(system, parent)

    async def outlive(puppet, _):
        monitor = puppet.monitor(child)
        puppet.exit(child, "boom")
        await puppet.wait_down(monitor)
        puppet.unlink(child)

    system.call(parent, outlive)
    assert exits_of(system, parent) == []


@pytest.mark.parametrize(
    ("reason", "trap_exits", "ends"),
    [
        ("boom", False, True),
        ("shutdown", False, True),
        ("normal", False, False),
        ("boom", True, False),
        ("normal", True, False),
        ("kill", False, True),
        ("kill", True, True),
    ],
)
def test_an_exit_signal_from_a_stranger_ends_an_actor_or_becomes_a_message(
    system, reason, trap_exits, ends
):
    log: list[object] = []
    ref = system.start(Puppet, log, trap_exits=trap_exits)
    stranger = system.start(Puppet)
    system.call(stranger, lambda puppet, _: puppet.exit(ref, reason))
    assert system.is_alive(ref) is not ends
    assert log == ([("info", Exit(stranger, reason))] if trap_exits and not ends else [])


@pytest.mark.parametrize("reason", ["boom", "shutdown", "normal"])
def test_an_exit_signal_from_the_parent_terminates_a_trapping_child(system, reason):
    log: list[object] = []
    parent = system.start(Puppet, trap_exits=True)
    child = child_of(system, parent, log, trap_exits=True)
    system.call(parent, lambda puppet, _: puppet.exit(child, reason))
    assert log == [("terminate", reason)]
    assert exits_of(system, parent) == [(child, reason)]


def test_an_exit_signal_from_the_parent_ends_a_child_that_does_not_trap_without_terminate(system):
    log: list[object] = []
    parent = system.start(Puppet, trap_exits=True)
    child = child_of(system, parent, log)
    system.call(parent, lambda puppet, _: puppet.exit(child, "normal"))
    assert system.is_alive(child)
    system.call(parent, lambda puppet, _: puppet.exit(child, "shutdown"))
    assert not system.is_alive(child)
    assert log == []


def test_kill_becomes_killed_for_the_linked_ones(system):
    parent = system.start(Puppet, trap_exits=True)
    child = child_of(system, parent, trap_exits=True)
    system.exit(child, "kill")
    assert exits_of(system, parent) == [(child, "killed")]


def test_ending_oneself_with_kill_can_be_trapped_by_the_linked_ones(system):
    parent = system.start(Puppet, trap_exits=True)
    child = child_of(system, parent)
    system.cast(child, lambda _: Stop("kill"))
    assert exits_of(system, parent) == [(child, "kill")]


def test_a_normal_exit_signal_to_oneself_ends_an_actor(system):
    ref = system.start(Puppet)
    system.call(ref, lambda puppet, _: puppet.exit(puppet.ref, "normal"))
    assert not system.is_alive(ref)


def test_the_first_signal_decides_the_reason(system):
    ref = system.start(Puppet)

    async def end_twice(puppet):
        monitor = puppet.monitor(ref)
        puppet.exit(ref, "first")
        puppet.exit(ref, "second")
        return await puppet.wait_down(monitor)

    assert in_actor(system, end_twice) == "first"


# ---- start_link ---------------------------------------------------------------------------------


def test_a_started_child_knows_its_parent_and_its_name(system):
    parent = system.start(Puppet)
    child = child_of(system, parent, name="child")
    assert system.call(child, lambda puppet, _: (puppet.parent, puppet.name)) == (parent, "child")
    assert system.call(parent, lambda puppet, _: (puppet.parent, puppet.name)) == (None, None)


def test_start_link_waits_for_a_slow_init(system):
    log: list[object] = []

    async def slow(puppet):
        await puppet.sleep(2.0)

    async def start(puppet):
        log.append(await puppet.start_link(Puppet, on_init=slow))

    system.cast(system.start(Puppet), start)
    system.advance(1.9)
    assert log == []
    system.advance(0.1)
    assert len(log) == 1


def test_start_link_of_an_ignoring_actor_gives_none(system):
    assert child_of(system, system.start(Puppet), on_init=lambda _: IGNORE) is None


# ---- monitors -----------------------------------------------------------------------------------


def test_each_monitor_gives_one_down_with_the_reason(system):
    watcher, ref = system.start(Puppet), system.start(Puppet)
    system.call(watcher, lambda puppet, _: puppet.monitor(ref) and puppet.monitor(ref) and None)
    system.stop(ref, "boom")
    assert downs_of(system, watcher) == [(ref, "boom"), (ref, "boom")]


def test_a_monitor_of_a_dead_actor_gives_noproc_at_once(system):
    watcher, dead = system.start(Puppet), system.start(Puppet)
    system.stop(dead)
    system.call(watcher, lambda puppet, _: puppet.monitor(dead) and None)
    assert downs_of(system, watcher) == [(dead, "noproc")]


def test_messages_sent_before_the_end_arrive_before_the_down(system):
    watcher, ref = system.start(Puppet), system.start(Puppet)
    system.call(watcher, lambda puppet, _: puppet.monitor(ref) and None)

    def say_goodbye(puppet):
        watcher.cell.post("goodbye", puppet.ref)
        return Stop("boom")

    system.cast(ref, say_goodbye)
    assert [type(message) for _, message in log_of(system, watcher)] == [str, Down]


def test_no_down_comes_after_demonitor_not_even_one_that_waits(system):
    watcher, ref = system.start(Puppet), system.start(Puppet)

    async def change_mind(puppet, _):
        first, second = puppet.monitor(ref), puppet.monitor(ref)
        third = puppet.monitor(ref)
        puppet.demonitor(first)
        puppet.demonitor(first)
        puppet.exit(ref, "boom")
        await puppet.wait_down(second)
        puppet.demonitor(third)

    system.call(watcher, change_mind)
    assert downs_of(system, watcher) == []


def test_wait_down_gives_the_reason_and_keeps_other_messages_for_later(system):
    watcher, ref = system.start(Puppet), system.start(Puppet)

    async def wait(puppet):
        puppet.log.append(await puppet.wait_down(puppet.monitor(ref)))

    system.cast(watcher, wait)
    system.cast(watcher, "meanwhile")
    system.stop(ref, "boom")
    assert log_of(system, watcher) == ["boom", ("cast", "meanwhile")]


def test_wait_down_gives_up_when_its_time_is_over(system):
    log: list[object] = []
    ref = system.start(Puppet)

    async def wait(puppet):
        log.append(await puppet.wait_down(puppet.monitor(ref), 3.0))

    system.cast(system.start(Puppet), wait)
    system.advance(2.9)
    assert log == []
    system.advance(0.1)
    assert log == [TIMED_OUT]


def test_wait_down_finds_a_down_that_came_while_the_actor_was_busy(system):
    ref = system.start(Puppet)

    async def wait_late(puppet):
        monitor = puppet.monitor(ref)
        wait = puppet.wait_down(monitor)
        puppet.exit(ref, "boom")
        await puppet.sleep(0)
        return await wait

    watcher = system.start(Puppet)
    log: list[object] = []

    async def note(puppet):
        log.append(await wait_late(puppet))

    system.cast(watcher, note)
    system.advance(0)
    assert log == ["boom"]


def test_wait_down_finds_a_down_that_came_in_the_moment_in_which_it_gave_up(system):
    child = system.start(Puppet)
    log: list[object] = []

    async def wait(puppet):
        monitor = puppet.monitor(child)
        log.append(await puppet.wait_down(monitor, 3.0))
        log.append(await puppet.wait_down(monitor))

    def end_and_give_up():
        child.cell.abort("boom")
        give_up = system.run_queue.timers.pop_due(3.0)
        give_up()

    system.cast(system.start(Puppet), wait)
    system.run_outside(end_and_give_up)
    assert log == [TIMED_OUT, "boom"]


# ---- time ---------------------------------------------------------------------------------------


def test_a_message_sent_after_a_delay_comes_when_it_is_due(system):
    ref = system.start(Puppet)
    system.call(ref, lambda puppet, _: puppet.send_after(2.0, "due") and None)
    system.advance(1.9)
    assert log_of(system, ref) == []
    system.advance(0.1)
    assert log_of(system, ref) == [("info", "due")]


def test_a_cancelled_timer_never_fires(system):
    ref = system.start(Puppet)

    def start_and_cancel(puppet, _):
        timer = puppet.send_after(1.0, "never")
        timer.cancel()
        timer.cancel()

    system.call(ref, start_and_cancel)
    system.advance(5.0)
    assert log_of(system, ref) == []


def test_timers_fire_in_the_order_of_their_deadlines_each_at_its_own_time(system):
    ref = system.start(Puppet)

    def note_time(puppet):
        puppet.log.append(puppet.monotonic_s())

    def start(puppet, _):
        for delay_s in (3.0, 1.0, 2.0):
            puppet.send_after(delay_s, note_time)

    system.call(ref, start)
    system.advance(10.0)
    assert log_of(system, ref) == [1.0, 2.0, 3.0]


def test_a_timer_of_an_ended_actor_does_nothing(system):
    ref = system.start(Puppet)
    system.call(ref, lambda puppet, _: puppet.send_after(1.0, "late") and None)
    system.stop(ref)
    system.advance(1.0)
    assert not system.is_alive(ref)


# ---- names --------------------------------------------------------------------------------------


def test_an_actor_registers_a_name_and_is_found_by_it(system):
    ref = system.start(Puppet)
    system.call(ref, lambda puppet, _: puppet.register("name"))
    assert system.whereis("name") is ref
    assert in_actor(system, lambda puppet: puppet.whereis("name")) is ref
    system.stop(ref)
    assert in_actor(system, lambda puppet: puppet.whereis("name")) is None


def test_a_name_of_a_live_actor_cannot_be_registered_by_another(system):
    ref = system.start(Puppet, name="name")

    def register(puppet):
        with pytest.raises(NameTaken):
            puppet.register("name")

    in_actor(system, register)
    assert system.whereis("name") is ref


@pytest.mark.parametrize("name", ["name", "another"])
def test_an_actor_has_one_name(system, name):
    ref = system.start(Puppet, name="name")

    def register(puppet, _):
        with pytest.raises(NameTaken):
            puppet.register(name)

    system.call(ref, register)
    assert system.whereis("another") is None


def test_an_unregistered_name_is_free(system):
    ref = system.start(Puppet, name="name")
    in_actor(system, lambda puppet: puppet.unregister("name"))
    assert system.whereis("name") is None
    assert system.is_alive(ref)
    system.call(ref, lambda puppet, _: puppet.register("another"))
    assert system.whereis("another") is ref


def test_a_name_of_nobody_cannot_be_unregistered(system):
    def unregister(puppet):
        with pytest.raises(ActorDead):
            puppet.unregister("nobody")

    in_actor(system, unregister)


def test_a_monitor_by_name_watches_who_has_it_now(system):
    ref = system.start(Puppet, name="name")
    watcher = system.start(Puppet)
    system.call(watcher, lambda puppet, _: puppet.monitor("name"))
    system.stop(ref, "boom")
    (way, down), *_ = log_of(system, watcher)
    assert (way, down.ref, down.reason, down.monitor.name) == ("info", ref, "boom", "name")


def test_a_monitor_of_a_name_of_nobody_is_down_at_once(system):
    watcher = system.start(Puppet)
    system.call(watcher, lambda puppet, _: puppet.monitor("nobody"))
    ((_, down),) = log_of(system, watcher)
    assert (down.reason, down.monitor.name) == ("noproc", "nobody")


# ---- replies later, and stops --------------------------------------------------------------------


def test_a_reply_that_is_waited_for_too_long_is_dropped(system):
    gate = system.start(Gate)
    log = []

    async def ask(puppet):
        call = puppet.call(gate, "wait", None)
        with pytest.raises(CallTimeout):
            await puppet.wait_reply(call, 0.5)
        log.append(puppet.monotonic_s())

    system.cast(system.start(Puppet), ask)
    system.advance(0.5)
    assert log == [0.5]
    system.cast(gate, "late")
    assert log == [0.5]


def test_a_reply_that_has_come_is_not_waited_for(system):
    server = system.start(Puppet)

    async def ask(puppet):
        call = puppet.call(server, lambda *_: "here", None)
        return await puppet.wait_reply(call, 0.0)

    assert in_actor(system, ask) == "here"


def test_stop_actor_waits_for_the_end(system):
    server = system.start(Puppet)
    in_actor(system, lambda puppet: puppet.stop_actor(server, "shutdown"))
    assert not system.is_alive(server)


def test_stop_actor_tells_with_what_reason_the_actor_really_ended(system):
    server = system.start(Puppet, on_terminate=raise_boom)

    async def stop(puppet):
        with pytest.raises(ActorDead) as error:
            await puppet.stop_actor(server)
        return error.value.reason

    assert isinstance(in_actor(system, stop), ValueError)
    assert in_actor(system, stop) == "noproc"


def test_an_actor_cannot_wait_for_its_own_end(system):
    async def stop_itself(puppet):
        try:
            await puppet.stop_actor(puppet.ref)
        except ActorDead as dead:
            return dead.reason

    assert in_actor(system, stop_itself) == "calling_self"


def test_stop_actor_gives_up_but_the_actor_still_ends(system):
    server, gate, _ = start_blocked(system)
    log = []

    async def stop(puppet):
        with pytest.raises(CallTimeout):
            await puppet.stop_actor(server, timeout_s=1.0)
        log.append("gave up")

    system.cast(system.start(Puppet), stop)
    system.advance(1.0)
    assert log == ["gave up"]
    assert system.is_alive(server)
    system.cast(gate, "open")
    assert not system.is_alive(server)
