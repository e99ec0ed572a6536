"""Reads topics as a table: plans in the driver, and reads in the executors."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from poe.errors import UnknownTopic
from poe.spark.arrow_batches import segment_text
from poe.spark.open_segments import open_segments
from poe.spark.planning import SegmentRange, partitions, within
from poe.spark.pushdown import Pushdown
from poe.spark.range_reader import chosen_topics, read_ranges
from poe.spark.read_options import ReadOptions
from poe.spark.segments import Segments


class BatchReader(DataSourceReader):
    """Reads what is stored when it plans; what comes later is not seen.

    It is pickled with each partition, so it holds nothing but values.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushdown = Pushdown(options.starting_pointer, options.ending_pointer)

    def partitions(self) -> Sequence[InputPartition]:
        """Return what is to be read; each partition holds a tuple of ranges.

        Raises:
            UnknownTopic: a topic that was named does not exist.
            PoeError: the folder or the server cannot be read.
        """
        options = self._options
        with closing(open_segments(options, is_known=False)) as segments:
            segments.look(options)
            ranges = self._ranges(segments)
            parts = partitions(
                ranges, segments.span, options.target_partition_bytes, options.min_partitions
            )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition; Spark's own partition of an empty table has none."""
        return read_ranges(self._options, self._schema, partition.value or ())

    def _ranges(self, segments: Segments) -> list[SegmentRange]:
        """Return what is to be read, oldest first of each topic."""
        pushdown = self._pushdown
        ranges: list[SegmentRange] = []
        for topic in chosen_topics(self._options, segments):
            if pushdown.selects(topic) and pushdown.after < pushdown.last:
                stored = self._stored(topic, segments)
                ranges += within(stored, pushdown.after, pushdown.last, segments.span)
        return ranges

    def _stored(self, topic: str, segments: Segments) -> list[SegmentRange]:
        try:
            return segments.segments(topic, self._pushdown.after)
        except UnknownTopic:
            # Others were deleted since they were listed, or were made and have no message yet.
            if topic in self._options.named_topics and not segments.place(topic).topic:
                raise
            return []


class FilteringReader(BatchReader):
    """Reads no segments that hold nothing of what the filters of a query let through.

    Good for one query: Spark 4.3 keeps what was planned with its filters, and uses it for the next
    query on the same DataFrame, and for the other side of a join, where these have no filter.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Take in filters on pointer, timestamp and topic; return the rest."""
        return self._pushdown.push(filters)


class CountsReader(BatchReader):
    """Reads how many messages each segment holds: that is known when it plans, from indexes."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition with all ranges; see `BatchReader`."""
        with closing(open_segments(self._options, is_known=False)) as segments:
            segments.look(self._options)
            return [InputPartition(tuple(self._ranges(segments)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a row for each range."""
        schema = to_arrow_schema(self._schema)
        rows = [
            {**asdict(each), "segment": segment_text(each.topic, each.segment)}
            for each in partition.value
        ]
        yield pa.RecordBatch.from_pylist(rows, schema)
