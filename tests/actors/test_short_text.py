"""Reasons that have no text, or too much of it: an actor ends with them as with any other."""

import time

import pytest

from poe.actors import HIBERNATE, ActorDead, Error, Reply, Stop
from poe.errors.short_text import TEXT_LENGTH_MAX, short_repr
from poe.supervision import ChildSpec, Supervisor, SupervisorFlags, tree
from tests.actors.puppet import Puppet


class Textless:
    def __repr__(self):
        msg = "no text"
        raise RuntimeError(msg)


class TextlessError(Exception):
    def __str__(self):
        msg = "no text"
        raise RuntimeError(msg)

    __repr__ = __str__


def nested(depth):
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def huge():
    return [0] * 20_000_000


@pytest.mark.parametrize(
    "value", ["boom", ("bad", "reason"), {"a": [1, b"2"]}, None, 1.5, True, ValueError("boom")]
)
def test_what_is_small_is_shown_as_by_repr(value):
    assert short_repr(value) == repr(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: "x" * 10_000_000,
        lambda: b"\0" * 10_000_000,
        huge,
        lambda: {"key": huge()},
        lambda: nested(100_000),
        lambda: 10**5000,
    ],
)
@pytest.mark.usefixtures("uncollected")  # the collector does look at all of it
def test_what_is_huge_is_shortened_without_a_look_at_all_of_it(make):
    value = make()
    began_s = time.process_time()
    text = short_repr(value)
    assert 0 < len(text) <= TEXT_LENGTH_MAX
    assert time.process_time() - began_s < 0.1


@pytest.mark.parametrize(
    "make", [Textless, lambda: ("a", Textless()), lambda: nested(100_000), huge]
)
def test_a_supervisor_restarts_a_child_that_ended_so_and_the_tree_can_be_shown(system, make):
    reason = make()
    spec = ChildSpec(id="child", actor=Puppet, name="child")
    supervisor = system.start(Supervisor, SupervisorFlags(intensity=5), [spec])
    with pytest.raises(ActorDead) as error:
        system.call("child", lambda *_: Stop(reason))
    assert error.value.reason is reason
    assert system.is_alive(supervisor)
    assert system.whereis("child") is not None
    assert tree(supervisor)[1].last_reason


def test_so_it_does_with_a_child_that_raised_an_error_without_a_text(system):
    spec = ChildSpec(id="child", actor=Puppet, name="child")
    supervisor = system.start(Supervisor, SupervisorFlags(), [spec])
    error = TextlessError()

    def fail(_):
        raise error

    system.cast("child", fail)
    assert system.is_alive(supervisor)
    assert system.whereis("child") is not None


@pytest.mark.parametrize("result", [Reply("payload", HIBERNATE), Error(ValueError("payload"))])
def test_a_misplaced_result_is_named_by_its_type_and_not_shown(system, caplog, result):
    spec = ChildSpec(id="child", actor=Puppet, name="child")
    system.start(Supervisor, SupervisorFlags(), [spec])
    system.cast("child", lambda _: result)
    assert [record.reason for record in caplog.records] == [
        f"('bad_return_value', '{type(result).__name__}')"
    ] * 2
    assert "payload" not in caplog.text
