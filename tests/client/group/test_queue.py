"""Work queues: each message to one member, acknowledged, tried again, or given up."""

import threading
from array import array
from functools import partial

import pytest

from poe.client import Queue
from poe.client.group import membership, queue_core
from poe.client.group.job import Job
from poe.errors import (
    ConnectFailed,
    GroupMismatch,
    LeaseLost,
    LocalProtocolError,
    OptionError,
    PoeError,
    PropertyMismatch,
    QueueClosed,
    UnknownOption,
)
from poe.protocol.envelope import decode, encode
from tests.broker.nodes import read_by_next
from tests.client.closing import close_at_each_place, told_at_close
from tests.client.consumers import VALUES, url
from tests.client.group.queues import GROUP_OPTIONS
from tests.forks import exit_code_of, fork
from tests.ports import free_port
from tests.waiting import wait_until


def told(node, group="workers"):
    return node.control("group", group=group)


def is_all_done(node, last):
    """Whether all is acknowledged up to a pointer."""
    (unit,) = told(node)["units"]
    return unit["floor"] == last and not unit["leases"]


def take_all(queue, count):
    jobs = []
    for _ in range(count):
        with queue.get(20) as job:
            jobs.append(job)
    return jobs


def test_each_message_is_a_job_that_is_done_when_its_block_ends(node, queue):
    last = node.put_many("jobs", VALUES)
    with queue() as jobs:
        assert [job.value for job in take_all(jobs, 10)] == VALUES
        assert jobs.get(0.01) is None
        wait_until(lambda: is_all_done(node, last))
        assert jobs.statistics()["done"] == 10


@pytest.mark.parametrize("properties", [{}, {"partitions": 2}, {"envelope": True}])
def test_what_is_put_onto_a_topic_that_was_made_anew_is_put_as_that_one_is(node, queue, properties):
    """It knows nothing of the puts onto the one before, and may have other properties."""
    with queue() as jobs:
        for _ in range(2):
            jobs.put(b"old")
        node.control("delete", topic="jobs")
        node.create_topic("jobs", **properties)
        for number in range(3):
            jobs.put(b"%d" % number)
        there = [part.topic for part in node.describe("jobs").partitions]
        messages = [each for topic in there for _, each in read_by_next(node, topic)]
        if properties.get("envelope"):
            messages = [decode(each).value for each in messages]
        assert sorted(messages) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("has_envelopes", [True, False])
def test_what_comes_from_a_topic_that_was_made_anew_is_taken_as_that_one_has_it(
    node, queue, has_envelopes
):
    """And is no dead letter since it is in no envelope."""
    node.create_topic("jobs", envelope=has_envelopes)
    with queue() as jobs:
        jobs.put(b"old")
        take_all(jobs, 1)
        node.control("delete", topic="jobs")
        node.create_topic("jobs", envelope=not has_envelopes)
        with queue() as other:
            other.put([b"new", b"more"])
        assert [job.value for job in take_all(jobs, 2)] == [b"new", b"more"]
        assert jobs.statistics()["dead"] == 0


def test_what_is_put_comes(node, queue):
    with queue() as jobs:
        first = jobs.put(b"one")
        last = jobs.put([b"two", b"three"])
        assert [job.value for job in take_all(jobs, 3)] == [b"one", b"two", b"three"]
        assert first < last


def test_what_is_put_for_later_comes_later(node, queue):
    with queue() as jobs:
        assert jobs.put(b"later", delay_s=0.5) is None
        jobs.put(b"now")
        assert [job.value for job in take_all(jobs, 2)] == [b"now", b"later"]


@pytest.mark.parametrize("delay_s", [0, 0.01])
def test_what_is_put_is_as_the_topic_has_it(node, queue, delay_s):
    node.create_topic("jobs", partitions=2, envelope=True)
    with queue() as jobs:
        jobs.put([b"one", b"two"], delay_s=delay_s)
        jobs.put(b"three", delay_s=delay_s)
        found = take_all(jobs, 3)
    assert sorted(job.value for job in found) == [b"one", b"three", b"two"]
    assert {job.topic for job in found} == {b"jobs-0", b"jobs-1"}


