"""Measures the bars of the Spark data source on `local[2]`, beside the same work on Parquet.

One run, one session, one server, one topic. What is compared is measured in turns within a round,
and a ratio is the median of the ratios of the rounds; a round before them warms everything up and
is not counted. Every result is compared with what it should be.

usage: python -m bench.spark [--messages N] [--segments N] [--rounds N] [--write-docs]
"""

import argparse
import contextlib
import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.streaming.listener import StreamingQueryProgress

import poe
from bench import processes
from bench.build import ROOT
from bench.processes import HOST, Running
from bench.row import Row, Sample, Summary, as_figure, as_table, rows_of
from bench.run import machine, write_document
from bench.sealed import write_sealed_segments
from bench.spark_planning import planned
from poe.spark import session

DOCUMENT = ROOT / "docs" / "spark.md"
TOPIC, SEGMENTS_TOPIC = "source", "segments"
MESSAGE_BYTES = 100
BATCH = 1000
MICRO_BATCHES = 10
WARM_UP = 2
"""Micro-batches that do not count: Spark compiles in them."""

CONFIG = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
SCHEMAS = {"pointer": "pointer bigint", "message": "message binary"}
"""Column that is aggregated -> what is read. Parquet's reader finds that out by itself."""


@dataclass(frozen=True, slots=True)
class Work:
    """What all measurements share."""

    spark: SparkSession
    server: Running
    folder: Path
    checksum: tuple[int, int]
    """Of the topic's messages, and of the rows of the Parquet files."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    """Of reads: what -> messages per second, round by round."""

    @property
    def count(self) -> int:
        """Messages of the topic."""
        return self.checksum[0]

    @property
    def address(self) -> dict[str, str]:
        """Options of the server."""
        return {"host": HOST, "port": str(self.server.port)}

    @property
    def base(self) -> dict[str, str]:
        """Options of the folder."""
        return {"path": str(self.folder / "data")}

    @property
    def parquet(self) -> str:
        """Where the same rows lie as Parquet."""
        return str(self.folder / "parquet")

    def topic(self, options: dict[str, str], topic: str = TOPIC, schema: str = "") -> DataFrame:
        """A topic as a table."""
        reader = self.spark.read.format("poe").options(topic=topic, **options)
        return (reader.schema(schema) if schema else reader).load()

    def rate(self, name: str, frame: DataFrame, column: str) -> float:
        """Messages per second of the query, whose count is checked."""
        begun = time.perf_counter()
        ((count, _),) = frame.agg(F.count("*"), F.max(column)).collect()
        rate = self.count / (time.perf_counter() - begun)
        expect(count, self.count)
        self.rates.setdefault(f"{name}, max({column})", []).append(rate)
        return rate


def expect(found: object, expected: object) -> None:
    """Stop at the first wrong result: its rate would mean nothing.

    Raises:
        RuntimeError: they differ.
    """
    if found != expected:
        msg = f"found {found} instead of {expected}"
        raise RuntimeError(msg)


def measure_round(work: Work, number: int, segment_count: int) -> list[Sample]:
    """All bars, once."""
    return [
        *read_samples(work, number),
        write_sample(work, number),
        copy_sample(work, number),
        *planning_samples(work, segment_count),
    ]


def read_samples(work: Work, number: int) -> Iterator[Sample]:
    """Batch reads beside Parquet, and the stream read beside the batch read."""
    socket = 0.0
    for column, schema in SCHEMAS.items():
        parquet = work.rate("Parquet", work.spark.read.parquet(work.parquet), column)
        socket = work.rate("socket", work.topic(work.address, schema=schema), column)
        path = work.rate("path", work.topic(work.base, schema=schema), column)
        name = f"count and max({column})"
        yield Sample.at_least(f"batch read, socket, {name}", socket / parquet, "× Parquet", 0.25)
        yield Sample.at_least(f"batch read, path, {name}", path / parquet, "× Parquet", 0.35)
    inside, whole = stream_rates(work, number)
    name = "stream read, availableNow, max(message)"
    yield Sample.at_least(f"{name}: micro-batch", inside / socket, "× batch read", 0.6)
    yield Sample.at_least(f"{name}: start to end", whole / socket, "× batch read", 0.6)


def stream_rates(work: Work, number: int) -> tuple[float, float]:
    """Messages per second of the same query: of its micro-batch, and with its start and its end.

    The start of any stream with a source in Python takes a process of Python of its own.
    """
    found: list[int] = []

    def aggregate(frame: DataFrame, _: int) -> None:
        ((count, _greatest),) = frame.agg(F.count("*"), F.max("message")).collect()
        found.append(count)

    stream = work.spark.readStream.format("poe").options(topic=TOPIC, **work.address)
    writer = stream.schema(SCHEMAS["message"]).load().writeStream.foreachBatch(aggregate)
    begun = time.perf_counter()
    writer = writer.option("checkpointLocation", f"{work.folder}/read-{number}")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    whole_s = time.perf_counter() - begun
    expect(sum(found), work.count)
    inside_s = trigger_seconds(query.recentProgress)
    work.rates.setdefault("stream, max(message)", []).append(work.count / inside_s)
    return work.count / inside_s, work.count / whole_s


def trigger_seconds(progress: list[StreamingQueryProgress]) -> float:
    """What micro-batches took, from the look for new messages to the commit."""
    return float(sum(each["durationMs"]["triggerExecution"] for each in progress)) / 1000


def write_sample(work: Work, number: int) -> Sample:
    """Rows of Parquet onto a new topic."""
    topic = f"written-{number}"
    rows = work.spark.read.parquet(work.parquet).select("message")
    writer = rows.write.format("poe").options(topic=topic, **work.address).mode("append")
    begun = time.perf_counter()
    writer.save()
    rate = work.count / (time.perf_counter() - begun)
    check_and_delete(work, topic)
    return Sample.at_least("batch write", rate, "messages / s", 300_000)


def copy_sample(work: Work, number: int) -> Sample:
    """A topic onto another, in micro-batches that follow each other at once."""
    topic = f"copied-{number}"
    stream = work.spark.readStream.format("poe").options(
        topic=TOPIC, maxMessagesPerTrigger=work.count // MICRO_BATCHES, **work.address
    )
    writer = stream.load().select("message").writeStream.format("poe")
    query = (
        writer.options(topic=topic, **work.address)
        .option("checkpointLocation", f"{work.folder}/copy-{number}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    steady = [each for each in query.recentProgress if each["numInputRows"]][WARM_UP:]
    rows = sum(each["numInputRows"] for each in steady)
    check_and_delete(work, topic)
    return Sample.at_least(
        "stream, topic → topic, steady state",
        rows / trigger_seconds(steady),
        "messages / s",
        150_000,
    )


def check_and_delete(work: Work, topic: str) -> None:
    """Compare what was written with what should be there: each message of the source, once."""
    expect(checksum(work.topic(work.address, topic, SCHEMAS["message"])), work.checksum)
    with poe.protocol.socket(HOST, work.server.port) as socket:
        socket.delete(topic)


def checksum(frame: DataFrame) -> tuple[int, int]:
    """How many messages, and a sum over all of them that does not depend on their order."""
    hashes = F.sum(F.xxhash64("message").cast("decimal(38)"))
    ((count, total),) = frame.agg(F.count("*"), hashes).collect()
    return count, int(total)


def planning_samples(work: Work, segment_count: int) -> Iterator[Sample]:
    """Time and memory of a plan: of the process that makes it, and of the driver that gets it."""
    for name, options in (("socket", work.address), ("path", work.base)):
        what = f"planning {segment_count:,} segments, {name}"
        seconds, megabytes = planned(SEGMENTS_TOPIC, **options)
        yield Sample.at_most(f"{what}: time", seconds, "s", 2)
        yield Sample.at_most(f"{what}: memory of the planner", megabytes, "MB more", 50)
        before = heap_megabytes(work.spark)
        begun = time.perf_counter()
        rdd = work.topic(options, SEGMENTS_TOPIC).rdd
        rdd.getNumPartitions()
        seconds = time.perf_counter() - begun
        yield Sample.at_most(f"{what}: time with Spark", seconds, "s", 2)
        yield Sample.at_most(
            f"{what}: Spark's heap", heap_megabytes(work.spark) - before, "MB more", 50
        )


def heap_megabytes(spark: SparkSession) -> float:
    """What is alive in the driver's heap."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to the runtime
    assert jvm is not None
    runtime = jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


