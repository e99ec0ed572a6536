"""Brings topics into service: with servers for all of their segments, or the reason why not."""

import logging

from poe.broker.appendix_servers import AppendixServers
from poe.broker.disk_failures import DiskFailures
from poe.broker.routing_table import RoutingTable
from poe.errors import PoeError, TopicFailed
from poe.storage import Store

logger = logging.getLogger("poe.broker")


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
        for segment in self._store.topics[topic][:-1]:
            if segment.count == 0:
                self._servers.delete_segment(topic, segment)
        segments = self._store.topics[topic]
        try:
            refs = await self._servers.start_all(topic, segments)
        except PoeError as error:
            raise self.take_out_of_service(topic, error) from error
        bound = None
        for ref, segment in zip(refs, segments, strict=True):
            self._routes.add(topic, ref, bound)
            bound = segment.pointer_high
        self._disk_failures.unseal(topic, segments[-1])

    async def wake(self, topic: bytes) -> None:
        """Give appendix servers to a topic, if it rests.

        Raises:
            StorageError: it cannot be read or repaired.
        """
        if topic not in self._store.topics.resting:
            return
        # In between it neither rests nor has a route, and is there all the same.
        self._routes.waking.add(topic)
        try:
            self._store.recover_topic(topic)
            if topic in self._store.topics:
                await self.open(topic)
        finally:
            self._routes.waking.discard(topic)

    def take_out_of_service(self, topic: bytes, error: PoeError) -> TopicFailed:
        """Note why a topic cannot be served; each request for it tries to recover it."""
        failed = TopicFailed(topic, str(error))
        logger.error("%s", failed)
        # Not the one that is raised: its traceback refers to frames, and so keeps files open.
        self._store.failed[topic] = TopicFailed(topic, str(error))
        return failed
