"""How the console gets in at a node as one of its users, when the node lets it in no more."""

import pytest

from poe.errors import AuthenticationFailed, ConnectFailed
from poe.gateway.console.history import History
from poe.gateway.console.look import PATIENT_S, SILENCE_S, Look
from poe.gateway.http.options import GatewayOptions
from poe.security.credentials import Scram
from poe.security.entry import Entry

USER = Entry(None, Scram("alice", "secret"))


class Door:
    """Stands for the brokers: raises what it is told to, and counts who has knocked."""

    def __init__(self, error):
        self.error = error
        self.timeouts: list[float] = []

    @property
    def count(self):
        return len(self.timeouts)

    async def connect(self, timeout_s):
        self.timeouts.append(timeout_s)
        raise self.error


async def nothing(*_):
    return {}


def silence():
    error = ConnectFailed("127.0.0.1", 5555, "no answer within 2 s")
    error.__cause__ = TimeoutError()
    return error


@pytest.fixture
def knocked(monkeypatch):
    """Has somebody try to get in at certain times; returns what they are told."""

    async def knocked(door, times, entry=USER, refused=None):
        monkeypatch.setattr("poe.gateway.console.look.Brokers", lambda *_: door)
        now_s = 0.0
        heard = [].append if refused is None else refused.append
        look = Look(GatewayOptions(), entry, History(nothing, nothing), heard, lambda: now_s)
        told = []
        for after_s in times:
            now_s = after_s
            with pytest.raises((AuthenticationFailed, ConnectFailed)) as failed:
                async with look.node():
                    pass
            told.append(failed.type)
        return told

    return knocked


async def test_a_user_who_is_let_in_no_more_is_told_and_not_tried_again(knocked):
    door, refused = Door(AuthenticationFailed()), list[Entry]()
    assert await knocked(door, [0, 1, 100], refused=refused) == [AuthenticationFailed] * 3
    assert door.count == 1
    assert refused == [USER]


async def test_the_gateways_own_way_in_is_tried_again_for_its_files_may_be_renewed(knocked):
    door, refused = Door(AuthenticationFailed()), list[Entry]()
    own = GatewayOptions().entry
    await knocked(door, [0, 1], own, refused)
    assert door.count == 2
    assert refused == []


async def test_a_login_that_is_not_answered_may_be_a_refusal_and_is_not_tried_again_at_once(
    knocked,
):
    door = Door(silence())
    assert await knocked(door, [0, 1, SILENCE_S - 1, SILENCE_S + 1]) == [ConnectFailed] * 4
    assert door.count == 2


async def test_a_node_that_is_away_is_tried_each_time(knocked):
    door = Door(ConnectFailed("127.0.0.1", 5555, "Connection refused"))
    await knocked(door, [0, 1, 2])
    assert door.count == 3


async def test_what_may_take_long_has_no_limit_of_an_answer(monkeypatch):
    door = Door(silence())
    monkeypatch.setattr("poe.gateway.console.look.Brokers", lambda *_: door)
    options = GatewayOptions()
    look = Look(options, options.entry, History(nothing, nothing), list[Entry]().append)
    for way in (look.node, look.patient):
        with pytest.raises(ConnectFailed):
            async with way():
                pass
    assert door.timeouts == [options.read_timeout_s, PATIENT_S]
