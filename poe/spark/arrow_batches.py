"""Turn records, as they lie on disk, into Arrow batches; no Python code runs per message.

Of envelopes it does: they are msgpack.
"""

from copy import copy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from poe.errors import InvalidEnvelope, OptionError
from poe.protocol.envelope import Enveloped, decode
from poe.record import RECORD_HEADER_BYTES

Numbers = npt.NDArray[np.uint64]


class Place(NamedTuple):
    """What a topic is to the one that was made with it: its own, where nobody knows better."""

    partition: int = 0
    has_envelopes: bool = False
    topic: str = ""
    """That one; empty where nobody knows it."""


class ArrowBatches:
    """Makes the batches of one schema, which may have fewer columns than there are.

    Of a topic with envelopes they are opened, if anything that is in them is wanted.
    """

    __slots__ = ("_place", "_schema")

    def __init__(self, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._place = Place()

    def begin(self, place: Place) -> None:
        """Go on with batches of another topic."""
        self._place = place

    def with_envelopes(self, has_envelopes: bool) -> "ArrowBatches":  # noqa: FBT001 - the name says it
        """Return what makes such batches of messages that were put when the topic was another."""
        made = copy(self)
        made.begin(self._place._replace(has_envelopes=has_envelopes))
        return made

    @property
    def has_messages(self) -> bool:
        """Whether anything but pointers is wanted of the records."""
        wanted = {"message", "key", "headers"} if self._place.has_envelopes else {"message"}
        return not wanted.isdisjoint(self._schema.names)

    def batch(  # noqa: PLR0913, PLR0917 - a segment, and what is read of it
        self,
        topic: str,
        segment: int,
        pointers: Numbers,
        starts: Numbers,
        data: memoryview,
        ordinal: int,
    ) -> pa.RecordBatch:
        """Return the messages of one segment as a batch.

        Args:
            topic: name of the topic.
            segment: timestamp of the segment.
            pointers: one for each record.
            starts: one more than records: where each begins in `data`.
            data: the records; not looked at where the schema has no messages.
            ordinal: of the first record; the others follow.
        """
        # 56 bits: as signed numbers they are the same bytes. So are microseconds.
        buffers = [None, pa.py_buffer(pointers)]
        numbers = pa.Array.from_buffers(pa.int64(), len(pointers), buffers)
        ordinals = pa.array(np.arange(ordinal, ordinal + len(pointers), dtype=np.int64))
        messages = _messages(starts, data) if self.has_messages else None
        return self.from_columns(topic, segment, numbers, ordinals, messages)

    def from_columns(
        self,
        topic: str,
        segment: int,
        pointers: pa.Array,
        ordinals: pa.Array,
        messages: pa.Array | None = None,
    ) -> pa.RecordBatch:
        """Return messages of one segment that are columns already, as a batch.

        Raises:
            InvalidEnvelope: of a topic with envelopes, a message is none.
        """
        same = {
            "topic": topic,
            "segment": segment_text(topic, segment),
            "partition": self._place.partition,
        }
        given = {"pointer": pointers, "timestamp": pointers, "ordinal": ordinals}
        stored: dict[str, Any] = {"message": messages}
        if self._place.has_envelopes and messages is not None:
            stored = _opened(pointers, messages)
        columns = []
        for field in self._schema:
            if field.name in same:
                column = pa.repeat(pa.scalar(same[field.name], field.type), len(pointers))
            elif field.name in given:
                column = given[field.name].view(field.type)
            elif field.name in stored:
                column = pa.array(stored[field.name], field.type)
            else:
                column = pa.nulls(len(pointers), field.type)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _opened(pointers: pa.Array, messages: pa.Array) -> dict[str, list[Any]]:
    """Return what the envelopes of messages hold; the one place that looks at each of them.

    Raises:
        InvalidEnvelope: one of them is none.
    """
    envelopes: list[Enveloped] = []
    try:
        envelopes.extend(map(decode, messages.to_pylist()))
    except InvalidEnvelope as error:
        raise InvalidEnvelope(error.problem, pointers[len(envelopes)].as_py()) from error
    return {
        "message": [each.value for each in envelopes],
        "key": [each.key for each in envelopes],
        "headers": [each.headers and list(each.headers.items()) for each in envelopes],
    }


def segment_text(topic: str, segment: int) -> str:
    """Return the value of the column `segment`."""
    return f"{topic}/{segment}"


def check_schema(schema: StructType, known: StructType) -> None:
    """Refuse columns that there are not; fewer are fine, in any order.

    Without any an Arrow batch has no rows either, and so each count would be 0.

    Raises:
        OptionError: a column is not known, has another type, or is there twice; or there is none.
    """
    types = {field.name: field.dataType for field in known}
    are_known = all(types.get(field.name) == field.dataType for field in schema)
    if not are_known or len(set(schema.names)) < max(len(schema), 1):
        allowed = "some of " + ", ".join(
            f"{name} {type_.simpleString()}" for name, type_ in types.items()
        )
        raise OptionError("schema", schema.simpleString(), allowed)


def _messages(starts: Numbers, data: memoryview) -> pa.Array:
    """Return the messages of records as a column.

    Headers and messages lie alternately, and so they are seen as one column; every second is taken.
    """
    count = len(starts) - 1
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[::2] = starts
    offsets[1::2] = offsets[:-1:2] + RECORD_HEADER_BYTES
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    both = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return both.take(pa.array(np.arange(1, 2 * count, 2, dtype=np.int32)))
