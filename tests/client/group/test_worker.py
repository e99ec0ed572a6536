"""Handlers on a work queue, several at a time, under supervision."""

import asyncio
import logging
import threading
import time

import pytest

from poe.client import GroupWorker
from poe.client.group import worker as worker_module
from poe.client.group.job import reason_of
from poe.errors import (
    ActorDead,
    CorruptGroup,
    GroupMismatch,
    InvalidGroupName,
    InvalidTopicName,
    OptionError,
    UnknownGroup,
    UnknownOption,
)
from poe.protocol.envelope import decode
from tests.broker.damaged_group import damage_group
from tests.client.consumers import VALUES, url
from tests.client.group.queues import GROUP_OPTIONS
from tests.interrupts import places
from tests.waiting import wait_until


@pytest.fixture
def worker(node):
    def make(handler, **options):
        options = {"group_options": GROUP_OPTIONS, **options}
        return GroupWorker(url(node), "jobs", handler, **options)

    return make


def floor(node):
    try:
        (unit,) = node.control("group", group="workers")["units"]
    except UnknownGroup:  # the pool has not joined yet, which makes it
        return None
    return unit["floor"]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_each_message_is_worked_on_once(node, worker, kind):
    last = node.put_many("jobs", VALUES)
    found = []

    def handle(job):
        found.append(job.value)

    async def handle_async(job):
        await asyncio.sleep(0)
        handle(job)

    with worker(handle if kind == "function" else handle_async) as pool:
        wait_until(lambda: floor(node) == last)
    assert sorted(found) == VALUES
    assert pool.statistics()["done"] == 10
    assert pool.join()


def test_no_more_handlers_run_at_a_time_than_may(node, worker):
    node.put_many("jobs", VALUES)
    barrier = threading.Barrier(3)
    with worker(lambda _: barrier.wait(20), concurrency=2) as pool:
        wait_until(lambda: pool.statistics()["working"] == 2)
        assert barrier.n_waiting <= 2
        barrier.abort()


def test_a_handler_that_raises_has_its_message_tried_again(node, worker, caplog):
    caplog.set_level(logging.CRITICAL, "poe.client.group.worker")
    last = node.put_many("jobs", VALUES)
    attempts = []

    def handle(job):
        attempts.append(job.attempts)
        if job.value == VALUES[3] and job.attempts < 2:
            raise ValueError(job)

    with worker(handle):
        wait_until(lambda: floor(node) == last)
    assert sorted(attempts) == [*[0] * 10, 1, 2]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError()], ids=repr)
def test_a_handler_that_would_end_the_program_fails_alone(node, worker, kind, error, caplog):
    """As one that calls `sys.exit`: others were put aside for it, or nothing was done any more."""
    last = node.put_many("jobs", [b"poison", *VALUES])
    found = []

    def handle(job):
        if job.value == b"poison":
            raise error
        found.append(job.value)

    async def handle_async(job):
        handle(job)

    options = {"group_options": {**GROUP_OPTIONS, "attempts_max": 2}, "stop_timeout_s": 1}
    with worker(handle if kind == "function" else handle_async, **options):
        wait_until(lambda: floor(node) == last)
    assert sorted(found) == VALUES
    pointer, letter = node.next(b"workers.dead", 0)
    _, value, headers = decode(letter)
    assert (value, (headers or {})["poe.reason"]) == (b"poison", reason_of(error).encode())
    assert node.next(b"workers.dead", pointer) is None


def test_a_handler_may_say_itself_what_becomes_of_its_message(node, worker):
    last = node.put("jobs", b"nonsense")
    with worker(lambda job: job.dead("it is nonsense")):
        wait_until(lambda: b"workers.dead" in node.topics() and floor(node) == last)


def test_a_stop_lets_handlers_end_that_run(node, worker):
    last = node.put_many("jobs", VALUES)
    has_begun, may_end = threading.Event(), threading.Event()
    found = []

    def handle(job):
        has_begun.set()
        may_end.wait(20)
        found.append(job.value)

    pool = worker(handle, concurrency=1)
    pool.start()
    assert has_begun.wait(20)
    stopping = threading.Thread(target=pool.stop)
    stopping.start()
    assert not pool.join(0.3)
    may_end.set()
    stopping.join(20)
    assert found == VALUES[:1]
    with worker(lambda job: found.append(job.value)):
        wait_until(lambda: floor(node) == last)
    assert sorted(found) == VALUES


def test_a_stop_waits_no_longer_than_it_may(node, worker):
    node.put("jobs", b"long")
    may_end, has_begun = threading.Event(), threading.Event()
    found = []

    def hang(_):
        has_begun.set()
        may_end.wait(30)

    pool = worker(hang, concurrency=1, stop_timeout_s=0.05)
    pool.start()
    assert has_begun.wait(20)
    pool.stop()
    with worker(lambda job: found.append((job.value, job.attempts))):
        wait_until(lambda: found == [(b"long", 0)])
    may_end.set()


