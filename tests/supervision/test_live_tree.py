"""`tree` tells of supervisors and children as they are, and `render_tree` draws rows."""

import threading

import pytest

from poe.actors import GenServer, LoopSystem
from poe.supervision import (
    Backoff,
    ChildSpec,
    Restart,
    StartChild,
    StartDynamicChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
    TerminateChild,
    TreeRow,
    WhichChildren,
    render_tree,
    tree,
)
from poe.supervision.live_tree import ROWS_MAX, TEXT_MAX
from poe.thespian import HostedSystem
from tests.supervision.workers import Client
from tests.waiting import wait_until


class Slow(GenServer):
    """Takes its time: in `init`, in any call, and at the end."""

    async def init(self, seconds=0.0):
        if seconds:
            await self.sleep(seconds)

    async def handle_cast(self, seconds):
        await self.sleep(seconds)

    async def terminate(self, reason):
        await self.sleep(1.0)


class Helped(GenServer):
    """Has a helper of its own, and cannot say what it is."""

    trap_exits = True

    async def init(self):
        self.helper = await self.start_link(Slow)

    def handle_call(self, request, caller):
        assert self.helper is not None
        self.cast(self.helper, 1.0)
        return tree(self.ref)

    def describe_role(self):
        raise ValueError


class Named(GenServer):
    def init(self, role):
        self.role = role

    def describe_role(self):
        return self.role

    def handle_cast(self, message):
        raise ValueError(message)


def column(rows, *names):
    return [tuple(getattr(row, name) for name in names) for row in rows]


def dynamic(world, count, restart=Restart.PERMANENT):
    """Start a supervisor of `count` children, and return it and them."""
    flags = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE, intensity=1000)
    template = ChildSpec(id="t", actor=Named, args=("r",), restart=restart)
    supervisor = world.base.start(Supervisor, flags, [template])
    return supervisor, [world.ask(supervisor, StartDynamicChild()) for _ in range(count)]


def test_a_tree_lists_supervisors_and_workers_from_the_root_down(world):
    inner = SupervisorFlags(strategy=Strategy.REST_FOR_ONE)
    children = [
        world.spec("a", name="first"),
        world.nested("in", inner, world.specs("bc")),
        world.spec("d"),
    ]
    root = world.supervise(children)
    rows = tree(root)
    assert column(rows, "depth", "id", "actor", "name", "kind", "strategy", "state") == [
        (0, "", "Supervisor", "", "supervisor", "one_for_one", "running"),
        (1, "a", "Worker", "first", "worker", "", "running"),
        (1, "in", "Supervisor", "", "supervisor", "rest_for_one", "running"),
        (2, "b", "Worker", "", "worker", "", "running"),
        (2, "c", "Worker", "", "worker", "", "running"),
        (1, "d", "Worker", "", "worker", "", "running"),
    ]
    assert rows[1].ref == str(world.ref(root, "a"))


def test_restarts_and_the_last_reason_are_told_of_a_child_and_of_its_group(world):
    root = world.supervise(world.specs("abc"), Strategy.REST_FOR_ONE, intensity=9)
    world.end(root, "b", "first")
    world.end(root, "b", ValueError("secret"))
    rows = tree(root)
    expected = [("a", 0, ""), ("b", 2, "ValueError"), ("c", 2, "")]
    assert column(rows[1:], "id", "restarts", "last_reason") == expected
    assert (rows[0].children_restarts, rows[0].children_last_reason) == (4, "ValueError")
    infos = world.ask(root, WhichChildren())
    assert column(reversed(infos), "id", "restarts", "last_reason") == expected


def test_a_changed_configuration_keeps_what_is_known_of_crashes(world):
    class Changing(Supervisor):
        def configure(self, *args):
            return SupervisorFlags(intensity=9), world.specs("ab")

    root = world.base.start(Changing)
    world.end(root, "a")
    world.base.suspend(root)
    assert tree(root)[0].state == "suspended"
    world.base.change_code(root)
    world.base.resume(root)
    assert column(tree(root)[1:], "id", "restarts", "last_reason") == [
        ("a", 1, "'boom'"),
        ("b", 0, ""),
    ]


