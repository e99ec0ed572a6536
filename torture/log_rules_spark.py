"""A history of replicated topics that is too large for one process, judged by Spark.

usage: python -m torture.log_rules_spark FILE…

It prints what breaks the rules, and exits with 1 if anything does, with 2 if it cannot read.

The rules are the functions of `torture/log_rules.py`, each of which judges parts of the history as
it would a whole one. Those that ask what became of puts get all that concerns the messages of one
client; those that compare what was seen, all that was seen of a topic between two pointers. The
messages of one client, and those of a part of a topic, have to fit into memory.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from torture.cluster_rules_spark import judge_files
from torture.log_history import Row, from_rows
from torture.log_rules import RULES, SHOWN_MAX

_TRY: Final = (
    "node: string, asked_us: long, outcome: string, pointer: long, answered_us: double, why: string"
)
_RECORDS: Final = "array<struct<pointer: long, message: string>>"
_SCHEMA: Final = (
    "kind string, topic string, node string, client string, number long, is_sequenced boolean, "
    f"messages array<string>, tries array<struct<{_TRY}>>, at_us long, after long, `end` long, "
    f"begin long, records {_RECORDS}, pointer long, ended_us double, first_ordinal long, "
    "files map<string, string>, what string"
)
_FOUND: Final = "rule string, what string"

OF_CLIENTS: Final = (
    *("missing", "disordered", "refused, and there", "halved or twice", "invented", "overlooked"),
)
"""Rules that ask for the messages of a client, wherever they were seen."""
OF_PLACES: Final = ("two values", "unequal", "taken back")
"""Rules that compare what was seen at the same pointers."""
OF_ROWS: Final = ("falling", "stuck")
"""Rules that a row breaks, or it and the one before."""

PART_COUNT: Final = 100_000
"""Records that one part of a topic has, about, of all copies and reads."""
_POINTER_MAX: Final = 2**62


def read_history(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """Read files: the rows, and the `place` of each. Spark keeps them until `unpersist`.

    Raises:
        ValueError: a line is no row.
    """
    files = [str(path.absolute()) for path in paths]
    unread = "unread"
    lines = spark.read.schema(f"{_SCHEMA}, {unread} string").json(
        files, columnNameOfCorruptRecord=unread
    )
    read = lines.withColumn("place", F.monotonically_increasing_id()).persist()
    first = read.where(F.col(unread).isNotNull() | F.col("kind").isNull()).first()
    if first is not None:
        read.unpersist()
        raise ValueError(f"{first[unread] or first} is no row of a history")
    return read.drop(unread)


def broken(read: DataFrame) -> DataFrame:
    """Return what breaks the rules: the `rule`, and `what` breaks it, a sentence; each once."""
    rows = _of_last_topics(read)
    return _of_clients(rows).unionByName(_of_places(rows)).unionByName(_of_rows(rows)).distinct()


def _of_last_topics(read: DataFrame) -> DataFrame:
    """Return the rows, without reads of topics that were deleted later.

    Of what was deleted and trimmed there is a row for each topic, the last one. A topic that lets
    go of its oldest segments by itself is trimmed as far as one copy says.
    """
    ended_us = F.max(F.coalesce("ended_us", F.lit(float(_POINTER_MAX)))).alias("ended_us")
    deletes = read.where("kind = 'delete'").groupBy("topic").agg(ended_us)
    since = deletes.withColumnRenamed("ended_us", "since_us")
    rows = read.where("kind NOT IN ('delete', 'trim', 'shrinking')")
    rows = rows.join(F.broadcast(since), "topic", "left")
    rows = rows.where("kind <> 'read' OR since_us IS NULL OR at_us > since_us").drop("since_us")
    shrinking = read.where("kind = 'shrinking'").select("topic")
    held = read.where("kind = 'held'").join(F.broadcast(shrinking), "topic", "left_semi")
    oldest = F.min_by("records", "begin")[0]["pointer"]
    let_go = held.groupBy("topic", "node").agg((oldest - 1).alias("pointer")).drop("node")
    trims = read.where("kind = 'trim'").select("topic", "pointer").unionByName(let_go)
    trims = trims.groupBy("topic").agg(F.max("pointer").alias("pointer"))
    for kind, place, each in (("delete", -1, deletes), ("trim", -2, trims)):
        told = each.withColumns({"kind": F.lit(kind), "place": F.lit(place)})
        rows = rows.unionByName(told, allowMissingColumns=True)
    return rows


def _of_clients(rows: DataFrame) -> DataFrame:
    """Judge by clients what became of their messages."""
    puts = rows.where("kind = 'put'")
    names = puts.select("client", F.explode("messages").alias("message"))
    names = names.groupBy("message").agg(F.min("client").alias("part"))
    seen = _each_record(rows).withColumn("message", F.col("record.message"))
    seen = seen.join(names, "message", "left").drop("message").fillna("", ["part"])
    parts = puts.select("topic", F.col("client").alias("part"))
    parts = parts.unionByName(seen.select("topic", "part")).distinct()
    shared = rows.where("kind IN ('copy', 'trim', 'delete')").join(parts, "topic")
    own = puts.withColumn("part", F.col("client"))
    return _judged(own.unionByName(shared), seen, ["part"], OF_CLIENTS)


def _of_places(rows: DataFrame) -> DataFrame:
    """Judge what was seen of each topic, part by part."""
    seen = _each_record(rows)
    parts = _parts(seen, rows)
    pointer = F.col("record.pointer")
    seen = seen.join(F.broadcast(parts), "topic").where(_within(pointer, pointer))
    shared = rows.where("kind IN ('copy', 'trim', 'delete')").join(F.broadcast(parts), "topic")
    reads = rows.where("kind = 'read'").join(F.broadcast(parts), "topic")
    reads = reads.where(_within(F.col("after") + 1, F.col("end"))).withColumns(
        {
            "after": F.greatest("after", F.col("low") - 1),
            "end": F.least("end", F.col("high") - 1),
            "records": F.array().cast(_RECORDS),
        }
    )
    whole = shared.unionByName(reads).drop("low", "high")
    return _judged(whole, seen.drop("low", "high"), ["topic", "part"], OF_PLACES)


def _parts(seen: DataFrame, rows: DataFrame) -> DataFrame:
    """Return for each `topic` its parts: what has pointers from `low` on, before `high`."""
    counts = seen.groupBy("topic").agg(
        F.count("*").alias("count"), F.percentile_approx("record.pointer", _STEPS).alias("steps")
    )
    topics = rows.where("topic IS NOT NULL").select("topic").distinct()
    found: list[tuple[str, int, int, int]] = []
    for topic, count, steps in topics.join(counts, "topic", "left").collect():
        parts_count = min(-(-(count or 1) // PART_COUNT), len(_STEPS) + 1)
        chosen = {steps[n * len(_STEPS) // parts_count] for n in range(1, parts_count)}
        bounds = [0, *sorted(chosen), _POINTER_MAX]
        found += [(topic, n, *bounds[n : n + 2]) for n in range(len(bounds) - 1)]
    return rows.sparkSession.createDataFrame(found, "topic string, part int, low long, high long")


_STEPS: Final = [n / 1000 for n in range(1, 1000)]


def _within(first: Column, last: Column) -> Column:
    return (first < F.col("high")) & (last >= F.col("low"))


def _each_record(rows: DataFrame) -> DataFrame:
    """Return a row for each `record` that was seen, in the order of `position` in each row."""
    each = F.posexplode("records").alias("position", "record")
    columns = ["kind", "topic", "node", "at_us", "after", "end", "begin", "place"]
    return rows.where("kind IN ('read', 'held')").select(*columns, each)


def _judged(
    whole: DataFrame, seen: DataFrame, by: Sequence[str], rules: Sequence[str]
) -> DataFrame:
    """Judge each part of some rows and records by some rules."""

    def judge(part: pa.Table) -> pa.Table:
        return _told(_found(_joined(part.to_pylist()), rules))

    whole = whole.withColumns({"position": F.lit(-1)})
    rows = whole.unionByName(seen, allowMissingColumns=True)
    return rows.groupBy(*by).applyInArrow(judge, _FOUND)


def _joined(rows: list[dict[str, Any]]) -> Iterator[Row]:
    """Yield rows, each with all of its records that there are in a part."""
    rows.sort(key=itemgetter("place", "position"))
    for _, group in groupby(rows, key=itemgetter("place")):
        same = list(group)
        records = [row["record"] for row in same if row["record"] is not None]
        yield same[0] | ({"records": records} if records else {})


def _of_rows(rows: DataFrame) -> DataFrame:
    """Judge rows alone: their pointers rise, also from the row before of the same copy."""
    own = Window.partitionBy(
        "kind", "topic", "node", F.when(F.col("kind") == "read", F.col("place"))
    )
    before = F.lag(F.slice("records", -1, 1)).over(own.orderBy("begin"))
    reads = rows.where("kind IN ('read', 'held') AND size(records) > 0")
    reads = reads.withColumn(
        "records", F.concat(F.coalesce(before, F.array().cast(_RECORDS)), "records")
    )
    stuck = rows.where("kind = 'stuck'")

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [each for row in batch.to_pylist() for each in _found([_alone(row)], OF_ROWS)]
            yield from _told(found).to_batches()

    return reads.unionByName(stuck).mapInArrow(judge, _FOUND)


def _alone(row: dict[str, Any]) -> Row:
    """Return a row that is judged without others: what a copy holds, as if it had been read."""
    return (
        row | {"kind": "read", "at_us": 0, "after": 0, "end": 0} if row["kind"] == "held" else row
    )


def _found(rows: Iterable[Row], rules: Sequence[str]) -> list[tuple[str, str]]:
    judged = from_rows(rows).judged()
    return [(name, what) for name in rules for what in RULES[name](judged)]


def _told(found: list[tuple[str, str]]) -> pa.Table:
    names, sentences = zip(*found, strict=True) if found else ((), ())
    return pa.table({"rule": pa.array(names, "string"), "what": pa.array(sentences, "string")})


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the history in some files."""
    return judge_files("log rules", read_history, broken, SHOWN_MAX, arguments)


if __name__ == "__main__":
    sys.exit(main())