def test_a_topic_that_is_not_as_an_option_says_is_not_put_onto(node, queue):
    node.create_topic("jobs", envelope=True)
    with pytest.raises(PropertyMismatch, match="envelope"):
        queue(envelope=False).put(b"work")


def test_two_members_share_the_messages(node, queue):
    last = node.put_many("jobs", VALUES)
    first, second = queue(batch=1), queue(batch=1)
    found = []
    for _ in range(5):
        for jobs in (first, second):
            with jobs.get(20) as job:
                found.append(job.value)
    assert sorted(found) == VALUES
    wait_until(lambda: is_all_done(node, last))


def test_who_gets_a_job_waits_until_there_is_one(node, queue):
    jobs = queue()
    threading.Timer(0.05, node.put, ("jobs", b"late")).start()
    with jobs.get() as job:
        assert job.value == b"late"


def test_a_job_whose_handler_raises_is_tried_again_and_counted(node, queue):
    node.put("jobs", b"hard")
    jobs = queue()
    for attempt in range(2):
        job = jobs.get(20)
        assert job.attempts == attempt
        with pytest.raises(ZeroDivisionError), job:
            raise ZeroDivisionError
    with jobs.get(20) as job:
        assert (job.value, job.attempts) == (b"hard", 2)


def test_a_job_that_fails_too_often_is_a_dead_letter(node, queue):
    node.put("jobs", b"poison")
    jobs = queue(group_options={"retry_s": 0, "attempts_max": 2})
    for _ in range(2):
        jobs.get(20).nack(reason="no")
    node.put("jobs", b"next")
    with jobs.get(20) as job:
        assert job.value == b"next"
    wait_until(lambda: b"workers.dead" in node.topics())


@pytest.mark.parametrize("delay_s", [-1, float("nan"), 31 * 86_400])
def test_a_wait_that_cannot_be_is_refused_and_costs_neither_the_job_nor_others(
    node, queue, delay_s
):
    node.put_many("jobs", [b"one", b"two"])
    jobs = queue(batch=1)
    with pytest.raises(OptionError, match="delay_s"), jobs.get(20) as job:
        job.nack(delay_s=delay_s)
    assert sorted((job.value, job.attempts) for job in take_all(jobs, 2)) == [
        (b"one", 1),
        (b"two", 0),
    ]


@pytest.mark.slow
def test_who_asks_for_a_lease_that_is_too_long_has_the_longest(node, queue):
    node.put("jobs", b"long")
    first = queue(group_options={"lease_s": 1})
    with first.get(20) as job:
        for seconds in (0, -1, 10**6):
            with pytest.raises(OptionError, match="seconds"):
                job.extend(seconds)
        job.extend(4000)
        assert queue(group_options={"lease_s": 1}).get(2.5) is None


def test_a_reason_may_hold_what_no_text_may(node, queue):
    """As the error of a file does whose name is no text."""
    node.put("jobs", b"poison")
    jobs = queue(group_options={"retry_s": 0, "attempts_max": 1})
    jobs.get(20).nack(reason="no file a\udcff")
    node.put("jobs", b"next")
    with jobs.get(20) as job:
        assert job.value == b"next"
    wait_until(lambda: b"workers.dead" in node.topics())
    _, letter = node.next(b"workers.dead", 0)
    headers = decode(letter)[2]
    assert headers is not None
    assert headers["poe.reason"] == b"no file a\\udcff"


def test_a_job_may_be_given_up_at_once(node, queue):
    node.put("jobs", b"nonsense")
    jobs = queue()
    jobs.get(20).dead("it is nonsense")
    wait_until(lambda: b"workers.dead" in node.topics())


def test_a_job_that_is_given_back_counts_no_attempt(node, queue):
    node.put("jobs", b"later")
    jobs = queue()
    jobs.get(20).release()
    assert jobs.get(20).attempts == 0


def test_an_interrupt_gives_the_job_back_uncounted(node, queue):
    node.put("jobs", b"work")
    jobs = queue()
    with pytest.raises(KeyboardInterrupt), jobs.get(20):
        raise KeyboardInterrupt
    assert jobs.get(20).attempts == 0


