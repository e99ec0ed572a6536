"""Says in time that a certificate is about to expire: some days before, once for each of them."""

from typing import Final

WARN_DAYS: Final = (1, 7, 21)
_DAY_S: Final = 86_400.0


class ExpiryWarning:
    """What was said of one certificate already."""

    def __init__(self) -> None:
        self._said_days: int | None = None

    def sentence(self, path: object, expires_s: float, now_s: float) -> str | None:
        """Return what is to be said now; None: nothing, or it was said.

        Args:
            path: of the certificate.
            expires_s: when it does, in seconds since the epoch; a later one begins anew.
            now_s: the time, likewise.
        """
        left_days = days_left(expires_s, now_s)
        passed = next((days for days in WARN_DAYS if left_days <= days), None)
        is_said = passed is None or passed == self._said_days
        self._said_days = passed
        if is_said:
            return None
        if left_days <= 0:
            return f"{path} has expired, and clients refuse it; renew it"
        return f"{path} expires in {left_days:.1f} days; renew it"


def days_left(expires_s: float, now_s: float) -> float:
    """Return how many days a certificate is still good; below 0 when it is not."""
    return (expires_s - now_s) / _DAY_S
