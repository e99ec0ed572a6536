"""What a node goes by, read from its files: all of it, or nothing."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from poe.broker.access.options import SecurityOptions
from poe.broker.access.tls_holder import TlsHolder
from poe.security.security import Security, read_security
from poe.security.server_tls import ServerContext


class Mark(NamedTuple):
    """Tells one state of a file from another; it says nothing of what is in it."""

    inode: int
    size_bytes: int
    modified_ns: int


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

    def marks(self) -> tuple[Mark | None, ...]:
        """Return the state of each file; None of one that is not there."""
        return tuple(map(_mark, self.options.files))


def _mark(path: Path) -> Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return Mark(found.st_ino, found.st_size, found.st_mtime_ns)