def test_what_a_member_has_when_it_leaves_goes_to_others_at_once(node, queue):
    node.put_many("jobs", VALUES)
    first = queue()
    held = first.get(20)
    first.close()
    with pytest.raises((QueueClosed, LeaseLost)):
        held.ack()
    second = queue()
    assert [job.value for job in take_all(second, 10)] == VALUES


def test_an_acknowledgement_that_comes_too_late_costs_nothing_else(node, queue):
    node.put_many("jobs", VALUES)
    jobs = queue()
    job = jobs.get(20)
    node.control("group_reset", group="workers", to="oldest", force=True)
    wait_until(lambda: jobs.statistics()["leases"] == 0)
    with pytest.raises(LeaseLost):
        job.ack()
    assert jobs.statistics()["late"] == 1
    assert [job.value for job in take_all(jobs, 10)] == VALUES


@pytest.mark.slow
def test_a_lease_is_extended_for_as_long_as_a_job_runs(node, queue):
    node.put("jobs", b"long")
    first = queue(group_options={"lease_s": 2})
    with first.get(20):
        assert queue(group_options={"lease_s": 2}).get(3.5) is None
    wait_until(lambda: told(node)["units"][0]["leases"] == 0)
    assert first.statistics()["late"] == 0


@pytest.mark.slow
def test_what_is_done_is_told_before_its_lease_ends_however_long_that_may_wait(node, queue):
    last = node.put("jobs", b"work")
    options = {"group_options": {"lease_s": 1}, "batch": 1}
    first = queue(ack_interval_s=60, **options)
    first.get(20).ack()
    assert queue(**options).get(2) is None, "it was done"
    assert is_all_done(node, last)
    assert first.statistics()["late"] == 0


@pytest.mark.slow
def test_what_waits_behind_a_job_that_takes_long_is_given_back(node, queue):
    node.put_many("jobs", VALUES)
    first, second = (queue(group_options={"lease_s": 2}) for _ in range(2))
    job = first.get(20)
    assert {each.value for each in take_all(second, 9)} == set(VALUES) - {job.value}
    job.ack()


def test_messages_in_envelopes_have_keys_and_headers(node, queue):
    node.put("jobs", encode(b"key", b"value", {"a": b"b"}))
    with queue(envelope=True).get(20) as job:
        assert (job.key, job.value, job.headers) == (b"key", b"value", {"a": b"b"})


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, partial(array, "B")])
@pytest.mark.parametrize("has_envelopes", [True, False])
def test_anything_bytes_like_is_put(node, queue, kind, has_envelopes):
    node.create_topic("jobs", envelope=has_envelopes)
    jobs = queue()
    jobs.put([kind(b"abc")])
    jobs.put([kind(b"abcd")], 0.001)
    assert {job.value for job in take_all(jobs, 2)} == {b"abc", b"abcd"}


def test_what_is_in_no_envelope_is_a_dead_letter(node, queue):
    node.put("jobs", b"no envelope")
    assert queue(envelope=True).get(0.3) is None
    wait_until(lambda: b"workers.dead" in node.topics())


def test_many_threads_share_a_queue(node):
    last = node.put_many("jobs", [b"%d" % number for number in range(1000)])
    found: list[bytes | None] = []
    is_over = threading.Event()

    def work(jobs):
        while not is_over.is_set():
            if (job := jobs.get(0.2)) is not None:
                with job:
                    found.append(job.value)

    with Queue(url(node), "jobs", batch=50) as jobs:
        threads = [threading.Thread(target=work, args=(jobs,)) for _ in range(4)]
        for each in threads:
            each.start()
        try:
            wait_until(lambda: len(found) >= 1000)
        finally:
            is_over.set()
            for each in threads:
                each.join()
        wait_until(lambda: is_all_done(node, last))
    assert sorted(map(int, filter(None, found))) == list(range(1000))


def test_a_queue_lives_through_a_restart_of_its_server(serve, queues, tmp_path):
    node = serve(dir=tmp_path / "data")
    port = node.address[1]
    node.put_many("jobs", VALUES)
    jobs = queues(node)
    take_all(jobs, 3)
    node.stop()
    node = serve(dir=tmp_path / "data", port=port)
    last = node.put("jobs", b"more")
    found: set[bytes | None] = set()
    while not found >= {*VALUES[3:], b"more"}:
        try:
            with jobs.get(20) as job:
                found.add(job.value)
        except LeaseLost:
            pass
    wait_until(lambda: is_all_done(node, last))


