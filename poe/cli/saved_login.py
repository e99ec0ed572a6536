"""The logins that `poe login` has saved for this user, in the folder of his configuration.

Layout, below `~/.config/poe`, all for its owner alone:
    current               which login holds where nobody says where the server is
    logins/ID/login.toml  what may be read aloud: url, user, server_name
    logins/ID/NAME        what options that are paths name: ca, token_file …

ID is made of the url, so that each url has one. A login is written beside its predecessor and then
takes its place: who is killed meanwhile leaves the one or the other.
"""

import hashlib
import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from platformdirs import user_config_path

from poe.errors import ConfigError, OptionError
from poe.option import folder_of_user
from poe.security.replacement import replace_secret

SAID: Final = ("url", "user", "server_name")
FILES: Final = ("ca", "certificate", "key", "password_file", "token_file")


class SavedLogins:
    """Options of an endpoint by name, kept by url; a file's option is its path.

    The methods raise `ConfigError` for what somebody else has made of the files, and where a user
    without a home would keep a login.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._given = folder

    @property
    def _folder(self) -> Path:
        return self._given or folder_of_user(user_config_path, "HOME")

    def find(self, url: str | None) -> dict[str, str]:
        """Return the options saved for a url, None for the current one; empty: there are none."""
        name = self._current() if url is None else _id(url)
        if not name:
            return {}
        try:
            folder, _, old = self._places(name)
        except OptionError:
            return {}  # as there is none in a home that is not there
        for place in (folder, old, folder):  # it may be replaced at any time
            try:
                said = tomllib.loads((place / "login.toml").read_text("utf-8"))
            except (FileNotFoundError, NotADirectoryError):
                continue  # as of the current one
            except (OSError, ValueError) as error:
                if isinstance(error, PermissionError) and not os.access(self._folder, os.X_OK):
                    continue  # of a user whose home this one may not see
                msg = f"{place} holds no login that can be used ({error}); use poe logout"
                raise ConfigError(msg) from error
            options = {key: str(said[key]) for key in SAID if key in said}
            return options | {key: str(place / key) for key in FILES if (place / key).exists()}
        return {}

    def save(self, options: Mapping[str, str], files: Mapping[str, bytes]) -> None:
        """Keep a login, which is then the current one, in the place of another with its url."""
        import tomlkit  # noqa: PLC0415 - nothing else here needs it

        name = _id(options["url"])
        folder, new, old = self._places(name)
        for each in (new, old):
            shutil.rmtree(each, ignore_errors=True)
        for each in (self._folder, new.parent, new):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(new / "login.toml", tomlkit.dumps(dict(options)).encode())
        for key, content in files.items():
            _write(new / key, content)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
        replace_secret(str(self._folder / "current"), name.encode())

    def remove(self, url: str | None) -> bool:
        """Forget a login, None for the current one; return whether there was one."""
        name = self._current() if url is None else _id(url)
        if name == self._current():
            (self._folder / "current").unlink(missing_ok=True)
        found = [each for each in self._places(name) if name and each.exists()]
        for each in found:
            shutil.rmtree(each)
        return bool(found)

    def _places(self, name: str) -> tuple[Path, Path, Path]:
        """Return where a login is, and where a new one and the former one are while that changes.

        Who is killed meanwhile leaves these, with their secrets.
        """
        logins = self._folder / "logins"
        return logins / name, logins / f"{name}.new", logins / f"{name}.old"

    def _current(self) -> str:
        try:
            return (self._folder / "current").read_text("ascii").strip()
        except (OSError, ValueError, OptionError):
            # Not there, nor is a home, or of a user whose home this one may not see.
            return ""


def _id(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        os.fsync(file.fileno())
