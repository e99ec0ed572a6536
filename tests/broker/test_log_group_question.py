"""What nodes ask each other about groups is read as it was sent, or told as wrong."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

from poe.broker.registry.log_groups_table import LogGroupsTable
from poe.broker.requests.log_groups import LEASE, PING, Question, lease_of_log
from poe.errors import NotAuthorized, RemoteProtocolError
from poe.protocol.leases import Lease, LeaseReply, LeaseRequest

QUESTION = Question(
    "lease", "g", "shared", (b"t",), {"attempts": 3}, False, True, (b"t",), {}, b"x"
)
FIELDS = [1, *QUESTION]


def test_a_question_is_read_as_it_was_sent():
    assert Question.decode(QUESTION.encode()) == QUESTION


WRONG = {0: 2, 1: 5, 2: b"g", 3: [], 4: ["t"], 6: 1, 7: None, 8: 7, 10: "x"}


@pytest.mark.parametrize("place", WRONG)
def test_one_with_a_wrong_field_is_told(place):
    fields = [*FIELDS]
    fields[place] = WRONG[place]
    with pytest.raises(RemoteProtocolError):
        Question.decode(PING + msgpack.packb(fields))


@pytest.mark.parametrize("content", [b"", b"\xc0", b"\x90", b"\x91\x01", b"\x01"])
def test_what_is_cut_off_or_something_else_is_told(content):
    with pytest.raises(RemoteProtocolError):
        Question.decode(PING + content)


class Coordinator:
    """Grants one lease, or none; and a grant is taken back as soon as it was asked."""

    def __init__(self, taken_back, lease):
        self.taken_back = taken_back
        self.lease = lease
        self.refused: set[tuple[str, str, bytes]] = set()
        self.asked: list[LeaseRequest] = []

    async def answer(self, _handler, question):
        assert question.op == LEASE
        self.asked.append(LeaseRequest.decode(memoryview(question.lease)))
        self.refused.add(self.taken_back)
        return LeaseReply.head(self.lease if len(self.asked) == 1 else Lease(), b"", 0)

    def refusal(self, need):
        return need.refusal if tuple(need) in self.refused else None


def leased(coordinator, wait_s):
    table = LogGroupsTable(lambda: None)
    table.learn("g", (b"t",))
    table.here = coordinator
    routes = SimpleNamespace(log_groups=table, topics_of_group=table.topics, is_closing=False)
    actor = SimpleNamespace(monotonic_s=lambda: 0.0)
    handler: Any = SimpleNamespace(
        actor=actor, routes=routes, permissions=coordinator, is_wanted=True
    )
    return asyncio.run(lease_of_log(handler, LeaseRequest("g", bytes(16), 10, 1000, wait_s)))


GRANTS = [("read", "topic", b"t"), ("read", "group", b"g")]


@pytest.mark.parametrize("taken_back", GRANTS)
def test_messages_that_come_too_late_for_a_grant_are_given_back_at_once(taken_back):
    coordinator = Coordinator(taken_back, Lease(7, b"t", 0, 9))
    with pytest.raises(NotAuthorized):
        leased(coordinator, 0.0)
    _, given_back = coordinator.asked
    assert [(each.lease, each.verdict) for each in given_back.failed] == [(7, "release")]


@pytest.mark.parametrize("taken_back", GRANTS)
def test_who_waits_for_messages_does_so_no_longer_than_it_may(taken_back):
    coordinator = Coordinator(taken_back, Lease())
    assert leased(coordinator, 60.0) == (Lease(), None)
    assert len(coordinator.asked) == 1  # of 30, which each take 2 s
