"""How the gateway asks the broker: over one connection, which may be lost or never made."""

import asyncio

import pytest

from poe.errors import (
    AuthenticationExpired,
    AuthenticationFailed,
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    NotAuthorized,
    RequestRefused,
)
from poe.gateway.http.inquiry import TTL_MAX_S, Inquiry, Question, Ruling, Usage

QUESTION = Question("write", "topic", [b"orders"])
TOLD = {"principal": "alice", "allowed": [True], "ttl_s": 60.0, "delay_s": 0.0}


class Connection:
    """Answers what it is given, one by one; an exception is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.is_closed = False

    async def control(self, op, **arguments):
        assert op == "authorize"
        self.asked.append(arguments)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self):
        self.is_closed = True


class Brokers:
    """Connects to what it is given, one by one."""

    def __init__(self, *connections):
        self.connections = list(connections)
        self.attempts = 0
        self.may_connect = asyncio.Event()
        self.may_connect.set()

    async def connect(self, timeout_s):
        self.attempts += 1
        await self.may_connect.wait()
        found = self.connections.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def ask(inquiry):
    return inquiry.ask("poe_token", QUESTION, Usage(1, 2, 3))


async def test_an_answer_holds_for_some_seconds_at_most():
    connection = Connection(TOLD)
    assert await ask(Inquiry(Brokers(connection), 1)) == Ruling("alice", [True], TTL_MAX_S, 0.0)
    assert connection.asked == [
        {
            "token": b"poe_token",
            "operation": "write",
            "kind": "topic",
            "names": [b"orders"],
            "requests": 1,
            "read_bytes": 2,
            "write_bytes": 3,
        }
    ]


async def test_a_token_that_is_nobodys_is_an_answer():
    brokers = Brokers(Connection(AuthenticationFailed(), TOLD))
    inquiry = Inquiry(brokers, 1)
    assert await ask(inquiry) is None
    assert await ask(inquiry) is not None
    assert brokers.attempts == 1


async def test_a_gateway_that_is_not_let_in_itself_says_nothing_of_the_token():
    with pytest.raises(RequestRefused) as refused:
        await ask(Inquiry(Brokers(AuthenticationFailed()), 1))
    assert refused.value.status == 503


@pytest.mark.parametrize("lost", [ConnectionClosed("p", "gone"), AuthenticationExpired()])
async def test_a_lost_connection_is_made_again_once(lost):
    first = Connection(lost)
    assert await ask(Inquiry(Brokers(first, Connection(TOLD)), 1)) is not None
    assert first.is_closed
    with pytest.raises(RequestRefused):
        await ask(Inquiry(Brokers(Connection(lost), Connection(lost)), 1))


async def test_a_broker_that_does_not_answer_is_left_and_asked_anew_by_the_next():
    slow = Connection(CallTimeout("p", 1.0))
    inquiry = Inquiry(Brokers(slow, Connection(TOLD)), 1)
    with pytest.raises(RequestRefused):
        await ask(inquiry)
    assert slow.is_closed
    assert await ask(inquiry) is not None


async def test_a_gateway_without_the_grant_keeps_its_connection():
    brokers = Brokers(Connection(NotAuthorized("authorize", "the node"), TOLD))
    inquiry = Inquiry(brokers, 1)
    with pytest.raises(RequestRefused):
        await ask(inquiry)
    assert await ask(inquiry) is not None


async def test_all_wait_for_the_same_attempt_to_connect():
    """One after the other, each would wait for all those before it."""
    brokers = Brokers(ConnectFailed("h", 1, "away"), Connection(TOLD))
    brokers.may_connect.clear()
    inquiry = Inquiry(brokers, 1)
    asked = [asyncio.ensure_future(ask(inquiry)) for _ in range(100)]
    await asyncio.sleep(0)
    asked[0].cancel()
    brokers.may_connect.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(each) for each in results[1:]} == {RequestRefused}
    assert brokers.attempts == 1
    assert await ask(inquiry) is not None


async def test_after_the_end_a_question_makes_a_connection_of_its_own():
    first = Connection(TOLD)
    inquiry = Inquiry(Brokers(first, Connection(TOLD)), 1)
    await inquiry.close()
    await ask(inquiry)
    await inquiry.close()
    assert first.is_closed
    assert await ask(inquiry) is not None


async def test_the_end_minds_no_broker_that_is_away():
    """Else a gateway that is to stop would leave its clients and go."""
    brokers = Brokers(ConnectFailed("h", 1, "away"))
    brokers.may_connect.clear()
    inquiry = Inquiry(brokers, 1)
    asking = asyncio.ensure_future(ask(inquiry))
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(inquiry.close())
    await asyncio.sleep(0)
    brokers.may_connect.set()
    await ending
    with pytest.raises(RequestRefused):
        await asking
