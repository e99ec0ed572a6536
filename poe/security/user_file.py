"""Change the file of users and grants, and leave its comments and its order as they are.

Whatever is changed, the file that results is read as a node reads it before it is written: no
command makes a file that a node would refuse.
"""

import os
import tomllib
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from poe.errors import OptionError, SecurityFileError
from poe.security.policy import Grant
from poe.security.replacement import Calls, locked_folder, replace_file
from poe.security.scram import ScramKeys
from poe.security.security import parse_security, read_text
from poe.security.toml_tables import with_table, without_element, without_table

_EMPTY: Final = "version = 1\n"
_Values = MutableMapping[str, Any]


class UserFile:
    """The text of a file of users and grants, while it is changed.

    Raises:
        SecurityFileError: on construction: the file is wrong, and has to be mended first.
    """

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self.text = text
        """The file as it is to be."""
        self.security = parse_security(text, path)
        """What it says, with what was changed so far."""

    def add_user(self, name: str, keys: ScramKeys | None = None) -> None:
        """Add a user; without keys, one that tokens or certificates have to be added to.

        Raises:
            OptionError: there is one, or none may be called so.
        """
        if self.security.users.find(name) is not None:
            raise OptionError("user", name, f"a name that {self._path} does not have yet")
        value = {} if keys is None else {"scram_sha_256": keys.text()}

        def change(values: _Values) -> None:
            values.setdefault("users", {})[name] = value

        self._change(change, _with_table(self.text, ("users",), {"users": {name: value}}))

    def remove_user(self, name: str) -> None:
        """Remove a user, and its name from all grants; a grant that is then nobody's goes, too.

        Raises:
            OptionError: there is none.
        """
        self._check_is_user(name)

        for number, grant in reversed([*enumerate(self.security.policy.grants)]):
            if set(grant.principals) == {name}:
                self.remove_grant(number)

        def leave(values: _Values) -> None:
            for grant in values.get("grants", []):
                while name in grant["principals"]:
                    grant["principals"].remove(name)

        def change(values: _Values) -> None:
            _remove(values, "users", name)

        self._change(leave)
        self._change(change, without_table(self.text, ("users", name)))

    def set_keys(self, name: str, *keys: ScramKeys) -> None:
        """Have a user's passwords be those of the keys: one, or two while one replaces the other.

        Raises:
            OptionError: there is no such user.
            SecurityFileError: too many keys, or two with different salts or iterations.
        """
        self._check_is_user(name)
        texts = [each.text() for each in keys]

        def change(values: _Values) -> None:
            values["users"][name]["scram_sha_256"] = texts[0] if len(texts) == 1 else texts

        self._change(change)

    def add_token(
        self, user: str, token_id: str, sha256: str, expires_s: float | None = None
    ) -> None:
        """Add a token to a user.

        Args:
            user: whose it is.
            token_id: its public id, which no other token has.
            sha256: as `make_token` returns it.
            expires_s: seconds since the epoch, of which whole ones count; None: never.

        Raises:
            OptionError: there is no such user.
            SecurityFileError: there is a token of this id.
        """
        self._check_is_user(user)
        value: dict[str, Any] = {"id": token_id, "sha256": sha256}
        if expires_s is not None:
            value["expires"] = datetime.fromtimestamp(int(expires_s), UTC)

        def change(values: _Values) -> None:
            _append(values["users"][user], "tokens", value)

        addition = {"users": {user: {"tokens": [value]}}}
        self._change(change, _with_table(self.text, ("users", user), addition))

    def remove_token(self, token_id: str) -> str:
        """Remove a token, and return whose it was.

        Raises:
            OptionError: there is none of this id.
        """
        found = self.security.users.by_token(token_id)
        if found is None:
            raise OptionError("token", token_id, f"the id of a token that {self._path} has")
        user, token = found
        number = user.tokens.index(token)

        def change(values: _Values) -> None:
            _remove(values["users"][user.name], "tokens", number)
            if not values["users"][user.name]:
                # Named by its tokens alone so far.
                values["users"][user.name] = {}

        place = ("users", user.name, "tokens")
        self._change(change, without_element(self.text, place, number))
        return user.name

    def add_certificate(self, user: str, name: str) -> None:
        """Have certificates of this alternative name be a user's: `URI:…` or `DNS:…`.

        Raises:
            OptionError: there is no such user.
            SecurityFileError: no certificate can have it, or it is a user's.
        """
        self._check_is_user(user)
        self._change(lambda values: _append(values["users"][user], "certificates", name))

    def remove_certificate(self, name: str) -> str:
        """Remove the name of a certificate, and return whose it was.

        Raises:
            OptionError: it is nobody's.
        """
        user = self.security.users.by_certificate([name])
        if user is None:
            raise OptionError("certificate", name, f"the name of one that {self._path} has")

        def change(values: _Values) -> None:
            names = values["users"][user.name]["certificates"]
            _remove(values["users"][user.name], "certificates", names.index(name))

        self._change(change)
        return user.name

    def add_grant(self, grant: Grant) -> None:
        """Add a grant behind all others.

        Raises:
            OptionError: a name is no UTF-8, which the file has to be.
        """
        value = {key: _texts(key, names) for key, names in asdict(grant).items() if names}

        def change(values: _Values) -> None:
            _append(values, "grants", value)

        self._change(change, _with_table(self.text, ("grants",), {"grants": [value]}))

    def remove_grant(self, number: int) -> None:
        """Remove the grant at a place, from 0, as `Decision.grant` tells it.

        Raises:
            OptionError: there is none.
        """
        count = len(self.security.policy.grants)
        if not 0 <= number < count:
            raise OptionError("grant", number, f"the place of one of {count} grants, from 0")

        def change(values: _Values) -> None:
            _remove(values, "grants", number)

        self._change(change, without_element(self.text, ("grants",), number))

    def _check_is_user(self, name: str) -> None:
        if self.security.users.find(name) is None:
            allowed = f"one that {self._path} has; `poe user add` adds one"
            raise OptionError("user", name, allowed)

    def _change(self, change: Callable[[_Values], None], found: str | None = None) -> None:
        """Change the text, unless it would then say anything else but what it should.

        Args:
            change: what is done to the values of the file.
            found: a text that may be it, with all comments in their places; else, as with tables
                that are laid out as values, it is made by tomlkit, which moves some.
        """
        expected = tomllib.loads(self.text)
        change(expected)
        text = found if _says(found, expected) else self._changed_by_tomlkit(change)
        if text is None or not _says(text, expected):
            why = "it is laid out in a way that only a person can change; edit it by hand"
            raise SecurityFileError(self._path, None, why)
        self.security = parse_security(text, self._path)
        self.text = text

    def _changed_by_tomlkit(self, change: Callable[[_Values], None]) -> str | None:
        try:
            # A line that does not end would go on with what is added.
            document = tomlkit.parse(self.text + "\n" * (not self.text.endswith("\n")))
            change(document)
            return tomlkit.dumps(document)
        except (ValueError, TOMLKitError, RecursionError):
            return None


