"""What a write is told: the options of `df.write` and `df.writeStream`, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from poe.errors import OptionError, UnknownOption

_NAMES = {
    "host": "host",
    "port": "port",
    "topic": "topic",
    "producerId": "producer_id",
    "epoch": "epoch",
    "retryTimeout": "retry_timeout_s",
}
_OF_SPARK = {"checkpointlocation", "queryname"}
"""What Spark passes on of its own."""
_PORT_MAX = 2**16 - 1
_EPOCH_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write, and as whom.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    host: str = "127.0.0.1"
    port: int = 5555

    topic: str | None = None
    """Where all rows go; None: each row tells, in its column `topic`."""

    producer_id: str | None = None
    """Of a batch write that may be repeated: any text that no other write has."""

    epoch: int | None = None
    """Number of the batch of this producer; each one must be greater than the one before."""

    retry_timeout_s: float = 60.0
    """Seconds that a server may be away for, until the task or the commit fails."""

    def __post_init__(self) -> None:
        """Reject what cannot be meant."""
        if not 1 <= self.port <= _PORT_MAX:
            raise OptionError("port", self.port, f"1 to {_PORT_MAX}")
        if self.topic == "":
            raise OptionError("topic", self.topic, "text of length 1 or more")
        if (self.producer_id is None) != (self.epoch is None):
            given = "producerId" if self.epoch is None else "epoch"
            raise OptionError(
                given, self.producer_id or self.epoch, "producerId and epoch together"
            )
        if self.epoch is not None and not 0 <= self.epoch <= _EPOCH_MAX:
            raise OptionError("epoch", self.epoch, f"0 to {_EPOCH_MAX}, as foreachBatch tells it")
        if not self.retry_timeout_s >= 0:
            raise OptionError("retryTimeout", self.retry_timeout_s, "0 or more (seconds)")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Turn what the user has written into options; their names may be in any case.

        Raises:
            OptionError: an unknown name, or a value that is not allowed.
        """
        names = {name.lower(): name for name in _NAMES}
        values: dict[str, str | int | float] = {}
        for key, text in options.items():
            if key.lower() in _OF_SPARK:
                continue
            name = names.get(key.lower())
            if name is None:
                raise UnknownOption(key, ", ".join(_NAMES))
            values[_NAMES[name]] = _number(name, text) if name in _NUMBERS else text
        return cls(**values)  # type: ignore[arg-type]  # the types are those of `_NUMBERS`


_NUMBERS: dict[str, type[int] | type[float]] = {
    "port": int,
    "epoch": int,
    "retryTimeout": float,
}


def _number(name: str, text: str) -> int | float:
    try:
        return _NUMBERS[name](text)
    except ValueError:
        raise OptionError(name, text, "a number") from None
