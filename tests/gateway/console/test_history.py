"""Rates that the console makes of what a node has counted."""

import asyncio

import pytest

from poe.gateway.console.history import INTERVAL_S, GroupSample, History, pace_of
from poe.gateway.console.topics import rates_by_topic


async def nobody(*_):
    """Is asked by no test: they hand the samples over."""
    raise AssertionError


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self):
        return self.now_s


def told(messages, *, started_us=1, topic=b"orders", **node):
    row = {"messages_in": messages, "bytes_in": 10 * messages, "messages_out": 0, "bytes_out": 0}
    return {"node": {"started_us": started_us, **node}, "topics": {topic: row}}


def history_of(clock, *samples):
    history = History(nobody, nobody, clock)
    for each in samples:
        history.take(each)
        clock.now_s += INTERVAL_S
    return history


def test_rates_are_of_the_last_interval():
    history = history_of(Clock(), told(0), told(10), told(110))
    assert history.rates()["messages_in"] == 20
    assert history.topic_rates() == {
        b"orders": {"messages_in": 20, "bytes_in": 200, "messages_out": 0, "bytes_out": 0}
    }


def test_a_topic_with_which_nothing_is_done_has_no_rates():
    assert history_of(Clock(), told(5), told(5)).topic_rates() == {}


def test_a_node_that_has_started_anew_makes_a_gap_and_no_wrong_rate():
    history = history_of(
        Clock(), told(100), told(200), told(3, started_us=2), told(13, started_us=2)
    )
    assert history.of_node(is_day=False)["series"]["messages_in"] == [20, None, 2]
    assert history.topic_rates()[b"orders"]["messages_in"] == 2


def test_a_topic_that_is_deleted_takes_nothing_from_the_rate_of_the_others():
    both = told(1000)
    both["topics"] |= told(5, topic=b"others")["topics"]
    history = history_of(Clock(), both, told(15, topic=b"others"), told(25, topic=b"others"))
    assert history.of_node(is_day=False)["series"]["messages_in"] == [2, 2]


def test_what_is_put_onto_a_topic_that_was_made_anew_counts():
    history = history_of(Clock(), told(1000), told(10), told(20))
    assert history.of_node(is_day=False)["series"]["messages_in"] == [2, 2]


def test_a_day_and_what_was_refused_do_not_wait_for_a_clock_that_was_put_back():
    clock = Clock()
    history = history_of(clock, *(told(each, refused={"QueueBusy": each}) for each in range(100)))
    clock.now_s -= 86_400
    for each in range(100, 120):
        history.take(told(each, refused={"QueueBusy": each}))
        clock.now_s += INTERVAL_S
    for is_day, count in ((False, 19), (True, 1)):
        times = history.of_node(is_day=is_day)["times_s"]
        assert len(times) == count
        assert times == sorted(times)
    clock.now_s += 3600
    history.take(told(120, refused={"QueueBusy": 119}))
    clock.now_s += INTERVAL_S
    history.take(told(121, refused={"QueueBusy": 119}))
    assert history.refused_lately() == {}


def test_gauges_are_as_they_were_and_totals_are_rates():
    history = history_of(
        Clock(),
        told(0, connections=3, refused={"QueueBusy": 1}),
        told(0, connections=5, refused={"QueueBusy": 11}),
    )
    series = history.of_node(is_day=False)["series"]
    assert series["connections"] == [5]
    assert series["refused"] == [2]


def test_an_hour_is_kept_at_five_seconds_and_a_day_at_a_minute():
    clock = Clock()
    history = history_of(clock, *(told(each) for each in range(2000)))
    assert len(history.of_node(is_day=False)["times_s"]) == 720
    assert len(history.of_node(is_day=True)["times_s"]) == 2000 * INTERVAL_S // 60


def test_a_topic_has_a_history_from_when_it_was_looked_at():
    clock = Clock()
    history = history_of(clock, told(0), told(10))
    assert history.of_topic(b"orders", [b"orders"], is_day=False) == {"times_s": [], "series": {}}
    for count in (20, 45):
        history.take(told(count))
        clock.now_s += INTERVAL_S
    assert history.of_topic(b"orders", [b"orders"], is_day=False)["series"]["messages_in"] == [5]


def test_no_more_topics_are_remembered_than_are_allowed():
    clock = Clock()
    history = History(nobody, nobody, clock)
    for number in range(201):
        history.of_topic(b"%d" % number, [b"orders"], is_day=False)
    for count in (1, 2):
        history.take(told(count))
        clock.now_s += INTERVAL_S
    assert len(history.of_topic(b"1", [b"orders"], is_day=False)["times_s"]) == 1
    assert history.of_topic(b"0", [b"orders"], is_day=False)["times_s"] == []


