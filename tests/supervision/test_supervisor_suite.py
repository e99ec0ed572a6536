"""Cases of OTP's supervisor_SUITE that fit no other file; docs/otp-cases.md lists where all are."""

import gc
import itertools
import weakref

import pytest

from poe.actors import GenServer, StartFailed
from poe.supervision import (
    AutoShutdown,
    ChildCounts,
    ChildKind,
    ChildSpec,
    CountChildren,
    Restart,
    RestartChild,
    StartChild,
    StartDynamicChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
    TerminateChild,
    WhichChildren,
)
from tests.supervision.workers import Worker

TRANSIENT, TEMPORARY = Restart.TRANSIENT, Restart.TEMPORARY
DYNAMIC = Strategy.SIMPLE_ONE_FOR_ONE


class Configured(Supervisor):
    """Returns, or raises, what it is started with."""

    def configure(self, outcome):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.mark.parametrize("junk", [None, 42, ("only one thing",), (SupervisorFlags(), None)])
def test_a_configuration_that_is_none_fails_the_start(world, junk):
    with pytest.raises(StartFailed):
        world.base.start(Configured, junk, name="sup")
    assert world.base.whereis("sup") is None


def test_a_configuration_that_raises_fails_the_start_with_what_it_raised(world):
    boom = ValueError("boom")
    with pytest.raises(StartFailed) as error:
        world.base.start(Configured, boom)
    assert error.value.reason is boom


@pytest.mark.parametrize("restart", list(Restart))
def test_a_dynamic_child_that_ignores_is_not_stored_and_the_end_is_clean(world, restart):
    template = ChildSpec(id="t", actor=Worker, args=(world.journal,), restart=restart)
    supervisor = world.supervise([template], DYNAMIC)
    world.journal.plans["x"] = ["ignore"]
    assert world.ask(supervisor, StartDynamicChild(("x",))) is None
    assert world.ask(supervisor, CountChildren()) == ChildCounts(1, 0, 0, 0)
    world.base.exit(supervisor, "shutdown")
    assert world.reason_of(supervisor) == "shutdown"


@pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ONE, DYNAMIC])
@pytest.mark.parametrize(
    ("restart", "reason"), list(itertools.product(Restart, ["normal", "shutdown", "boom", "raise"]))
)
def test_children_that_end_by_themselves_while_their_supervisor_stops_do_not_hang_it(
    world, strategy, restart, reason
):
    ends = "raise" if reason == "raise" else ("stop", reason)
    options = {"cleanup_s": 1.0}
    if strategy is DYNAMIC:
        spec = ChildSpec(
            id="t", actor=Worker, args=(world.journal,), kwargs=options, restart=restart
        )
        supervisor = world.supervise([spec], strategy)
        children = [world.ask(supervisor, StartDynamicChild((label,))) for label in "abc"]
    else:
        supervisor = world.supervise(world.specs("abc", restart=restart, **options))
        children = list(world.slots(supervisor).values())

    for child in children:
        world.watch(child)
    world.base.exit(supervisor, "shutdown")
    for child in reversed(children):
        world.base.cast(child, ends)  # while the supervisor waits for the clean-up of the last one
    world.base.advance(30)
    assert world.reason_of(supervisor) == "shutdown"
    assert all(world.reason_of(child) is not None for child in children)


def test_dynamic_children_keep_their_own_reasons_when_they_are_told_to_stop(world):
    template = ChildSpec(id="t", actor=Worker, args=(world.journal,), kwargs={})
    supervisor = world.supervise([template], DYNAMIC)
    labels = ["x", "y", "z"]
    children = [
        world.watch(
            world.ask(supervisor, StartDynamicChild((label,), {"ends_as": ValueError(label)}))
        )
        for label in labels
    ]
    world.base.exit(supervisor, "shutdown")
    assert [str(world.reason_of(child)) for child in children] == labels
    assert world.reason_of(supervisor) == "shutdown"


class Payload:
    """Something large that a child is started with."""


class Holder(GenServer):
    def init(self, payload):
        self.payload = payload

    def handle_cast(self, message):
        self.payload = None
        raise ValueError(message)


@pytest.mark.slow
def test_the_arguments_of_a_temporary_dynamic_child_are_kept_by_nobody(world):
    template = ChildSpec(id="t", actor=Holder, restart=TEMPORARY)
    supervisor = world.supervise([template], DYNAMIC)
    payloads = [Payload(), Payload()]
    dead = [weakref.ref(payload) for payload in payloads]
    first, second = [world.ask(supervisor, StartDynamicChild((each,))) for each in payloads]
    del payloads
    world.base.cast(first, "end")
    world.base.exit(second, "kill")
    gc.collect()
    assert [reference() for reference in dead] == [None, None]


