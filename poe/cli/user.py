"""`poe user`: adds users to a server's file, gives them credentials, and takes both away.

A secret is printed once, when it is made, or goes to a file; the server's file holds nothing of
which it could be had.
"""

import base64
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from poe.cli.grant import GrantPrefixes, GrantTopics
from poe.cli.node_place import node_path
from poe.cli.output import write_error, write_line
from poe.cli.secret import STDIN, new_password, piped_secret
from poe.cli.users_file import TAKES_EFFECT, UsersOption, names, split, users_path, warn
from poe.errors import ConfigError, OptionError, SecurityFileError
from poe.security.credentials import PasswordFile
from poe.security.names import USER_NAMES, is_user_name
from poe.security.policy import Grant
from poe.security.scram import ITERATIONS, ITERATIONS_OF_PEOPLE, ScramKeys
from poe.security.security import read_security
from poe.security.token import make_token
from poe.security.user_file import changed_users
from poe.security.users import User

_SECRET_BYTES: Final = 20
_UNITS_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LIFE = re.compile(r"(\d{1,6})([dhms])")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the user.")]
AskOption = Annotated[
    bool, typer.Option("--password", help="Ask for the password on the terminal.")
]
PasswordFileOption = Annotated[
    str | None,
    typer.Option(
        "--password-file", metavar="FILE", help="Take it from there; - is standard input."
    ),
]
GenerateOption = Annotated[
    bool, typer.Option("--generate", help="Make one of 160 random bits, and print it once.")
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="FILE", help="A new file for the secret, instead of printing it."),
]
CertificateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--certificate",
        metavar="URI:…|DNS:…",
        help="Alternative name of a client certificate that is the user's; may be repeated.",
    ),
]


def user_application() -> typer.Typer:
    """Return the commands, for typer to read."""
    application = typer.Typer(
        help="Say who gets in: users of a server's file, and their credentials.",
        no_args_is_help=True,
    )
    application.command("add")(add)
    application.command("password")(password)
    application.command("token")(token)
    application.command("list")(list_users)
    application.command("revoke")(revoke)
    application.command("remove")(remove)
    return application


def add(  # noqa: PLR0913 - a command line option each
    name: NameArgument,
    *,
    ask: AskOption = False,
    password_file: PasswordFileOption = None,
    generate: GenerateOption = False,
    to: ToOption = None,
    certificates: CertificateOption = None,
    topics: GrantTopics = None,
    prefixes: GrantPrefixes = None,
    operations: Annotated[
        str, typer.Option(metavar="OPERATION,…", help="What --topic and --prefix allow.")
    ] = "read,write,create",
    users: UsersOption = None,
) -> None:
    """Add a user, with a password that is made unless one is given, or with a certificate alone.

    With --topic or --prefix it may read, write and create what they name; `poe grant` allows
    anything else. The file is made if it is not there.
    """
    path = users_path(users)
    if not is_user_name(name):
        raise OptionError("NAME", name, USER_NAMES)
    made = None
    if ask or password_file or generate or to or not certificates:
        makes = generate or to is not None
        made = _password_of(name, ask=ask, file=password_file, generate=makes)
    allowed = None
    if topics or prefixes:
        allowed = Grant(
            principals=(name,),
            operations=split("operations", [operations]),
            topics=names(topics),
            prefixes=names(prefixes),
        )
    with _written(made.text if made else "", to), changed_users(path) as file:
        file.add_user(name, made.keys() if made else None)
        for each in certificates or ():
            file.add_certificate(name, each)
        if allowed is not None:
            file.add_grant(allowed)
        # Before it holds: who could not read it has no user of whom nobody knows the password.
        if made is not None and made.is_made and to is None:
            write_line(made.text)
    write_error(f"user {name} is in {path}; {TAKES_EFFECT}")


def password(  # noqa: PLR0913 - a command line option each
    name: NameArgument,
    *,
    ask: AskOption = False,
    password_file: PasswordFileOption = None,
    generate: GenerateOption = False,
    to: ToOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Have the former one hold, too, until the next time.")
    ] = False,
    users: UsersOption = None,
) -> None:
    """Give a user another password; connections by the former one end, unless it is kept."""
    path = users_path(users)
    makes = generate or to is not None
    made = _password_of(name, ask=ask, file=password_file, generate=makes)
    with _written(made.text, to), changed_users(path) as file:
        former = file.security.users.scram_keys(name)[-1:] if keep else ()
        if any(each.iterations < made.iterations for each in former):
            # A client is told one count of iterations, which holds for both.
            msg = (
                f"the former password of {name} was generated, and a chosen one beside it would be "
                "as cheap to guess at; leave out --keep, or use --generate"
            )
            raise ConfigError(msg)
        file.set_keys(name, *former, made.keys(former))
        if made.is_made and to is None:
            write_line(made.text)
    write_error(f"the password of {name} is another; {TAKES_EFFECT}")


def token(
    name: NameArgument,
    *,
    token_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Its name in files and logs.  [default: of the day]"
        ),
    ] = None,
    expires: Annotated[
        str,
        typer.Option(metavar="90d|12h|DATE|never", help="When it ends, from now on or by the day."),
    ] = "90d",
    to: ToOption = None,
    users: UsersOption = None,
) -> None:
    """Make a bearer token for a user, and print it once: for programs, and for HTTP."""
    path, now = users_path(users), datetime.now(UTC)
    if token_id is None:
        token_id = f"{re.sub('[^A-Za-z0-9.-]', '-', name)[:50]}-{now:%Y-%m-%d}"
    expires_s = _expiry(expires, now)
    text, sha256 = make_token(token_id)
    with _written(text, to), changed_users(path) as file:
        file.add_token(name, token_id, sha256, expires_s)
        if to is None:
            write_line(text)
    until = "for ever" if expires_s is None else f"until {_day(expires_s)}"
    write_error(f"token {token_id} of {name} holds {until}; {TAKES_EFFECT}")


