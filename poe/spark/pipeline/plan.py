"""From definitions to Spark: the DataFrame of a table, and the writer of a sink, not started yet.

Each query gets a session of its own in the one Spark application, so that the views of one never
meet those of another.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from poe.errors import InvalidPipeline
from poe.spark.data_source import PoeDataSource
from poe.spark.pipeline.definitions import AVAILABLE_NOW, TOPIC_FORMAT, Sink, Source, Step
from poe.spark.pipeline.file import resolve
from poe.spark.pipeline.parsing import parse
from poe.spark.pipeline.pipeline import Pipeline

_REASON_MAX = 1000


def writer(
    pipeline: Pipeline,
    sink: Sink,
    spark: SparkSession,
    *,
    broker: Mapping[str, str],
    available_now: bool = False,
) -> DataStreamWriter:
    """Return what starts the query of a sink; `broker` is host and port of topics without any.

    Raises:
        InvalidPipeline: Spark refuses it; told with the source, step or sink.
    """
    session = spark.newSession()
    session.dataSource.register(PoeDataSource)
    tables: dict[str, DataFrame] = {}
    for table in pipeline.needed_by(sink):
        if isinstance(table, Source):
            with _telling(f"sources.{table.name}"):
                frame = _source(table, session, broker)
        else:
            with _telling(f"steps.{table.name}"):
                inputs = [tables[name] for name in table.inputs(pipeline.tables)]
                frame = _step(table, session, inputs)
        frame.createOrReplaceTempView(table.name)
        tables[table.name] = frame
    with _telling(f"sinks.{sink.name}"):
        made = _sink(pipeline, sink, tables[sink.takes], broker)
        trigger = AVAILABLE_NOW if available_now else sink.trigger
        if trigger == AVAILABLE_NOW:
            made = made.trigger(availableNow=True)
        elif trigger is not None:
            made = made.trigger(processingTime=trigger)
    return made


def _source(source: Source, session: SparkSession, broker: Mapping[str, str]) -> DataFrame:
    options = _topic_options(source.options, source.topic, broker, source.format)
    reader = session.readStream.format(source.format).options(**options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return _finish(reader.load(), source)


def _step(step: Step, session: SparkSession, inputs: list[DataFrame]) -> DataFrame:
    if step.function is not None:
        frame: Any = step.function(*inputs)
        if not isinstance(frame, DataFrame):
            msg = f"its function returned {type(frame).__name__}; let it return a DataFrame"
            raise TypeError(msg)
    elif step.sql is not None:
        frame = session.sql(step.sql)
    else:
        frame = inputs[0]
    return _finish(frame, step)


def _finish(frame: DataFrame, table: Source | Step) -> DataFrame:
    if table.parse is not None:
        frame = parse(frame, table.parse)
    if table.watermark is not None:
        frame = frame.withWatermark(table.watermark.column, table.watermark.delay)
    return frame


def _sink(
    pipeline: Pipeline, sink: Sink, frame: DataFrame, broker: Mapping[str, str]
) -> DataStreamWriter:
    if not frame.isStreaming:
        msg = "what it takes is no stream; a function made a table of it, or read one"
        raise TypeError(msg)
    made = frame.writeStream.outputMode(sink.mode).queryName(sink.name)
    made = made.option("checkpointLocation", f"{pipeline.checkpoint}/{sink.name}")
    if sink.function is not None:
        return made.foreachBatch(sink.function)
    format_name = sink.format or TOPIC_FORMAT
    if format_name == TOPIC_FORMAT and "message" not in frame.columns:
        msg = "a topic needs a column message; let SQL end in `to_json(struct(*)) AS message`"
        raise TypeError(msg)
    options = _topic_options(sink.options, sink.topic, broker, format_name)
    if sink.path is not None:
        options["path"] = resolve(pipeline.file, sink.path)
    made = made.format(format_name).options(**options)
    return made.partitionBy(*sink.partition_by) if sink.partition_by else made


def _topic_options(
    options: Mapping[str, object], topic: str | None, broker: Mapping[str, str], format_name: str
) -> dict[str, Any]:
    """Add the topic, and the broker where the format is ours and the options name none."""
    made = dict(options)
    if topic is not None:
        made["topic"] = topic
    if format_name == TOPIC_FORMAT and not {"host", "port", "path"} & {key.lower() for key in made}:
        made |= broker
    return made


@contextmanager
def _telling(place: str) -> Iterator[None]:
    """Say where in a pipeline Spark or a user's function has raised something."""
    try:
        yield
    except Exception as error:
        raise InvalidPipeline(place, reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """Return what an error says to a person: without Java's stack and without Spark's plans."""
    told = str(error).partition("\n\nJVM stacktrace:")[0].partition("\n\tat ")[0]
    lines: list[str] = []
    for line in told.splitlines():
        if line.startswith(("'", "+-", "=== Streaming Query", "== Physical")) and lines:
            break
        if line.strip():
            lines.append(line.strip())
    kind = "" if type(error).__module__.startswith("pyspark") else f"{type(error).__name__}: "
    return (kind + " ".join(lines))[:_REASON_MAX]
