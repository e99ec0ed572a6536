"""An actor that goes on for ever by `Continue` keeps nobody else waiting, and can be ended."""

import threading

import pytest

from poe.actors import ActorDead, CallTimeout, Continue, GenServer, Reply
from poe.supervision import ChildSpec, Supervisor, SupervisorFlags
from tests.actors.puppet import Puppet, log_of
from tests.waiting import wait_until


class Goer(GenServer):
    """Goes on for ever, or as often as it is told; notes what it does."""

    def init(self, count=None, *, trap_exits=False, log=None):
        self.trap_exits = trap_exits
        self.count = count
        self.log = [] if log is None else log
        return Continue("init")

    def handle_continue(self, argument):
        self.log.append(argument)
        if self.count is not None:
            self.count -= 1
            if self.count <= 0:
                return None
        return Continue("more")

    def handle_call(self, request, caller):
        self.log.append(request)
        return Reply(list(self.log), Continue("more"))

    def handle_cast(self, message):
        self.log.append(message)


def test_others_are_served_and_a_kill_ends_it(live):
    goer, other = live.start(Goer), live.start(Puppet)
    assert live.call(other, lambda *_: "served", timeout_s=30) == "served"
    live.cast(other, "note")
    assert log_of(live, other) == [("cast", "note")]
    live.exit(goer, "kill")
    wait_until(lambda: not live.is_alive(goer), 30)


@pytest.mark.parametrize("trap_exits", [False, True])
def test_a_supervisor_shuts_it_down(live, trap_exits):
    kwargs = {"trap_exits": trap_exits}
    spec = ChildSpec(id="goer", actor=Goer, kwargs=kwargs, name="goer", shutdown_s=0.05)
    supervisor = live.start(Supervisor, SupervisorFlags(), [spec])
    goer = live.whereis("goer")
    live.stop(supervisor, timeout_s=30)
    assert not live.is_alive(goer)


def test_a_call_to_it_times_out_and_one_under_way_learns_of_its_end(live):
    goer = live.start(Goer)
    with pytest.raises(CallTimeout):
        live.call(goer, "never", timeout_s=0.05)
    failed = threading.Event()

    def call():
        with pytest.raises(ActorDead):
            live.call(goer, "never", timeout_s=None)
        failed.set()

    thread = threading.Thread(target=call)
    thread.start()
    live.exit(goer, "kill")
    assert failed.wait(30)
    thread.join()


def test_a_shutdown_ends_it(live):
    goer = live.start(Goer)
    live.shutdown()
    assert not live.is_alive(goer)


def test_it_can_be_ended_in_simulated_time_too(system):
    system.run_queue.burst = (None,) * 1_000
    goer, other = system.start(Goer), system.start(Puppet)
    assert system.call(other, lambda *_: "served") == "served"
    system.exit(goer, "kill")
    assert not system.is_alive(goer)


def test_actors_that_go_on_take_turns(system):
    log: list[object] = []
    for name in "ab":
        system.start(Goer, 3, log=log)
        log.append(name)
    assert log == ["init", "more", "more", "a", "init", "more", "more", "b"]
    log.clear()

    starter = system.start(Puppet)

    async def start_both(puppet):
        calls = [puppet.start_link(Named, name, log) for name in "ab"]
        for call in calls:
            await call

    system.cast(starter, start_both)
    assert log == [("a", 2), ("a", 1), ("b", 2), ("a", 0), ("b", 1), ("b", 0)]


class Named(GenServer):
    def init(self, name, log):
        self.name_of_mine, self.log = name, log
        return Continue(2)

    def handle_continue(self, left):
        self.log.append((self.name_of_mine, left))
        return Continue(left - 1) if left else None


def test_what_comes_meanwhile_waits_in_order_behind_the_last_of_them(system):
    ref = system.start(Puppet)

    def go_on(puppet):
        puppet.send_after(0, "sent before")
        puppet.cast(puppet.ref, "cast before")
        return Continue(lambda puppet: log_and(puppet, "first", Continue("second")))

    system.cast(ref, go_on)
    assert log_of(system, ref) == ["first", ("continue", "second"), ("cast", "cast before")]
    system.advance(1)
    assert log_of(system, ref)[-1] == ("info", "sent before")


def log_and(puppet, entry, result):
    puppet.log.append(entry)
    return result


def test_a_continue_that_awaits_is_followed_by_what_waited(system):
    ref = system.start(Puppet)

    async def later(puppet):
        await puppet.sleep(1)
        puppet.log.append("slept")
        return Continue("last")

    system.cast(ref, lambda _: Continue(later))
    system.cast(ref, "waits")
    system.advance(2)
    assert log_of(system, ref) == ["slept", ("continue", "last"), ("cast", "waits")]


def test_a_crash_in_a_later_continue_ends_the_actor_alone(system):
    ref, other = system.start(Puppet), system.start(Puppet)

    def crash(puppet):
        raise ValueError

    system.cast(ref, lambda _: Continue(lambda _: Continue(crash)))
    assert not system.is_alive(ref)
    assert system.is_alive(other)
