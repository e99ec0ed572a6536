"""What the nodes of a cluster agree on of a replicated topic: its record in the catalog; pure.

Layout of a record: msgpack [version: 1, name, id, created_us, version of the properties,
properties, whether partition 0 has the name of the topic, whether it is deleted]. Its key is a hash
of the name, since names may be longer than keys.
"""

from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
from xxhash import xxh3_128_hexdigest

from poe.errors import OptionError, RemoteProtocolError, UnknownOption
from poe.topic_properties import (
    TOPIC_ID_BYTES,
    TopicDescription,
    TopicProperties,
    replicated_id,
)

RECORD_MAX_BYTES: Final = 64 * 1024
_VERSION: Final = 1


class LogRecord(NamedTuple):
    """A replicated topic, or what is left of one that was deleted."""

    description: TopicDescription
    is_deleted: bool = False

    @classmethod
    def new(cls, topic: bytes, created_us: int, properties: TopicProperties) -> "LogRecord":
        """Return the record of a topic that is made now."""
        is_plain = properties.partitions == 1
        own_id = replicated_id(topic, created_us)
        return cls(TopicDescription(topic, own_id, created_us, 1, properties, is_plain))

    @property
    def key(self) -> str:
        """Under which it stands in the catalog."""
        return key_of(self.description.name)

    def streams(self) -> dict[bytes, str]:
        """Return the stream of each partition, by the topic that holds it."""
        own_id = self.description.id.hex()
        parts = self.description.partition_topics()
        return {topic: f"poe-{own_id}-{number}" for number, topic in enumerate(parts)}

    def encode(self) -> bytes:
        """Encode it."""
        own = self.description
        fields = [
            _VERSION,
            own.name,
            own.id,
            own.created_us,
            own.version,
            own.properties.as_map(),
            own.first_is_plain,
            self.is_deleted,
        ]
        return msgpack.packb(fields)  # type: ignore[no-any-return]  # as it says

    @classmethod
    def decode(cls, content: bytes) -> "LogRecord":
        """Decode one.

        Raises:
            RemoteProtocolError: it is none, or of a newer version.
        """
        try:
            return cls._of(msgpack.unpackb(content[:RECORD_MAX_BYTES]))
        except (
            ValueError,
            TypeError,
            OptionError,
            UnknownOption,
            msgpack.UnpackException,
        ) as error:
            msg = f"a record of {len(content)} bytes in the catalog of replicated topics: {error}"
            raise RemoteProtocolError(msg) from error

    @classmethod
    def _of(cls, fields: Any) -> "LogRecord":  # noqa: ANN401 - whatever was found
        version, name, own_id, created_us, properties_version, properties, is_plain, is_gone = (
            fields
        )
        kinds = (bytes, bytes, int, int, bool, bool)
        values = (name, own_id, created_us, properties_version, is_plain, is_gone)
        if version != _VERSION or not all(map(isinstance, values, kinds)):
            msg = f"version {version!r} is not known here"
            raise ValueError(msg)
        if not name or len(own_id) != TOPIC_ID_BYTES or created_us < 0:
            msg = "it names no topic"
            raise ValueError(msg)
        found = TopicProperties.from_map(properties)
        return cls(
            TopicDescription(name, own_id, created_us, properties_version, found, is_plain), is_gone
        )


def key_of(topic: bytes) -> str:
    """Return the key of a topic in the catalog."""
    return "topic-" + xxh3_128_hexdigest(topic)
