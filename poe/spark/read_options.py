"""What a read is told: the options of `spark.read` and `spark.readStream`, checked."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Self

from poe.errors import OptionError
from poe.protocol.server import Server
from poe.spark import option_text, server_options
from poe.spark.server_options import take_servers
from poe.storage import POINTER_MAX
from poe.topic_properties import partition_of

STAGING_PREFIX = "poe.staging."
"""Topics that writes on Spark make for themselves: no pattern matches them."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER_MAX = 2**63 - 1
_MODES = {
    "batch": {"endingPointer", "endingTimestamp", "archive", "counts", "filterPushdown"},
    "stream": {"maxMessagesPerTrigger", "maxBytesPerTrigger", "missingTopics"},
}
"""The options that only one kind of read has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Where to read, and what of it; the names are Spark's, written Python's way.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    servers: tuple[Server, ...] = ()
    """Who is asked, all of which have the same topics. Nobody: the one of this machine, where there
    is neither `path` nor `archive`."""

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

    filter_pushdown: bool = False
    """Have filters choose segments; what was loaded so is good for one query."""

    counts: bool = False
    """Read a row for each segment, which tells how many messages it holds, and no messages."""

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

    missing_topics: Literal["error", "wait"] | None = None
    """What a stream does about a named topic that never was; None: a query that takes what is there
    and ends (availableNow) fails, another one waits for the topic."""

    def __post_init__(self) -> None:
        """Reject what does not go together."""
        named = {"topic": self.topic, "topics": self.topics, "topicPattern": self.topic_pattern}
        given = [name for name, value in named.items() if value]
        if len(given) != 1:
            allowed = "exactly one of topic, topics and topicPattern"
            if not given:
                allowed += "; instead of CREATE TABLE use " + option_text.NO_TABLE
            raise OptionError("topic", ", ".join(given) or None, allowed)
        if self.counts and self.filter_pushdown:
            raise OptionError("counts", "true", "either counts or filterPushdown")
        if self.path is not None and self.servers:
            raise OptionError("path", self.path, "either the options of a server, or path")

    @classmethod
    def parse(cls, options: Mapping[str, str], mode: Literal["batch", "stream"]) -> Self:
        """Turn what the user has written into options.

        Args:
            options: by name; the case of names does not count.
            mode: the kind of read.

        Raises:
            OptionError: an unknown name, or a value that is not allowed.
        """
        parsers = {
            name: parser
            for name, parser in PARSERS.items()
            if not any(name in only and mode != kind for kind, only in _MODES.items())
        }
        values = option_text.parse(options, parsers)
        return cls(servers=take_servers(values), **values)

    def selects(self, topic: str) -> bool:
        """Return whether a topic is to be read."""
        if self.topic_pattern is not None:
            is_staging = topic.startswith(STAGING_PREFIX)
            return not is_staging and re.fullmatch(self.topic_pattern, topic) is not None
        return topic in self.named_topics

    def has_chosen(self, topic: str) -> bool:
        """Return whether a topic is, or was, to be read: also as a partition of one that is named.

        A partition that was read is missed when it goes.
        """
        part = partition_of(topic.encode())
        return self.selects(topic) or (part is not None and part[0].decode() in self.named_topics)

    @property
    def named_topics(self) -> tuple[str, ...]:
        """The topics that are given by name."""
        return self.topics if self.topic is None else (self.topic,)


def pointer_at(time: datetime) -> int:
    """Return the pointer of a message that was put at a time: microseconds since the epoch."""
    return (time - EPOCH) // timedelta(microseconds=1)


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
    return option_text.any_text(name, text)


def _before(name: str, text: str) -> int:
    """Return the last pointer before a time; a time without a zone is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        allowed = "a time as in 2026-01-31T12:00:00+01:00 (without a zone it is UTC)"
        raise OptionError(name, text, allowed) from error
    pointer = pointer_at(time if time.tzinfo else time.replace(tzinfo=UTC)) - 1
    return min(max(pointer, 0), POINTER_MAX)


PARSERS: Final[option_text.Parsers] = {
    **server_options.PARSERS,
    "path": ("path", option_text.any_text),
    "archive": ("archive", option_text.any_text),
    "topic": ("topic", option_text.any_text),
    "topics": ("topics", _names),
    "topicPattern": ("topic_pattern", _pattern),
    "startingPointer": (
        "starting_pointer",
        option_text.number(0, POINTER_MAX, {"earliest": 0, "latest": POINTER_MAX}),
    ),
    "startingTimestamp": ("starting_pointer", _before),
    "endingPointer": (
        "ending_pointer",
        option_text.number(0, POINTER_MAX, {"latest": POINTER_MAX}),
    ),
    "endingTimestamp": ("ending_pointer", _before),
    "filterPushdown": ("filter_pushdown", option_text.flag),
    "counts": ("counts", option_text.flag),
    "includeSegment": ("include_segment", option_text.flag),
    "targetPartitionBytes": ("target_partition_bytes", option_text.number(1, _INTEGER_MAX)),
    "minPartitions": ("min_partitions", option_text.number(1, 1_000_000)),
    "maxMessagesPerTrigger": ("max_messages_per_trigger", option_text.number(1, _INTEGER_MAX)),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", option_text.number(1, _INTEGER_MAX)),
    "failOnDataLoss": ("fail_on_data_loss", option_text.flag),
    "retryTimeout": ("retry_timeout", option_text.seconds),
    "missingTopics": ("missing_topics", option_text.word("error", "wait")),
}
