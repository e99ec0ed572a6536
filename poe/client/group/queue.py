"""The blocking work queue: messages that any number of members share, each to one of them."""

from collections.abc import Iterable, Iterator
from typing import Any, Self, overload

from poe.client.consumer.loop_thread import LoopThread, until_closed
from poe.client.group.job import Job
from poe.client.group.queue_core import PutTerms, QueueCore
from poe.client.local_server import LocalServer
from poe.client.timeouts import deadline_of, left_s
from poe.errors import QueueClosed


class Queue:
    """Hands out the messages of a topic as jobs, each to one member of a group at a time.

        with Queue("poe://localhost:5555", "jobs", group="workers") as queue:
            queue.put(b"work")
            with queue.get() as job:
                print(job.value)

    Args (of the constructor):
        url: `poe://host:port`, with more addresses after commas.
        topics: the name of one; to take from several, a list of names, and of patterns.
        group: whose members share the messages; it is made where there is none.
        options: see `QueueOptions`.

    What is not acknowledged comes again, to whoever asks: a member that ends or falls silent loses
    nothing. It is heard of while a job runs, however long, from a thread of its own.

    Any number of threads may use one. In a forked process it is of no use: make another one there.

    Raises:
        UnknownOption, OptionError: on construction, naming what is allowed.
    """

    def __init__(
        self,
        url: str | LocalServer,
        topics: bytes | str | Iterable[bytes | str],
        /,
        *,
        group: str = "workers",
        **options: Any,  # noqa: ANN401 - checked by `QueueOptions`
    ) -> None:
        self._core = QueueCore(url, topics, group, options)
        self._loop = LoopThread(
            f"queue of {group}", self._core.close, QueueClosed, self._core.is_in_call
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Job]:
        """Yield jobs until the queue is closed; each is to be acknowledged, or entered."""
        with until_closed():
            while True:
                yield self.get()

    def put(
        self,
        messages: bytes | list[bytes],
        delay_s: float = 0,
        *,
        copies: int | None = None,
        deadline_s: float | None = None,
    ) -> int | None:
        """Put one message or several, each once; return the pointer of the last one.

        With a delay they come no earlier than after so many seconds, and nobody knows their
        pointers yet: then it returns None. Where the answer to that is lost it is asked again, and
        they may come twice.

        At a node of a cluster they are put onto a queue across nodes, unless a topic of that node
        has the name. Then they are on so many nodes when this returns as `copies` says, or else the
        queue, and nodes are looked for until `deadline_s` is over. Where the answer is lost another
        node of the url is asked, and they may come twice; with `timeout_s=0` nobody is.

        Raises:
            OptionError: it is a queue of several topics, or of a pattern.
            TooFewNodes, QueueBusy, PutTooLarge: nothing is stored, by the queue of a cluster.
            UnderCopies: it is stored on fewer nodes, and will be on more: do not put it again.
            QueueMismatch: the server is in no cluster, and there can be no copies of it; or it is
                put with a delay, and the queue has other copies than are asked for.
            QueueClosed: it is closed, or was while this waited for a server.
            PoeError: as `Socket.write`; it was tried for `timeout_s`.
        """
        several = [messages] if isinstance(messages, bytes) else messages
        return self._loop.run(self._core.put(several, PutTerms(delay_s, copies, deadline_s)))

    @overload
    def get(self, timeout_s: None = None) -> Job: ...

    @overload
    def get(self, timeout_s: float) -> Job | None: ...

    def get(self, timeout_s: float | None = None) -> Job | None:
        """Return the next job; None where none came within `timeout_s`.

        Raises:
            QueueClosed: it was closed, before or while this waited.
            GroupMismatch: the group is of another mode, or of other topics.
            OptionError: `timeout_s` is no time.
            PoeError: another refusal, or no server was reached for the queue's own `timeout_s`.
        """
        deadline_s = deadline_of(timeout_s)
        while (job := self._core.take()) is None:
            if not self._loop.run(self._core.wait(left_s(deadline_s))):
                return None
        return job

    def statistics(self) -> dict[str, int]:
        """Return counts since it was made, and how many messages wait here and are worked on."""
        return self._core.statistics()

    def close(self) -> None:
        """Tell what became of the jobs, and leave; what is still in hand goes to others at once.

        In a signal handler that has interrupted a call it does not wait for that.
        """
        self._loop.close()
