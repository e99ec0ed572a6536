"""The restart logic without actors, against the tables measured on OTP (§1.4 - 1.7, 1.12)."""

import pytest

from poe.actors import GenServer
from poe.supervision.child_spec import AutoShutdown, ChildSpec, Restart, Strategy
from poe.supervision.strategy import (
    RESTARTING,
    ChildEnd,
    ChildTable,
    RestartHistory,
    RestartPlan,
    Verdict,
    is_crash_report_due,
    is_restarted,
    is_stop_as_told,
    verdict_on_exit,
    verdict_on_restart,
)

ORDERLY = ["normal", "shutdown", ("shutdown", "term")]
CRASHES = ["kill", "killed", "timeout", ("shutdown",), ("shutdown", 1, 2), ValueError("e")]
TRANSIENT, TEMPORARY, PERMANENT = Restart.TRANSIENT, Restart.TEMPORARY, Restart.PERMANENT


def spec(child_id="a", **fields):
    return ChildSpec(id=child_id, actor=GenServer, **fields)


def table_of(**slots):
    """Make a table of children: name -> slot, or (slot, restart)."""
    table = ChildTable()
    for child_id, value in slots.items():
        slot, restart = value if isinstance(value, tuple) else (value, PERMANENT)
        table.add(spec(child_id, restart=restart), slot)
    return table


def verdict(child_spec, reason, auto_shutdown=AutoShutdown.NEVER, *, left=False, intensity=9):
    end = ChildEnd(child_spec, reason, left)
    return verdict_on_exit(end, auto_shutdown, RestartHistory(intensity, 5), 0.0)


# ---- the table of children ----------------------------------------------------------------------


def test_children_start_in_the_order_given_and_added_ones_are_last():
    table = table_of(b=None, a=None)
    table.add(spec("c"), "ref c")
    assert table.ids() == ["b", "a", "c"]
    assert [child.slot for child in table] == [None, None, "ref c"]


def test_a_child_is_found_by_its_present_ref_only():
    table = table_of(a=None)
    table.set_slot("a", "old")
    table.set_slot("a", "new")
    assert table.find_ref("old") is None
    assert table.find_ref("new") is table["a"]


def test_a_restarting_child_has_no_ref():
    table = table_of(a=None)
    table.set_slot("a", "ref")
    table.set_slot("a", RESTARTING)
    assert table.find_ref("ref") is None
    assert table.find_ref(RESTARTING) is None
    assert not table["a"].is_running


def test_a_removed_child_is_forgotten_with_its_ref():
    table = table_of(a=None)
    table.set_slot("a", "ref")
    table.remove("a")
    assert (len(table), table.get("a"), table.find_ref("ref")) == (0, None, None)


# ---- to restart or not, §1.4 ------------------------------------------------------------------


@pytest.mark.parametrize("reason", ORDERLY + CRASHES, ids=repr)
def test_the_restart_type_and_the_reason_decide_who_is_restarted(reason):
    is_crash = reason in CRASHES
    assert is_restarted(PERMANENT, reason)
    assert is_restarted(TRANSIENT, reason) is is_crash
    assert not is_restarted(TEMPORARY, reason)


@pytest.mark.parametrize("reason", ORDERLY, ids=repr)
def test_an_orderly_end_keeps_a_transient_spec_and_removes_a_temporary_one(reason):
    assert verdict(spec(restart=PERMANENT), reason) is Verdict.RESTART
    assert verdict(spec(restart=TRANSIENT), reason) is Verdict.KEEP
    assert verdict(spec(restart=TEMPORARY), reason) is Verdict.REMOVE


@pytest.mark.parametrize("reason", CRASHES, ids=repr)
def test_a_crash_restarts_all_but_the_temporary(reason):
    assert verdict(spec(restart=PERMANENT), reason) is Verdict.RESTART
    assert verdict(spec(restart=TRANSIENT), reason) is Verdict.RESTART
    assert verdict(spec(restart=TEMPORARY), reason) is Verdict.REMOVE


# ---- strategies, §1.5 -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "stop", "start"),
    [
        (Strategy.ONE_FOR_ONE, "", "b"),
        (Strategy.REST_FOR_ONE, "dc", "bcd"),
        (Strategy.ONE_FOR_ALL, "dca", "abcd"),
    ],
)
def test_each_strategy_stops_and_starts_in_the_measured_order(strategy, stop, start):
    table = table_of(a=1, b=None, c=3, d=4)
    plan = table.restart_plan(strategy, "b")
    assert plan == RestartPlan(stop=tuple(stop), forget=(), start=tuple(start))


@pytest.mark.parametrize(
    ("strategy", "stop", "forget", "start"),
    [
        (Strategy.REST_FOR_ONE, "ec", "c", "bde"),
        (Strategy.ONE_FOR_ALL, "eca", "c", "abde"),
    ],
)
def test_a_group_restart_drops_temporary_and_revives_idle_siblings(strategy, stop, forget, start):
    table = table_of(a=1, b=None, c=(3, TEMPORARY), d=(None, TRANSIENT), e=5)
    plan = table.restart_plan(strategy, "b")
    assert plan == RestartPlan(stop=tuple(stop), forget=tuple(forget), start=tuple(start))


def test_a_group_starts_a_sibling_that_waits_for_its_own_retry():
    table = table_of(a=None, b=RESTARTING)
    plan = table.restart_plan(Strategy.ONE_FOR_ALL, "a")
    assert plan == RestartPlan(stop=(), forget=(), start=("a", "b"))


