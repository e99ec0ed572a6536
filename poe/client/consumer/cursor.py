"""Where a consumer is: what was fetched, how much of that was handed out, and how more comes.

Both consumers are thin shells of it, so that they behave alike: fetching belongs to an event loop,
handing out what is there needs none.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from poe.client.consumer.hand import Hand
from poe.client.consumer.loop_thread import FORKED
from poe.client.consumer.poe_source import PoeSource
from poe.client.consumer.source import (
    ConsumerOptions,
    ConsumerStatistics,
    Fetched,
    Received,
    Source,
    Start,
)
from poe.client.given_topics import Topics, topic_names
from poe.client.group.group_source import GroupSource
from poe.client.local_server import LocalServer
from poe.client.underway import Underway
from poe.client.url import servers_of
from poe.errors import ConsumerClosed, KafkaMissing, OptionError
from poe.option import load_options


class Cursor:
    """What one consumer has read; one task or thread at a time reads on, any one may close it.

    Invariant: messages handed out == those up to `position()`, whoever gave up waiting meanwhile.
    """

    def __init__(
        self, url: str | LocalServer, topics: Topics, arguments: Mapping[str, Any]
    ) -> None:
        self._options = load_options(ConsumerOptions, arguments)
        names = topic_names(topics)
        self._hand = Hand(names[0])
        self._group: GroupSource | None = None
        self._source: Source
        if self._options.group is None:
            self._source = _source(url, names, self._options)
        else:
            self._source = self._group = _group_source(url, names, self._options, self._hand)
        self._opening = asyncio.Lock()
        # Where it is in each partition, but for that of what is being handed out.
        self._positions: dict[Any, int] | None = None
        # Whether the source is there, too: after a `seek` that failed it may be anywhere.
        self._is_begun = False
        self._filling: asyncio.Task[Fetched | None] | None = None
        self._opens = Underway(ConsumerClosed)
        self._commits = Underway(ConsumerClosed)
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None
        self._pid = os.getpid()

    @property
    def is_member(self) -> bool:
        """Whether it is a member of a group, which must be heard of whatever its reader does."""
        return self._group is not None

    @property
    def statistics(self) -> ConsumerStatistics:
        """What was counted so far."""
        return replace(self._source.statistics)

    @property
    def has_some(self) -> bool:
        """Whether something is there to be handed out."""
        return self._hand.has_some

    def check_open(self) -> None:
        """Refuse to go on after `close`, and in a fork: the other process goes on with all of it.

        Raises:
            ConsumerClosed: it was closed, or is another process's.
        """
        if self._is_closed:
            raise ConsumerClosed
        if self._pid != os.getpid():
            raise ConsumerClosed(FORKED)

    async def open(self) -> None:
        """Find where to begin, if that was not done.

        Raises:
            ConsumerClosed: it is closed, or was while this waited.
            PoeError: as `Source.open`.
        """
        await self._opens.run(self._open())

    async def _open(self) -> None:
        async with self._opening:
            if not self._is_begun:
                await self._begin(
                    self._options.start if self._positions is None else self._positions
                )

    async def fill(self, timeout_s: float | None = None) -> bool:
        """Wait until there is something to hand out; False at the end, or after `timeout_s`.

        Raises:
            ConsumerClosed: it is closed, or was while this waited.
            PoeError: as `Source.fetch`.
        """
        self.check_open()
        if not self.has_some:
            self._hand.settle()
            if self._group is not None:
                self._group.note_dealt()
        while not self.has_some:
            self.check_open()
            filling = self._filling
            if filling is None:
                filling = self._filling = asyncio.create_task(self._fetch())
            # Who gives up waiting does not take the fetch along: it is there the next time.
            await asyncio.wait((filling,), timeout=timeout_s)
            if not filling.done():
                return False
            if self._filling is filling and not await self._hand_out(filling):
                return False
        return True

    def settle(self) -> None:
        """Count all that was handed out as dealt with; a group is told of that by and by."""
        self._hand.settle()

    async def commit(self, data: bytes = b"") -> dict[bytes, int]:
        """Tell the group that all that was handed out is dealt with.

        Raises:
            OptionError: there is no group.
            ConsumerClosed: it is closed, or was while this waited.
            PoeError: as `GroupSource.commit`.
        """
        self.check_open()
        if self._group is None:
            raise OptionError("group", None, "the name of a group, to commit to")
        await self.open()
        self._hand.settle()
        return await self._commits.run(self._group.commit(data))

    def take(self) -> list[Received]:
        """Return the next batch of what is there to be handed out."""
        return self._hand.take(self._options.batch)

    def each(self) -> Iterator[Received]:
        """Return what is there to be handed out; whoever takes from it, it is handed out."""
        return self._hand.each()

    def take_columns(self) -> Fetched:
        """Return all that is there to be handed out, side by side."""
        return self._hand.take_columns()

    @property
    def position(self) -> dict[Any, int] | None:
        """The pointer of the last message handed out, for each partition; None before `open`."""
        return None if self._positions is None else {**self._positions, **self._handed_out()}

    async def seek(self, start: Start) -> None:
        """Read on from somewhere else; where that fails, it reads on from where it was.

        Raises:
            OptionError, PointerOutOfRange: `start` is none.
            ConsumerClosed, PoeError: as `open`.
        """
        await self._opens.run(self._seek(replace(self._options, start=start).start))

    async def _seek(self, start: Start) -> None:
        if isinstance(start, Mapping):
            await self._open()
            start = {**(self.position or {}), **start}
        # At once: whoever is cancelled behind this goes on, as the next one, where he was.
        self._put_away()
        self._is_begun = False
        await self._stop_filling()
        async with self._opening:
            await self._begin(start)

    async def close(self) -> None:
        """Let go of all connections, and have who waits told so.

        Whoever is cancelled meanwhile takes nothing of that along: connections would stay for ever.
        """
        if self._closing is None:
            self._is_closed = True
            self._put_away()
            self._closing = asyncio.create_task(self._end())
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
        await self._opens.end()
        await self._stop_filling()
        await self._source.close()
        # The source has left its group behind those that could be told.
        await self._commits.end()

    async def _begin(self, start: Start) -> None:
        self.check_open()
        self._is_begun = False
        self._positions = dict(await self._source.open(start))
        self._is_begun = True

    async def _fetch(self) -> Fetched | None:
        await self._open()
        return await self._source.fetch()

    async def _hand_out(self, filling: "asyncio.Task[Fetched | None]") -> bool:
        """Have what was fetched in hand, if it may be; False at the end."""
        if filling.exception() is not None or filling.result() is None:
            self._filling = None
        fetched = filling.result()
        if fetched is None:
            return False
        may_be = self._group is None or await self._group.admit(fetched)
        if self._filling is filling:
            self._filling = None
            if may_be:
                self._put_away()
                self._hand.put(fetched)
        return True

    async def _stop_filling(self) -> None:
        filling, self._filling = self._filling, None
        if filling is not None:
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)

    def _handed_out(self) -> dict[Any, int]:
        """Return how far the messages that were fetched last have been handed out."""
        fetched, count = self._hand.fetched, self._hand.count
        if not count:
            return {}
        place = fetched.partition if self._group is None else self._group.unit_of(fetched)
        return {place: fetched.pointers[count - 1]}

    def _put_away(self) -> None:
        """Hand nothing more out of what was fetched last."""
        self._hand.withdraw()
        if self._group is not None:
            self._group.note_dealt()
        if self._positions is not None:
            self._positions |= self._handed_out()
        self._hand.clear()


def _group_source(
    url: str | LocalServer, topics: list[bytes], options: ConsumerOptions, hand: Hand
) -> GroupSource:
    scheme, servers = servers_of(url, options.entry)
    if scheme != "poe":
        raise OptionError("group", options.group, "None on Kafka; the groups are those of Poe")
    return GroupSource(servers, topics, options, hand)


def _source(url: str | LocalServer, topics: list[bytes], options: ConsumerOptions) -> Source:
    scheme, servers = servers_of(url, options.entry)
    if len(topics) > 1:
        raise OptionError("topics", topics, "one topic, or give a group that reads them")
    (topic,) = topics
    if scheme == "kafka":
        # Needs the extra kafka, which nobody has to have for Poe's sake.
        try:
            kafka_consumer = import_module("poe.client.consumer.kafka_consumer")
        except ModuleNotFoundError as error:
            raise KafkaMissing from error
        source: Source = kafka_consumer.KafkaSource(servers, topic, options)
        return source
    return PoeSource(servers, topic, options)
