"""What a write is told: the options of `df.write` and `df.writeStream`, checked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from poe.errors import OptionError
from poe.protocol.server import Server
from poe.spark import option_text, server_options
from poe.spark.server_options import DEFAULT_SERVER, take_servers

_EPOCH_MAX = 2**32 - 1
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write, and as whom; the names are Spark's, written Python's way.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    servers: tuple[Server, ...] = (DEFAULT_SERVER,)
    """Where there are several, they have the same topics: replicated ones."""

    topic: str | None = None
    """Where all rows go; None: each row tells, in its column `topic`."""

    producer_id: str | None = None
    """Of a batch write that may be repeated: any text that no other write onto the topic has."""

    epoch: int | None = None
    """Number of the batch of this producer; each one must be greater than the one before."""

    staging_prefix: str = ""
    """Of the staging topic's name, behind `poe.staging.`: so that it can be granted apart."""

    retry_timeout: float = 60.0
    """Seconds that a server may be away for, until the task or the commit fails."""

    def __post_init__(self) -> None:
        """Reject what does not go together."""
        if (self.producer_id is None) != (self.epoch is None):
            given = "producerId" if self.epoch is None else "epoch"
            raise OptionError(
                given, self.producer_id or self.epoch, "producerId and epoch together"
            )

    def check_stream(self) -> None:
        """Refuse what only a batch write may be told.

        Raises:
            OptionError: the producer is named.
        """
        if self.producer_id is not None:
            allowed = "it with batch writes only; a stream has its query's id, and its batches'"
            raise OptionError("producerId", self.producer_id, allowed)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Turn what the user has written into options.

        Raises:
            OptionError: an unknown name, or a value that is not allowed.
        """
        values = option_text.parse(options, PARSERS)
        return cls(servers=take_servers(values) or (DEFAULT_SERVER,), **values)


def _prefix(name: str, text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise OptionError(name, text, "1 to 100 of A-Z a-z 0-9 . _ -, as in team-a.")
    return text


PARSERS: Final[option_text.Parsers] = {
    **server_options.PARSERS,
    "topic": ("topic", option_text.any_text),
    "producerId": ("producer_id", option_text.any_text),
    "epoch": ("epoch", option_text.number(0, _EPOCH_MAX)),
    "stagingPrefix": ("staging_prefix", _prefix),
    "retryTimeout": ("retry_timeout", option_text.seconds),
}
