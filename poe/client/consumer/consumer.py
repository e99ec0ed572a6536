"""The blocking consumer: reads a topic from where one likes, follows it, reconnects by itself.

Fetching runs on an event loop in a thread of its own, one fetch ahead, so that whoever has a
consumer may block, be interrupted, or run an event loop of his own, as a notebook does. Only once
a fetch, of thousands of messages, threads wait for each other.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Self

from poe.client.consumer.cursor import Cursor
from poe.client.consumer.loop_thread import LoopThread, until_closed
from poe.client.consumer.source import ConsumerStatistics, Fetched, Received, Start
from poe.client.given_topics import Topics
from poe.client.local_server import LocalServer
from poe.errors import ConsumerClosed
from poe.errors.timeout import limit_of


class Consumer:
    """Reads a topic from where one likes, follows it, and reconnects by itself.

        with Consumer("poe://localhost:5555", "orders", follow=True) as consumer:
            for received in consumer:
                print(received.pointer, received.value)

    Args (of the constructor):
        url: `poe://host:port` or `kafka://host:port`, with more addresses after commas: of Poe,
            servers with the same topics, of which the first that answers is read.
        topics: the name of one; with `group` also a list of names, and of patterns such as `web.*`.
        options: see `ConsumerOptions`.

    Messages of a partition come in order; partitions take turns. Where a server cannot be reached,
    it is tried again, at growing intervals, for `timeout_s`; then that is an error, after which one
    may ask again. So is damage, or that messages were deleted before they were read, unless an
    option says to skip it. To go on behind it: `seek(error.pointer)` where there is one partition,
    else `seek({partition: error.pointer})`, by what a note of the error says; after `MessagesLost`
    `seek({error.partition: error.pointer_high})`. With a group it is the topic of the partition.

    With `group` it is a member of one: the members share the partitions, and each goes on where the
    group was. What was handed out counts as dealt with, and is committed, once the next messages
    are asked for, or the `with` block is left without an error; see option `commit` for other ways.

    One thread at a time may read. Any thread may close it, and one that waits then is told so. In a
    forked process it is of no use: make another one there.

    Raises:
        UnknownOption, OptionError: on construction, naming what is allowed.
    """

    def __init__(self, url: str | LocalServer, topics: Topics, /, **options: Any) -> None:  # noqa: ANN401 - checked by `ConsumerOptions`
        self._cursor = Cursor(url, topics, options)
        self._loop = LoopThread(f"consumer of {topics!r}", self._cursor.close, ConsumerClosed)

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._cursor.open())
        except BaseException:
            self.close()  # who has not entered does not leave
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._cursor.settle()
        self.close()

    def __iter__(self) -> Iterator[Received]:
        """Yield each message, until `receive` would return none or the consumer is closed.

        A loop that was left goes on where it was in the next one.
        """
        return chain.from_iterable(self._rests())

    def batches(self) -> Iterator[list[Received]]:
        """Yield what `receive` returns, until that is nothing or the consumer is closed."""
        for _ in self._rests():
            yield self._cursor.take()

    def columns(self) -> Iterator[Fetched]:
        """Yield messages side by side: pointers, values, keys, headers, each in a list of its own.

        The fastest way, since there is no object for each message. Otherwise as `batches`, but for
        the number of messages, which is that of a fetch.
        """
        for _ in self._rests():
            yield self._cursor.take_columns()

    def receive(self, timeout_s: float | None = None) -> list[Received]:
        """Return the next messages, 1 to `batch`, of one partition.

        An empty list is the end of the topic, after which one may ask again; with `follow` it means
        that nothing came within `timeout_s`, and without a time-out it waits for ever.

        Raises:
            OptionError: `timeout_s` is neither seconds nor None.
            ConsumerClosed: it was closed, before or while this waited.
            CorruptRecord: the next record is damaged.
            InvalidEnvelope: with `envelope`, the next message is none.
            MessagesLost: what was next has been deleted.
            ConnectFailed, ConnectionClosed, CallTimeout: no server was reached for the consumer's
                own `timeout_s`.
            PoeError: the server's refusal.
        """
        self._fill(limit_of(timeout_s))
        return self._cursor.take()

    def position(self) -> dict[Any, int]:
        """Return for each partition the pointer of the last message that was handed out.

        With a group the keys are names of units, those of the partitions' own topics. A consumer
        with `start=position()` goes on behind it. The message that a loop is at counts
        as handed out, so ask when it was dealt with; after `close`, too.

        Raises:
            PoeError: as `receive`, where nothing was read before.
        """
        if self._cursor.position is None:
            self._loop.run(self._cursor.open())
        return self._cursor.position or {}

    def seek(self, start: Start) -> None:
        """Read on from somewhere else; partitions that a map does not name stay where they are.

        Where that fails, it reads on from where it was.

        Raises:
            OptionError, PointerOutOfRange: it is no place.
            PoeError: as `receive`.
        """
        self._loop.run(self._cursor.seek(start))

    def commit(self, data: bytes = b"") -> dict[bytes, int]:
        """Tell the group that all that was handed out is dealt with; return what it has taken.

        Args:
            data: up to 1 KiB, which are kept with the position of each unit.

        Returns:
            The pointer of each unit that was not told before; those that are now another member's
            are not among them.

        Raises:
            OptionError: the consumer has no group.
            ConsumerClosed: it was closed.
            GroupFenced: the group knows this member no more, which joins anew by itself: messages
                in hand may come to another one.
            PoeError: as `receive`.
        """
        return self._loop.run(self._cursor.commit(data))

    def statistics(self) -> ConsumerStatistics:
        """Return what was counted so far."""
        return self._cursor.statistics

    def close(self) -> None:
        """Close all connections; a thread that waits for messages is told.

        In a signal handler that has interrupted a call it does not wait for that.
        """
        self._loop.close()

    def _rests(self) -> Iterator[Iterator[Received]]:
        """Yield what is there to be handed out, again and again."""
        self._cursor.check_open()
        with until_closed():
            while self._fill():
                yield self._cursor.each()

    def _fill(self, timeout_s: float | None = None) -> bool:
        self._cursor.check_open()
        return self._cursor.has_some or self._loop.run(self._cursor.fill(timeout_s))
