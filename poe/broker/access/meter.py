"""How much one principal uses, over all its connections, and how long it has to wait for that."""

from collections.abc import Callable
from typing import Final

from poe.security.audit import audit
from poe.security.bucket import TokenBucket
from poe.security.users import Quota

_BURST_S: Final = 1.0
"""What was not used in so long a time may be used at once."""
_PERIOD_S: Final = 60.0


class Meter:
    """The buckets of one principal; used in the event loop's thread only.

    What was used is taken afterwards, so one request may go into debt: who owes is served later.
    """

    __slots__ = (
        "_now_s",
        "_principal",
        "_read",
        "_requests",
        "_told_s",
        "_write",
        "quota",
        "throttled_s",
    )

    def __init__(self, principal: str, quota: Quota, now_s: Callable[[], float]) -> None:
        self._principal = principal
        self._told_s: float | None = None
        self.quota = quota
        self._now_s = now_s
        self._requests = _bucket(quota.requests_s)
        self._write = _bucket(quota.write_bytes_s)
        self._read = _bucket(quota.read_bytes_s)
        self.throttled_s = 0.0
        """How long its connections have waited, in all."""

    def throttled(self, seconds: float) -> None:
        """Count what a connection is to wait; the audit log is told once a minute."""
        self.throttled_s += seconds
        now_s = self._now_s()
        if self._told_s is None or now_s - self._told_s >= _PERIOD_S:
            self._told_s = now_s
            audit("throttled", principal=self._principal, throttled_s=round(self.throttled_s, 3))

    def asked(self, count: int = 1) -> None:
        """Count requests."""
        if self._requests is not None:
            self._requests.debit(count, self._now_s())

    def wrote(self, size_bytes: int) -> None:
        """Count what was put."""
        if self._write is not None:
            self._write.debit(size_bytes, self._now_s())

    def read(self, size_bytes: int) -> None:
        """Count what was sent."""
        if self._read is not None:
            self._read.debit(size_bytes, self._now_s())

    def owed_s(self) -> float:
        """Return the seconds until nothing is owed; 0.0: nothing is."""
        buckets, now_s = (self._requests, self._write, self._read), self._now_s()
        return max((each.owed_s(now_s) for each in buckets if each is not None), default=0.0)


def _bucket(rate: float | None) -> TokenBucket | None:
    return None if rate is None else TokenBucket(rate, rate * _BURST_S)
