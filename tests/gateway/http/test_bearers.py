"""What is kept of bearers, and for how long; the broker is a function, and time stands still."""

import asyncio
from dataclasses import asdict
from hashlib import sha256
from itertools import count

import pytest

from poe.broker.access.permission import Need
from poe.errors import RequestRefused
from poe.gateway.http import bearers as bearers_module
from poe.gateway.http.bearers import Bearers, ShownToken
from poe.gateway.http.inquiry import Ruling, Usage
from poe.protocol import ControlRequest
from poe.protocol.control import CONTROL_SIZE_MAX

WRITE = Need.of_topic("write", b"orders")
ALICE = ShownToken("poe_alice", "digest of alice's")


class Judge:
    """Knows one token, and lets its owner do what is in `allowed`."""

    def __init__(self):
        self.questions, self.usages = [], []
        self.allowed = {"write"}
        self.tokens = {ALICE.text}
        self.delay_s = 0.0
        self.is_away = False
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()

    async def ask(self, token, question, usage):
        self.questions.append(question)
        self.usages.append(usage)
        self.asked.set()
        await self.may_answer.wait()
        if self.is_away:
            raise RequestRefused(503, "away")
        if token not in self.tokens:
            return None
        is_allowed = question.operation in self.allowed
        return Ruling("alice", [is_allowed] * len(question.names), 5.0, self.delay_s)


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def judge():
    return Judge()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def bearers(judge, clock):
    return Bearers(judge, clock)


async def test_a_ruling_holds_for_its_time_and_no_longer(bearers, judge, clock):
    for _ in range(3):
        assert (await bearers.rule(ALICE, WRITE)).is_allowed
    assert len(judge.questions) == 1
    judge.allowed = set()
    clock.now_s += 4.9
    assert (await bearers.rule(ALICE, WRITE)).is_allowed
    clock.now_s += 0.1
    assert not (await bearers.rule(ALICE, WRITE)).is_allowed


async def test_a_token_that_is_revoked_is_nobodys_when_its_ruling_is_over(bearers, judge, clock):
    await bearers.rule(ALICE, WRITE)
    judge.tokens.clear()
    clock.now_s += 5.0
    assert await bearers.rule(ALICE, WRITE) is None
    assert bearers.find(ALICE) is None


async def test_time_that_the_broker_takes_to_answer_counts(bearers, judge, clock):
    judge.may_answer.clear()
    asked = asyncio.ensure_future(bearers.rule(ALICE, WRITE))
    await judge.asked.wait()
    clock.now_s += 3.0
    judge.may_answer.set()
    assert bearers.left_s(await asked) == 2.0


async def test_the_same_question_is_under_way_once(bearers, judge):
    judge.may_answer.clear()
    asked = [asyncio.ensure_future(bearers.rule(ALICE, WRITE)) for _ in range(100)]
    await asyncio.sleep(0)
    asked[0].cancel()  # who asked first need not wait for the answer
    judge.may_answer.set()
    assert all([(await each).is_allowed for each in asked[1:]])
    assert len(judge.questions) == 1


async def test_no_answer_is_kept_where_there_was_none(bearers, judge):
    judge.is_away = True
    for _ in range(2):
        with pytest.raises(RequestRefused):
            await bearers.rule(ALICE, WRITE)
    judge.is_away = False
    assert (await bearers.rule(ALICE, WRITE)).is_allowed
    assert len(judge.questions) == 3


@pytest.mark.slow
async def test_wrong_tokens_take_no_place(bearers, judge):
    await bearers.rule(ALICE, WRITE)
    for number in range(10_000):
        assert await bearers.rule(ShownToken(f"poe_{number}", str(number)), WRITE) is None
    assert (await bearers.rule(ALICE, WRITE)).is_allowed
    assert judge.questions.count(judge.questions[0]) == 10_001  # alice's own was kept
    assert bearers.size == 1


