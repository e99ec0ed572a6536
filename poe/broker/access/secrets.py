"""The secrets of one node that nobody gave it: files in its own folder, for their owner alone.

scram.secret  32 bytes  made once: of it the salts of users that do not exist are made
admin.token   text      made at each start, and removed at the end: who may read it administers
"""

import contextlib
import errno
import logging
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from poe.errors import SecurityFileError
from poe.security.replacement import replace_secret
from poe.security.small_file import read_small
from poe.security.token import make_token

ADMIN_FILE: Final = "admin.token"
SALT_FILE: Final = "scram.secret"
_SALT_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 4096
_ID: Final = "admin"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

logger = logging.getLogger("poe.broker")


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a node keeps to itself."""

    salt: bytes = field(repr=False)
    """A user that does not exist must have the same salt after a restart, as others have."""

    admin_digest: str = field(repr=False)
    """SHA-256 of the administrator's token, in hex."""

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Make the files of a node that starts, or read what outlives it.

        Raises:
            SecurityFileError: one cannot be written or read.
        """
        token, digest = make_token(_ID)
        _write(folder / ADMIN_FILE, f"{token}\n".encode())
        return cls(_salt(folder / SALT_FILE), digest)


def remove_admin_token(folder: Path) -> None:
    """Have nobody administer a node that has ended; that the file is gone already is fine."""
    with contextlib.suppress(OSError):
        (folder / ADMIN_FILE).unlink()


def _salt(path: Path) -> bytes:
    found = read_small(str(path), _FILE_BYTES_MAX)[0] if path.exists() else b""
    if len(found) == _SALT_BYTES:
        return found
    made = secrets.token_bytes(_SALT_BYTES)
    _write(path, made)
    return made


def _write(path: Path, content: bytes) -> None:
    """Write a secret anew; a node goes on without it where the disk has no room.

    Raises:
        SecurityFileError: it cannot be written for another reason.
    """
    try:
        try:
            replace_secret(str(path), content)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            # What a killed node has left there is of no use any more.
            path.unlink(missing_ok=True)
            replace_secret(str(path), content)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            reason = f"cannot be written ({error.strerror})"
            raise SecurityFileError(str(path), None, reason) from error
        logger.error("there is no room for %s; the node goes on without it", path)
