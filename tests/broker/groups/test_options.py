"""What a group may be called, and be."""

import pytest

from poe.broker.groups.membership import MemberInfo
from poe.broker.groups.options import GroupDefinition, GroupOptions, check_name, matches
from poe.errors import InvalidGroupName, OptionError, UnknownOption
from tests.broker.groups.work import definition


@pytest.mark.parametrize("name", ["a", "billing.eu-1_2", "x" * 200, "-", "a."])
def test_names_that_groups_may_have(name):
    check_name(name)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a b", "ä", "x" * 201, "a\n", b"a", None])
def test_names_that_no_group_may_have(name):
    with pytest.raises(InvalidGroupName):
        check_name(name)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"session_s": 0.5}, "session_s"),
        ({"session_s": float("nan")}, "session_s"),
        ({"session_s": 4, "heartbeat_s": 3}, "half of session_s"),
        ({"leases_max": 0}, "leases_max"),
        ({"leases_max": 1.5}, "whole number"),
        ({"attempts_max": True}, "attempts_max"),
        ({"on_dead": "lose"}, "keep or drop"),
        ({"dead_letter_topic": ""}, "name of a topic"),
        ({"start": "first"}, "oldest or newest"),
    ],
)
def test_options_that_are_refused(options, match):
    with pytest.raises(OptionError, match=match):
        GroupOptions.from_map(options)


def test_an_unknown_option_is_named():
    with pytest.raises(UnknownOption, match="sesion_s"):
        GroupOptions.from_map({"sesion_s": 3})


def test_members_are_heard_of_three_times_in_a_session():
    assert GroupOptions(session_s=6).beat_s == 2
    assert GroupOptions(session_s=6, heartbeat_s=1).beat_s == 1


def test_a_definition_is_what_it_was_when_it_is_read():
    made = definition("shared", lease_s=5, dead_letter_topic="lost")
    assert GroupDefinition.from_map(made.as_map()) == made


@pytest.mark.parametrize(
    "changed",
    [
        {"id": b"short"},
        {"mode": "mixed"},
        {"topics": ()},
        {"topics": [b"t"]},
        {"topics": (b"t" * 256,)},
        {"topics": (b"t",) * 1001},
        {"topics": ("t",)},
        {"assignment_by": "leader"},
        {"created_us": -1},
    ],
)
def test_definitions_that_are_refused(changed):
    good = {"name": "g", "id": bytes(16), "mode": "shared", "topics": (b"t",)}
    with pytest.raises(OptionError) as caught:
        GroupDefinition(**(good | changed))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "changed",
    [
        {"id": b"short"},
        {"name": 7},
        {"name": "n" * 256},
        {"instance": "i" * 256},
        {"topics": ()},
        {"metadata": bytes(65_537)},
        {"metadata": "text"},
    ],
)
def test_members_that_are_refused(changed):
    with pytest.raises(OptionError) as caught:
        MemberInfo(**({"id": bytes(16)} | changed))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", GroupOptions().as_map())
def test_what_a_refusal_says_is_allowed(name):
    with pytest.raises(OptionError) as refused:
        GroupOptions.from_map({name: object()})
    assert "none" not in str(refused.value)
    if "null" in str(refused.value):
        GroupOptions.from_map({name: None})


def test_a_pattern_with_many_stars_takes_no_time():
    assert not matches(b"*a" * 120 + b"b", b"a" * 255)
    assert matches(b"web.*", b"web.log")
    assert matches(b"*", b"")
    assert not matches(b"a*a", b"a")


def test_what_spark_stages_is_in_no_group_that_does_not_name_it():
    assert not matches(b"*", b"poe.staging.x")
    assert not matches(b"poe*", b"poe.staging.x")
    assert matches(b"poe.*", b"poe.staging.x")
    assert matches(b"poe.staging.x", b"poe.staging.x")
    assert matches(b"*", b"poet")


def test_a_member_has_so_many_patterns_and_names_beside_them():
    names = tuple(b"%d" % number for number in range(900))
    patterns = tuple(b"%d*" % number for number in range(100))
    MemberInfo(id=bytes(16), topics=names + patterns)
    with pytest.raises(OptionError, match="101 patterns"):
        MemberInfo(id=bytes(16), topics=(*patterns, b"*"))
