"""Exactly once: rows wait on a staging topic of the server, and a commit copies them from there.

A micro-batch that is replayed may come in other partitions and in another order than the first
time, and tasks may be retried or run twice. So what a task puts has no effect but on the staging
topic of its producer. It reports where its rows lie there, and the driver commits:

1. plan: the ranges of all tasks, in the order of the partitions, are put onto the staging topic,
   as put (producer, epoch, 0). Of a repeat the server tells where the first plan lies: that counts,
   and what else was staged is of no more use. It is synced, with what was staged, before anything
   is copied, whatever `ack` says.
2. copy: the server copies each range onto its topic, as put (producer, epoch, n) with n = 0, 1 … on
   each topic. The last put of the producer tells how many of them are there already.
3. finish: that all is done is put behind the plan, as put (producer, epoch, 1): it is what a replay
   asks for first. What lies before the plan is trimmed. A topic that serves one write is deleted.

So a driver, a task or the server may end anywhere and begin anew. A producer that has gone on to a
later epoch is refused an earlier one.

Where several servers are named, the staging topic is a replicated one, as the topics are that rows
go to: any server goes on where another one has died. One that lags is left for another, since it
would make a topic of its own by a put, or miss what is staged; all else is judged by the log.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid4, uuid5

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.errors import (
    PoeError,
    RangeGone,
    RepeatedPut,
    ReservedTopic,
    TopicExists,
    UnknownTopic,
)
from poe.protocol import Messages, PutId, Socket
from poe.spark.copies import check_reaches, check_replicated
from poe.spark.read_options import STAGING_PREFIX
from poe.spark.retrying_socket import Check, RetryingSocket
from poe.topic_properties import is_reserved

_log = logging.getLogger(__name__)

_PLAN, _DONE = 0, 1
"""Sequence numbers of the puts of an epoch onto the staging topic."""

_REPLICAS = 3
"""Of a staging topic on several servers: the fewest there are."""

_BEGIN = b"rows of a write that is under way"
"""First message of one that serves one write; without it, a task that came too late has made it."""


class StagedRange(NamedTuple):
    """Rows of one put that wait for their topic: the pointers from `pointer` + 1 to `last`."""

    topic: bytes
    """Where they are to go."""
    pointer: int
    last: int


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging topic of one producer; a value, which travels to the tasks."""

    producer: bytes
    """16 bytes."""

    is_temporary: bool = False
    """Whether it serves one write only, and is deleted with it."""

    prefix: str = ""
    """Stands before the producer in the topic's name, where not everybody may read it."""

    @classmethod
    def of_one_write(cls, prefix: str = "") -> "Staging":
        """Return the staging of a write that nobody repeats."""
        return cls(uuid4().bytes, is_temporary=True, prefix=prefix)

    @classmethod
    def of_producer(cls, name: str, topic: str | None, prefix: str = "") -> "Staging":
        """Return the staging of writes that name their producer; each topic has its own."""
        return cls(uuid5(NAMESPACE_URL, f"poe:{name}\0{topic or ''}").bytes, prefix=prefix)

    @property
    def topic(self) -> bytes:
        """Name of the staging topic."""
        return f"{STAGING_PREFIX}{self.prefix}{self.producer.hex()}".encode()

    def open(self, server: RetryingSocket) -> None:
        """Make the topic, where it is not there; for one write the driver does it once.

        Raises:
            PoeError: the server's refusal.
        """
        # Who may not delete it would leave it behind, or fail behind each batch that is stored.
        with suppress(UnknownTopic):
            server.call(Socket.trim, self.topic, 0)
        if server.are_several:
            with suppress(TopicExists):
                server.call(Socket.create_topic, self.topic, replicas=_REPLICAS)
        else:
            server.call(Socket.control, "create", topic=self.topic)
        if not self.is_temporary:
            return
        try:
            server.call(Socket.write, self.topic, [_BEGIN], check=self._check(server))
            self._sync(server)  # with the server's option read="synced" nobody sees it before
        except PoeError:
            self.delete(server)
            raise

    def stage(
        self, server: RetryingSocket, puts: Iterable[tuple[bytes, Messages]]
    ) -> list[StagedRange]:
        """Put (topic, batch) each onto the staging topic, and tell where they lie.

        Raises:
            RangeGone: it was deleted, since the write that it serves has ended already, or its
                beginning has expired.
            PoeError: the server's refusal.
        """
        ranges = []
        check = self._check(server)
        for topic, batch in puts:
            # The pointers of a put are consecutive, whatever other tasks put in between.
            last = server.call(Socket.write, self.topic, batch, check=check)
            ranges.append(StagedRange(topic, last - len(batch), last))
            if self.is_temporary:
                self._check_not_deleted(server, last)
        return ranges

    def commit(self, server: RetryingSocket, epoch: int, ranges: list[StagedRange]) -> None:
        """Bring what was staged onto its topics, once, however often this is called for an epoch.

        Raises:
            ReservedTopic: one of them is the node's own; nothing is copied.
            ProducerFenced: a later epoch was committed already; nothing is copied.
            RangeGone: what was staged has expired (`max_age`) before it was committed.
            PoeError: the server's refusal; call it again to go on from there.
        """
        newest = None
        if not self.is_temporary:
            newest = server.call(Socket.last_put, self.topic, self.producer)
        if newest is not None and (newest.epoch, newest.sequence) == (epoch, _DONE):
            return  # all was copied before; by now the plan may have expired
        for topic in {each.topic for each in ranges}:
            # A plan stands for ever: a topic that nobody can have, or that this writer may not
            # write, is to be refused before.
            if is_reserved(topic):
                raise ReservedTopic(topic)
            server.call(Socket.last_put, topic, self.producer, check=self._check(server, topic))
        is_planned = newest is not None and newest.epoch == epoch
        if ranges and not is_planned:
            self._check_kept(server, ranges)
        plan_pointer, plan = self._plan(server, epoch, ranges)
        for topic, topic_ranges in plan.items():
            # Of a copy that lags it is an earlier one: then the server is told of repeats.
            newest = server.call(Socket.last_put, topic, self.producer)
            done_count = newest.sequence + 1 if newest and newest.epoch == epoch else 0
            for sequence, staged in list(enumerate(topic_ranges))[done_count:]:
                put_id = PutId(self.producer, epoch, sequence)
                args = self.topic, staged.pointer, staged.last, topic, put_id
                check = self._check(server, topic, reaching=staged.last)
                with suppress(RepeatedPut):  # another driver is at it, and far ahead
                    server.call(Socket.copy, *args, check=check)
        if not self.is_temporary:
            done = PutId(self.producer, epoch, _DONE)
            server.call(Socket.write, self.topic, [b"done"], done, check=self._check(server))
            server.call(Socket.trim, self.topic, plan_pointer - 1)
            return
        try:
            self.delete(server)
        except PoeError as error:
            # All is stored: who was told of a failure would store it again.
            _log.warning("topic %s is left, use `poe delete`: %s", self.topic.decode(), error)

    def delete(self, server: RetryingSocket) -> None:
        """Delete the topic and all that waits there.

        Raises:
            PoeError: the server's refusal.
        """
        with suppress(UnknownTopic):
            server.call(Socket.delete, self.topic)

    def _check_kept(self, server: RetryingSocket, ranges: list[StagedRange]) -> None:
        """Make sure that no rows have expired: their plan, too, would stand for ever.

        Raises:
            RangeGone: some have; those that are staged by a repeat can still be committed.
        """
        oldest = min(each.pointer for each in ranges)
        newest = max(each.last for each in ranges)
        check = self._check(server, reaching=newest)
        if server.call(Socket.removed, self.topic, oldest + 1, check=check).newest > oldest:
            raise RangeGone(self.topic, oldest, newest)

    def _plan(
        self, server: RetryingSocket, epoch: int, ranges: list[StagedRange]
    ) -> tuple[int, dict[bytes, list[StagedRange]]]:
        """Put the plan, or find the one of the first time; return its pointer, and it by topic."""
        message = msgpack.packb(ranges)
        put_id = PutId(self.producer, epoch, _PLAN)
        check = self._check(server)
        pointer = server.call(Socket.write, self.topic, [message], put_id, check=check)
        if not (self.is_temporary or server.are_several):
            # A power cut may not take it and leave what is copied by it: a repeat has another plan.
            self._sync(server)
        check = self._check(server, reaching=pointer)
        found = server.call(Socket.read, self.topic, pointer - 1, 1, check=check)
        if not found:
            # read="synced" shows nothing yet; then all rows before the plan wait for the same.
            self._sync(server)
            found = server.call(Socket.read, self.topic, pointer - 1, 1)
        if [each for each, _ in found] != [pointer]:
            raise RangeGone(self.topic, pointer - 1, pointer)
        plan: dict[bytes, list[StagedRange]] = {}
        for fields in msgpack.unpackb(found[0][1]):
            staged = StagedRange(*fields)
            plan.setdefault(staged.topic, []).append(staged)
        return pointer, plan

    def _sync(self, server: RetryingSocket) -> None:
        server.call(Socket.control, "sync", topic=self.topic)

    def _check(self, server: RetryingSocket, *topics: bytes, reaching: int = 0) -> Check | None:
        """Return what makes sure that one of several servers knows this topic, and some others.

        Where a pointer of it is given, it has to have what is staged up to there.
        """
        if not server.are_several:
            return None
        return partial(_check, topics=(self.topic, *topics), reaching=reaching)

    def _check_not_deleted(self, server: RetryingSocket, last: int) -> None:
        """Find out whether the put before has made the topic anew, and undo that.

        So it is where what was staged first has expired: the write cannot be committed any more.
        """
        check = self._check(server, reaching=last)
        first = server.call(Socket.read, self.topic, 0, 1, check=check)
        if [message for _, message in first] != [_BEGIN]:
            self.delete(server)
            raise RangeGone(self.topic, 0, last)


def _check(socket: Socket, topics: Sequence[bytes], reaching: int) -> None:
    """Make sure that a server knows topics, and what is staged on the first of them."""
    check_replicated(socket, topics)
    if reaching:
        check_reaches(socket, topics[0], reaching)