def test_a_child_without_an_actor_is_stopped_or_restarting(world):
    root = world.supervise(
        [world.spec("a", restart=Restart.TRANSIENT), world.spec("b")],
        intensity=9,
        backoff=Backoff(first_s=10.0),
    )
    world.end(root, "a", "normal")
    world.journal.plans["b"] = ["no luck"]
    world.end(root, "b")
    stopped = ("a", "stopped", "", 0, "")
    looks = []
    for seconds in (0, 10, 20):
        world.base.advance(seconds)
        rows = tree(root)
        assert rows[1].ref == ""
        looks.append(column(rows[1:], "id", "state", "actor", "restarts", "last_reason"))
    assert looks == [
        [stopped, ("b", "restarting", "", 0, "'boom'")],
        [stopped, ("b", "restarting", "", 0, "'no luck'")],
        [stopped, ("b", "running", "Worker", 1, "'no luck'")],
    ]


def test_a_supervisor_in_the_middle_of_a_start_is_busy_and_the_child_is_starting(world):
    root = world.supervise(world.specs("a"))
    starter = world.base.start(Client, root, [StartChild(ChildSpec(id="s", actor=Slow, args=(5,)))])
    world.base.cast(starter, "go")
    rows = tree(root)
    assert column(rows, "id", "actor", "state", "awaits") == [
        ("", "Supervisor", "busy", rows[2].ref),
        ("a", "Worker", "running", ""),
        ("", "Slow", "starting", ""),
    ]
    world.base.advance(6)
    assert column(tree(root)[2:], "id", "state") == [("s", "running")]


def test_messages_that_wait_are_counted_and_a_stopping_actor_is_told(world):
    slow = world.base.start(Slow)
    world.base.advance(1)
    for _ in range(3):
        world.base.cast(slow, 1.0)
    assert column(tree(slow), "state", "mailbox_length") == [("busy", 2)]
    world.base.advance(3)
    world.base.suspend(slow)
    world.base.cast(slow, 1.0)
    assert column(tree(slow), "state", "mailbox_length") == [("suspended", 1)]
    world.base.resume(slow)
    world.base.advance(1)
    world.base.run_outside(lambda: world.base.actors.request_stop(slow.cell, "normal"))
    assert column(tree(slow), "state") == [("stopping",)]
    world.base.advance(1)
    assert column(tree(slow), "actor", "state") == [("Slow", "ended")]


def test_an_actor_s_own_children_are_told_and_a_role_that_fails_is_a_question_mark(world):
    helped = world.base.start(Helped)
    expected = [(0, "Helped", "?"), (1, "Slow", "")]
    assert column(tree(helped), "depth", "actor", "role") == expected


def test_an_actor_may_look_and_sees_a_message_that_is_on_its_way(world):
    helped = world.base.start(Helped)
    seen = world.base.call(helped, "look")
    assert column(seen, "actor", "mailbox_length") == [("Helped", 0), ("Slow", 1)]


def test_a_name_is_no_actor():
    with pytest.raises(TypeError, match="the ref of an actor of a LoopSystem, not 'bank'"):
        tree("bank")  # type: ignore[arg-type]  # the mistake


def test_actors_of_a_hosted_system_cannot_be_seen():
    system = HostedSystem("simpleSystemBase")
    try:
        supervisor = system.start(Supervisor, SupervisorFlags(), [])
        assert supervisor is not None
        with pytest.raises(TypeError, match="the ref of an actor of a LoopSystem"):
            tree(supervisor)
    finally:
        system.shutdown()


def test_of_many_children_those_with_a_story_are_listed_and_the_others_summed_up(world):
    supervisor, refs = dynamic(world, 30)
    world.base.cast(refs[7], "crash")
    rows = tree(supervisor)
    assert column(rows, "depth", "actor", "count", "restarts", "last_reason", "role") == [
        (0, "Supervisor", 1, 0, "", ""),
        (1, "Named", 1, 1, "ValueError", "r"),
        (1, "Named", 29, 0, "", ""),
    ]
    assert (rows[0].children_restarts, rows[0].children_last_reason) == (1, "ValueError")
    assert len(tree(supervisor, all_rows=True)) == 31


