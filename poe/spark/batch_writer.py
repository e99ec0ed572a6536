"""Writes a DataFrame onto topics: all of its rows, or none where one of its tasks fails."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from poe.errors import OptionError
from poe.spark.put_batches import Batch, check_columns, put_batches
from poe.spark.retrying_socket import RetryingSocket
from poe.spark.staging import StagedRange, Staging
from poe.spark.targets import Targets, check_new
from poe.spark.write_options import WriteOptions


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task reports: which staging topic it has used, and where its rows lie there."""

    staging: Staging
    ranges: list[StagedRange]
    new: frozenset[bytes]
    """Topics that were not there, see `check_new`."""


class BatchWriter(DataSourceArrowWriter):
    """Stages in the executors, commits in the driver; see `poe.spark.staging`.

    Spark makes it once a write, in the driver, and pickles it for all else.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Check what can be checked, and open the staging topic.

        Raises:
            OptionError: the mode is overwrite.
            RowsRefused: the columns cannot be put onto a topic.
            PoeError: the server cannot be reached, or refuses.
        """
        check_write(options, schema, overwrite=overwrite)
        self._options = options
        self._epoch = options.epoch or 0
        if options.producer_id is None:
            self._staging = Staging.of_one_write(options.staging_prefix)
        else:
            self._staging = Staging.of_producer(
                options.producer_id, options.topic, options.staging_prefix
            )
        with connect(options) as server:
            self._staging.open(server)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        with connect(self._options) as server:
            return staged(self._staging, server, put_batches(iterator, self._options.topic))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Bring what all tasks have staged onto its topics."""
        with connect(self._options) as server:
            commit(self._staging, server, self._epoch, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what was staged; a named producer's stays, since a repeat may go on with it."""
        del messages
        if self._staging.is_temporary:
            with connect(self._options) as server:
                self._staging.delete(server)


def check_write(options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
    """Refuse what no topic can take.

    Raises:
        OptionError: the mode is one that replaces what is there.
        RowsRefused: the columns cannot be put onto a topic.
    """
    if overwrite:
        raise OptionError("mode", "overwrite", "append: topics only grow (poe delete empties one)")
    check_columns(schema, options.topic)


def connect(options: WriteOptions) -> RetryingSocket:
    """Return what calls the server, or one of them."""
    return RetryingSocket(options.servers, options.retry_timeout)


def staged(staging: Staging, server: RetryingSocket, puts: Iterable[tuple[bytes, Batch]]) -> Staged:
    """Stage the rows of one task, and return what it reports."""
    targets = Targets(server)
    ranges = staging.stage(server, targets.of(puts))
    return Staged(staging, ranges, frozenset(targets.new))


def commit(
    staging: Staging,
    server: RetryingSocket,
    epoch: int,
    messages: list[WriterCommitMessage | None],
) -> None:
    """Bring what all tasks have staged onto its topics, in the order of their partitions."""
    told = [message for message in messages if isinstance(message, Staged)]
    check_new(server, frozenset().union(*(message.new for message in told)))
    staging.commit(server, epoch, [each for message in told for each in message.ranges])
