"""What supervisors write to the log, and what they leave out (OTP §1.15)."""

import logging
from dataclasses import replace

import pytest

from poe.actors.reason import REASON_LENGTH_MAX, reason_text
from poe.errors import ChildStartFailed
from poe.errors.short_text import TEXT_LENGTH_MAX
from poe.supervision import (
    Restart,
    RestartChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
    TerminateChild,
)
from poe.supervision.api import StartDynamicChild
from poe.supervision.child_spec import ChildSpec
from tests.supervision.workers import HANGS, Worker


@pytest.fixture
def reports(caplog):
    caplog.set_level(logging.DEBUG, "poe.supervision")

    def take():
        found = [
            (record.report, record.child_id, record.reason)
            for record in caplog.records
            if record.name == "poe.supervision"
        ]
        caplog.clear()
        return found

    return take


def test_each_start_is_progress_and_names_supervisor_and_child(world, reports, caplog):
    supervisor = world.base.start(Supervisor, SupervisorFlags(), world.specs("ab"))
    record = next(each for each in caplog.records if each.name == "poe.supervision")
    assert record.levelno == logging.DEBUG
    assert record.supervisor == str(supervisor)
    assert record.getMessage() == f"{supervisor}: progress of child 'a'"
    assert reports() == [("progress", "a", ""), ("progress", "b", "")]


@pytest.mark.parametrize(
    ("restart", "reason", "is_reported"),
    [
        (Restart.PERMANENT, "normal", True),
        (Restart.TRANSIENT, ("shutdown", 1), False),
        (Restart.TRANSIENT, "boom", True),
        (Restart.TEMPORARY, "normal", False),
        (Restart.TEMPORARY, "boom", True),
    ],
)
def test_crashes_are_reported_and_every_end_of_a_permanent_child(
    world, reports, restart, reason, is_reported
):
    supervisor = world.supervise(world.specs("a", restart=restart))
    reports()
    world.end(supervisor, "a", reason)
    expected = [("child_terminated", "a", repr(reason))] if is_reported else []
    assert [each for each in reports() if each[0] != "progress"] == expected


def test_failing_restarts_and_the_limit_are_reported(world, reports):
    supervisor = world.supervise(world.specs("a"), intensity=1)
    reports()
    world.journal.plans["a"] = ["broken"]
    world.end(supervisor, "a")
    assert reports() == [
        ("child_terminated", "a", "'boom'"),
        ("start_error", "a", "'broken'"),
        ("shutdown", "a", "child 'a': 2 restarts within 5 s"),
    ]


def test_the_line_of_a_supervisor_that_gives_up_names_the_child_once(world, caplog):
    supervisor = world.supervise(world.specs("a"), intensity=0)
    world.end(supervisor, "a")
    assert caplog.messages[-1] == f"{supervisor}: shutdown of child 'a': 1 restart within 5 s"


def test_a_kill_at_the_deadline_is_a_shutdown_error_and_a_brutal_kill_is_none(world, reports):
    children = [
        world.spec("a", cleanup_s=HANGS, shutdown_s=1.0),
        world.spec("b", shutdown_s="brutal_kill"),
        world.spec("c"),
    ]
    supervisor = world.supervise(children)
    reports()
    world.base.exit(supervisor, "shutdown")
    world.base.advance(1.0)
    assert reports() == [("shutdown_error", "a", "'killed'")]


def test_a_clean_up_that_raises_is_a_shutdown_error_and_the_request_succeeds(world, reports):
    supervisor = world.supervise([world.spec("a", ends_as=ValueError("a secret"))])
    reports()
    assert world.ask(supervisor, TerminateChild("a")) is None
    assert reports() == [("shutdown_error", "a", "ValueError")]


def test_dynamic_children_that_end_alike_share_one_report(world, reports, caplog):
    spec = ChildSpec(id="t", actor=Worker, args=(world.journal,), shutdown_s=1.0)
    supervisor = world.supervise([spec], Strategy.SIMPLE_ONE_FOR_ONE)
    for label in "xyz":
        world.ask(supervisor, StartDynamicChild((label,), {"cleanup_s": HANGS}))
    world.ask(supervisor, StartDynamicChild(("q",)))
    reports()
    world.base.exit(supervisor, "shutdown")
    world.base.advance(1.0)
    assert caplog.records[0].count == 3
    assert reports() == [("shutdown_error", "t", "'killed'")]


@pytest.mark.parametrize(
    "child_id",
    ["x" * 10_000, b"\0" * 10_000, 10**5000, ("x" * 10_000,)],
    ids=["str", "bytes", "int", "tuple"],
)
def test_a_huge_id_is_shortened_in_the_line_and_found_all_the_same(world, caplog, child_id):
    supervisor = world.supervise([replace(world.spec("a"), id=child_id)])
    assert world.ask(supervisor, TerminateChild(child_id)) is None
    world.ask(supervisor, RestartChild(child_id))
    world.end(supervisor, child_id)
    assert 0 < len(caplog.messages[-1]) < 2 * TEXT_LENGTH_MAX
    assert caplog.records[-1].child_id == child_id


def test_reasons_are_short_and_foreign_exceptions_show_no_text():
    assert reason_text(ValueError("a payload")) == "ValueError"
    assert reason_text(ChildStartFailed("a", "x")) == "child 'a' did not start: 'x'"
    assert len(reason_text("x" * 10_000)) == REASON_LENGTH_MAX
