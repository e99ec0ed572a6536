"""Crash reports: when there is one, what its fields hold, and that no payload is among them."""

import logging

import pytest

from poe.actors import ActorExit, Stop
from tests.actors.puppet import Puppet, child_of, raise_boom, start_blocked

SECRET = "a payload"


def test_a_crash_report_names_the_actor_its_parent_its_links_and_what_waits(system, caplog):
    parent = system.start(Puppet, trap_exits=True)
    child = child_of(system, parent, name="child")
    system.cast(child, crash_with_messages_waiting)
    system.advance(1)
    (record,) = caplog.records
    fields = vars(record)
    expected = {
        "report": "crash",
        "actor": str(child),
        "actor_name": "child",
        "parent": str(parent),
        "reason": "ValueError",
        "mailbox_length": 3,
        "messages": ["cast str", "info str", "call str"],
        "links": [str(parent)],
    }
    assert {key: fields[key] for key in expected} == expected
    assert SECRET not in str([fields[key] for key in expected])


async def crash_with_messages_waiting(puppet):
    puppet.cast(puppet.ref, SECRET)
    puppet.ref.cell.post(SECRET)
    helper = await puppet.start_link(Puppet)
    puppet.unlink(helper)
    puppet.cast(helper, lambda other: other.call(puppet.ref, SECRET) and None)
    await puppet.sleep(1)
    raise_boom(puppet)


def exit_with_reason(_):
    raise ActorExit(("bad", "reason"))


@pytest.mark.parametrize(
    ("action", "reason", "has_traceback"),
    [
        (raise_boom, "ValueError", True),
        (lambda _: Stop("boom"), "'boom'", False),
        (exit_with_reason, "('bad', 'reason')", False),
        (lambda _: Stop("normal"), None, False),
        (lambda _: Stop(("shutdown", "because")), None, False),
    ],
)
def test_an_end_that_is_no_orderly_one_is_reported_once(
    system, caplog, action, reason, has_traceback
):
    system.cast(system.start(Puppet), action)
    assert [record.reason for record in caplog.records] == ([] if reason is None else [reason])
    assert [bool(record.exc_info) for record in caplog.records] == [has_traceback] * bool(reason)


def test_a_crash_in_terminate_is_reported_too(system, caplog):
    ref = system.start(Puppet, on_terminate=raise_boom)
    system.stop(ref)
    (record,) = caplog.records
    assert record.reason == "ValueError"


def test_a_killed_actor_and_one_that_an_exit_signal_ends_report_nothing(system, caplog):
    for reason in ("kill", "boom"):
        ref, _, _ = start_blocked(system)
        system.exit(ref, reason)
    assert caplog.records == []


def test_nothing_is_gathered_where_nobody_listens(system, caplog):
    caplog.set_level(logging.CRITICAL, "poe.actors")
    system.cast(system.start(Puppet), raise_boom)
    assert caplog.records == []
