"""Both consumers behind one interface, so that a test runs on each."""

import asyncio
from typing import Any

from poe.client.consumer.async_consumer import AsyncConsumer
from poe.client.consumer.consumer import Consumer
from tests.waiting import wait_until

VALUES = [b"message %d" % number for number in range(10)]


class BlockingAsyncConsumer:
    """An `AsyncConsumer` with the interface of a `Consumer`: its loop runs while it is called."""

    def __init__(self, runner: asyncio.Runner, *arguments: Any, **options: Any):
        self._runner = runner
        self._consumer = AsyncConsumer(*arguments, **options)

    def __enter__(self):
        self._runner.run(self._consumer.__aenter__())
        return self

    def __exit__(self, *error):
        self._runner.run(self._consumer.__aexit__(*error))

    def __iter__(self):
        return self._each(aiter(self._consumer))

    def batches(self):
        return self._each(self._consumer.batches())

    def columns(self):
        return self._each(self._consumer.columns())

    def receive(self, timeout_s=None):
        return self._runner.run(self._consumer.receive(timeout_s))

    def position(self):
        return self._runner.run(self._consumer.position())

    def seek(self, start):
        self._runner.run(self._consumer.seek(start))

    def commit(self, data=b""):
        return self._runner.run(self._consumer.commit(data))

    def statistics(self):
        return self._consumer.statistics()

    def close(self):
        self._runner.run(self._consumer.close())

    def _each(self, found):
        async def following():
            return await anext(found, None)

        while (each := self._runner.run(following())) is not None:
            yield each


class Consumers:
    """Makes consumers of one kind, `blocking` or `asyncio`, and closes them."""

    def __init__(self, kind: str):
        self.kind = kind
        self._runner = asyncio.Runner()
        self._made: list[Any] = []

    def __call__(self, place: Any, topic: Any = "t", **options: Any):
        """Make a consumer of a node, or of what a url says."""
        where = (place if isinstance(place, str) else url(place), topic)
        made: Any
        if self.kind == "blocking":
            made = Consumer(*where, **options)
        else:
            made = BlockingAsyncConsumer(self._runner, *where, **options)
        self._made.append(made)
        return made

    def close(self):
        with self._runner:
            for each in self._made:
                each.close()


def values(messages):
    return [each.value for each in messages]


def url(node):
    host, port = node.address
    return f"poe://{host}:{port}"


def put_segments(node, *messages):
    """Put each message into a segment of its own; return their pointers."""
    pointers = []
    for message in messages:
        pointers.append(node.put("t", message))
        wait_until(lambda: dict(node.info())[b"t"][-1][1].count == 0)
    return pointers