def test_a_topic_with_puts_has_a_spark_though_nobody_looks():
    history = history_of(Clock(), told(0), told(10), told(10), told(60))
    assert history.spark(b"orders") == [2, 0, 10]
    assert history.spark(b"others") == []


def told_of_partitions(first, second):
    """What a node tells of a topic that was made with two partitions."""
    others = told(second, topic=b"orders-1")["topics"]
    rows = told(first, topic=b"orders-0")
    return {**rows, "topics": rows["topics"] | others}


def test_what_is_done_with_a_topic_is_what_is_done_with_its_partitions():
    clock, parts = Clock(), [b"orders-0", b"orders-1"]
    history = history_of(clock, told_of_partitions(0, 0))
    history.of_topic(b"orders", parts, is_day=False)
    for first, second in ((0, 0), (10, 20), (10, 40)):
        history.take(told_of_partitions(first, second))
        clock.now_s += INTERVAL_S
    assert history.of_topic(b"orders", parts, is_day=False)["series"]["messages_in"] == [6, 4]
    assert history.spark(*parts) == [6, 4]
    rates = rates_by_topic(history.topic_rates(), [b"orders", b"others"])
    assert rates[b"orders"]["messages_in"] == 4


def test_partitions_that_are_added_make_a_gap_and_no_wrong_rate():
    """What was put onto them before somebody looks was not put just now."""
    clock, parts = Clock(), [b"orders-0", b"orders-1"]
    history = history_of(clock)
    history.of_topic(b"orders", parts[:1], is_day=False)
    for first, second in ((0, 0), (10, 5000), (20, 5010), (30, 5020)):
        history.take(told_of_partitions(first, second))
        if second == 5000:
            history.of_topic(b"orders", list(parts), is_day=False)
        clock.now_s += INTERVAL_S
    told = history.of_topic(b"orders", list(parts), is_day=False)
    assert told["series"]["messages_in"] == [2, None, 4]


def test_a_topic_whose_name_ends_in_a_number_is_no_partition():
    rates = {b"week": {"messages_in": 1.0}, b"week-1": {"messages_in": 2.0}}
    assert rates_by_topic(rates, [b"week", b"week-1"]) == rates
    assert rates_by_topic(rates, [b"week"]) == {b"week": {"messages_in": 3.0}}


def test_what_was_refused_in_the_last_hour_is_told_by_its_name():
    clock = Clock()
    history = history_of(
        clock, told(0, refused={"QueueBusy": 5}), told(0, refused={"QueueBusy": 8})
    )
    assert history.refused_lately() == {"QueueBusy": 3}
    for _ in range(800):
        history.take(told(0, refused={"QueueBusy": 8}))
        clock.now_s += INTERVAL_S
    assert history.refused_lately() == {}


def test_refusals_of_a_node_that_has_started_anew_count_from_there():
    history = history_of(
        Clock(), told(0, refused={"QueueBusy": 5}), told(0, refused={}), told(0, refused={"X": 1})
    )
    assert history.refused_lately() == {"X": 1}


def test_what_was_refused_stays_known_when_its_topic_is_deleted():
    clock = Clock()
    history = History(nobody, nobody, clock)
    for minute, count in enumerate((0, 5, None, None)):
        state = told(minute)
        if count is not None:
            state["topics"][b"gone"] = {"messages_in": 1, "refused": {"InvalidMessage": count}}
        history.take(state)
        clock.now_s += 60
    assert history.refused_lately() == {"InvalidMessage": 5}


def test_topics_that_appear_are_known_but_for_those_of_the_begin():
    history = history_of(Clock(), told(1), told(1, topic=b"new"))
    assert history.appeared == [b"new"]


def test_the_pace_of_a_group_is_what_it_takes_and_what_comes():
    samples = [GroupSample(5.0 * n, 1000 - 100 * n, 0.0, 10.0) for n in range(5)]
    assert pace_of(samples) == (30.0, 600 / 20)
    assert pace_of(samples[:1]) == (None, None)
    still = [GroupSample(5.0 * n, 100, 0.0, 10.0) for n in range(5)]
    assert pace_of(still) == (10.0, None)
    done = [GroupSample(5.0 * n, 0, 0.0, 10.0) for n in range(5)]
    assert pace_of(done) == (10.0, 0.0)


async def test_a_group_that_does_not_answer_holds_up_no_rates(monkeypatch):
    monkeypatch.setattr("poe.gateway.console.history.INTERVAL_S", 0.001)
    asked: list[int] = []

    async def count():
        asked.append(1)
        return told(len(asked))

    async def wait(_group):
        await asyncio.Event().wait()

    history = History(count, wait)
    history.watch("whose nodes are down")
    running = asyncio.create_task(history.run())
    async with asyncio.timeout(20):
        while len(asked) < 3:
            await history.next_sample()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
