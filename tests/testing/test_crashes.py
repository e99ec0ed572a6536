"""Injected crashes hit the actor, the callback and the moment that were ordered."""

import pytest

from poe.actors import ActorDead, GenServer, StartFailed
from poe.supervision import ChildSpec, Supervisor, SupervisorFlags, supervisor_spec, tree
from poe.testing import CrashingSystem, InjectedCrash, SimulatedSystem


class Adder(GenServer):
    trap_exits = True

    def init(self, ended=None):
        self.total, self.ended = 0, ended

    def handle_call(self, number, caller):
        self.total += number
        return self.total

    def handle_cast(self, number):
        self.total += number

    def terminate(self, reason):
        if self.ended is not None:
            self.ended.append(reason)


@pytest.fixture
def system():
    with SimulatedSystem() as system:
        yield system


def reason_of(system, ref, number=1):
    with pytest.raises(ActorDead) as dead:
        system.call(ref, number)
    return dead.value.reason


def test_an_actor_crashes_at_its_nth_message_of_any_kind_and_has_not_handled_it(system):
    ended: list[object] = []
    crash = system.crash(Adder, at=3)
    adder = system.start(Adder, ended)
    assert system.call(adder, 1) == 1
    system.cast(adder, 1)
    assert crash.count == 0
    assert isinstance(reason_of(system, adder), InjectedCrash)
    assert crash.count == 1
    [reason] = ended
    assert isinstance(reason, InjectedCrash)


def test_only_the_callback_that_was_named_counts(system):
    system.crash(Adder, callback="handle_cast", at=2, reason="tired")
    adder = system.start(Adder)
    assert [system.call(adder, 0) for _ in range(3)] == [0, 0, 0]
    system.cast(adder, 5)
    assert system.call(adder, 0) == 5
    system.cast(adder, 5)
    assert not system.is_alive(adder)


def test_an_actor_that_runs_is_hit_alone_and_keeps_its_class_s_name_and_state(system):
    hit, spared = system.start(Adder, name="hit"), system.start(Adder)
    system.call(hit, 4)
    system.crash("hit", at=2, reason=KeyError("lost"))
    assert type(hit.cell.instance).__name__ == "Adder"
    assert system.get_state(hit) == {"total": 4, "ended": None}
    assert system.call(hit, 1) == 5
    assert isinstance(reason_of(system, hit), KeyError)
    assert [system.call(spared, 1) for _ in range(3)] == [1, 2, 3]


def test_init_fails_a_number_of_times_and_the_supervisor_gets_through(system):
    adder = ChildSpec(id="adder", actor=Adder, name="adder")
    root = system.start(Supervisor, SupervisorFlags(intensity=5), [adder])
    crash = system.crash(Adder, callback="init", times=3)
    system.exit(system.whereis("adder"), "kill")
    assert crash.count == 3
    assert system.call("adder", 2) == 2
    assert tree(root)[1].restarts == 1


def test_a_start_whose_init_crashes_fails_with_the_reason(system):
    system.crash(Adder, callback="init", reason="no luck")
    with pytest.raises(StartFailed, match="no luck"):
        system.start(Adder)
    assert system.call(system.start(Adder), 1) == 1


def test_every_new_actor_of_the_class_crashes_until_the_times_are_used_up(system):
    adder = ChildSpec(id="adder", actor=Adder, name="adder")
    system.crash(Adder, at=2, times=2)
    system.start(Supervisor, SupervisorFlags(intensity=5), [adder])
    answers = []
    for _ in range(7):
        try:
            answers.append(system.call("adder", 1))
        except ActorDead:
            answers.append("crash")
    assert answers == [1, "crash", 1, "crash", 1, 2, 3]


class Equal(Adder):
    """Equal to any other, and without a hash, as an actor that is a dataclass may be."""

    def __eq__(self, other):
        return True

    __hash__ = None  # type: ignore[assignment]


def test_actors_count_for_themselves_though_they_are_equal(system):
    system.crash(Equal, at=2)
    first, second = system.start(Equal), system.start(Equal)
    assert [system.call(first, 1), system.call(second, 1)] == [1, 1]
    assert isinstance(reason_of(system, second), InjectedCrash)


def test_a_crash_of_terminate_replaces_the_reason(system):
    system.crash(Adder, callback="terminate", reason="worse")
    root = system.start(Supervisor, SupervisorFlags(), [ChildSpec(id="a", actor=Adder, name="a")])
    system.cast("a", "no number")
    assert tree(root)[0].children_last_reason == "'worse'"


def test_a_supervisor_crashes_as_any_actor_and_is_healed_by_its_own(system):
    adder = ChildSpec(id="adder", actor=Adder, name="adder")
    branch = supervisor_spec("branch", SupervisorFlags(), [adder])
    root = system.start(Supervisor, SupervisorFlags(intensity=5), [branch])
    crash = system.crash("branch", callback="handle_info", reason="tired")
    system.call("adder", 1)
    system.exit(system.whereis("adder"), "kill")
    assert (crash.count, system.call("adder", 1)) == (1, 1)
    assert tree(root)[1].last_reason == "'tired'"
    system.crash(Supervisor, callback="init")
    with pytest.raises(StartFailed, match="InjectedCrash"):
        system.start(Supervisor, SupervisorFlags(), [])


def test_an_order_that_can_never_be_carried_out_is_refused(system):
    with pytest.raises(ValueError, match="no callback is called 'handle_tell'"):
        system.crash(Adder, callback="handle_tell")
    with pytest.raises(ValueError, match="nobody is no actor that runs"):
        system.crash("nobody")


def test_crashes_can_be_ordered_in_real_time_too():
    system = CrashingSystem()
    try:
        system.crash(Adder)
        assert isinstance(reason_of(system, system.start(Adder)), InjectedCrash)
    finally:
        system.shutdown()


@pytest.mark.parametrize("name", ["at", "times"])
def test_a_crash_that_would_never_come_is_refused(system, name):
    for value in (0, -1):
        with pytest.raises(ValueError, match=f"{name} is {value}; use 1 or more"):
            system.crash(Adder, **{name: value})
    for wrong in ("2", 1.5, None, True):
        with pytest.raises(TypeError, match=f"{name} is {wrong!r}; use a whole number"):
            system.crash(Adder, **{name: wrong})


@pytest.mark.parametrize("reason", [OSError, KeyboardInterrupt, KeyboardInterrupt()])
def test_a_reason_that_cannot_be_raised_in_an_actor_is_refused(system, reason):
    with pytest.raises(TypeError, match="use an Exception object"):
        system.crash(Adder, reason=reason)
