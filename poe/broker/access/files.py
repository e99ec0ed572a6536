"""What a node goes by, read from its files: all of it, or nothing."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from poe.broker.access.options import SecurityOptions
from poe.broker.access.tls_holder import TlsHolder
from poe.errors import SecurityFileError
from poe.security.file_stamp import Stamps, may_pass, stamps_of
from poe.security.security import Security, read_security
from poe.security.server_tls import ServerContext

logger = logging.getLogger("poe.broker")


_TURN_S = 0.0005


class Read(NamedTuple):
    """What the files hold."""

    security: Security | None
    """None: there are no users."""

    context: ServerContext | None
    """None: there is no TLS."""


class AccessFiles:
    """The files that the options name, as they were when they were last read; one call at a time.

    Raises:
        SecurityFileError: on construction, when there is no TLS to begin with.
    """

    def __init__(self, options: SecurityOptions) -> None:
        self.options = options
        self._look()
        tls = options.tls
        self.tls = None if tls is None else TlsHolder(tls)

    def _look(self) -> None:
        self._seen: Stamps = stamps_of(self.options.files)

    def have_changed(self) -> bool:
        """Return whether they are others than were read last, or were tried to be.

        So they are, too, while they could not be read for a reason that is not in them.
        """
        return stamps_of(self.options.files) != self._seen

    def read(self) -> Read:
        """Read all files; it may take long, and no actor may wait for it.

        Raises:
            SecurityFileError: one is wrong, or cannot be read.
        """
        self._look()  # first: what changes meanwhile has changed
        try:
            with _short_turns():
                return Read(self.security(), None if self.tls is None else self.tls.build())
        except SecurityFileError as error:
            if may_pass(error):
                self._seen = ()  # it may be read the next time, without having changed
            raise

    def read_changed(self) -> Read | None:
        """Read all files if they have changed; None: they have not.

        Raises:
            SecurityFileError: as `read`.
        """
        return self.read() if self.have_changed() else None

    def security(self) -> Security | None:
        """Read the files of users and grants alone, and log what somebody should know of them.

        Raises:
            SecurityFileError: one is wrong, or cannot be read.
        """
        users = self.options.users
        if users is None:
            return None
        security = read_security(users, self.options.acl)
        for sentence in security.warnings:
            logger.warning("%s", sentence)
        return security


@contextmanager
def _short_turns() -> Iterator[None]:
    """Have Python's threads take short turns.

    Reading a thousand users keeps the interpreter for a tenth of a second; the event loop gives it
    away with each system call, and would wait 5 ms for it each time.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(min(before_s, _TURN_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