def test_dynamic_supervisors_are_counted_as_such(world):
    template = ChildSpec(
        id="t", actor=Supervisor, args=(SupervisorFlags(), []), kind=ChildKind.SUPERVISOR
    )
    supervisor = world.supervise([template], DYNAMIC)
    for _ in range(1000):
        world.ask(supervisor, StartDynamicChild())
    counts = ChildCounts(specs=1, active=1000, supervisors=1000, workers=0)
    assert world.ask(supervisor, CountChildren()) == counts
    for _ in range(1000):
        world.ask(supervisor, StartDynamicChild())
    counts = ChildCounts(specs=1, active=2000, supervisors=2000, workers=0)
    assert world.ask(supervisor, CountChildren()) == counts
    assert len(world.ask(supervisor, WhichChildren())) == 2000


def test_a_tree_restarts_its_static_children_and_loses_those_that_were_added(world):
    nested = SupervisorFlags(strategy=Strategy.ONE_FOR_ALL, intensity=0)
    specs = [
        world.nested("s1", nested, world.specs("ab"), shutdown_s="infinity"),
        world.nested("s2", nested, world.specs("cd"), shutdown_s="infinity", restart=TRANSIENT),
    ]
    supervisor = world.supervise(specs, Strategy.ONE_FOR_ALL, intensity=3, period_s=100)
    world.ask(world.ref(supervisor, "s1"), StartChild(world.spec("added")))
    world.journal.take()
    events = world.end(world.ref(supervisor, "s1"), "a")  # at intensity 0 it takes s1 along
    assert [event[1] for event in events if event[0] == "start"] == ["a", "b", "c", "d"]
    assert set(world.slots(world.ref(supervisor, "s1"))) == {"a", "b"}
    world.ask(supervisor, TerminateChild("s2"))
    assert world.slots(supervisor)["s2"] is None
    world.journal.take()
    events = world.end(world.ref(supervisor, "s1"), "b")
    assert [event[1] for event in events if event[0] == "start"] == ["a", "b", "c", "d"]


def test_a_named_supervisor_and_its_named_child_come_back_under_their_names(world):
    inner = world.nested(
        "sup", SupervisorFlags(intensity=10), [world.spec("a", name="server")], name="sup"
    )
    outer = world.supervise([inner], intensity=10)

    def names():
        return world.base.whereis("sup"), world.base.whereis("server")

    seen = [names()]
    for end in (
        lambda: world.base.exit(world.base.whereis("sup"), "kill"),
        lambda: world.base.exit(world.base.whereis("server"), "kill"),
        lambda: world.base.cast(world.base.whereis("server"), ("stop", "normal")),
    ):
        end()
        seen.append(names())
    world.ask(outer, TerminateChild("sup"))
    assert names() == (None, None)
    world.ask(outer, RestartChild("sup"))
    seen.append(names())
    assert all(None not in pair for pair in seen)
    assert len({server for _, server in seen}) == len(seen)
    assert len({sup for sup, _ in seen}) == 3


MODES = list(itertools.permutations(AutoShutdown, 2))


class Shelved(Supervisor):
    def configure(self, shelf):
        return shelf[0]


@pytest.mark.parametrize(("before", "after"), MODES)
def test_another_mode_of_automatic_shutdown_counts_for_later_ends(world, before, after):
    def configuration(mode):
        is_significant = mode is not AutoShutdown.NEVER
        specs = world.specs("abc", restart=TEMPORARY, significant=is_significant)
        return SupervisorFlags(auto_shutdown=mode), specs

    shelf = [configuration(before)]
    supervisor = world.watch(world.base.start(Shelved, shelf))
    shelf[:] = [configuration(after)]
    world.base.suspend(supervisor)
    world.base.change_code(supervisor)
    world.base.resume(supervisor)
    ends = []
    for label in "abc":
        if world.reason_of(supervisor) is None:
            world.end(supervisor, label, "normal")
            ends.append(label)
    expected = {
        "any_significant": (["a"], "shutdown"),
        "all_significant": (["a", "b", "c"], "shutdown"),
    }
    assert (ends, world.reason_of(supervisor)) == expected.get(after, (["a", "b", "c"], None))


@pytest.mark.parametrize("count", [100, 1000])
def test_many_children_with_specs_start_and_stop_in_order(world, count):
    labels = [str(number) for number in range(count)]
    supervisor = world.supervise(world.specs(labels))
    assert list(world.slots(supervisor)) == labels
    world.base.exit(supervisor, "shutdown")
    assert [event[1] for event in world.journal.take()] == labels[::-1]
