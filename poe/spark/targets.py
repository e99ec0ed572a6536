"""Where rows go: onto one partition of their topic, and into envelopes where it has them."""

import random
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from poe.client.producer.murmur2 import murmur2_of_all
from poe.errors import NotAuthorized, RowsRefused, TopicExists
from poe.protocol import DescribedTopic, JoinedBatch, Messages, Socket
from poe.protocol.envelope import encode_all
from poe.spark.copies import check_replicated
from poe.spark.put_batches import Batch, Keyed
from poe.spark.retrying_socket import RetryingSocket
from poe.topic_name import topic_text

_POSITIVE: Final = 0x7FFFFFFF


class Targets:
    """The partitions of the topics of one task, which take its batches in turn.

    Which one is first is chance, so that many small tasks do not all go to the same. A task that is
    repeated may choose others: what counts is the plan of the commit.
    """

    def __init__(self, server: RetryingSocket) -> None:
        self._server = server
        self._known: dict[bytes, DescribedTopic | None] = {}
        self.new: set[bytes] = set()
        """Topics that were not there; for them messages were told as they are, see `check_new`."""
        self._turn = random.randrange(1 << 16)  # noqa: S311 - no secret

    def of(self, puts: Iterable[tuple[bytes, Batch]]) -> Iterator[tuple[bytes, Messages]]:
        """Yield what is to be put for each (topic, batch).

        Raises:
            PoeError: the server's refusal.
            RowsRefused: messages have keys or headers, and their topic has no envelopes.
        """
        for topic, batch in puts:
            if topic not in self._known:
                self._known[topic] = self._find(topic)
            if isinstance(batch, Keyed):
                yield from self._keyed(topic, batch)
                continue
            found = self._known[topic]
            if found is None or not found.is_told:
                self.new.add(topic)
                yield topic, batch
                continue
            self._turn += 1
            target = found.partitions[self._turn % len(found.partitions)].topic
            yield target, _enveloped(batch) if found.properties.envelope else batch

    def _keyed(self, topic: bytes, batch: Keyed) -> Iterator[tuple[bytes, Messages]]:
        """Yield messages with keys or headers: by key, those without one in turn."""
        found = self._known[topic]
        if found is None or not found.is_told:
            found = self._known[topic] = self._made(topic)
        if not found.properties.envelope:
            msg = (
                f"rows for topic {topic_text(topic)!r} have a key or headers, which would be lost, "
                "since it has no envelopes; drop the columns with drop('key', 'headers')"
            )
            raise RowsRefused(msg)
        self._turn += 1
        count = len(found.partitions)
        hashes = murmur2_of_all([key or b"" for key in batch.keys]) & _POSITIVE
        parts: dict[int, list[tuple[bytes | None, bytes | None, Mapping[str, bytes] | None]]] = {}
        for value, key, headers, hashed in zip(*batch, hashes.tolist(), strict=True):
            number = (self._turn if key is None else hashed) % count
            parts.setdefault(number, []).append((value, key, headers))
        for number, fields in sorted(parts.items()):
            yield found.partitions[number].topic, encode_all(fields)

    def _made(self, topic: bytes) -> DescribedTopic:
        """Return a topic that is made for messages with keys, or that another task has made."""
        try:
            return self._server.call(Socket.create_topic, topic, envelope=True)
        except TopicExists:
            return self._server.call(Socket.describe, topic)

    def _find(self, topic: bytes) -> DescribedTopic | None:
        try:
            check = partial(check_replicated, topics=[topic]) if self._server.are_several else None
            return self._server.call(Socket.find_topic, topic, check=check)
        except NotAuthorized as refused:
            # Whoever may write a topic may describe it.
            raise NotAuthorized("write", refused.resource) from refused


def check_new(server: RetryingSocket, topics: Iterable[bytes]) -> None:
    """Make sure that topics which were not there when rows were staged have no envelopes now.

    Rows with keys, of another task or of the same, may have made them; the others have none, and
    who reads the topic would stumble over them.

    Raises:
        RowsRefused: one has.
        PoeError: the server's refusal.
    """
    for topic in topics:
        found = server.call(Socket.find_topic, topic)
        if found is not None and found.properties.envelope:
            msg = (
                f"topic {topic_text(topic)!r} was made with envelopes, for rows with a key or "
                "headers, while others without were on their way; nothing is stored: write again, "
                "now that it is there"
            )
            raise RowsRefused(msg)


def _enveloped(batch: JoinedBatch) -> list[bytes]:
    """Return the messages of a batch, each in an envelope without a key."""
    return encode_all([bytes(each) for each in batch])
