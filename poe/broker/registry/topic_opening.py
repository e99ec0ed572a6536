"""Brings topics into service: with servers for all of their segments, or the reason why not."""

import contextlib
from collections.abc import Iterator

from poe.broker.registry.appendix_servers import AppendixServers
from poe.broker.registry.disk_failures import DiskFailures
from poe.broker.registry.routing_table import RoutingTable
from poe.errors import NoDescriptors, PoeError, TopicFailed
from poe.storage import Store, is_left_open


class TopicOpening:
    """Opens topics on behalf of the topic registry."""

    __slots__ = ("_disk_failures", "_routes", "_servers", "_store")

    def __init__(
        self,
        store: Store,
        routes: RoutingTable,
        servers: AppendixServers,
        disk_failures: DiskFailures,
    ) -> None:
        self._store = store
        self._routes = routes
        self._servers = servers
        self._disk_failures = disk_failures

    async def open(self, topic: bytes) -> None:
        """Start appendix servers for the segments of a recovered topic: for all of them, or none.

        Raises:
            TopicFailed: one did not start; the topic is out of service.
        """
        with self._waking(topic):
            await self._open(topic)

    async def _open(self, topic: bytes) -> None:
        for segment in self._store.topics[topic][:-1]:
            if segment.count == 0:
                self._servers.delete_segment(topic, segment)
        segments = self._store.topics[topic]
        try:
            refs = await self._servers.start_all(topic, segments)
        except PoeError as error:
            raise self._store.topics.fail(topic, error) from error
        bound = None
        for ref, segment in zip(refs, segments, strict=True):
            self._routes.add(topic, ref, bound)
            bound = segment.pointer_high
        self._disk_failures.unseal(topic, segments[-1])
        if segments[-1].failure:
            self._servers.replace_later(topic, refs[-1])

    async def wake(self, topic: bytes) -> None:
        """Give appendix servers to a topic, if it rests or is out of service.

        Raises:
            StorageError: it cannot be read or repaired.
        """
        if topic not in self._store.topics.resting and topic not in self._store.failed:
            return
        with self._waking(topic):
            with _telling_of_descriptors():
                self._store.recover_topic(topic)
            if topic in self._store.topics:
                await self._open(topic)

    async def settle(self, topic: bytes) -> None:
        """Recover a topic that a killed server left open, if nobody did; then it rests.

        Raises:
            StorageError: it cannot be read or repaired.
        """
        if not is_left_open(self._store.topics.resting.get(topic, ())):
            return
        with self._waking(topic):
            with _telling_of_descriptors():
                is_settled = self._store.settle(topic)
            if not is_settled and topic in self._store.topics:
                await self._open(topic)

    @contextlib.contextmanager
    def _waking(self, topic: bytes) -> Iterator[None]:
        """Have a topic be told of that for a while neither rests nor has a route."""
        self._routes.waking.add(topic)
        try:
            yield
        finally:
            self._routes.waking.discard(topic)


@contextlib.contextmanager
def _telling_of_descriptors() -> Iterator[None]:
    """Say of a topic that could open no files just that: who asks has others let theirs go.

    Raises:
        NoDescriptors: instead of the `TopicFailed` that it has led to.
    """
    try:
        yield
    except TopicFailed as error:
        if isinstance(error.__cause__, NoDescriptors):
            raise error.__cause__ from None
        raise
