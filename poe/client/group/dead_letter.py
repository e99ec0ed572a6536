"""Messages that a group has given up: what is known of them, and how they are put back."""

import re
from collections.abc import Mapping
from typing import NamedTuple, Self

from poe.protocol.envelope import decode, encode
from poe.record import POINTER_MAX

_PREFIX = "poe."
_DIGITS_MAX = len(str(POINTER_MAX))
_STREAM = re.compile(rb"(.+)@[0-9a-f]{16}\.[0-9]+", re.DOTALL)
"""The name of a stream of a queue, and in it that of the queue."""


class DeadLetter(NamedTuple):
    """A message of a dead letter topic."""

    topic: bytes
    """Where it was: the topic of a partition."""

    pointer: int
    attempts: int
    reason: str

    message: bytes | None
    """As it was there; None where it was gone before that, or is too large for a letter."""

    partition: bytes = b""
    """Where to read it, of one of a mapping that has no message; empty where that is not known."""

    @property
    def origin(self) -> bytes:
        """Where it is put back: a topic, or a queue across nodes; empty where that is not told."""
        stream = _STREAM.fullmatch(self.topic)
        return self.topic if stream is None else stream[1]

    @classmethod
    def of(cls, letter: bytes) -> Self:
        """Take a letter apart.

        Raises:
            InvalidEnvelope: it is none, but something else that was put there.
        """
        key, value, found = decode(letter)
        headers = found or {}
        message = None if headers.keys() & {"poe.gone", "poe.large"} else value
        if "poe.envelope" in headers:
            message = encode(key, value, _own(headers))
        return cls(
            headers.get("poe.topic", b""),
            _number(headers, "poe.pointer"),
            _number(headers, "poe.attempts"),
            headers.get("poe.reason", b"").decode("utf-8", "replace"),
            message,
            headers.get("poe.partition", b""),
        )


def _number(headers: Mapping[str, bytes], name: str) -> int:
    """Return a number that a pointer may be; 0 where somebody has written something else there."""
    digits = headers.get(name, b"0")
    number = int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else 0
    return number if number <= POINTER_MAX else 0


def _own(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the headers that the message had."""
    return {name: value for name, value in headers.items() if not name.startswith(_PREFIX)}
