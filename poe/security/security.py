"""Who there is and what each may do: read from one file, or from two."""

import os
import stat
from dataclasses import dataclass, fields
from typing import Any, Final

from poe.errors import OptionError, SecurityFileError
from poe.security.names import EVERYBODY
from poe.security.policy import Grant, Policy
from poe.security.toml_document import TomlDocument
from poe.security.users import Users, users_in

FILE_BYTES_MAX: Final = 4 << 20
"""Bytes of a file of users or grants: some ten thousand users."""

VERSION: Final = 1
_TEXTS = ("principals", "operations")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH


@dataclass(frozen=True, slots=True)
class Security:
    """What the files of a node say at one time."""

    users: Users
    policy: Policy
    warnings: tuple[str, ...] = ()
    """What is not wrong, but somebody should know: a sentence each, without secrets."""


def read_security(
    users_path: str | os.PathLike[str], acl_path: str | os.PathLike[str] | None = None
) -> Security:
    """Read the files of a node: users and grants in the first, and more grants in the second.

    Raises:
        SecurityFileError: a file cannot be read, others may write it, it is too large, or anything
            in it is wrong.
    """
    warnings: list[str] = []
    document = _read(users_path, ("users", "grants"), warnings)
    users, grants = Users(users_in(document)), grants_in(document)
    if acl_path is not None:
        grants += grants_in(_read(acl_path, ("grants",), warnings))
    strangers = {name for grant in grants for name in grant.principals}
    strangers -= {*users.names(), EVERYBODY}
    warnings += [f"a grant names {each!r}, and no user has this name" for each in sorted(strangers)]
    return Security(users, Policy(grants), tuple(warnings))


def parse_document(text: str, path: str, keys: tuple[str, ...]) -> TomlDocument:
    """Return the document of a text, which has the keys and the version that it needs.

    Raises:
        SecurityFileError: it has not.
    """
    document = TomlDocument(text, path)
    document.table((), document.values, ("version", *keys))
    version = document.values.get("version")
    if type(version) is not int or version != VERSION:  # 1 equals True
        document.refuse(("version",), f"version has to be {VERSION}")
    return document


def grants_in(document: TomlDocument) -> list[Grant]:
    """Return the grants of a document, in its order.

    Raises:
        SecurityFileError: anything is wrong with them.
    """
    values = document.array(("grants",), document.values.get("grants", []))
    return [_grant(document, number, value) for number, value in enumerate(values)]


def _grant(document: TomlDocument, number: int, value: object) -> Grant:
    place = ("grants", number)
    keys = [each.name for each in fields(Grant)]
    table = document.table(place, value, keys)
    values: dict[str, Any] = {"principals": (), "operations": ()}
    for key, texts in table.items():
        names = document.texts((*place, key), texts)
        values[key] = tuple(names if key in _TEXTS else (each.encode() for each in names))
    try:
        return Grant(**values)
    except OptionError as error:
        document.refuse((*place, error.key), str(error))


def _read(path: str | os.PathLike[str], keys: tuple[str, ...], warnings: list[str]) -> TomlDocument:
    name = os.fspath(path)
    data, mode = read_bounded(name)
    if mode & _OTHERS_WRITE:
        why = f"others than its owner may write it; use `chmod 600 {name}`"
        raise SecurityFileError(name, None, why)
    if mode & _OTHERS_READ:
        warnings.append(f"others than its owner may read {name}; use `chmod 600 {name}`")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SecurityFileError(name, line, "this is no UTF-8") from None
    return parse_document(text, name, keys)


def read_bounded(path: str) -> tuple[bytes, int]:
    """Return the content and the mode of a file that has at most `FILE_BYTES_MAX` bytes.

    Raises:
        SecurityFileError: there is none, it is no file, it is too large, or it cannot be read.
    """
    try:
        # Without waiting: somebody may have put a pipe there.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX + 1) if stat.S_ISREG(mode) else None
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        raise SecurityFileError(path, None, why) from error
    if data is None:
        raise SecurityFileError(path, None, "is no file")
    if len(data) > FILE_BYTES_MAX:
        why = f"has more than {FILE_BYTES_MAX} bytes (FILE_BYTES_MAX); grant by prefixes"
        raise SecurityFileError(path, None, why)
    return data, mode
