"""One message of a work queue, for as long as somebody works on it."""

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from poe.client.group.held_lease import HeldLease
from poe.errors import OptionError
from poe.errors.timeout import check_delay
from poe.protocol.leases import EXTEND_S_MAX, RETRY_S_MAX, Verdict

REASON_LENGTH = 200
"""What is kept of the reason why a message was not done."""


class Office(Protocol):
    """Who hands jobs out, and hears of their ends."""

    def finish(
        self,
        lease: HeldLease,
        number: int,
        failed: tuple[Verdict, float | None, str] | None = None,
    ) -> None:
        """Note what became of a job; without `failed` it is done."""

    def extend(self, lease: HeldLease, seconds: float) -> None:
        """Have a lease end later."""


class Job:
    """A message to work on, which no other member has meanwhile.

        with queue.get() as job:
            work(job.value)

    Leaving the block acknowledges it; an exception gives it back to be tried again, with its text
    as the reason, and goes on. What only ends the program, such as Ctrl-C, gives it back uncounted.

    No method waits: what became of the job is told to the group with what is asked of it next, or a
    moment later. One thread or task works on a job; whether it blocks or awaits is all the same. A
    fork cannot end it: all raise `QueueClosed` there.

    Attributes:
        topic: that of the partition.
        pointer: of the message.
        ordinal: of the message, in its partition: the same for ever, however often it comes.
        value, key, headers: as a consumer has them; the latter two are None without envelopes.
        attempts: how often it was tried before.
    """

    __slots__ = (
        "_is_ended",
        "_lease",
        "_number",
        "_office",
        "attempts",
        "headers",
        "key",
        "ordinal",
        "pointer",
        "topic",
        "value",
    )

    def __init__(self, office: Office, lease: HeldLease, number: int) -> None:
        self._office = office
        self._lease = lease
        self._number = number
        self._is_ended = False
        self.topic = lease.topic
        self.attempts = lease.attempts
        self.pointer = lease.pointer(number)
        self.ordinal = lease.ordinal(number)
        self.value: bytes | None = lease.message(number)
        self.key: bytes | None = None
        self.headers: Mapping[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Job({self.topic!r}, {self.pointer}, attempts={self.attempts})"

    def ack(self) -> None:
        """Say that it is done, and is never to come again.

        Raises:
            LeaseLost: too late: it comes again, or has already, to another member perhaps.
        """
        self._end(None)

    def nack(self, delay_s: float | None = None, reason: str = "") -> None:
        """Have it tried again, after `delay_s`, or as long as the group's back-off says.

        An attempt is counted; when there were too many it becomes a dead letter.

        Raises:
            OptionError: `delay_s` is none, or more than 30 days; nothing was said of the job.
            LeaseLost: as `ack`.
        """
        if delay_s is not None:
            check_delay(delay_s)
            if delay_s > RETRY_S_MAX:
                raise OptionError("delay_s", delay_s, f"0 to {RETRY_S_MAX} (seconds)")
        self._end(("retry", delay_s, _shown(reason)))

    def dead(self, reason: str) -> None:
        """Have it never tried again: it becomes a dead letter.

        Raises:
            LeaseLost: as `ack`.
        """
        self._end(("dead", None, _shown(reason)))

    def release(self) -> None:
        """Give it back, uncounted: it was not tried.

        Raises:
            LeaseLost: as `ack`.
        """
        self._end(("release", None, ""))

    def extend(self, seconds: float) -> None:
        """Have it held for so many seconds from now on; by itself it is held while it is worked on.

        It is held for no longer than `work_max_s` of the group in all.

        Raises:
            OptionError: they are 0 or less, or more than a day.
            LeaseLost: as `ack`.
        """
        check_delay(seconds, "seconds")
        if not 0 < seconds <= EXTEND_S_MAX:
            raise OptionError("seconds", seconds, f"more than 0, up to {EXTEND_S_MAX}")
        self._office.extend(self._lease, seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_ended:
            return
        if error is None:
            self.ack()
        elif isinstance(error, Exception):
            self.nack(reason=reason_of(error))
        else:
            self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def _end(self, failed: tuple[Verdict, float | None, str] | None) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._office.finish(self._lease, self._number, failed)


def _shown(reason: str) -> str:
    """Return a reason as it can be sent: a part of it, and what no text may hold by its number."""
    text = reason[:REASON_LENGTH].encode("utf-8", "backslashreplace").decode()
    return text[:REASON_LENGTH]


def reason_of(error: BaseException) -> str:
    """Return why a handler has failed, in one line."""
    return f"{type(error).__name__}: {error}"
