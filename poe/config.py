"""The options of a node, and where they come from.

Each option belongs to the class that it configures; this module only composes them, and loads them
by descending priority: argument, environment (`POE_<NAME>`), `poe.toml`, default. An unknown
name is an error wherever it stands.
"""

import contextlib
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from platformdirs import user_data_path

from poe.broker import (
    AppendixOptions,
    ConnectionOptions,
    ListenerOptions,
    RegistryOptions,
    ScrubberOptions,
    SecurityOptions,
)
from poe.cluster.options import ClusterOptions
from poe.errors import OptionError, UnknownOption
from poe.option import NONE_WORDS, Range, check_options, fixed_path, folder_of_user
from poe.storage import SegmentOptions, StoreOptions, TopicOptions

TOML_FILE = "poe.toml"
ENVIRONMENT_PREFIX = "POE_"
CONFIG_VARIABLE = "POE_CONFIG"
"""Names the configuration file: a variable of the prefix that is no option."""
_CLIENT_OPTIONS = "URL CA CERTIFICATE KEY SERVER_NAME USER PASSWORD_FILE TOKEN_FILE"
CLIENT_VARIABLES = frozenset(ENVIRONMENT_PREFIX + name for name in _CLIENT_OPTIONS.split())
"""Those of commands that ask a server: no options of a node, which may run beside them."""
_AROUND_MESSAGE_BYTES = 280
"""Room for what a frame has around a message: lengths, type, pointer, and the longest topic."""
_TEST_PREFIX = "POE_TEST_"
"""Variables of test programs, which may run nodes: they are no options."""
_TEXTS = tuple[str, ...]
_TOML_PATH = "the path of a TOML file that exists"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How `poe serve` runs the node; a node that is embedded into a program has none of it.

    They stand here and not beside the service, which `import poe` is not to load.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    isolation: Literal["none", "process"] = "none"
    """`process` runs the node in a process of its own, restarted when it dies."""

    thespian_port: Annotated[int | None, Range(1, 65535)] = None
    """Offer the node to Thespian programs: admin port, on 127.0.0.1.
    Off by default: whoever can connect to loopback can then run code as the server's user.
    """

    thespian_insecure: bool = False
    """Do so at a node with `users`, too, past whose grants that code then is."""

    thespian_token: Path | None = None
    """File with a token of the user as whom Thespian programs ask, with `users`."""

    def __post_init__(self) -> None:
        """Reject what is none."""
        check_options(self)

    def check_is_default(self) -> None:
        """Refuse what an embedded node would take no notice of.

        Raises:
            OptionError: an option is not at its default.
        """
        for option in fields(self):
            value = getattr(self, option.name)
            if value != option.default:
                allowed = f"{str(option.default).lower()}, or run the node by `poe serve`"
                raise OptionError(option.name, value, allowed)