def fill(port: int, count: int) -> None:
    """Put messages of random letters, which no compression makes much smaller."""
    random = np.random.default_rng(1)
    sizes = (min(BATCH, count - begin) for begin in range(0, count, BATCH))
    batches = (random.integers(97, 123, (size, MESSAGE_BYTES), np.uint8) for size in sizes)
    with poe.protocol.socket(HOST, port) as socket:
        for _ in socket.write_batches(TOPIC, batches):
            pass


@contextlib.contextmanager
def prepared(arguments: argparse.Namespace, folder: Path) -> Iterator[Work]:
    """Serve a filled topic and ten thousand sealed segments, and write the same rows as Parquet."""
    write_sealed_segments(folder / "data", SEGMENTS_TOPIC, arguments.segments, 10, MESSAGE_BYTES)
    spark = session("bench", "local[2]", **CONFIG)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with processes.poe(folder / "data") as server:
            fill(server.port, arguments.messages)
            work = Work(spark, server, folder, (arguments.messages, 0))
            work.topic(work.address).write.parquet(work.parquet)
            found = checksum(spark.read.parquet(work.parquet))
            expect(found[0], arguments.messages)
            yield dataclasses.replace(work, checksum=found)
    finally:
        spark.stop()


def measure(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, list[float]]]:
    """All rounds; the rows of the bars, and the rates of the reads behind them."""
    rounds = []
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as name,
        prepared(arguments, Path(name)) as work,
    ):
        for number in range(arguments.rounds + 1):
            samples = measure_round(work, number, arguments.segments)
            if number == 0:
                work.rates.clear()
                continue
            rounds.append(samples)
            print(f"round {number} of {arguments.rounds}", file=sys.stderr, flush=True)
    return rows_of(rounds), work.rates


def as_document(rows: list[Row], rates: dict[str, list[float]], count: int) -> str:
    """Both tables, and how they came about."""
    millions = {name: Summary(tuple(each / 1e6 for each in rate)) for name, rate in rates.items()}
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')} by `python -m bench.spark`: {machine()},",
        f"PySpark {pyspark.__version__}, {count:,} messages of {MESSAGE_BYTES} bytes;",
        "server, driver and executors on the same machine.",
        "",
        *as_table(rows),
        "",
        "| read | millions of messages per second | least … greatest |",
        "|---|---|---|",
        *(f"| {name} | {as_figure(of.median)} | {of.spread()} |" for name, of in millions.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--segments", type=int, default=10_000, help="that are planned")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write-docs", action="store_true", help="refresh docs/spark.md")
    arguments = parser.parse_args()
    processes.interrupt_once()
    rows, rates = measure(arguments)
    document = as_document(rows, rates, arguments.messages)
    print(document)
    if arguments.write_docs:
        write_document(document, DOCUMENT)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
