"""Starts that may not take for ever (proc_lib_SUITE, sync_start_*)."""

import pytest

from poe.actors import StartFailed
from tests.actors.puppet import Puppet, in_actor, log_of


async def sleep_long(puppet):
    await puppet.sleep(10)


async def sleep_briefly(puppet):
    await puppet.sleep(1)


@pytest.mark.parametrize("trap_exits", [False, True])
def test_an_init_that_takes_too_long_is_killed_and_the_starter_told_once(system, trap_exits):
    log: list[object] = []
    children = []

    async def start(puppet):
        call = puppet.start_link(
            Puppet, log, on_init=sleep_long, trap_exits=True, name="slow", start_timeout_s=2
        )
        children.append(puppet.whereis("slow"))
        with pytest.raises(StartFailed) as error:
            await call
        puppet.log.append((puppet.monotonic_s(), error.value.reason, puppet.whereis("slow")))

    starter = system.start(Puppet, trap_exits=trap_exits)
    system.cast(starter, start)
    system.advance(20)
    assert log_of(system, starter) == [(2, "timeout", None)]
    assert log == []  # no terminate
    assert not system.is_alive(children[0])


def test_an_init_that_is_done_in_time_is_left_alone(system):
    log = []

    async def start(puppet):
        ref = await puppet.start_link(Puppet, on_init=sleep_briefly, start_timeout_s=2)
        log.append((puppet.monotonic_s(), ref))

    system.cast(system.start(Puppet), start)
    system.advance(20)
    [(at_s, ref)] = log
    assert at_s == 1
    assert system.is_alive(ref)


def test_an_init_that_needs_no_time_leaves_no_timer_behind(system):
    async def start(puppet):
        return await puppet.start_link(Puppet, start_timeout_s=2)

    assert system.is_alive(in_actor(system, start))
    assert system.run_queue.next_deadline_s() is None


def test_a_start_from_outside_has_a_time_limit_too(live):
    with pytest.raises(StartFailed, match="timeout"):
        live.start(Puppet, on_init=sleep_long, name="slow", start_timeout_s=0.01)
    assert live.whereis("slow") is None
