"""What a rule sees of a message, and a batch of messages as columns."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from poe.mapping.decoding import UNDECODED, Decode, decoder, encode_body
from poe.protocol.envelope import opened


class Columns(NamedTuple):
    """Messages of one topic side by side, in order; what a consumer fetches, less the ordinals."""

    topic: bytes
    pointers: Sequence[int]
    """Of all messages; the other columns are as long."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    """None where no message has a key."""

    headers: Sequence[Mapping[str, bytes] | None] | None = None
    """None where no message has headers."""

    def head(self, count: int) -> "Columns":
        """Return so many of them, the first ones."""
        topic, *columns = self
        return Columns(topic, *(None if each is None else each[:count] for each in columns))  # type: ignore[arg-type]  # as they were

    def message(self, place: int, decode: Decode, body: object = UNDECODED) -> "Message":
        """Return one of them as an object; `body` where its value was decoded before."""
        message = Message(
            topic_text(self.topic),
            self.pointers[place],
            self.values[place],
            self.keys[place] if self.keys else None,
            self.headers[place] if self.headers else None,
            decode,
        )
        if body is not UNDECODED:
            vars(message)["body"] = body
        return message


def columns_of(
    topic: bytes, pointers: list[int], messages: list[bytes], *, is_enveloped: bool
) -> Columns:
    """Return messages of a topic as rules judge them; there is one at least."""
    if not is_enveloped:
        return Columns(topic, pointers, messages)
    keys, values, headers = map(list, zip(*map(opened, messages), strict=True))
    return Columns(topic, pointers, values, keys, headers)


class _Fields(NamedTuple):
    """What a `Message` is made of: a named tuple alone has no `__dict__`, which keeps its body."""

    topic: str
    pointer: int = 0
    value: bytes | None = None
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    decode: Decode = "json"


class Message(_Fields):
    """A message as rules and functions see it; a value, which nobody changes.

    `topic` is text (bytes that are none are kept as surrogates), `pointer` where it lies, `value`,
    `key` and `headers` are as they were put, and `decode` is how the value becomes the `body`.
    """

    @property
    def body(self) -> Any:  # noqa: ANN401 - whatever the value holds
        """What the value holds, decoded when it is first asked for; of a tombstone None.

        Raises:
            UndecodableMessage: the value is not what `decode` says.
        """
        kept = vars(self)  # not `cached_property`, which takes a lock as long as decoding takes
        if "body" not in kept:
            kept["body"] = decoder(self.decode)(self.value)
        return kept["body"]

    def with_body(self, body: object) -> Self:
        """Return the message with another body, encoded as this one was decoded.

        Raises:
            UndecodableMessage: it cannot be encoded so.
        """
        return self._replace(value=encode_body(self.decode, body))

    def with_key(self, key: bytes | None) -> Self:
        """Return the message with another key, or none."""
        return self._replace(key=key)

    def with_headers(self, headers: Mapping[str, bytes] | None) -> Self:
        """Return the message with other headers, or none."""
        return self._replace(headers=headers)


def topic_text(topic: bytes) -> str:
    """Return a topic's name as rules see it."""
    return topic.decode("utf-8", "surrogateescape")


def topic_bytes(topic: str) -> bytes:
    """Return the topic of a name that a rule told."""
    return topic.encode("utf-8", "surrogateescape")