# §1.7.4: b crashed, c failed to start
@pytest.mark.parametrize(
    ("strategy", "stop", "start"),
    [
        (Strategy.ONE_FOR_ONE, "", "c"),
        (Strategy.REST_FOR_ONE, "", "cd"),
        (Strategy.ONE_FOR_ALL, "ba", "abcd"),
    ],
)
def test_a_retry_begins_at_the_child_that_failed_to_start(strategy, stop, start):
    table = table_of(a=1, b=2, c=RESTARTING, d=None)
    plan = table.restart_plan(strategy, "c")
    assert plan == RestartPlan(stop=tuple(stop), forget=(), start=tuple(start))


# ---- intensity, §1.6 --------------------------------------------------------------------------


@pytest.mark.parametrize("intensity", [0, 1, 2, 3, 5])
def test_exactly_intensity_restarts_are_survived_in_one_window(intensity):
    history = RestartHistory(intensity, 5)
    survived = 0
    while verdict_on_restart(history, 7.0) is Verdict.RESTART:
        survived += 1
    assert survived == intensity


@pytest.mark.parametrize(
    ("period_s", "first_s", "gap_s", "survives"),
    [
        (1, 0.05, 0.90, False),
        (1, 0.05, 1.00, False),
        (1, 0.05, 1.10, False),
        (1, 0.05, 1.85, False),
        (1, 0.05, 2.00, True),
        (1, 0.95, 1.00, False),
        (1, 0.95, 1.02, False),
        (1, 0.95, 1.10, True),
        (2, 0.05, 2.90, False),
        (2, 0.95, 2.10, True),
    ],
)
def test_the_window_edge_is_inclusive_and_counts_whole_seconds(period_s, first_s, gap_s, survives):
    history = RestartHistory(1, period_s)
    assert history.allows_restart(10 + first_s)
    assert history.allows_restart(10 + first_s + gap_s) is survives


def test_a_restart_of_before_a_clock_was_set_back_counts_as_long_as_the_one_after_it():
    history = RestartHistory(1, 2)
    assert history.allows_restart(9.0)
    assert not history.allows_restart(0.0)
    # What was tried at 0 is forgotten by now, and with it what was tried before, at 9.
    assert history.allows_restart(9.0)
    assert len(history) == 1


def test_the_history_forgets_what_left_the_window():
    history = RestartHistory(3, 2)
    for second in range(100):
        assert history.allows_restart(float(second))
    assert len(history) == 3


def test_a_crash_beyond_the_intensity_gives_up():
    assert verdict(spec(), "boom", intensity=0) is Verdict.GIVE_UP
    assert verdict(spec(restart=TEMPORARY), "boom", intensity=0) is Verdict.REMOVE


# ---- automatic shutdown, §1.12 ----------------------------------------------------------------

ANY, ALL = AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT


@pytest.mark.parametrize(
    ("restart", "reason", "mode", "left", "expected"),
    [
        (TRANSIENT, "normal", ANY, True, Verdict.AUTO_SHUTDOWN),
        (TRANSIENT, ("shutdown", 1), ANY, True, Verdict.AUTO_SHUTDOWN),
        (TRANSIENT, "normal", ALL, True, Verdict.KEEP),
        (TRANSIENT, "normal", ALL, False, Verdict.AUTO_SHUTDOWN),
        (TRANSIENT, "boom", ANY, False, Verdict.RESTART),
        (TRANSIENT, "boom", ALL, False, Verdict.RESTART),
        (TEMPORARY, "normal", ANY, True, Verdict.AUTO_SHUTDOWN),
        (TEMPORARY, "boom", ANY, True, Verdict.AUTO_SHUTDOWN),
        (TEMPORARY, "boom", ALL, True, Verdict.REMOVE),
        (TEMPORARY, "boom", ALL, False, Verdict.AUTO_SHUTDOWN),
    ],
)
def test_a_significant_end_shuts_down_as_the_mode_says(restart, reason, mode, left, expected):
    assert verdict(spec(restart=restart, significant=True), reason, mode, left=left) is expected
    plain = verdict(spec(restart=restart), reason, mode, left=left)
    assert plain is not Verdict.AUTO_SHUTDOWN


def test_running_and_restarting_significant_children_are_left_idle_ones_are_not():
    table = ChildTable()
    table.add(spec("a", restart=TRANSIENT, significant=True), "ref")
    table.add(spec("b", restart=TRANSIENT, significant=True), None)
    table.add(spec("c"), "ref c")
    assert not table.has_other_significant("a")
    table.set_slot("b", RESTARTING)
    assert table.has_other_significant("a")


# ---- reports, §1.15 ---------------------------------------------------------------------------


def test_a_crash_is_reported_and_every_end_of_a_permanent_child():
    assert is_crash_report_due(PERMANENT, "normal")
    assert is_crash_report_due(TRANSIENT, "boom")
    assert is_crash_report_due(TEMPORARY, "boom")
    assert not is_crash_report_due(TRANSIENT, ("shutdown", 1))
    assert not is_crash_report_due(TEMPORARY, "normal")


@pytest.mark.parametrize(
    ("fields", "reason", "expected"),
    [
        ({}, "shutdown", True),
        ({}, "normal", False),
        ({}, ("shutdown", 1), False),
        ({}, "killed", False),
        ({"restart": TRANSIENT}, "normal", True),
        ({"restart": TEMPORARY}, ("shutdown", 1), True),
        ({"restart": TEMPORARY}, "boom", False),
        ({"shutdown_s": "brutal_kill"}, "killed", True),
        ({"shutdown_s": "brutal_kill"}, "shutdown", False),
    ],
)
def test_a_stop_that_went_otherwise_than_told_is_reported(fields, reason, expected):
    assert is_stop_as_told(spec(**fields), reason) is expected
