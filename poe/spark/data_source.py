"""The data source `poe`: the one class that Spark knows; each part of it is a class of its own.

Spark pickles an instance of it to each Python process that plans, reads or writes. It holds
nothing but the options, as the user has written them.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from poe.spark.batch_reader import BatchReader
from poe.spark.read_options import ReadOptions
from poe.spark.stream_reader import StreamReader

SCHEMA = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("pointer", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("message", BinaryType(), nullable=False),
    ]
)
SEGMENT_FIELD = StructField("segment", StringType(), nullable=False)
"""Comes last, with `includeSegment`: the Python API has no metadata columns."""


class PoeDataSource(DataSource):
    """Topics as tables and streams; register it with `spark.dataSource.register(PoeDataSource)`."""

    @classmethod
    def name(cls) -> str:
        """Return what goes into `format(…)`."""
        return "poe"

    def schema(self) -> StructType:
        """Return all columns; who gives a schema of fewer reads no others."""
        options = ReadOptions.parse(self.options)
        return StructType([*SCHEMA, SEGMENT_FIELD]) if options.include_segment else SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        """Return what reads topics as a table."""
        return BatchReader(ReadOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Return what reads topics as a stream."""
        return StreamReader(ReadOptions.parse(self.options), schema)