@contextmanager
def changed_users(path: str | os.PathLike[str], calls: Calls = os) -> Iterator[UserFile]:
    """Yield a file of users to be changed.

        with changed_users(path) as users:
            users.add_user("alice")

    One that is not there is made, for its owner alone. What is changed is written at the end of
    the block, whole, or not at all when the block raises or the process is killed. Others who
    change it wait for the end of the block, so nobody is asked for anything in it.

    Raises:
        SecurityFileError: the file is wrong, and has to be mended first; it cannot be written; or
            somebody keeps its folder locked.
        OptionError: what is to be changed cannot be; the file stays as it was.
    """
    name = os.path.realpath(path)
    with locked_folder(str(Path(name).parent)):
        before = read_text(name)[0] if os.path.lexists(name) else ""
        file = UserFile(before or _EMPTY, name)
        yield file
        if file.text != before:
            try:
                replace_file(name, file.text.encode(), calls)
            except OSError as error:
                why = f"it cannot be written ({error.strerror})"
                raise SecurityFileError(name, None, why) from error


def _says(text: str | None, expected: _Values) -> bool:
    """Return whether there is a text that says what it should; tables of nothing say nothing."""
    try:
        found = tomllib.loads(text or "")
    except ValueError:
        return False
    return _filled(found) == _filled(expected)


def _filled(values: _Values) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def _with_table(text: str, path: tuple[str, ...], addition: dict[str, Any]) -> str:
    return with_table(text, path, tomlkit.dumps(addition))


def _append(values: _Values, key: str, value: object) -> None:
    if key in values:
        values[key].append(value)
    else:
        values[key] = [value]


def _remove(values: _Values, key: str, place: str | int) -> None:
    del values[key][place]
    if not values[key]:
        del values[key]


def _texts(key: str, names: tuple[str | bytes, ...]) -> list[str]:
    try:
        return [each.decode() if isinstance(each, bytes) else each for each in names]
    except UnicodeDecodeError:
        raise OptionError(key, names, "names that are UTF-8, or their beginnings") from None
