"""A function of the user that ends its program, or its test, does not end the producer."""

import asyncio
import gc
import sys

import pytest

from poe.client import AsyncProducer, Consumer, Delivery, Failed, Producer, Token
from poe.errors import ConnectFailed, MassageFailed, PickerFailed
from poe.testing import broker
from tests.waiting import wait_until


class NoneAtAll(BaseException):
    """What nobody would think of."""


ENDS = [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, NoneAtAll]
EACH_END = pytest.mark.parametrize(
    "end",
    [*(lambda each=each: _raise(each) for each in ENDS), pytest.fail, pytest.skip, sys.exit,
     lambda: pytest.exit("now")],
    ids=[*(each.__name__ for each in ENDS), "fail", "skip", "exit", "pytest.exit"],
)  # fmt: skip


def _raise(error):
    raise error


@pytest.fixture(scope="module")
def url():
    with broker() as serving:
        yield serving.url


class Sink:
    """Metrics that end the program."""

    def __init__(self, end):
        self._end = end

    def add(self, *_):
        self._end()

    set = observe = close = add


EVENTS = ["flush", "flushed_replied", "worker_up", "worker_down", "time_to_connect"]


@EACH_END
def test_callbacks_and_metrics_that_end_the_program_end_nothing(url, end):
    functions = dict.fromkeys(EVENTS, lambda *_: end())
    with Producer(url, callbacks=functions, metrics=[Sink(end)]) as producer:
        told: list[Delivery] = []
        for i in range(3):
            delivery = producer.produce_async("t", b"%d" % i)
            delivery.add_done_callback(lambda _: end())
            delivery.add_done_callback(told.append)
            assert delivery.result(30).count == 1
        wait_until(lambda: len(told) == 3)
        assert producer.produce_sync("t", b"more").count == 1
        assert producer.statistics()["callbacks_raised"] >= 6
        assert producer.close() == []


@EACH_END
def test_a_picker_that_ends_the_program_fails_its_call(url, end):
    def pick(_topic, key, _partitions):
        return end() if key == b"bad" else 0

    with Producer(url, picker=pick, partitions={"two": 2}, envelope=True) as producer:
        results = producer.produce_sync("two", [(b"good", b"x"), (b"bad", b"y")])
        assert isinstance(results, list)
        assert isinstance(results[1], Failed)
        assert type(results[1].error) is PickerFailed
        with pytest.raises(PickerFailed, match="raised"):
            producer.produce_sync("two", (b"bad", b"y"))
        assert len(producer.produce_sync("two", [(b"good", b"z")])) == 1
        assert producer.statistics()["messages_buffered"] == 0


@EACH_END
def test_a_massage_that_ends_the_program_fails_its_batch(url, end):
    def massage(_topic, messages):
        return end() if messages == [b"bad"] else messages

    with Producer(url, massage=massage) as producer:
        for _ in range(2):
            with pytest.raises(MassageFailed, match="raised"):
                producer.produce_sync("t", b"bad")
            assert producer.produce_sync("t", b"good").count == 1
        assert producer.statistics()["messages_buffered"] == 0


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_close_still_tells_what_is_left(error):
    """Callbacks of the downtime are called in the producer's own thread."""
    functions = {
        event: lambda *_: _raise(error)
        for event in ("worker_down", "worker_still_down", "downtime_saved", "failed", "dropped")
    }
    with broker() as stopped:
        producer = Producer(stopped.url, callbacks=functions, close_timeout_s=0.1)
        producer.produce_sync("t", b"first")
        stopped.stop()
        wait_until(lambda: producer.info("t").state == "downtime")
        producer.produce_async("t", b"left").add_done_callback(lambda _: _raise(error))
        wait_until(lambda: producer.statistics()["callbacks_raised"] >= 3)
        (left,) = producer.close()
        assert left.messages == [b"left"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
async def test_the_asyncio_producer_contains_them_too(url, error):
    functions = {event: lambda *_: _raise(error) for event in EVENTS}
    async with AsyncProducer(url, callbacks=functions) as producer:
        delivery = await producer.produce_async("t", b"x")
        delivery.add_done_callback(lambda _: _raise(error))
        assert (await delivery).count == 1
        assert (await producer.produce_sync("t", b"y")).count == 1
        assert await producer.close() == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_close_tells_what_is_left_even_where_a_task_of_the_user_has_ended_the_loop(caplog):
    """The event loop of an `AsyncProducer` may have any tasks, and asyncio lets some end it."""

    async def leave():
        raise SystemExit

    async def run():
        producer = AsyncProducer(stopped.url, close_timeout_s=0.1)
        await producer.produce_sync("t", b"first")
        stopped.stop()
        loop = producer.loop()
        asyncio.run_coroutine_threadsafe(leave(), loop)
        await asyncio.to_thread(wait_until, lambda: not loop.is_running())
        await producer.produce_async("t", b"left")
        return await producer.close()

    with broker() as stopped:
        (left,) = asyncio.run(run())
    assert left.messages == [b"left"]
    assert "actors have not ended" in caplog.text
    gc.collect()  # what the loop never came to is told of here, not in another test


@EACH_END
def test_a_function_for_the_token_that_ends_the_program_has_failed_and_is_asked_again(url, end):
    asked: list[None] = []

    def token():
        asked.append(None)
        end()

    quick = {"reconnect_min_s": 0.01, "reconnect_max_s": 0.01, "close_timeout_s": 0}
    with Producer(url, credentials=Token(token), **quick) as producer:
        producer.produce_async("t", b"waits")
        wait_until(lambda: len(asked) > 20)
        assert isinstance(producer.info("t").last_error, ConnectFailed)
    with (
        pytest.raises(ConnectFailed, match="the function that gives the token has raised"),
        Consumer(url, "t", credentials=Token(token), timeout_s=0),
    ):
        pass
