"""Who there is and what each may do: read from one file, or from two."""

import os
import stat
from dataclasses import dataclass, fields
from typing import Any, Final

from poe.errors import OptionError, SecurityFileError
from poe.security.names import EVERYBODY
from poe.security.policy import Grant, Policy
from poe.security.small_file import check_writers, read_small
from poe.security.users import Users, users_in
from poe.toml_document import TomlDocument

FILE_BYTES_MAX: Final = 4 << 20
"""Bytes of a file of users or grants: some ten thousand users."""

VERSION: Final = 1
_TEXTS = ("principals", "operations")
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

    It takes about 0.2 ms a user: a node that serves others meanwhile does it in a thread.

    Raises:
        SecurityFileError: a file cannot be read, others may write it, it is too large, or anything
            in it is wrong.
    """
    text, warnings = read_text(os.fspath(users_path))
    found = parse_security(text, os.fspath(users_path))
    grants = list(found.policy.grants)
    if acl_path is not None:
        text, more = read_text(os.fspath(acl_path))
        grants += _grants_in(_document(text, os.fspath(acl_path), ("grants",)))
        warnings += more
    strangers = {name for grant in grants for name in grant.principals}
    strangers -= {*found.users.names(), EVERYBODY}
    warnings += [f"a grant names {each!r}, and no user has this name" for each in sorted(strangers)]
    return Security(found.users, Policy(grants), tuple(warnings))


def parse_security(text: str, path: str) -> Security:
    """Make it of the text of a file of users and grants.

    Raises:
        SecurityFileError: anything in it is wrong.
    """
    document = _document(text, path, ("users", "grants"))
    return Security(Users(users_in(document)), Policy(_grants_in(document)))


def read_text(path: str) -> tuple[str, list[str]]:
    """Return the text of a file of users or grants, and what somebody should know of the file.

    Raises:
        SecurityFileError: it cannot be read, others may write it, or it is too large.
    """
    data, mode = read_small(path, FILE_BYTES_MAX)
    check_writers(path, mode)
    is_secret = not mode & _OTHERS_READ
    warning = f"others than its owner may read {path}; use `chmod 600 {path}`"
    try:
        return data.decode(), [] if is_secret else [warning]
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SecurityFileError(path, line, "this is no UTF-8") from None


def _document(text: str, path: str, keys: tuple[str, ...]) -> TomlDocument:
    document = TomlDocument(text, path)
    document.table((), document.values, ("version", *keys))
    version = document.values.get("version")
    if type(version) is not int or version != VERSION:  # 1 equals True
        document.refuse(("version",), f"version has to be {VERSION}")
    return document


def _grants_in(document: TomlDocument) -> list[Grant]:
    values = document.array(("grants",), document.values.get("grants", []))
    return [_grant(document, number, value) for number, value in enumerate(values)]


def _grant(document: TomlDocument, number: int, value: object) -> Grant:
    place = ("grants", number)
    keys = [each.name for each in fields(Grant)]
    values: dict[str, Any] = {"principals": (), "operations": ()}
    for key, texts in document.table(place, value, keys).items():
        names = document.texts((*place, key), texts)
        values[key] = tuple(names if key in _TEXTS else (each.encode() for each in names))
    try:
        return Grant(**values)
    except OptionError as error:
        document.refuse((*place, error.key), str(error))