@pytest.mark.parametrize("kind", ["waits", "stubborn", "blocking"])
def test_a_stop_waits_no_longer_for_coroutines_either(node, worker, monkeypatch, kind, caplog):
    """Those that wait are cancelled; the others go on in their thread."""
    monkeypatch.setattr(worker_module, "_CANCEL_S", 0.05)
    begun, goes_on = threading.Event(), threading.Event()

    async def hang(job):
        begun.set()
        if kind == "blocking":
            goes_on.wait(20)
        while not goes_on.is_set():
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                if kind == "waits":
                    raise

    node.put("jobs", b"m")
    pool = worker(hang, concurrency=1, stop_timeout_s=0.05)
    pool.start()
    assert begun.wait(20)
    begun_s = time.monotonic()
    pool.stop()
    assert time.monotonic() - begun_s < 10
    goes_on.set()
    assert pool.join()
    (unit,) = node.control("group", group="workers")["units"]
    assert not unit["leases"], "its message is another member's to try"
    assert "is tried again" not in caplog.text, "as nobody can be told any more"


def test_a_stop_waits_for_what_a_coroutine_has_begun_and_cancels_it_not(node, worker):
    may_end, begun = threading.Event(), threading.Event()
    told: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def tell(value):
        begun.set()
        await asyncio.to_thread(may_end.wait, 20)
        told.append(value)

    async def handle(job):
        tasks.add(asyncio.create_task(tell(job.value)))

    last = node.put("jobs", b"m")
    pool = worker(handle, concurrency=1)
    pool.start()
    assert begun.wait(20)
    wait_until(lambda: floor(node) == last)
    stopping = threading.Thread(target=pool.stop)
    stopping.start()
    assert not pool.join(0.3)
    may_end.set()
    stopping.join(20)
    assert told == [b"m"]


@pytest.mark.slow
def test_a_signal_handler_may_stop_a_pool_wherever_it_has_interrupted_its_stop(node):
    """As that of a second SIGTERM does."""
    made: list[GroupWorker] = []

    def stop():
        made[-1].stop()

    for interrupted in places("group/worker.py", handler=stop):
        made.append(GroupWorker(url(node), "jobs", print, concurrency=1))
        made[-1].start()
        interrupted(stop)
        stop()
        assert made[-1].join(5)
    assert len(made) > 5


def test_a_pool_that_has_not_begun_may_be_waited_for(worker):
    assert not worker(print).join(timeout_s=0)


def test_a_pool_whose_slots_fail_too_often_says_so(node, worker, monkeypatch, caplog):
    caplog.set_level(logging.CRITICAL + 1)
    monkeypatch.setattr("poe.client.group.worker._INTENSITY", 0)
    pool = worker(print, concurrency=1, timeout_s=0)
    node.stop()
    pool.start()
    with pytest.raises(ActorDead, match="too often"):
        pool.join(20)
    pool.stop()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, GroupMismatch),
        ({"group": "a b"}, InvalidGroupName),
        ({"group": "new", "group_options": {"speed": 1}}, UnknownOption),
    ],
)
def test_a_pool_that_its_group_refuses_says_so_at_once_and_is_not_tried_again(
    node, worker, caplog, options, error
):
    node.control("group_create", group="workers", mode="ordered", topics=["jobs"])
    with worker(print, concurrency=3, **options) as pool, pytest.raises(error):
        pool.join(20)
    assert [each.exc_info for each in caplog.records if each.levelno >= logging.ERROR] == [None]


def test_a_pool_of_a_topic_that_can_never_be_says_so_at_once(node):
    with GroupWorker(url(node), "a/b", print) as pool, pytest.raises(InvalidTopicName):
        pool.join(20)


def test_a_pool_whose_group_is_damaged_says_so_at_once(serve, tmp_path):
    node = serve(dir=tmp_path / "data")
    node.control("group_create", group="other", mode="shared", topics=["jobs"])
    damage_group(node, "workers")
    node.stop()
    node = serve(dir=tmp_path / "data")
    with GroupWorker(url(node), "jobs", print) as pool, pytest.raises(CorruptGroup):
        pool.join(20)


def test_a_pool_whose_group_is_deleted_says_so_and_makes_no_other(node, worker, caplog):
    worked = threading.Event()
    node.put("jobs", b"one")
    with worker(lambda _: worked.set(), concurrency=2) as pool:
        assert worked.wait(20)
        node.control("group_delete", group="workers", force=True)
        node.put("jobs", b"two")
        with pytest.raises(UnknownGroup):
            pool.join(20)
    told = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert [each.exc_info for each in told] == [None]
    assert node.control("groups") == []


@pytest.mark.parametrize("option", [{"concurrency": 0}, {"stop_timeout_s": -1}, {"batch": 0}])
def test_a_wrong_option_is_an_error_that_names_it(worker, option):
    with pytest.raises(OptionError, match=next(iter(option))):
        worker(print, **option)


def test_a_handler_that_takes_no_jobs_is_an_error(worker):
    with pytest.raises(OptionError, match="handler"):
        worker(None)


def test_an_unknown_option_is_an_error(worker):
    with pytest.raises(UnknownOption):
        worker(print, threads=1)


@pytest.mark.parametrize("timeout_s", [-1, "1", True, float("nan")])
def test_a_wrong_time_to_join_is_an_error(worker, timeout_s):
    with (
        worker(print) as pool,
        pytest.raises(OptionError, match=r"timeout_s is .*; use 0 or more seconds, or None"),
    ):
        pool.join(timeout_s)
