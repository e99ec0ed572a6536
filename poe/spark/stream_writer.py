"""Writes micro-batches onto topics, each of them once."""

from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from poe.spark.batch_writer import Staged, check_write, commit, connect, staged
from poe.spark.put_batches import put_batches
from poe.spark.staging import Staging
from poe.spark.write_options import WriteOptions

_QUERY_ID = "sql.streaming.queryId"
"""Local property of Spark; the id lies in the checkpoint, and stays the same for its life."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Stages in the executors, commits in the driver; see `poe.spark.staging`.

    The producer is the query, the epoch is the micro-batch. Spark makes one of these for each
    micro-batch, and another one for its commit: they share nothing but the options.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Check what can be checked.

        Raises:
            OptionError: the output mode is complete, or options of a batch write are given.
            RowsRefused: the columns cannot be put onto a topic.
        """
        check_write(options, schema, overwrite=overwrite)
        options.check_stream()
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        query_id = context.getLocalProperty(_QUERY_ID)
        assert query_id is not None
        staging = Staging(UUID(query_id).bytes, prefix=self._options.staging_prefix)
        with connect(self._options) as server:
            staging.open(server)
            return staged(staging, server, put_batches(iterator, self._options.topic))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Bring what all tasks have staged onto its topics."""
        stagings = {message.staging for message in messages if isinstance(message, Staged)}
        with connect(self._options) as server:
            for staging in stagings:  # one, or none where there was no task
                commit(staging, server, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave all as it is: the micro-batch is tried again, perhaps with what is staged here."""
