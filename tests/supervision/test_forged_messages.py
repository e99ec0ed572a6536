"""One child spec, one living actor, whatever anybody sends the supervisor; and any hashable id."""

import pytest

from poe.actors import Down, Exit, Monitor
from poe.actors.message import ExitSignal
from poe.errors import ChildRequestRefused, InvalidChildSpec
from poe.supervision import (
    Backoff,
    ChildSpec,
    CountChildren,
    DeleteChild,
    GetChildSpec,
    RestartChild,
    StartChild,
    StartDynamicChild,
    Strategy,
    TerminateChild,
    WhichChildren,
    render_tree,
    tree,
)
from poe.supervision.lifecycle import Retry
from poe.supervision.restart_delays import RestartDue

STRATEGIES = list(Strategy)


def start(world, strategy):
    """Start a supervisor with one child."""
    supervisor = world.supervise([world.spec("a")], strategy, intensity=100)
    if strategy is Strategy.SIMPLE_ONE_FOR_ONE:
        world.ask(supervisor, StartDynamicChild())
    (child,) = world.ask(supervisor, WhichChildren())
    world.journal.take()
    return supervisor, child.ref


def send(world, supervisor, message):
    world.base.run_queue.send_from_outside(supervisor.cell, message, None)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_exit_that_somebody_made_starts_no_second_child(world, strategy, caplog):
    supervisor, child = start(world, strategy)
    send(world, supervisor, Exit(child, "boom"))
    assert world.journal.take() == []
    assert [info.ref for info in world.ask(supervisor, WhichChildren())] == [child]
    assert f"ignores an exit of {child}, which lives" in caplog.text
    world.base.cast(child, ("stop", "boom"))
    (restarted,) = world.ask(supervisor, WhichChildren())
    assert restarted.ref != child
    assert world.base.is_alive(restarted.ref)
    assert world.ask(supervisor, CountChildren()).active == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_exit_signal_that_a_living_child_sends_is_no_end_of_it(world, strategy):
    supervisor, child = start(world, strategy)
    for linked in (False, True):
        send(world, supervisor, ExitSignal(child, "boom", linked))
    assert world.journal.take() == []
    assert [info.ref for info in world.ask(supervisor, WhichChildren())] == [child]
    send(world, supervisor, Exit(child, "boom"))
    world.base.cast(child, ("stop", "boom"))
    assert len(world.journal.take()) == 2  # its end and one start


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "make",
    [
        lambda _: Exit([1], "x"),
        lambda _: Exit(None, "x"),
        lambda _: Exit("a", "x"),
        lambda _: Exit(Unfriendly("a"), "x"),
        lambda child: Down(child, "x", Monitor(child)),
        lambda _: ExitSignal([1], "x"),
        lambda _: ExitSignal([1], "x", linked=True),
        lambda _: RestartDue([1]),  # type: ignore[arg-type]
        RestartDue,
    ],
)
def test_what_is_no_exit_of_a_child_is_ignored(world, strategy, make):
    supervisor, child = start(world, strategy)
    send(world, supervisor, make(child))
    assert world.journal.take() == []
    assert [info.ref for info in world.ask(supervisor, WhichChildren())] == [child]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("child", [[1], "a", None])
def test_a_retry_that_somebody_made_is_ignored(world, strategy, child):
    supervisor, ref = start(world, strategy)
    world.base.cast(supervisor, Retry(child))
    assert [info.ref for info in world.ask(supervisor, WhichChildren())] == [ref]


def test_a_down_that_somebody_made_does_not_end_a_wait(world):
    supervisor, child = start(world, Strategy.ONE_FOR_ONE)
    send(world, supervisor, Down(child, "x", Monitor(child)))
    world.base.stop(supervisor)
    assert not world.base.is_alive(child)


# ---- ids -----------------------------------------------------------------------------------------


