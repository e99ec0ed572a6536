"""What a node goes by, read from its files: all of it, or nothing."""

from dataclasses import dataclass
from typing import NamedTuple

from poe.broker.access.options import SecurityOptions
from poe.broker.access.tls_holder import TlsHolder
from poe.security.file_mark import Marks, marks_of
from poe.security.security import Security, read_security
from poe.security.server_tls import ServerContext


class Read(NamedTuple):
    """What the files hold."""

    security: Security | None
    """None: there are no users."""

    context: ServerContext | None
    """None: there is no TLS."""


@dataclass(frozen=True, slots=True)
class AccessFiles:
    """The files that the options name."""

    options: SecurityOptions
    tls: TlsHolder | None

    def read(self) -> Read:
        """Read all files; it may take long, and no actor may wait for it.

        Raises:
            SecurityFileError: one is wrong, or cannot be read.
        """
        return Read(self.security(), None if self.tls is None else self.tls.build())

    def security(self) -> Security | None:
        """Read the files of users and grants alone.

        Raises:
            SecurityFileError: one is wrong, or cannot be read.
        """
        users = self.options.users
        return None if users is None else read_security(users, self.options.acl)

    def marks(self) -> Marks:
        """Return what tells whether one of the files was changed."""
        return marks_of(self.options.files)