def test_whoever_waits_is_told_that_the_queue_is_closed(node, queues):
    jobs = Queue(url(node), "jobs")
    threading.Timer(0.05, jobs.close).start()
    with pytest.raises(QueueClosed):
        jobs.get()
    with pytest.raises(QueueClosed):
        jobs.get()


def test_what_is_acknowledged_while_the_queue_leaves_is_told_to_be_too_late(node, monkeypatch):
    """What became of jobs was told by then, and others have this one at once."""
    leave = membership.Membership.close
    late: list[LeaseLost] = []

    async def acknowledge_and_leave(member):
        try:
            job.ack()
        except LeaseLost as error:
            late.append(error)
        await leave(member)

    node.put("jobs", b"m")
    with Queue(url(node), "jobs") as jobs:
        job = jobs.get()
        monkeypatch.setattr(membership.Membership, "close", acknowledge_and_leave)
    assert len(late) == 1


def test_what_is_acknowledged_while_others_are_told_at_the_end_is_told_too(node, monkeypatch):
    """Else it would seem to be done, and come again."""
    tell = queue_core.QueueCore._tell  # noqa: SLF001 - at that moment

    async def tell_and_acknowledge(core):
        await tell(core)
        second.ack()

    last = node.put_many("jobs", [b"first", b"second"])
    with Queue(url(node), "jobs", ack_interval_s=60) as jobs:
        first, second = jobs.get(), jobs.get()
        monkeypatch.setattr(queue_core.QueueCore, "_tell", tell_and_acknowledge)
        first.ack()
    assert jobs.statistics()["done"] == 2
    assert is_all_done(node, last)


@pytest.mark.parametrize("call", [Queue.get, lambda jobs: jobs.put(b"m")], ids=["get", "put"])
def test_whoever_waits_for_a_server_is_told_that_the_queue_is_closed(caplog, monkeypatch, call):
    """However long the queue itself would go on trying."""
    monkeypatch.setattr(queue_core, "_CLOSE_S", 0.05)
    jobs = Queue(f"poe://127.0.0.1:{free_port()}", "jobs", timeout_s=30)
    assert told_at_close(jobs, call, caplog) == [QueueClosed]


def test_whoever_waits_is_told_that_the_queue_is_closed_though_no_server_can_be_told_what_is_done(
    node, monkeypatch
):
    """It waited for ever, and so did `close`."""
    monkeypatch.setattr(queue_core, "_CLOSE_S", 0.05)
    monkeypatch.setattr(membership, "_CLOSE_S", 0.05)
    node.put("jobs", b"m")
    jobs = Queue(url(node), "jobs", batch=1, ack_interval_s=60)
    job = jobs.get()
    wait, has_begun = queue_core.QueueCore.wait, threading.Event()
    errors: list[Exception] = []

    async def note_and_wait(core, timeout_s):
        has_begun.set()
        return await wait(core, timeout_s)

    def get():
        try:
            jobs.get()
        except PoeError as error:
            errors.append(error)

    monkeypatch.setattr(queue_core.QueueCore, "wait", note_and_wait)
    threads = [threading.Thread(target=each, daemon=True) for each in (get, jobs.close)]
    threads[0].start()
    assert has_begun.wait(20)
    node.stop()
    job.ack()
    threads[1].start()
    for each in threads:
        each.join(10)
    assert [type(each) for each in errors] == [QueueClosed]


def test_who_gets_a_job_waits_no_longer_where_no_server_is_there(queues):
    jobs = queues(f"poe://127.0.0.1:{free_port()}", timeout_s=1)
    assert jobs.get(timeout_s=0.05) is None
    with pytest.raises(ConnectFailed):
        jobs.get(timeout_s=20)


def test_who_only_looks_whether_there_is_a_job_gets_one_by_and_by(node, queue):
    node.put("jobs", b"m")
    jobs = queue()
    found: list[Job] = []

    def look():
        job = jobs.get(timeout_s=0)
        found.extend([job] if job else [])
        return found

    wait_until(look)
    assert [job.value for job in found] == [b"m"]


