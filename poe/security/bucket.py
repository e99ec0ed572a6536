"""How much a principal may do in a time: a bucket of tokens, which may go into debt."""


class TokenBucket:
    """Fills by `rate` a second up to `burst`; what is taken beyond is owed.

    What a request costs is known when it is done, so it is taken after the fact; who owes waits.

        level <= burst

    Times are seconds of one clock that never goes back; a time before the last one counts as it.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._filled_s = -float("inf")

    def debit(self, amount: float, now_s: float) -> None:
        """Take an amount, be it there or not."""
        self._fill(now_s)
        self._level -= amount

    def owed_s(self, now_s: float) -> float:
        """Return the seconds until nothing is owed; 0.0: nothing is."""
        self._fill(now_s)
        return max(0.0, -self._level / self._rate)

    def _fill(self, now_s: float) -> None:
        if now_s > self._filled_s:
            self._level = min(self._burst, self._level + (now_s - self._filled_s) * self._rate)
            self._filled_s = now_s