def list_users(*, users: UsersOption = None) -> None:
    """List users, one a line, with how each gets in; no secret can be told."""
    security = read_security(users_path(users))
    warn(security.warnings)
    for name in security.users.names():
        found = security.users.find(name)
        assert found is not None
        write_line(f"{name}\t{', '.join(_ways(found)) or 'cannot get in'}")


def revoke(
    name: NameArgument,
    *,
    token_ids: Annotated[
        list[str] | None, typer.Option("--token", metavar="ID", help="May be repeated.")
    ] = None,
    certificates: CertificateOption = None,
    password: Annotated[bool, typer.Option("--password", help="All passwords.")] = False,
    users: UsersOption = None,
) -> None:
    """Take credentials from a user, who stays; connections by them end when the server takes it."""
    if not (token_ids or certificates or password):
        msg = "what is to be revoked? give --token ID, --certificate NAME, or --password"
        raise ConfigError(msg)
    with changed_users(users_path(users)) as file:
        for each in token_ids or ():
            _check_owner(name, "--token", each, file.remove_token(each))
        for each in certificates or ():
            _check_owner(name, "--certificate", each, file.remove_certificate(each))
        if password:
            file.set_keys(name)
    write_line(f"{name}: revoked; {TAKES_EFFECT}")


def remove(name: NameArgument, *, users: UsersOption = None) -> None:
    """Remove a user with all credentials, and from all grants of the file.

    Grants in the server's file acl stay; of those that name nobody any more you are told.
    """
    path = users_path(users)
    with changed_users(path) as file:
        file.remove_user(name)
    write_line(f"{name}: removed; {TAKES_EFFECT}")
    try:
        acl = node_path("acl")  # of which who is called so next would have the grants
        warnings = () if acl is None else read_security(path, acl).warnings
    except (OptionError, SecurityFileError) as error:  # the user is removed all the same
        warnings = (f"grants of the option acl were not looked at: {error}",)
    warn(warnings)


class _Password(NamedTuple):
    """A password, and how hard it is made to guess."""

    text: str
    iterations: int
    is_made: bool = False
    """Whether nobody knows it yet."""

    def keys(self, former: Sequence[ScramKeys] = ()) -> ScramKeys:
        """Return what the file keeps of it, beside others if there are any."""
        for each in former:
            return ScramKeys.of_password(self.text, each.iterations, each.salt)
        return ScramKeys.of_password(self.text, self.iterations)


def _password_of(name: str, *, ask: bool, file: str | None, generate: bool) -> _Password:
    """Return the password that options ask for; without any of them one is made.

    Raises:
        ConfigError: they contradict each other, or there is no password.
    """
    if ask + (file is not None) + generate > 1:
        msg = "give one of --password, --password-file and --generate; --to generates, too"
        raise ConfigError(msg)
    if ask:
        typed = new_password(f"new password of {name}", "--password-file")
        return _Password(typed, ITERATIONS_OF_PEOPLE)
    if file == STDIN:
        return _Password(piped_secret("--password-file"), ITERATIONS_OF_PEOPLE)
    if file is not None:
        return _Password(PasswordFile(name, file).resolve().password, ITERATIONS_OF_PEOPLE)
    made = base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode().lower()
    return _Password(made, ITERATIONS, is_made=True)


@contextmanager
def _written(secret: str, to: str | None) -> Iterator[None]:
    """Write a secret to a new file, if there is to be one; none is left if the block raises.

    Raises:
        OptionError: it cannot be made.
    """
    if to is None:
        yield
        return
    try:
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        allowed = f"a file that can be made and is not there yet ({error.strerror})"
        raise OptionError("--to", to, allowed) from error
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secret + "\n")
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            Path(to).unlink()
        raise


def _expiry(text: str, now: datetime) -> float | None:
    """Return when a token ends, in seconds since the epoch; None: never.

    Raises:
        OptionError: it is no time, or one that is over.
    """
    if text == "never":
        return None
    life = _LIFE.fullmatch(text)
    try:
        if life is not None:
            ends = now + timedelta(seconds=int(life[1]) * _UNITS_S[life[2]])
        else:
            ends = datetime.fromisoformat(text)
            ends = ends if ends.tzinfo else ends.astimezone()
    except (ValueError, OverflowError):
        ends = now
    if ends <= now:
        raise OptionError(
            "--expires", text, "90d, 12h, a date to come such as 2027-02-01, or never"
        )
    return ends.timestamp()


def _ways(user: User) -> Iterator[str]:
    """Yield how a user gets in, as a line tells it."""
    if user.scram:
        yield "password" if len(user.scram) == 1 else f"{len(user.scram)} passwords"
    now_s = datetime.now(UTC).timestamp()
    for each in user.tokens:
        if each.expires_s is None:
            yield f"token {each.id}"
        else:
            word = "until" if each.expires_s > now_s else "expired on"
            yield f"token {each.id} {word} {_day(each.expires_s)}"
    yield from sorted(user.certificates)


def _day(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d}"


def _check_owner(name: str, flag: str, value: str, owner: str) -> None:
    if owner != name:
        raise OptionError(flag, value, f"one of {name}: this is {owner}'s")
