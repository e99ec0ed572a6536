"""What a client proves itself with. No `repr`, no pickle and no error shows a secret.

Those that hold a path read it at each connect: what a file has now counts. Only they can be
pickled, for what travels to other processes ends in plans, logs and checkpoints.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn, Self

from poe.errors import OptionError, SecurityError, SecurityFileError
from poe.security.small_file import read_small
from poe.security.token import split_token

SECRET_BYTES_MAX: Final = 64 << 10
"""Bytes of a file that holds a token or a password."""

PathText = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Scram:
    """A user and the password, which is proved and never sent."""

    user: str
    password: str = field(repr=False)

    def resolve(self) -> Self:
        """Return what is proved now: this."""
        return self

    def __reduce__(self) -> NoReturn:
        _refuse_to_travel("PasswordFile")


@dataclass(frozen=True, slots=True)
class PasswordFile:
    """A user, and the file whose first line is the password."""

    user: str
    path: PathText

    def resolve(self) -> Scram:
        """Return what is proved now.

        Raises:
            SecurityFileError: the file cannot be read, or holds no password.
        """
        return Scram(self.user, _first_line(self.path))


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, or a function that returns the one to show now.

    The function is called at each connect, and when a token is soon to expire.

    Raises:
        OptionError: on construction or when it is called for: a text that is no whole token.
    """

    text: str | Callable[[], str] = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse here what was not copied whole; the server would only say that it is wrong."""
        if not callable(self.text) and not _is_token(self.text):
            raise OptionError("token", "(hidden)", "a whole token, as `poe user token` prints it")

    def resolve(self) -> "Token":
        """Return what is shown now; this may wait for the function.

        Raises:
            OptionError: the function has returned no whole token.
        """
        return Token(self.text()) if callable(self.text) else self

    def __reduce__(self) -> NoReturn:
        _refuse_to_travel("TokenFile")


@dataclass(frozen=True, slots=True)
class TokenFile:
    """The file whose first line is a bearer token."""

    path: PathText

    def resolve(self) -> Token:
        """Return what is shown now.

        Raises:
            SecurityFileError: the file cannot be read, or holds no whole token.
        """
        text = _first_line(self.path)
        if not _is_token(text):
            raise SecurityFileError(os.fspath(self.path), 1, "this is no whole token")
        return Token(text)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate that `tls` shows: who that is, the server knows by its alternative names."""

    def resolve(self) -> Self:
        """Return what is shown now: this."""
        return self


Resolved = Scram | Token | Certificate
"""What is proved now."""

Credentials = Resolved | PasswordFile | TokenFile
"""Any of them."""


def _first_line(path: PathText) -> str:
    name = os.fspath(path)
    data, _ = read_small(name, SECRET_BYTES_MAX)
    try:
        line = data.decode().partition("\n")[0].removesuffix("\r")
    except UnicodeDecodeError:
        raise SecurityFileError(name, None, "this is no UTF-8") from None
    if not line:
        raise SecurityFileError(name, 1, "this is empty")
    return line


def _is_token(text: object) -> bool:
    return isinstance(text, str) and split_token(text) is not None


def _refuse_to_travel(instead: str) -> NoReturn:
    msg = f"a secret does not travel to other processes; use {instead}, which each of them reads"
    raise SecurityError(msg)
