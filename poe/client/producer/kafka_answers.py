"""Whom to answer about the batches that librdkafka has: in order, and once for each.

A link may be lost while librdkafka keeps a batch; sent again over the next one it is recognised by
its messages, which may have been on disk meanwhile, and only gets another one to answer to. What a
link that is there has sent is nobody else's, though: without `ordered` several send to a partition.
"""

import threading
from collections import deque
from typing import Any, Protocol

from poe.client.producer.transport import Done, OutgoingBatch
from poe.errors import PoeError


class AnyLink(Protocol):
    """The connection that a batch came over."""

    is_over: bool
    """Whether nobody listens there any more."""


class Sending:
    """A batch that librdkafka has, or has reported."""

    __slots__ = ("answer", "done", "line", "link", "messages")

    def __init__(
        self, line: "deque[Sending]", link: AnyLink, messages: list[Any], done: Done
    ) -> None:
        self.line = line
        self.link: AnyLink | None = link
        self.messages = messages
        self.done = done
        self.answer: int | PoeError | None = None


class Answers:
    """The batches of all partitions; any thread may call, unless it is said otherwise.

    An answer waits for those to the batches before it. One whose link is over, or that is not
    taken, waits for its batch to come again, or for a batch behind it to do so: then nobody will
    ask for it any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[tuple[bytes, int], deque[Sending]] = {}
        self._touched: list[deque[Sending]] = []

    def begin(self, link: AnyLink, batch: OutgoingBatch, done: Done) -> Sending | None:
        """Note that a batch is sent; None where librdkafka has it already, from another link."""
        with self._lock:
            line = self._lines.setdefault((batch.topic, batch.partition), deque())
            for sending in line:
                is_free = sending.link is None or sending.link.is_over
                if is_free and sending.messages == batch.messages:
                    sending.link, sending.done = link, done
                    self._touched.append(line)
                    return None
            sending = Sending(line, link, batch.messages, done)
            line.append(sending)
            return sending

    def end(self, sending: Sending, answer: int | PoeError) -> None:
        """Note what became of a batch: the offset of its last message, or an error."""
        with self._lock:
            sending.answer = answer
            self._touched.append(sending.line)

    def forget(self, sending: Sending) -> None:
        """Note that nothing of a batch was sent: when it comes again, it is a new one."""
        with self._lock:
            sending.line.remove(sending)
            self._touched.append(sending.line)

    @property
    def are_due(self) -> bool:
        """Whether `tell` has something to do."""
        return bool(self._touched)

    def tell(self) -> None:
        """Tell whom there is to tell; in the thread in which links end.

        In any other, a link could end between the look at it and the answer: that would be gone,
        and the batch, when it comes again, taken for a new one.
        """
        with self._lock:
            touched, self._touched = self._touched, []
        for line in touched:
            while (first := self._next(line)) is not None:
                sending, link, done, answer = first
                if done(answer):
                    with self._lock:
                        line.popleft()
                elif sending.link is link:
                    sending.link = None

    def _next(self, line: deque[Sending]) -> "tuple[Sending, AnyLink, Done, int | PoeError] | None":
        """Return the first batch of a line if it is to be told its answer now."""
        with self._lock:
            while line and (answer := line[0].answer) is not None:
                first = line[0]
                if first.link is not None and not first.link.is_over:
                    return first, first.link, first.done, answer
                if all(each.link is None or each.link.is_over for each in line):
                    break
                line.popleft()
            return None
