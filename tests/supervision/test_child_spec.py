"""Child specs and flags: each wrong field is named, the allowed combinations pass (OTP §1.3)."""

import pickle
from typing import Any

import pytest

from poe.actors import GenServer
from poe.errors import InvalidChildSpec
from poe.supervision.child_spec import (
    AutoShutdown,
    ChildKind,
    ChildSpec,
    Restart,
    Strategy,
    SupervisorFlags,
    check_children,
    check_combination,
)


class Idle(GenServer):
    pass


def spec(**fields):
    given: dict[str, Any] = {"id": "a", "actor": Idle} | fields
    return ChildSpec(**given)


# Ported from supervisor_SUITE: child_specs_map
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ["unhashable"]),
        ("id", ("tuple", ["unhashable"])),
        ("actor", "Idle"),
        ("actor", int),
        ("args", ["a"]),
        ("kwargs", {"name": "taken by the runtime"}),
        ("kwargs", {1: 2}),
        ("restart", "permanent"),
        ("significant", 1),
        ("kind", "worker"),
        ("shutdown_s", -0.1),
        ("shutdown_s", True),
        ("shutdown_s", float("inf")),
        ("shutdown_s", float("nan")),
        ("shutdown_s", "kill"),
        ("name", b"name"),
        ("name", Restart.PERMANENT),  # a str of a class of its own, which no actor can be called
        ("start", "init"),
        ("start_timeout_s", 0),
        ("start_timeout_s", "2"),
        ("backoff", 1.0),
    ],
)
def test_a_wrong_field_is_named_with_its_value(field, value):
    with pytest.raises(InvalidChildSpec) as caught:
        spec(**{field: value})
    assert f"{field} is {value!r}; use " in str(caught.value)


# Ported from supervisor_SUITE: sup_flags
@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("strategy", "one_for_one"),
        ("intensity", -1),
        ("intensity", 1.0),
        ("intensity", True),
        ("period_s", 0),
        ("period_s", 1.5),
        ("auto_shutdown", "never"),
        ("backoff", 1.0),
        ("max_children", 10),  # with one_for_one
    ],
)
def test_a_wrong_flag_is_named_with_its_value(flag, value):
    with pytest.raises(InvalidChildSpec) as caught:
        SupervisorFlags(**{flag: value})
    assert f"{flag} is {value!r}; use " in str(caught.value)


def test_the_first_wrong_field_in_otp_order_is_reported():
    with pytest.raises(InvalidChildSpec, match="restart is"):
        spec(restart="x", significant="x", shutdown_s="x")


def test_flags_have_the_defaults_of_otp():
    flags = SupervisorFlags()
    assert (flags.strategy, flags.intensity, flags.period_s) == (Strategy.ONE_FOR_ONE, 1, 5)
    assert flags.auto_shutdown is AutoShutdown.NEVER


# Ported from supervisor_SUITE: sup_start_map
def test_a_worker_has_five_seconds_and_a_supervisor_as_long_as_it_takes():
    assert (spec().shutdown_s, spec().grace_s) == (5.0, 5.0)
    supervisor = spec(kind=ChildKind.SUPERVISOR)
    assert (supervisor.shutdown_s, supervisor.grace_s) == ("infinity", None)


@pytest.mark.parametrize(
    ("shutdown_s", "grace_s"), [(0, 0), (2.5, 2.5), ("infinity", None), ("brutal_kill", 0.0)]
)
def test_each_kind_of_shutdown_gives_its_grace(shutdown_s, grace_s):
    assert spec(shutdown_s=shutdown_s).grace_s == grace_s


def test_a_spec_survives_pickling():
    original = spec(args=(1,), kwargs={"b": 2}, restart=Restart.TRANSIENT, name="x")
    assert pickle.loads(pickle.dumps(original)) == original


def test_a_spec_does_not_change_with_the_mapping_it_was_made_from():
    kwargs = {"b": 2}
    made = spec(kwargs=kwargs)
    kwargs["b"] = 3
    assert made.kwargs == {"b": 2}


@pytest.mark.parametrize("restart", Restart)
@pytest.mark.parametrize("auto_shutdown", AutoShutdown)
def test_significant_fits_neither_permanent_nor_never(restart, auto_shutdown):
    check_combination(spec(restart=restart), auto_shutdown)
    if restart is Restart.PERMANENT:
        with pytest.raises(InvalidChildSpec, match="significant is True"):
            spec(restart=restart, significant=True)
    elif auto_shutdown is AutoShutdown.NEVER:
        with pytest.raises(InvalidChildSpec, match="auto_shutdown is NEVER"):
            check_combination(spec(restart=restart, significant=True), auto_shutdown)
    else:
        check_combination(spec(restart=restart, significant=True), auto_shutdown)


def test_an_id_that_appears_twice_is_refused():
    with pytest.raises(InvalidChildSpec, match="child 'a' appears twice"):
        check_children(SupervisorFlags(), [spec(), spec(id="b"), spec()])


@pytest.mark.parametrize("count", [0, 2])
def test_simple_one_for_one_needs_exactly_one_template(count):
    flags = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE)
    with pytest.raises(InvalidChildSpec, match=f"has {count} child specs"):
        check_children(flags, [spec(id=i) for i in range(count)])


def test_a_template_with_a_name_is_refused():
    flags = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE)
    with pytest.raises(InvalidChildSpec, match="name is 'x'"):
        check_children(flags, [spec(name="x")])