class Unfriendly:
    """Raises wherever it may, and has the hash of all others and of "a"."""

    def __init__(self, name, hashes=10**6):
        self.name = name
        self.hashes = hashes

    def __eq__(self, other):
        raise ValueError(self.name)

    def __hash__(self):
        self.hashes -= 1
        if self.hashes < 0:
            raise ValueError(self.name)
        return hash("a")

    def __repr__(self):
        raise ValueError(self.name)


def spec(world, child_id, **options):
    return ChildSpec(id=child_id, actor=world.spec("x").actor, args=(world.journal, "x"), **options)


@pytest.mark.parametrize("strategy", STRATEGIES[:3])
def test_ids_that_raise_end_no_supervisor(world, strategy):
    one, two, stranger = Unfriendly("one"), Unfriendly("two"), Unfriendly("stranger")
    specs = [spec(world, "a"), spec(world, one)]
    supervisor = world.supervise(specs, strategy, intensity=100, backoff=None)
    world.ask(supervisor, StartChild(spec(world, two)))
    slots = {id(info.id): info.ref for info in world.ask(supervisor, WhichChildren())}
    assert len(slots) == 3
    world.base.cast(slots[id(two)], ("stop", "boom"))
    world.ask(supervisor, TerminateChild(one))
    world.ask(supervisor, RestartChild(one))
    assert world.ask(supervisor, GetChildSpec(two)).id is two
    world.ask(supervisor, TerminateChild(two))
    world.ask(supervisor, DeleteChild(two))
    for request in (TerminateChild, RestartChild, DeleteChild, GetChildSpec):
        with pytest.raises(ChildRequestRefused):
            world.ask(supervisor, request(stranger))
    assert render_tree(tree(supervisor))
    assert world.ask(supervisor, CountChildren()).active == 2
    world.base.stop(supervisor)


def test_an_id_that_raises_is_restarted_after_a_wait_and_a_failed_start(world):
    one = Unfriendly("one")
    backoff = Backoff(first_s=1, seed=7)
    supervisor = world.supervise([spec(world, one)], intensity=100, backoff=backoff)
    (info,) = world.ask(supervisor, WhichChildren())
    world.journal.plans["x"] = ["fails"]
    world.base.cast(info.ref, ("stop", "boom"))
    world.base.advance(60)
    (info,) = world.ask(supervisor, WhichChildren())
    assert world.base.is_alive(info.ref)


def test_a_template_s_id_that_raises_is_no_matter(world):
    template = spec(world, Unfriendly("template"))
    supervisor = world.supervise([template], Strategy.SIMPLE_ONE_FOR_ONE, intensity=100)
    child = world.ask(supervisor, StartDynamicChild())
    assert world.ask(supervisor, GetChildSpec(child)).id is template.id
    for child_id in (Unfriendly("other"), "a", 1):
        with pytest.raises(ChildRequestRefused):
            world.ask(supervisor, GetChildSpec(child_id))
        with pytest.raises(ChildRequestRefused):
            world.ask(supervisor, TerminateChild(child_id))
    world.base.cast(child, ("stop", "boom"))
    assert world.ask(supervisor, CountChildren()).active == 1


def test_an_id_whose_hash_raises_is_refused_where_it_is_made(world):
    with pytest.raises(InvalidChildSpec, match="hashable"):
        spec(world, Unfriendly("x", hashes=0))
    with pytest.raises(InvalidChildSpec, match="hashable"):
        TerminateChild(Unfriendly("x", hashes=0))


def test_an_id_whose_hash_raises_later_ends_no_supervisor(world):
    fickle = Unfriendly("fickle", hashes=2)  # as many as its spec needs
    supervisor = world.supervise([spec(world, fickle)], intensity=100)
    (info,) = world.ask(supervisor, WhichChildren())
    world.journal.plans["x"] = ["fails", "fails"]
    world.base.cast(info.ref, ("stop", "boom"))
    (info,) = world.ask(supervisor, WhichChildren())
    assert world.base.is_alive(info.ref)
    world.base.stop(supervisor)