@pytest.mark.parametrize(
    "take", [lambda jobs: jobs.get(timeout_s=0), lambda jobs: next(iter(jobs), None)],
    ids=["get", "loop"],
)  # fmt: skip
def test_a_forked_process_is_told_to_make_its_own(node, take):
    """And works on nothing that the other process has fetched, and hands out."""
    node.put_many("jobs", VALUES)
    with Queue(url(node), "jobs") as jobs:
        jobs.get().ack()

        def go_on():
            with pytest.raises(QueueClosed, match="fork"):
                take(jobs)

        assert exit_code_of(fork(go_on)) == 0
        assert [job.value for job in take_all(jobs, 9)] == VALUES[1:]


@pytest.mark.parametrize(
    "say",
    [Job.ack, Job.nack, Job.release, partial(Job.dead, reason="?"), partial(Job.extend, seconds=9)],
)
def test_what_a_forked_process_says_of_a_job_is_refused(node, say):
    """Nobody would hear of it."""
    node.put_many("jobs", VALUES)
    with Queue(url(node), "jobs") as jobs:
        job = jobs.get()

        def say_so():
            with pytest.raises(QueueClosed, match="fork"):
                say(job)
            with pytest.raises(QueueClosed, match="fork"):
                jobs.statistics()

        assert exit_code_of(fork(say_so)) == 0
        job.ack()


@pytest.mark.slow
def test_a_signal_handler_closes_a_queue_wherever_it_has_interrupted_it(node):
    def make():
        node.put("jobs", b"work")
        return Queue(url(node), "jobs")

    def work(jobs):
        with jobs.get() as job:
            job.extend(5)

    assert close_at_each_place(make, work, "queue_core.py", "held_lease.py") > 10
    assert close_at_each_place(make, Queue.close, "loop_thread.py") > 5


def test_a_group_of_another_mode_is_refused(node, queue):
    node.control("group_create", group="workers", mode="ordered", topics=["jobs"])
    with pytest.raises(GroupMismatch, match="mode"):
        queue().get(20)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [(("poe://h", "t"), {"batch": 0}), (("kafka://h", "t"), {}), (("poe://h", []), {}),
     (("poe://h", "t"), {"group": ""}), (("poe://h", "t"), {"group_options": 1})],
)  # fmt: skip
def test_a_wrong_argument_is_an_error_that_names_it(arguments, options):
    with pytest.raises(OptionError):
        Queue(*arguments, **options)


def test_an_unknown_option_is_an_error_that_lists_them():
    with pytest.raises(UnknownOption, match="batch"):
        Queue("poe://h", "t", size=1)


@pytest.mark.parametrize("delay_s", [0, 1])
@pytest.mark.parametrize(
    ("messages", "why"),
    [(b"", "is empty"), ([], "is empty"), ("text", "put it into a list"), (["text"], "use bytes")],
)
def test_what_is_no_message_is_told_in_the_same_words_now_and_later(
    node, queue, messages, why, delay_s
):
    with pytest.raises(LocalProtocolError, match=why):
        queue().put(messages, delay_s=delay_s)


def test_nobody_waits_for_more_than_ten_years(node, queue):
    with pytest.raises(OptionError, match="delay_s"):
        queue().put(b"work", delay_s=1e9)


@pytest.mark.parametrize("group", ["", None, 7])
def test_a_queue_needs_the_name_of_a_group(group):
    with pytest.raises(OptionError, match='use a name, as in group="mailers"'):
        Queue("poe://h", "t", group=group)


def test_nothing_is_put_onto_several_topics(node, queue):
    with pytest.raises(OptionError, match="topics"):
        queue(["a", "b"]).put(b"work")


@pytest.mark.slow
def test_much_that_has_failed_at_once_is_told_though_a_request_has_no_room_for_it(node, queue):
    last = node.put_many("jobs", [b"%d" % number for number in range(12_000)])
    with queue(batch=12_000, group_options={**GROUP_OPTIONS, "on_dead": "drop"}) as jobs:
        held = [jobs.get(20) for _ in range(12_000)]
        for number, job in enumerate(held):
            job.dead("x" * 200) if number % 2 else job.ack()
        wait_until(lambda: is_all_done(node, last), 20)