_PARTS = {
    "segment": SegmentOptions,
    "appendix": AppendixOptions,
    "registry": RegistryOptions,
    "scrubber": ScrubberOptions,
    "store": StoreOptions,
    "listener": ListenerOptions,
    "connection": ConnectionOptions,
    "security": SecurityOptions,
    "cluster": ClusterOptions,
    "service": ServiceOptions,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All options of one node, checked."""

    dir: Path
    """Base folder, where topics are kept."""

    segment: SegmentOptions
    appendix: AppendixOptions
    registry: RegistryOptions
    scrubber: ScrubberOptions
    store: StoreOptions
    listener: ListenerOptions
    connection: ConnectionOptions
    security: SecurityOptions
    cluster: ClusterOptions
    service: ServiceOptions
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where each option was given that was: a variable, a file with a key, or `argument`."""

    @classmethod
    def load(
        cls,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        toml_path: Path | str | None = None,
    ) -> Self:
        """Compose the options.

        Args:
            arguments: options by name; they win.
            environment: variables; those of the process by default.
            toml_path: the configuration file; by default the one that `POE_CONFIG` names, else
                `poe.toml` in the current folder, if it is there.

        Raises:
            OptionError: an unknown name, or a value that is not allowed; the key says where.
        """
        environment = os.environ if environment is None else environment
        passed = {
            _known(key, key): (key, _typed(key, key, value)) for key, value in arguments.items()
        }
        outside = {**_from_toml(toml_path, environment), **_from_environment(environment)}
        given = {**outside, **passed}
        values = {key: value for key, (_, value) in given.items()}
        if "dir" not in values or values["dir"] is None:
            values["dir"] = folder_of_user(user_data_path, "dir")
        base = Path(values["dir"])
        try:
            _fit_message_max(values)
            _fit_min_free(values)
            parts = {
                name: part(**{key: values[key] for key in _names(part) if key in values})
                for name, part in _PARTS.items()
            }
            _check_archives(values)
            _check_doors(parts["listener"], parts["security"])
            parts["cluster"].check_reach(insecure=parts["listener"].insecure)
            _check_thespian(parts["listener"], parts["security"], parts["service"])
        except OptionError as error:
            where, _ = given.get(error.key, (error.key, None))
            raise OptionError(where, error.value, error.allowed) from error
        origins = {key: where for key, (where, _) in outside.items()}
        return cls(dir=base, **parts, origins=origins | dict.fromkeys(passed, "argument"))

    def told(self) -> dict[str, dict[str, Any]]:
        """Return each option with its `value`, as JSON has it, and where it came `from`.

        A value is shown as it is used; `default` is also what follows from other options. Files
        with secrets are options, and their paths are told; the secrets are no options.
        """
        return {
            key: {"value": _plain(value), "from": self.origins.get(key, "default")}
            for key, value in self.as_dict().items()
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the options by name, for the log and for `poe status`."""
        values: dict[str, Any] = {"dir": self.dir}
        for name, part in _PARTS.items():
            values |= {key: getattr(getattr(self, name), key) for key in _names(part)}
        paths = {key: str(value) for key, value in values.items() if isinstance(value, Path)}
        return values | paths


def _plain(value: Any) -> Any:  # noqa: ANN401 - any option
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return [_plain(each) for each in value]
        case TopicOptions():
            return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return str(value)


def _fit_message_max(values: dict[str, Any]) -> None:
    """See to it that a message of `message_max` fits into a frame.

    A smaller `frame_max` alone lowers `message_max`.

    Raises:
        OptionError: `message_max` was given, and does not fit.
    """
    frame_max = values.get("frame_max", ConnectionOptions().frame_max)
    fitting = max(frame_max - _AROUND_MESSAGE_BYTES, 1)
    if "message_max" not in values:
        values["message_max"] = min(SegmentOptions().message_max, fitting)
    elif values["message_max"] > fitting:
        allowed = f"{fitting} or less, or a greater frame_max: it is {frame_max}"
        raise OptionError("message_max", values["message_max"], allowed)


def _fit_min_free(values: dict[str, Any]) -> None:
    """Keep 64 MiB and a segment free unless told otherwise: recovery may write as much as that."""
    size_limit = values.get("size_limit", AppendixOptions().size_limit)
    values.setdefault("min_free", (64 << 20) + min(size_limit, 1 << 30))


def _check_archives(values: Mapping[str, Any]) -> None:
    """Refuse to archive a topic that never expires.

    Raises:
        OptionError: a topic has an archive of its own, and there is no `max_age`, nor `max_bytes`.
    """
    is_endless = values.get("max_age") is None and values.get("max_bytes") is None
    for each in values.get("topics", ()):
        if isinstance(each.archive_dir, Path) and is_endless:
            key = f"topics.{each.topic}.archive_dir"
            raise OptionError(key, str(each.archive_dir), "none, or set max_age or max_bytes, too")


def _check_doors(listener: ListenerOptions, security: SecurityOptions) -> None:
    """Refuse doors that others can reach by accident, and two at the same place.

    Raises:
        OptionError: there are such.
    """
    security.check_reach(insecure=listener.insecure)
    is_same = security.tls_port == listener.port and listener.port
    if is_same and security.tls_address == listener.address:
        raise OptionError("tls_port", security.tls_port, "another one than port")


def _check_thespian(
    listener: ListenerOptions, security: SecurityOptions, service: ServiceOptions
) -> None:
    """Refuse to open a way past all grants by accident, and one that leads nowhere.

    Raises:
        OptionError: it is either.
    """
    if service.thespian_port is None:
        return
    if listener.port is None:
        raise OptionError("port", "none", "0 to 65535 with thespian_port: its service asks there")
    if security.users is None:
        return
    if not service.thespian_insecure:
        allowed = (
            "none with users: whoever can connect to it can run code as the server's user, past "
            "all grants; or set thespian_insecure as well"
        )
        raise OptionError("thespian_port", service.thespian_port, allowed)
    if service.thespian_token is None:
        allowed = "the path of a file with a token of user thespian, as `poe user token` makes it"
        raise OptionError("thespian_token", "none", allowed)


def option_types() -> dict[str, Any]:
    """Return the type of each option by name."""
    types: dict[str, Any] = {"dir": Path}
    for part in _PARTS.values():
        types |= _types(part)
    return types


def option_parts() -> list[type]:
    """Return the classes that the options belong to, other than `dir`."""
    return list(_PARTS.values())


def option_choices(key: str) -> tuple[Any, ...]:
    """Return the types, or the literal values, that an option may have."""
    return _choices(option_types()[key])


@cache
def _types(part: type) -> dict[str, Any]:
    hints = get_type_hints(part)
    return {key: hints[key] for key in _names(part)}


def _names(part: Any) -> list[str]:  # noqa: ANN401 - a dataclass
    return [field.name for field in fields(part)]


def _known(key: str, where: str) -> str:
    if key not in option_types():
        raise UnknownOption(where, "one of " + ", ".join(sorted(option_types())))
    return key


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """Return, by name, the variable and the value of each option."""
    given = {}
    for variable, text in environment.items():
        is_other = variable in {CONFIG_VARIABLE, *CLIENT_VARIABLES}
        is_other = is_other or variable.startswith(_TEST_PREFIX)
        if variable.startswith(ENVIRONMENT_PREFIX) and not is_other:
            key = _known(variable.removeprefix(ENVIRONMENT_PREFIX).lower(), variable)
            given[key] = variable, parse_option(key, variable, text)
    return given


def _from_toml(
    toml_path: Path | str | None, environment: Mapping[str, str]
) -> dict[str, tuple[str, Any]]:
    """Return, by name, the place and the value of each option."""
    where, name = "--config", toml_path
    if name is None:
        where, name = CONFIG_VARIABLE, environment.get(CONFIG_VARIABLE)
    if name == "":
        raise OptionError(where, name, _TOML_PATH)
    path = Path(name or TOML_FILE)
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        if name is None:
            return {}
        raise OptionError(where, str(path), _TOML_PATH) from error
    except (OSError, ValueError, RecursionError) as error:  # a number may be no TOMLDecodeError
        reason = error.strerror if isinstance(error, OSError) else error
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else reason
        allowed = f"a readable TOML file ({reason})"
        where = "configuration file" if name is None else where
        raise OptionError(where, str(path), allowed) from error
    given = {}
    for key, value in content.items():
        place = f"{path}: {key}"
        given[key] = place, _typed(_known(key, place), place, value)
    return given


def _typed(key: str, where: str, value: Any) -> Any:  # noqa: ANN401
    """Check a value that has a type already."""
    if key == "topics":
        is_done = isinstance(value, tuple) and all(type(each) is TopicOptions for each in value)
        return value if is_done else TopicOptions.from_table(where, value)
    allowed = _choices(option_types()[key])
    is_none_word = isinstance(value, str) and value.lower() in NONE_WORDS
    if NoneType in allowed and (is_none_word or value in (None, math.inf)):
        return None
    if Path in allowed and isinstance(value, str | Path):
        return fixed_path(where, value)
    if _TEXTS in allowed and _are_texts(value):
        value = tuple(value)
        allowed = (tuple,)
    if isinstance(value, bool):
        if bool in allowed:
            return value
    elif isinstance(value, int) and float in allowed:
        with contextlib.suppress(OverflowError):
            return float(value)
    elif type(value) in allowed or value in allowed:
        return value
    raise OptionError(where, value, _expected(key))


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def parse_option(key: str, where: str, text: str) -> Any:  # noqa: ANN401
    """Turn the text of an environment variable, or of the command line, into a value.

    Args:
        key: name of the option.
        where: what the user called it, for the error.
        text: the value as written.

    Raises:
        OptionError: the text is no value of the option's type.
    """
    if key == "topics":
        return TopicOptions.from_text(where, text)
    allowed = _choices(option_types()[key])
    if _TEXTS in allowed:
        return tuple(each.strip() for each in text.split(","))
    if NoneType in allowed and text.lower() in NONE_WORDS:
        return None
    if bool in allowed and text.lower() in {"true", "false", "1", "0", "yes", "no"}:
        return text.lower() in {"true", "1", "yes"}
    for number in (int, float):
        if number in allowed:
            try:
                return _typed(key, where, number(text))
            except ValueError as error:
                raise OptionError(where, text, _expected(key)) from error
    return _typed(key, where, text)


def _choices(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return the types, or the literal values, that a type hint allows."""
    if get_origin(hint) in {Union, UnionType, Literal}:
        return get_args(hint)
    return (hint,)


def _expected(key: str) -> str:
    """Say in words what the value of an option may be."""
    words = {int: "a whole number", float: "a number", str: "text", Path: "a path",
             bool: "true or false", _TEXTS: "a list of texts", NoneType: '"none"'}  # fmt: skip
    # A node without a port serves nobody but its own process: nothing to suggest to others.
    choices = [int] if key == "port" else option_choices(key)
    return " or ".join(words.get(choice, str(choice)) for choice in choices)
