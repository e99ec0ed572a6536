"""The secrets of one node that nobody gave it: files in its own folder, for their owner alone.

scram.secret  32 bytes  made once: of it the salts of users that do not exist are made
admin.token   text      made at each start, and removed at the end: who may read it administers
"""

import contextlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from poe.errors import SecurityFileError
from poe.security.token import make_token

ADMIN_FILE: Final = "admin.token"
SALT_FILE: Final = "scram.secret"
_SALT_BYTES: Final = 32
_ID: Final = "admin"


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
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    except OSError as error:
        raise SecurityFileError(str(path), None, f"cannot be read ({error.strerror})") from error
    if len(found) == _SALT_BYTES:
        return found
    made = secrets.token_bytes(_SALT_BYTES)
    _write(path, made)
    return made


def _write(path: Path, content: bytes) -> None:
    """Put a file in place that its owner alone may read, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()  # of one who may have been killed; never somebody else's link
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise SecurityFileError(str(path), None, f"cannot be written ({error.strerror})") from error
