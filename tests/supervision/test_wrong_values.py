"""Wrong values are refused where they are given, by name, and harm no supervisor and no child."""

from typing import Any

import pytest

from poe.actors import GenServer, StartFailed
from poe.errors import ChildStartFailed, InvalidChildSpec
from poe.supervision import (
    Backoff,
    ChildSpec,
    DeleteChild,
    GetChildSpec,
    Partitions,
    PartitionSupervisor,
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


class Idle(GenServer):
    pass


IDLE = ChildSpec(id="idle", actor=Idle)
FLAGS = SupervisorFlags()
WORD: Any = "1"  # where the type hints want something else
WRONG = [
    (StartChild, "spec", {"id": 1}),
    (StartChild, "spec", Idle),
    (StartChild, "spec", None),
    (TerminateChild, "child", [1]),
    (RestartChild, "id", [1]),
    (DeleteChild, "id", {}),
    (GetChildSpec, "child", []),
    (StartDynamicChild, "args", 5),
    (StartDynamicChild, "args", "ab"),
    (StartDynamicChild, "kwargs", ["a"]),
]


@pytest.mark.parametrize(("kind", "field", "value"), WRONG)
def test_a_request_with_a_wrong_value_is_refused_where_it_is_made(kind, field, value):
    with pytest.raises(InvalidChildSpec, match=f"{field} is .*; use"):
        kind(**{field: value})


@pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ONE, Strategy.SIMPLE_ONE_FOR_ONE])
@pytest.mark.parametrize(("kind", "field", "value"), WRONG)
def test_one_that_comes_all_the_same_is_refused_and_everybody_lives(
    world, strategy, kind, field, value
):
    supervisor = world.supervise(world.specs("a"), strategy)
    if strategy is Strategy.SIMPLE_ONE_FOR_ONE:
        world.ask(supervisor, StartDynamicChild())
    before = world.ask(supervisor, WhichChildren())
    request = object.__new__(kind)
    for name, other in {"args": (), "kwargs": {}, field: value}.items():
        if name in kind.__slots__:
            object.__setattr__(request, name, other)
    with pytest.raises(InvalidChildSpec, match=field):
        world.ask(supervisor, request)
    assert world.base.is_alive(supervisor)
    assert world.ask(supervisor, WhichChildren()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ([IDLE],),
        ([IDLE], FLAGS),
        (SupervisorFlags, [IDLE]),
        (FLAGS,),
        (),
        (FLAGS, IDLE),
        (FLAGS, (spec for spec in [IDLE])),
    ],
    ids=["no flags", "swapped", "class", "no specs", "nothing", "one spec", "generator"],
)
def test_a_supervisor_says_what_it_is_started_with(world, arguments):
    with pytest.raises(StartFailed, match=r"use \(flags, \[specs\]\)") as caught:
        world.base.start(Supervisor, *arguments)
    assert isinstance(caught.value.reason, InvalidChildSpec)


@pytest.mark.parametrize("spec", [Idle, {"id": "a", "actor": Idle}, None])
def test_what_is_no_spec_is_refused_in_the_list_of_specs(world, spec):
    with pytest.raises(StartFailed, match=r"is no child spec; use ChildSpec\(id="):
        world.base.start(Supervisor, FLAGS, [IDLE, spec])


@pytest.mark.parametrize("junk", [None, FLAGS, 5, (FLAGS, 5)])
def test_a_configure_that_returns_something_else_is_refused(world, junk):
    class Junk(Supervisor):
        def configure(self):
            return junk

    with pytest.raises(StartFailed, match=r"use \(flags, \[specs\]\)"):
        world.base.start(Junk)


def test_a_supervisor_that_would_replace_the_start_of_its_children_is_refused():
    with pytest.raises(TypeError, match="override configure"):

        class Wrong(Supervisor):
            def init(self):
                self.x = 1


def test_keywords_of_a_supervisor_are_refused_in_the_same_way(world):
    with pytest.raises(StartFailed, match=r"use \(flags, \[specs\]\)"):
        world.base.start(Supervisor, FLAGS, specs=[IDLE])


def test_a_partition_supervisor_says_what_it_is_started_with(world):
    shards = Partitions("shard", 2)
    with pytest.raises(StartFailed, match=r"use \(Partitions\(...\), ChildSpec\(...\)\)"):
        world.base.start(PartitionSupervisor, IDLE, shards)
    with pytest.raises(StartFailed, match=r"use SupervisorFlags"):
        world.base.start(PartitionSupervisor, shards, IDLE, 3)
    named = ChildSpec(id="a", actor=Idle, name="mine")
    with pytest.raises(StartFailed, match="name is 'mine'; its children need None"):
        world.base.start(PartitionSupervisor, shards, named)


def test_partitions_name_the_field_or_the_key_that_is_wrong():
    wrong: list[Any] = [("x", "4", "count"), ("x", 1.5, "count"), ("", 4, "name")]
    for name, count, field in wrong:
        with pytest.raises(InvalidChildSpec, match=f"{field} is .*; use"):
            Partitions(name, count)
    keys: list[Any] = [("a", 1), 1.5, None]
    for key in keys:
        with pytest.raises(TypeError, match=r"the key is .*; use an int, str or bytes"):
            Partitions("x", 4).find(key)


@pytest.mark.parametrize("field", ["first_s", "factor", "max_s", "jitter", "reset_after_s"])
def test_a_back_off_names_the_field_that_is_no_number(field):
    with pytest.raises(InvalidChildSpec, match=f"{field} is '1'; use a number"):
        Backoff(**{field: WORD})


def test_a_word_in_place_of_a_member_is_answered_with_the_members():
    with pytest.raises(InvalidChildSpec, match=r"use Restart.PERMANENT, Restart.TRANSIENT or"):
        ChildSpec(id="a", actor=Idle, restart=WORD)
    with pytest.raises(InvalidChildSpec, match=r"use Strategy.ONE_FOR_ONE, "):
        SupervisorFlags(strategy=WORD)


def test_an_empty_name_or_keywords_that_are_none_are_refused():
    with pytest.raises(InvalidChildSpec, match="name is ''"):
        ChildSpec(id="a", actor=Idle, name="")
    with pytest.raises(InvalidChildSpec, match="kwargs is '1'"):
        ChildSpec(id="a", actor=Idle, kwargs=WORD)


def test_arguments_that_the_actor_does_not_take_are_a_failed_start(world):
    template = ChildSpec(id="w", actor=Worker, restart=Restart.TEMPORARY)
    supervisor = world.supervise([template], Strategy.SIMPLE_ONE_FOR_ONE)
    with pytest.raises(ChildStartFailed):
        world.ask(supervisor, StartDynamicChild(()))
    assert world.base.is_alive(supervisor)
