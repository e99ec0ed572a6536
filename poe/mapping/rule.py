"""What a mapping is, as data: its rules, and what becomes of a message by each.

TOML and decorators make the same data; nothing here is compiled, loaded or looked at.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from poe.mapping.action import Dead, Drop, Ok, Retry, Stop
from poe.mapping.decoding import Decode

Match = Literal["first", "all"]
Start = Literal["oldest", "newest"]
Order = Literal["ordered", "unordered"]
Isolation = Literal["thread", "process"]
AfterRetries = Literal["dead", "drop", "ok", "stop"]
Undecodable = Literal["error", "otherwise"]

DEFAULT_TOPICS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Onto topics, as the message came or with another key."""

    to: tuple[str, ...]
    """Names, or templates such as `orders.eu.{body.user.country}`."""

    key: str | None = None
    """A template; None leaves the key."""

    topics: tuple[str, ...] | None = None
    """What templates may become: names, in which `*` stands for any characters; None: any name."""

    topics_max: int = DEFAULT_TOPICS_MAX
    """How many topics templates may become while a mapping runs; more stop it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """To a function, which returns what becomes of the message."""

    function: Callable[..., Any] = field(compare=False)
    name: str
    """As in `clicks.py:enrich`; of a function that was decorated, its own name."""

    sha256: str = ""
    """Of the file that it stands in, and of one that has it from there."""

    pure: bool = False
    """Whether for the same message it always returns the same."""

    timeout_s: float = 30.0
    isolation: Isolation = "thread"
    route: Route | None = None
    """Where a message goes that it returns."""

    topics: tuple[str, ...] | None = None
    """Onto which it may put: names, in which `*` stands for any characters; None: onto any."""


Fate = Route | Call | Ok | Drop | Retry | Stop | Dead
"""What a rule says becomes of the messages that meet it."""


def fate_text(fate: Fate) -> str:
    """Return what a rule does, in a few words, as `to orders.vip, audit`."""
    match fate:
        case Route(to=topics):
            return f"to {', '.join(topics)}"
        case Call(name=name, route=route):
            return f"call {name}" + ("" if route is None else f", {fate_text(route)}")
        case Drop(reason):
            return f"drop: {reason}" if reason else "drop"
        case Stop(why) | Dead(why):
            word = type(fate).__name__.lower()
            return f"{word}: {why}" if why else word
        case Retry(after_s):
            return "retry" if after_s is None else f"retry after {after_s:g} s"
        case Ok():
            return "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a message has to be, and what becomes of it then."""

    id: str
    fate: Fate
    place: str = field(default="", compare=False)
    """Where it was written, for people."""

    topic: Any = None
    """A pattern; in a name `*` stands for any characters. None of the patterns asks nothing."""

    key_is: Any = None
    """A pattern of the key, as text."""

    header: Any = None
    """A pattern of the headers: a map of names, of which each value is a text."""

    body: Any = None
    """A pattern of the body."""

    when: str | None = None
    """An expression (CEL) that has to be true besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnError:
    """What becomes of a message for which a rule ends with an error."""

    retry: int = 0
    """How often it is tried again before."""

    backoff_s: tuple[float, float] = (1.0, 60.0)
    """Seconds before the first time, doubled each time, and at most."""

    then: AfterRetries = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a mapping reads."""

    topics: tuple[str, ...]
    """Names, in which `*` stands for any characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A test that stands beside the rules: a message, and what has to become of it."""

    place: str = field(compare=False)
    """Where it was written, for people."""

    given: Mapping[str, Any]
    expect: Mapping[str, Any]


CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "match": get_args(Match),
    "start": get_args(Start),
    "decode": get_args(Decode),
    "retries": get_args(Order),
    "isolation": get_args(Isolation),
    "then": get_args(AfterRetries),
    "undecodable": get_args(Undecodable),
}
"""What may be written for words that stand for a choice."""
