"""Who there is, and how each proves it: values of the file of users.

What is wrong in the file is refused with its line; nothing is guessed or left out, for a key that
nobody knows may be a limit that somebody relies on.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final

from poe.errors import OptionError
from poe.option import Range, check_options, load_options
from poe.security.names import (
    CERTIFICATE_NAMES,
    USER_NAMES,
    is_certificate_name,
    is_user_name,
)
from poe.security.scram import KEYS_MAX, ScramKeys
from poe.security.token import IDS_ALLOWED, hide_tokens, is_token_id
from poe.toml_document import Place, TomlDocument

_USER_KEYS: Final = ("scram_sha_256", "tokens", "certificates", "quota")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much a principal may do, over all its connections; None sets no limit.

    Raises:
        OptionError: on construction, naming the limit and what is allowed.
    """

    write_bytes_s: Annotated[float | None, Range(is_above=True, unit="bytes per second")] = None
    read_bytes_s: Annotated[float | None, Range(is_above=True, unit="bytes per second")] = None
    requests_s: Annotated[float | None, Range(is_above=True, unit="requests per second")] = None
    connections: Annotated[int | None, Range(1, unit="connections")] = None

    def __post_init__(self) -> None:
        """Reject what is no limit."""
        check_options(self)


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A bearer token as the file knows it: not the secret."""

    id: str
    sha256: str = field(repr=False)
    """Of the whole text, in hex."""

    expires_s: float | None = None
    """Seconds since the epoch; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user and what proves it: two of a kind while one replaces the other."""

    name: str
    scram: tuple[ScramKeys, ...] = ()
    """All with one salt and count of iterations, for a client is told one."""

    tokens: tuple[TokenEntry, ...] = ()
    certificates: frozenset[str] = frozenset()
    """Alternative names of certificates: `URI:…` and `DNS:…`."""

    quota: Quota = Quota()


class Users:
    """All users, by each of their names. It never changes."""

    def __init__(self, users: Iterable[User] = ()) -> None:
        self._users = {user.name: user for user in users}
        self._tokens = {
            token.id: (user, token) for user in self._users.values() for token in user.tokens
        }
        self._certificates = {
            name: user for user in self._users.values() for name in user.certificates
        }

    def names(self) -> list[str]:
        """Return the names of all."""
        return list(self._users)

    def find(self, name: str) -> User | None:
        """Return the user of a name; None: there is none."""
        return self._users.get(name)

    def scram_keys(self, name: str) -> tuple[ScramKeys, ...]:
        """Return what proves that a client knows a user's password; empty: nothing does."""
        user = self._users.get(name)
        return () if user is None else user.scram

    def by_token(self, token_id: str) -> tuple[User, TokenEntry] | None:
        """Return whose token has this id, and its entry; None: nobody's.

        Who looks must still compare the digest, in constant time, and the time with `expires_s`.
        """
        return self._tokens.get(token_id)

    def by_certificate(self, names: Iterable[str]) -> User | None:
        """Return who a certificate with these alternative names is; None: nobody, or several."""
        found = {user.name: user for each in names if (user := self._certificates.get(each))}
        return found.popitem()[1] if len(found) == 1 else None


def users_in(document: TomlDocument) -> list[User]:
    """Return the users of a document, in its order.

    Raises:
        SecurityFileError: anything is wrong with them.
    """
    reader = _UserReader(document)
    table = document.table(("users",), document.values.get("users", {}))
    return [reader.user(name, value) for name, value in table.items()]


class _UserReader:
    """Reads one user after the other, and notices what two of them claim."""

    def __init__(self, document: TomlDocument) -> None:
        self._document = document
        self._claims: dict[str, str] = {}

    def user(self, name: str, value: object) -> User:
        place = ("users", name)
        if not is_user_name(name):
            self._document.refuse(place, f"user {name!r} is not allowed; use {USER_NAMES}")
        table = self._document.table(place, value, _USER_KEYS)
        tokens = self._document.array((*place, "tokens"), table.get("tokens", []))
        return User(
            name=name,
            scram=self._scram((*place, "scram_sha_256"), table.get("scram_sha_256", [])),
            tokens=tuple(
                self._token(name, (*place, "tokens", number), each)
                for number, each in enumerate(tokens)
            ),
            certificates=self._certificates(name, table.get("certificates", [])),
            quota=self._quota((*place, "quota"), table.get("quota", {})),
        )

    def _scram(self, place: Place, value: object) -> tuple[ScramKeys, ...]:
        texts = self._document.texts(place, [value] if isinstance(value, str) else value)
        keys = [found for each in texts if (found := ScramKeys.parse(each))]
        if len(keys) < len(texts) or len(keys) > KEYS_MAX:
            # What it is instead is kept out of the sentence: it may be a password.
            why = f"scram_sha_256 has to be 1 to {KEYS_MAX} values as `poe user add` writes them"
            self._document.refuse(place, why)
        if len({(each.iterations, each.salt) for each in keys}) > 1:
            why = "the values of scram_sha_256 need the same iterations and the same salt"
            self._document.refuse(place, why)
        return tuple(keys)

    def _token(self, user: str, place: Place, value: object) -> TokenEntry:
        table = self._document.table(place, value, ("id", "sha256", "expires"))
        token_id, sha256, expires = map(table.get, ("id", "sha256", "expires"))
        if not is_token_id(token_id):
            # It goes to the log, and somebody may have put the token itself there.
            why = f"id is {hide_tokens(repr(token_id))}; use {IDS_ALLOWED}"
            self._document.refuse((*place, "id"), why)
        self._claim(user, f"token {token_id!r}", (*place, "id"))
        if not isinstance(sha256, str) or _SHA256.fullmatch(sha256) is None:
            why = "sha256 has to be 64 hex digits, in lower case"
            self._document.refuse((*place, "sha256"), why)
        if expires is None:
            return TokenEntry(token_id, sha256)
        if not isinstance(expires, datetime) or expires.tzinfo is None:
            why = "expires has to be a time with its zone, as in 2027-02-01T00:00:00Z"
            self._document.refuse((*place, "expires"), why)
        return TokenEntry(token_id, sha256, expires.timestamp())

    def _certificates(self, user: str, value: object) -> frozenset[str]:
        place = ("users", user, "certificates")
        names = self._document.texts(place, value)
        for number, name in enumerate(names):
            if not is_certificate_name(name):
                why = f"certificate {name!r} is not allowed; use {CERTIFICATE_NAMES}"
                self._document.refuse((*place, number), why)
            self._claim(user, f"certificate {name!r}", (*place, number))
        return frozenset(names)

    def _quota(self, place: Place, value: object) -> Quota:
        try:
            return load_options(Quota, self._document.table(place, value))
        except OptionError as error:
            self._document.refuse((*place, error.key), str(error))

    def _claim(self, user: str, what: str, place: Place) -> None:
        """Note that something proves one user, and could prove no other."""
        if what in self._claims:
            self._document.refuse(place, f"{what} is there already, of {self._claims[what]!r}")
        self._claims[what] = user