async def test_bearers_and_their_rulings_are_bounded(bearers, judge, monkeypatch):
    monkeypatch.setattr(bearers_module, "BEARERS_MAX", 3)
    monkeypatch.setattr(bearers_module, "RULINGS_MAX", 4)
    for number in range(10):
        shown = ShownToken(f"poe_{number}", str(number))
        judge.tokens.add(shown.text)
        for topic in range(10):
            await bearers.rule(shown, Need.of_topic("write", b"%d" % topic))
    assert bearers.size == 3
    assert bearers.find(shown).size == 2  # of ten, four and four were forgotten
    # Who came last is still there.
    asked = len(judge.questions)
    await bearers.rule(shown, Need.of_topic("write", b"9"))
    assert len(judge.questions) == asked


async def test_names_of_any_length_are_kept_in_few_bytes(bearers, judge):
    for name in (b"a" * 60_000, b"a" * 60_001):
        await bearers.rule(ALICE, Need.of_topic("write", name))
        await bearers.rule(ALICE, Need.of_topic("write", name))
    assert [len(each.names[0]) for each in judge.questions] == [60_000, 60_001]


async def test_what_was_used_goes_with_the_next_question_and_is_counted_once(bearers, judge, clock):
    await bearers.rule(ALICE, WRITE)
    bearers.find(ALICE).usage.add(Usage(2, 30, 400))
    judge.is_away = True
    clock.now_s += 5.0
    with pytest.raises(RequestRefused):
        await bearers.rule(ALICE, WRITE)
    bearers.find(ALICE).usage.add(Usage(1, 0, 0))
    judge.is_away = False
    await bearers.rule(ALICE, WRITE)
    clock.now_s += 5.0
    await bearers.rule(ALICE, WRITE)
    assert judge.usages[2:] == [Usage(3, 30, 400), Usage(0, 0, 0)]


async def test_what_is_owed_is_over_when_its_time_is(bearers, judge, clock):
    judge.delay_s = 2.0
    await bearers.rule(ALICE, WRITE)
    assert bearers.owed_s(bearers.find(ALICE)) == 2.0
    clock.now_s += 2.0
    assert bearers.owed_s(bearers.find(ALICE)) == 0.0


async def test_a_list_is_asked_at_once_and_not_kept(bearers, judge):
    names = [b"a", b"b"]
    assert await bearers.permitted(ALICE, "write", "topic", names) == names
    assert await bearers.permitted(ALICE, "read", "topic", names) == []
    assert [each.names for each in judge.questions] == [names, names]
    assert bearers.find(ALICE).size == 0
    assert await bearers.permitted(ShownToken("poe_x", "x"), "write", "topic", names) == []


async def test_a_long_list_is_asked_in_parts(bearers, judge):
    names = [b"%d" % number for number in range(2500)]
    assert await bearers.permitted(ALICE, "write", "topic", names) == names
    assert [len(each.names) for each in judge.questions] == [1000, 1000, 500]


async def test_a_list_of_long_names_is_asked_in_parts_that_a_broker_takes(bearers, judge):
    names = [b"%04d" % number + b"n" * 196 for number in range(1000)] + [b"x" * 40_000, b"y"]
    assert await bearers.permitted(ALICE, "write", "topic", names) == names
    for question in judge.questions:
        asked = {"token": b"t" * 300, **question._asdict(), **asdict(Usage(1, 1, 1))}
        assert len(ControlRequest("authorize", 1, asked).encode()) < CONTROL_SIZE_MAX
    assert len(judge.questions) < 12


async def test_what_is_said_of_one_name_is_not_kept_of_another_one(bearers, judge):
    """Whoever has a prefix can find a long name of which a digest begins so, and ask for that."""

    async def ask(_token, question, _usage):
        return Ruling("alice", [each.startswith(b"a") for each in question.names], 5.0, 0.0)

    judge.ask = ask
    long = next(
        name
        for number in count()
        if sha256(name := b"not alice's, %064d" % number).digest().startswith(b"a")
    )
    for digest in (sha256(long).digest(), sha256(long).hexdigest().encode()):
        await bearers.rule(ALICE, Need.of_topic("create", digest))
    assert not (await bearers.rule(ALICE, Need.of_topic("create", long))).is_allowed
    assert (await bearers.rule(ALICE, Need.of_topic("create", b"a" * 100))).is_allowed
