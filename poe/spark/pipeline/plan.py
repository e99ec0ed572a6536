"""From definitions to Spark: the DataFrame of a table, and the writer of a sink, not started yet.

Tables are views of the session while a plan is made, and only then: the views of two plans that
were made at once could mix, and a query would find other sources in its checkpoint than it has.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from poe.errors import InvalidPipeline
from poe.spark.pipeline.definitions import AVAILABLE_NOW, TOPIC_FORMAT, Sink, Source, Step
from poe.spark.pipeline.parsing import parse
from poe.spark.pipeline.pipeline import Pipeline
from poe.spark.put_batches import check_columns
from poe.spark.reason import reason_of
from poe.spark.server_options import names_server
from poe.spark.write_options import WriteOptions

_making = Lock()


def writer(
    pipeline: Pipeline,
    sink: Sink,
    spark: SparkSession,
    *,
    server: Mapping[str, str],
    available_now: bool = False,
) -> DataStreamWriter:
    """Return what starts the query of a sink, in this thread.

    `server` are the options that name the server of topics whose own options name none.

    Raises:
        InvalidPipeline: Spark refuses it; told with the source, step or sink.
    """
    # Spark looks for the source `poe` in the session that is active in the thread that starts a
    # query, and not in the query's own. PySpark has no public name for it.
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    tables: dict[str, DataFrame] = {}
    with _making:
        try:
            for table in pipeline.needed_by(sink):
                tables[table.name] = _table(table, pipeline, spark, tables, server)
                tables[table.name].createOrReplaceTempView(table.name)
        finally:
            for name in tables:
                spark.catalog.dropTempView(name)
    with _telling(f"sinks.{sink.name}"):
        made = _sink(pipeline, sink, tables[sink.takes], server)
        trigger = AVAILABLE_NOW if available_now else sink.trigger
        if trigger == AVAILABLE_NOW:
            made = made.trigger(availableNow=True)
        elif trigger is not None:
            made = made.trigger(processingTime=trigger)
    return made


def _table(
    table: Source | Step,
    pipeline: Pipeline,
    spark: SparkSession,
    tables: Mapping[str, DataFrame],
    server: Mapping[str, str],
) -> DataFrame:
    if isinstance(table, Source):
        with _telling(f"sources.{table.name}"):
            return _source(table, pipeline, spark, server)
    with _telling(f"steps.{table.name}"):
        return _step(table, spark, [tables[name] for name in table.inputs(pipeline.tables)])


def _source(
    source: Source, pipeline: Pipeline, spark: SparkSession, server: Mapping[str, str]
) -> DataFrame:
    options = _options(source, source.format, pipeline, server)
    reader = spark.readStream.format(source.format).options(**options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return _finish(reader.load(), source)


def _step(step: Step, spark: SparkSession, inputs: list[DataFrame]) -> DataFrame:
    if step.function is not None:
        frame: Any = step.function(*inputs)
        if not isinstance(frame, DataFrame):
            msg = f"its function returned {type(frame).__name__}; let it return a DataFrame"
            raise TypeError(msg)
    elif step.sql is not None:
        frame = spark.sql(step.sql)
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
    pipeline: Pipeline, sink: Sink, frame: DataFrame, server: Mapping[str, str]
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
    options = _options(sink, format_name, pipeline, server)
    if format_name == TOPIC_FORMAT:
        check_columns(frame.schema, WriteOptions.parse(options).topic)
    made = made.format(format_name).options(**options)
    return made.partitionBy(*sink.partition_by) if sink.partition_by else made


def _options(
    end: Source | Sink, format_name: str, pipeline: Pipeline, server: Mapping[str, str]
) -> dict[str, Any]:
    """Add topic and path, and for a topic the server where the options name none."""
    options: dict[str, Any] = pipeline.located_options(end.options)
    if end.topic is not None:
        options["topic"] = end.topic
    if end.path is not None:
        options["path"] = pipeline.located(end.path)
    has_place = names_server(options) or "path" in map(str.lower, options)
    if format_name == TOPIC_FORMAT and not has_place:
        options |= server
    return options


@contextmanager
def _telling(place: str) -> Iterator[None]:
    """Say where in a pipeline Spark or a user's function has raised something."""
    try:
        yield
    except Exception as error:
        raise InvalidPipeline(place, reason_of(error)) from error