def test_more_than_20_children_with_a_story_are_summed_up_too(world):
    supervisor, refs = dynamic(world, 30)
    for ref in refs[:25]:
        world.base.cast(ref, "crash")
    rows = tree(supervisor)
    assert [row.count for row in rows] == [1, *[1] * 20, 10]
    assert rows[-1].restarts == 5


def test_a_temporary_child_that_crashed_leaves_its_reason_with_the_supervisor(world):
    supervisor, refs = dynamic(world, 2, Restart.TEMPORARY)
    world.base.cast(refs[0], "crash")
    assert column(tree(supervisor), "count", "children_restarts", "children_last_reason") == [
        (1, 0, "ValueError"),
        (1, 0, ""),
    ]


def test_only_dynamic_children_that_crashed_have_a_record_and_only_while_they_exist(world):
    supervisor, refs = dynamic(world, 3)
    crashed = supervisor.cell.behaviour.children._crashed  # noqa: SLF001 - the memory is meant
    world.base.cast(refs[0], "crash")
    world.base.cast(refs[1], "crash")
    assert len(crashed) == 2
    world.base.exit(next(iter(crashed)), "again")
    assert sorted(record.restarts for record in crashed.values()) == [1, 2]
    for info in world.ask(supervisor, WhichChildren()):
        world.ask(supervisor, TerminateChild(info.ref))
    assert crashed == {}


@pytest.mark.slow
def test_rows_are_bounded_in_number_and_their_texts_in_length(world):
    supervisor, _ = dynamic(world, ROWS_MAX + 5)
    assert len(tree(supervisor, all_rows=True)) == ROWS_MAX
    long = world.base.start(Named, "\udcff" + "x" * 1000)
    [row] = tree(long)
    assert row.role.encode().startswith(b"\\udcffxxx")
    assert len(row.role) == TEXT_MAX


DRAWING = [
    "actor                                      state             restarts  mailbox  last reason",
    "t T.1 (one_for_one, 2 restarts, last Bug)  running                  0        0",
    "├── a A.2                                  busy, awaits T.1         0        0",
    "│   └── B ×12 000                          running                  0        3",
    "└── c                                      restarting               2        0  Bug",
    "    └── d D.5 w topic                      running                  0        0",
]


@pytest.mark.slow
def test_looks_from_other_threads_disturb_no_restart():
    system = LoopSystem()
    specs = [ChildSpec(id=label, actor=Named, args=(label,), name=label) for label in "abc"]
    root = system.start(Supervisor, SupervisorFlags(intensity=1000), specs)
    assert root is not None
    is_over = threading.Event()
    looks: list[int] = []

    def look():
        while not is_over.is_set():
            looks.append(len(tree(root)))

    threads = [threading.Thread(target=look) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(100):
            for label in "abc":
                system.cast(label, "crash")
        wait_until(lambda: looks)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert column(tree(root)[1:], "restarts", "state") == [(100, "running")] * 3
    assert set(looks) == {4}
    system.shutdown()


# ---- drawing -------------------------------------------------------------------------------------


def test_a_drawing_has_branches_columns_and_notes():
    rows = [
        TreeRow(
            depth=0,
            actor="T",
            ref="T.1",
            name="t",
            state="running",
            strategy="one_for_one",
            children_restarts=2,
            children_last_reason="Bug",
        ),
        TreeRow(depth=1, id="a", actor="A", ref="A.2", name="a", state="busy", awaits="T.1"),
        TreeRow(depth=2, actor="B", state="running", count=12_000, mailbox_length=3),
        TreeRow(depth=1, id="c", state="restarting", restarts=2, last_reason="Bug"),
        TreeRow(depth=2, id="d", ref="D.5", role="w topic", state="running"),
    ]
    assert render_tree(rows) == DRAWING


def test_a_drawing_of_nothing_is_a_heading_and_no_text_commands_the_terminal():
    assert render_tree([]) == ["actor  state  restarts  mailbox  last reason"]
    row = TreeRow(depth=0, id="\x1b[2J", state="a\nb", last_reason="c\rd")
    assert render_tree([row])[1] == "\\x1b[2J  a\\nb          0        0  c\\rd"
