"""Reads topics as a stream."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from poe.spark.read_options import ReadOptions


class StreamReader(DataSourceStreamReader):
    """Plans in the driver, and reads in the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        raise NotImplementedError
