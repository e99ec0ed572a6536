"""Where rows go: onto one partition of their topic, and into envelopes where it has them."""

import random
from collections.abc import Iterable, Iterator

from poe.errors import NotAuthorized
from poe.protocol import DescribedTopic, JoinedBatch, Messages, Socket
from poe.protocol.envelope import encode_all
from poe.spark.retrying_socket import RetryingSocket


class Targets:
    """The partitions of the topics of one task, which take its batches in turn.

    Which one is first is chance, so that many small tasks do not all go to the same. A task that is
    repeated may choose others: what counts is the plan of the commit.
    """

    def __init__(self, server: RetryingSocket) -> None:
        self._server = server
        self._known: dict[bytes, DescribedTopic | None] = {}
        self._turn = random.randrange(1 << 16)  # noqa: S311 - no secret

    def of(self, puts: Iterable[tuple[bytes, JoinedBatch]]) -> Iterator[tuple[bytes, Messages]]:
        """Yield what is to be put for each (topic, batch).

        Raises:
            PoeError: the server's refusal.
        """
        for topic, batch in puts:
            if topic not in self._known:
                self._known[topic] = self._find(topic)
            found = self._known[topic]
            if found is None or not found.is_told:
                yield topic, batch
                continue
            self._turn += 1
            target = found.partitions[self._turn % len(found.partitions)].topic
            yield target, _enveloped(batch) if found.properties.envelope else batch

    def _find(self, topic: bytes) -> DescribedTopic | None:
        try:
            return self._server.call(Socket.find_topic, topic)
        except NotAuthorized as refused:
            # Whoever may write a topic may describe it.
            raise NotAuthorized("write", refused.resource) from refused


def _enveloped(batch: JoinedBatch) -> list[bytes]:
    """Return the messages of a batch, each in an envelope without a key."""
    return encode_all([bytes(each) for each in batch])
