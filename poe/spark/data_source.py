"""The data source `poe`: the one class that Spark knows; each part of it is a class of its own.

Spark pickles an instance of it to each Python process that plans, reads or writes. It holds
nothing but the options, as the user has written them.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from poe.errors import OptionError
from poe.spark import option_text
from poe.spark.arrow_batches import check_schema
from poe.spark.batch_reader import BatchReader, CountsReader, FilteringReader
from poe.spark.options import check_options
from poe.spark.read_options import ReadOptions
from poe.spark.stream_reader import RefusedStream, StreamReader
from poe.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from poe.spark.batch_writer import BatchWriter
    from poe.spark.stream_writer import StreamWriter

SCHEMA = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("pointer", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("message", BinaryType(), nullable=True),
        StructField("ordinal", LongType(), nullable=True),
        StructField("partition", IntegerType(), nullable=False),
        StructField("key", BinaryType(), nullable=True),
        StructField("headers", MapType(StringType(), BinaryType()), nullable=True),
    ]
)
"""An archive of an older version knows no ordinals. Keys and headers there are only of topics with
envelopes; there a message may be null, a tombstone."""
FULL_SCHEMA = StructType([*SCHEMA, StructField("segment", StringType(), nullable=False)])
"""With `includeSegment`, since the Python API has no metadata columns."""
COUNTS_SCHEMA = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("segment", StringType(), nullable=False),
        StructField("first", LongType(), nullable=False),
        StructField("last", LongType(), nullable=False),
        StructField("count", LongType(), nullable=False),
        StructField("bytes", LongType(), nullable=False),
    ]
)
"""With `counts`, since the Python API tells nobody that a query only counts."""


class PoeDataSource(DataSource):
    """Topics as tables and streams; `poe.spark.register` hands it to a session."""

    @classmethod
    def name(cls) -> str:
        """Return what goes into `format(…)`."""
        return "poe"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Refuse options that no read and no write has.

        Spark makes an object when a table or a stream is loaded. What it refuses later, when a
        stream starts, it tells as an error of its own (UnboundLocalError).

        Raises:
            UnknownOption: the name of one; the error has the nearest that there is.
            OptionError: a value that is not allowed.
        """
        super().__init__(options)
        check_options(options)

    def schema(self) -> StructType:
        """Return all columns; who gives a schema of fewer reads no others."""
        if self._is_set("counts"):
            return COUNTS_SCHEMA
        return FULL_SCHEMA if self._is_set("includeSegment") else SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        """Return what reads topics as a table."""
        options = ReadOptions.parse(self.options, "batch")
        check_schema(schema, COUNTS_SCHEMA if options.counts else FULL_SCHEMA)
        if options.counts:
            return CountsReader(options, schema)
        return (FilteringReader if options.filter_pushdown else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads topics as a stream."""
        try:
            options = ReadOptions.parse(self.options, "stream")
            check_schema(schema, FULL_SCHEMA)
            return StreamReader(options, schema)
        except OptionError as error:
            return RefusedStream(error)

    # Writers load Arrow's kernels, and with them pandas: 0.2 s for each of the processes that Spark
    # starts for a read, which does not need them.

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":  # noqa: FBT001 - Spark's
        """Return what writes a table onto topics.

        Raises:
            OptionError: there is no option, so that this may be a table in Spark's catalog; the
                server that its options name would not get the rows.
        """
        from poe.spark.batch_writer import BatchWriter  # noqa: PLC0415

        if not self.options:
            allowed = "topic, or an option that names the server; instead of INSERT use df.write: "
            raise OptionError("topic", None, allowed + option_text.NOT_HANDED_ON)
        return BatchWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: FBT001, N802
        """Return what writes a stream onto topics."""
        from poe.spark.stream_writer import StreamWriter  # noqa: PLC0415

        return StreamWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    def _is_set(self, option: str) -> bool:
        return self.options.get(option, "").lower() == "true"
