"""One member of a group, told what a script says."""

import asyncio
import math
from typing import Any

import pytest

from poe.broker.requests.request_handler import WAIT_MAX_S
from poe.client.group import membership
from poe.client.group.membership import MemberInfo, Membership
from poe.errors import ConnectFailed, GroupFenced, PoeError, RemoteProtocolError

JOINED = {"generation": 1, "heartbeat_s": 0.01, "granted": {b"t": [b"t", 0, None]}}
BEAT = {"generation": 1, "granted": {}, "revoke": []}
NONSENSE: list[Any] = [
    *(None, 7, "text", [], {}),
    {**JOINED, "generation": None},
    {**JOINED, "granted": 7},
    {**JOINED, "granted": {b"t": [b"t", 0]}},
    *({**JOINED, "generation": each} for each in (math.inf, 1e300)),
    *({**JOINED, "heartbeat_s": each} for each in (math.inf, math.nan, 0, -1)),
    *({**JOINED, "granted": {b"t": [b"t", 0, each]}} for each in (0, [], [math.inf, b""])),
    {**JOINED, "granted": {b"t": [b"t", math.inf, None]}},
    {**JOINED, "granted": {2**64 - 1: [b"t", 0, None]}},
    *({**JOINED, "revoke": each} for each in ([2**64 - 1], [2**62])),
]


class Script:
    """The connections of a member, which answer in turn; then all is well."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.beats = 0
        self.ops: list[str] = []
        self.waits: set[float] = set()
        self.is_away = False
        self.has_beaten = asyncio.Event()
        """Set after some heartbeats."""

    def socket(self, _on_lost):
        return self

    async def call(self, request, _extra_s=0.0):
        if self.is_away:
            raise ConnectFailed("host", 1, "refused")
        return await request(self)

    async def control(self, op, **arguments):
        self.ops.append(op)
        if "wait_s" in arguments:
            self.waits.add(arguments["wait_s"])
        self.beats += op == "group_heartbeat"
        if self.beats > 3:
            self.has_beaten.set()
        await asyncio.sleep(0)
        answer = self._answers.pop(0) if self._answers else BEAT
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self):
        pass


class Work:
    """What a member has of its group."""

    def __init__(self):
        self.granted: dict[bytes, Any] = {}
        self.failures: list[PoeError] = []

    def owned(self):
        return list(self.granted)

    async def heard(self, granted, revoke):
        self.granted.update(granted)
        return False

    async def lost(self):
        self.granted = {}

    def failed(self, error):
        self.failures.append(error)


def member(*answers, instance=None):
    work = Work()
    script: Any = Script(*answers)
    info = MemberInfo(group="g", mode="ordered", topics=[b"t"], instance=instance)
    return Membership(script, info, work, print), script, work


async def test_a_member_is_told_the_position_of_each_unit_and_what_was_kept_with_it():
    granted = {b"t": [b"t", 0, None], b"u": [b"u", 1, [7, b"kept"]]}
    joined, _, work = member({**JOINED, "granted": granted})
    await joined.open()
    assert work.granted == {b"t": (b"t", 0, None), b"u": (b"u", 1, (7, b"kept"))}
    await joined.close()


@pytest.mark.parametrize("answer", NONSENSE, ids=repr)
async def test_a_join_whose_answer_makes_no_sense_is_an_error(answer):
    joining, _, work = member(answer)
    with pytest.raises(RemoteProtocolError, match="the answer to group_join is"):
        await joining.open()
    assert not work.granted


@pytest.mark.parametrize("answer", NONSENSE, ids=repr)
async def test_a_member_whose_group_answers_without_sense_goes_on_being_heard_of(
    answer, monkeypatch
):
    """Else others would get what it still works on."""
    monkeypatch.setattr(membership, "_PAUSE_S", 0.0)
    joined, script, work = member(JOINED, answer)
    await joined.open()
    async with asyncio.timeout(5):
        await script.has_beaten.wait()
    assert [type(each) for each in work.failures] == [RemoteProtocolError]
    assert work.owned() == [b"t"]
    await joined.close()


@pytest.mark.parametrize("members", [None, 7, [7], [{}], [{"instance": "i"}]], ids=repr)
async def test_so_does_one_whose_group_tells_without_sense_who_its_members_are(
    members, monkeypatch
):
    monkeypatch.setattr(membership, "_PAUSE_S", 0.0)
    told = {} if members is None else {"members": members}
    joined, script, work = member(JOINED, GroupFenced("g", "lost"), told, instance="i")
    await joined.open()
    async with asyncio.timeout(5):
        await script.has_beaten.wait()
    assert [type(each) for each in work.failures] == [RemoteProtocolError]
    await joined.close()


async def test_a_member_of_a_group_with_long_sessions_waits_no_longer_than_a_server_may(
    monkeypatch,
):
    assert membership.BEAT_MAX_S <= WAIT_MAX_S
    monkeypatch.setattr(membership, "BEAT_MAX_S", 0.01)
    joined, script, _ = member({**JOINED, "heartbeat_s": 1200.0})
    await joined.open()
    async with asyncio.timeout(5):
        await script.has_beaten.wait()
    assert script.waits == {0.01}
    await joined.close()


async def test_who_never_reached_a_server_has_no_group_to_leave():
    """And is not kept waiting for one that could be told."""
    joining, script, _ = member(JOINED)
    script.is_away = True
    with pytest.raises(ConnectFailed):
        await joining.open()
    script.is_away = False
    await joining.close()
    assert script.ops == []


async def test_who_may_have_joined_leaves():
    joining, script, _ = member(None)
    with pytest.raises(RemoteProtocolError):
        await joining.open()
    await joining.close()
    assert script.ops == ["group_join", "group_leave"]


@pytest.mark.parametrize("op", ["group_commit", "group_extend"])
@pytest.mark.parametrize("answer", [None, 7, "text"])
async def test_any_other_answer_that_makes_no_sense_is_an_error_too(op, answer):
    """Else it would end in silence what commits, and what extends leases."""
    joined, _, _ = member(answer)
    with pytest.raises(RemoteProtocolError, match=f"the answer to {op} is"):
        await joined.ask(op)
    await joined.close()
