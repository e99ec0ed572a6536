"""The gateway's certificate at the moment: read at the start, and again when its files change.

All or nothing: while the files cannot be used the old certificate stays, which is told and counted.
Connections keep the one that they began with.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import suppress

from prometheus_client import Counter, Gauge

from poe.client.in_thread import in_thread
from poe.errors import SecurityFileError
from poe.security.expiry import ExpiryWarning, days_left
from poe.security.file_stamp import Stamps, may_pass, stamps_of
from poe.security.server_tls import ServerTls

_log = logging.getLogger("poe.gateway.tls")

_EXPIRES = Gauge("poe_gateway_certificate_days", "Days until the certificate expires.")
_RELOADS = Counter(
    "poe_gateway_reloads", "Looks at changed files by what came of them.", ["outcome"]
)


class ServedCertificate:
    """Holds the context for new connections; belongs to one event loop.

    Raises:
        SecurityFileError: on construction, when the files cannot be used.
    """

    def __init__(self, tls: ServerTls, clock: Callable[[], float] = time.time) -> None:
        self._tls = tls
        self._clock = clock
        self._warning = ExpiryWarning()
        self._seen: Stamps = stamps_of(tls.files)
        self._now = tls.build()
        self._tell_expiry()
        self._is_due = asyncio.Event()

    def context(self) -> ssl.SSLContext:
        """Return what a new connection is to use."""
        return self._now.context

    async def watch(self, interval_s: float) -> None:
        """Look at the files each interval, where there is one, and read them when that is due.

        In a thread: their disk may not answer, and a list of revocations may be large.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s or None):
                    await self._is_due.wait()
            look = self.renew if self._is_due.is_set() else self.look
            self._is_due.clear()
            try:
                await in_thread(look, "poe-certificate")
            except Exception:  # noqa: BLE001 - the next look may go well
                self._seen = ()  # it reads them, though they have not changed since
                _log.exception("the files of TLS could not be looked at")

    def renew_soon(self) -> None:
        """Have the files read anew by who watches them."""
        self._is_due.set()

    def look(self) -> None:
        """Read the files anew if they have changed, and tell when the certificate expires."""
        stamps = stamps_of(self._tls.files)
        if stamps == self._seen:
            self._tell_expiry()
        else:
            self.renew()

    def renew(self) -> None:
        """Read the files anew."""
        # Before they are read: what changes meanwhile is seen by the next look.
        self._seen = stamps_of(self._tls.files)
        try:
            self._now = self._tls.build(self._now)
        except SecurityFileError as error:
            if may_pass(error):
                self._seen = ()  # the next look tries again, without a change
            _RELOADS.labels("failed").inc()
            _log.error("the certificate stays as it was: %s", error)
        else:
            _RELOADS.labels("done").inc()
            _log.info("new connections use the certificate of %s", self._tls.certificate)
        self._tell_expiry()

    def _tell_expiry(self) -> None:
        expires_s, now_s = self._now.expires_s, self._clock()
        _EXPIRES.set(days_left(expires_s, now_s))
        if told := self._warning.sentence(self._tls.certificate, expires_s, now_s):
            _log.warning("%s", told)
