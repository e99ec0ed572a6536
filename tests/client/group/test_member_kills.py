"""Members of groups are killed while they work: nothing is lost, and others go on soon."""

import time
from collections import Counter
from contextlib import ExitStack
from functools import partial

import pytest

from tests.client.consumers import url
from tests.client.group.member_process import SESSION_S, TOPICS, MemberProcess
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

KILL_COUNT = 3
COUNT = 10_000


@pytest.fixture
def start(node):
    """Start a member in a process; all are killed at the end."""
    with ExitStack() as stack:

        def start(kind):
            member = MemberProcess(kind, url(node))
            stack.callback(member.kill)
            return member

        yield start


def put_round(node, topics, number):
    """Put the messages of a round, all different, onto topics; return what readers are to get."""
    numbers = range(number * COUNT, (number + 1) * COUNT)
    for at, topic in enumerate(topics):
        node.put_many(topic, [b"%d" % each for each in numbers[at :: len(topics)]])
    return set(map(str, numbers))


def got(members):
    return Counter(each for member in members for each in list(member.got))


@pytest.mark.parametrize(("kind", "topics"), [("consumer", TOPICS), ("queue", TOPICS[:1])])
def test_nothing_is_lost_when_members_are_killed(node, start, kind, topics):
    members = [start(kind) for _ in range(2)]
    wait_until(lambda: len(told(node)["members"]) == 2, 30)
    expected: set[str] = set()
    for number in range(KILL_COUNT):
        before = sum(got(members).values())
        expected |= put_round(node, topics, number)
        wait_until(partial(has_more, members, before), 30)
        members[-1 - number % 2].kill()  # in the middle of it
        members.append(start(kind))
    wait_until(lambda: got(members).keys() >= expected, 60)
    counts = got(members)
    assert counts.keys() == expected
    # What was in hand, or committed a moment later, comes again; not all of it.
    assert sum(counts.values()) < 1.5 * len(expected)


def has_more(members, count):
    return sum(got(members).values()) > count


def told(node):
    return node.control("group", group="g") if b"g" in groups(node) else {"members": []}


def groups(node):
    return {each["group"].encode() for each in node.control("groups")}


@pytest.mark.alone
def test_another_member_goes_on_soon_when_one_was_killed(node, start):
    first, second = start("consumer"), start("consumer")
    owners: set[bytes] = set()

    def are_shared():
        nonlocal owners
        owners = {each["owner"] for each in told(node).get("units", [])} - {None}
        return len(owners) == 2

    wait_until(are_shared, 30)
    first.kill()
    begin_s = time.monotonic()
    for topic in TOPICS:
        node.put(topic, topic.encode())
    wait_until(lambda: set(second.got) == set(TOPICS), SESSION_S + 5)
    assert time.monotonic() - begin_s < SESSION_S + 3
