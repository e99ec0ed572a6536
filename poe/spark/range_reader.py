"""What batch and stream have in common: choosing topics, reading a partition, and lost messages."""

import gc
import logging
from collections.abc import Iterator
from contextlib import closing
from functools import cache

import pyarrow as pa
from pyspark.sql.types import StructType

from poe.errors import DataLost
from poe.spark.arrow_batches import ArrowBatches, Place
from poe.spark.open_segments import open_segments
from poe.spark.planning import SegmentRange
from poe.spark.read_options import ReadOptions
from poe.spark.segments import Segments

_log = logging.getLogger(__name__)


def chosen_topics(options: ReadOptions, segments: Segments) -> list[str]:
    """Return the topics to read, sorted; those that are named, whether they exist or not."""
    if options.topic_pattern is None:
        return sorted({part for each in options.named_topics for part in segments.partitions(each)})
    return [topic for topic in segments.topics() if options.selects(topic)]


def read_ranges(
    options: ReadOptions, schema: StructType, ranges: tuple[SegmentRange, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of some ranges; runs in an executor.

    Raises:
        DataLost: messages were deleted after they were planned to be read, and that is a failure.
        NodeIsBehind: no server that can be asked has come so far for too long.
        CorruptRecord: what is stored is not what was written.
        PoeError: the server's refusal, or it is away for too long.
    """
    _spare_collections()
    batches = ArrowBatches(schema)
    places: dict[str, Place] = {}
    with closing(open_segments(options, is_known=True)) as segments:
        for whole in ranges:
            reached = whole.first - 1
            segments.expect(whole.topic, whole.last)
            if whole.topic not in places:
                places[whole.topic] = segments.place(whole.topic)
            batches.begin(places[whole.topic])
            for last, batch in segments.batches(whole, batches):
                reached = last
                yield batch
            if reached < whole.last:
                report_lost(options, DataLost(whole.topic.encode(), reached + 1, whole.last))


@cache
def _spare_collections() -> None:
    """Leave all that is imported out of garbage collections.

    PySpark's worker makes a full one after each task: 55 ms, twice what reading 16 MiB takes.
    """
    gc.freeze()


def report_lost(options: ReadOptions, lost: DataLost) -> None:
    """Fail, or warn, as the option `failOnDataLoss` says.

    Raises:
        DataLost: it is to fail.
    """
    if options.fail_on_data_loss:
        raise lost
    _log.warning("%s", lost)
