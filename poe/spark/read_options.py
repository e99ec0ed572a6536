"""What a read is told: the options of `spark.read` and `spark.readStream`, checked.

Spark hands options over as text, under names whose case does not count.
"""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from poe.errors import OptionError, UnknownOption
from poe.storage import POINTER_MAX

STAGING_PREFIX = "poe.staging."
"""Topics that writes on Spark make for themselves: no pattern matches them."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER_MAX = 2**63 - 1
_SECONDS_MAX = 86_400
_MODES = {
    "batch": {"endingPointer", "endingTimestamp", "archive"},
    "stream": {"maxMessagesPerTrigger", "maxBytesPerTrigger"},
}
"""The options that only one kind of read has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Where to read, and what of it; the names are Spark's, written Python's way.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    host: str | None = None
    """Of the server; 127.0.0.1 where there is no `path`."""

    port: int | None = None
    """Of the server; 5555 where there is no `path`."""

    path: str | None = None
    """A server's base folder: its files are read, the server is not asked."""

    archive: str | None = None
    """A folder that `poe archive` writes: what it holds is read from there."""

    topic: str | None = None
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    """A regular expression, of whole names."""

    starting_pointer: int = 0
    """What follows it is read: `earliest` is 0; `latest` is 2^56 - 1, for what a stream finds."""

    ending_pointer: int = POINTER_MAX
    """The last one that is read; `latest` is 2^56 - 1."""

    include_segment: bool = False
    """Add a column `segment`, where a message is stored."""

    target_partition_bytes: int = 32 << 20
    """Of stored records, in one partition, about."""

    min_partitions: int = 1
    """Smaller partitions are made until there are so many of them, or they are tiny."""

    max_messages_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    """Fail where messages were deleted before they were read; else warn, and go on."""

    retry_timeout: float = 60.0
    """Seconds: a server that is away is asked again for so long."""

    def __post_init__(self) -> None:
        """Reject what does not go together."""
        named = {"topic": self.topic, "topics": self.topics, "topicPattern": self.topic_pattern}
        given = [name for name, value in named.items() if value]
        if len(given) != 1:
            allowed = "exactly one of topic, topics and topicPattern"
            raise OptionError("topic", ", ".join(given) or None, allowed)
        if self.path is not None and (self.host is not None or self.port is not None):
            raise OptionError("path", self.path, "either host and port, or path")

    @classmethod
    def parse(cls, options: Mapping[str, str], mode: Literal["batch", "stream"]) -> Self:
        """Turn what the user has written into options.

        Args:
            options: by name; the case of names does not count.
            mode: the kind of read.

        Raises:
            OptionError: an unknown name, or a value that is not allowed.
        """
        names = {
            name.lower(): name
            for name in _PARSERS
            if not any(name in only and mode != kind for kind, only in _MODES.items())
        }
        values: dict[str, Any] = {}
        said: dict[str, str] = {}
        for key, text in options.items():
            name = names.get(key.lower())
            if name is None:
                raise UnknownOption(key, "one of " + ", ".join(sorted(names.values())))
            field, parse = _PARSERS[name]
            if field in said:
                raise OptionError(name, text, f"either {said[field]} or {name}")
            said[field] = name
            values[field] = parse(name, text)
        return cls(**values)

    def selects(self, topic: str) -> bool:
        """Tell whether a topic is to be read."""
        if self.topic_pattern is not None:
            is_staging = topic.startswith(STAGING_PREFIX)
            return not is_staging and re.fullmatch(self.topic_pattern, topic) is not None
        return topic in self.named_topics

    @property
    def named_topics(self) -> tuple[str, ...]:
        """The topics that are given by name."""
        return self.topics if self.topic is None else (self.topic,)


def pointer_at(time: datetime) -> int:
    """Return the pointer of a message that was put at a time: microseconds since the epoch."""
    return (time - EPOCH) // timedelta(microseconds=1)


def _text(name: str, text: str) -> str:
    if not text:
        raise OptionError(name, text, "a text that is not empty")
    return text


def _names(name: str, text: str) -> tuple[str, ...]:
    """Read names between commas, or a list as Python and JSON write it."""
    names: object = [each.strip() for each in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = ast.literal_eval(text.strip())
        except (SyntaxError, ValueError):
            names = None
    if isinstance(names, list) and names and all(isinstance(each, str) and each for each in names):
        return tuple(dict.fromkeys(names))
    raise OptionError(name, text, "names with commas between them, or a list of names")


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(name, text, f"a regular expression ({error})") from error
    return _text(name, text)


def _number(
    low: int, high: int, words: Mapping[str, int] | None = None
) -> Callable[[str, str], int]:
    """Return what reads a number, or one of the words that stand for one."""
    words = words or {}
    allowed = "".join(f"{word}, " for word in words) + f"{low} to {high}"

    def parse(name: str, text: str) -> int:
        if text.lower() in words:
            return words[text.lower()]
        if text.isascii() and text.isdigit() and low <= int(text) <= high:
            return int(text)
        raise OptionError(name, text, allowed)

    return parse


def _flag(name: str, text: str) -> bool:
    flag = {"true": True, "false": False}.get(text.lower())
    if flag is None:
        raise OptionError(name, text, "true or false")
    return flag


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _SECONDS_MAX:
        raise OptionError(name, text, f"0 to {_SECONDS_MAX} seconds")
    return seconds


def _before(name: str, text: str) -> int:
    """Return the last pointer before a time; a time without a zone is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        allowed = "a time as in 2026-01-31T12:00:00+01:00 (without a zone it is UTC)"
        raise OptionError(name, text, allowed) from error
    pointer = pointer_at(time if time.tzinfo else time.replace(tzinfo=UTC)) - 1
    return min(max(pointer, 0), POINTER_MAX)


_Parser = Callable[[str, str], Any]
_PARSERS: dict[str, tuple[str, _Parser]] = {
    "host": ("host", _text),
    "port": ("port", _number(1, 65535)),
    "path": ("path", _text),
    "archive": ("archive", _text),
    "topic": ("topic", _text),
    "topics": ("topics", _names),
    "topicPattern": ("topic_pattern", _pattern),
    "startingPointer": (
        "starting_pointer",
        _number(0, POINTER_MAX, {"earliest": 0, "latest": POINTER_MAX}),
    ),
    "startingTimestamp": ("starting_pointer", _before),
    "endingPointer": ("ending_pointer", _number(0, POINTER_MAX, {"latest": POINTER_MAX})),
    "endingTimestamp": ("ending_pointer", _before),
    "includeSegment": ("include_segment", _flag),
    "targetPartitionBytes": ("target_partition_bytes", _number(1, _INTEGER_MAX)),
    "minPartitions": ("min_partitions", _number(1, 1_000_000)),
    "maxMessagesPerTrigger": ("max_messages_per_trigger", _number(1, _INTEGER_MAX)),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _number(1, _INTEGER_MAX)),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "retryTimeout": ("retry_timeout", _seconds),
}
"""What may be written: the field that it sets, and what reads its text."""
