"""A cluster's history that is too large for one process, judged by Spark with the same rules.

usage: python -m torture.cluster_rules_spark FILE…

It prints what breaks the rules, and exits with 1 if anything does, with 2 if it cannot read.

All rules look at messages, each by itself or among those of its producer. So Spark parts the
history by producers, and each part is judged as a whole one would be, by the very functions of
`torture/cluster_rules.py`. What befell nodes is in all parts, what concerns a whole queue is in
all that have a message of it. The messages of one producer have to fit into memory.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from poe.spark import session
from torture.cluster_history import Event, History
from torture.cluster_rules import RULES

_TYPES = {int: "long", str: "string", tuple[str, ...]: "array<string>"}
_KINDS = {name: _TYPES.get(kind, "string") for name, kind in Event.__annotations__.items()}
_UNREAD = "unread"
_SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in {**_KINDS, _UNREAD: "string"}.items())
_OF_NODES = ["start", "kill", "crash", "down", "forget", "fault", "heal", "jump"]
_OF_PUTS = ["put", "answered"]
_SHOWN_MAX = 5


def read_history(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """Read the files of all processes: the events, and the `place` of each.

    A line that a kill has cut off is left out. The rows are kept by Spark until `unpersist`.

    Raises:
        ValueError: another line is no event.
    """
    files = [str(path.absolute()) for path in paths]
    lines = spark.read.schema(_SCHEMA).json(files, columnNameOfCorruptRecord=_UNREAD)
    read = lines.withColumn("place", F.monotonically_increasing_id()).persist()
    cut = [tail for tail in map(_tail, paths) if tail]
    is_cut = F.col(_UNREAD).isNotNull() & F.col(_UNREAD).isin(cut)
    first = read.where((F.col(_UNREAD).isNotNull() | F.col("kind").isNull()) & ~is_cut).first()
    if first is not None:
        read.unpersist()
        raise ValueError(f"{first[_UNREAD] or first} is no event")
    return read


def _tail(path: Path) -> str:
    """Return what a file has behind its last whole line."""
    size, length = path.stat().st_size, 0
    tail = b""
    with path.open("rb") as file:
        while b"\n" not in tail and length < size:
            length = min(size, 2 * length + 4096)
            file.seek(size - length)
            tail = file.read(length)
    return tail.rpartition(b"\n")[2].decode(errors="replace")


def broken(read: DataFrame) -> DataFrame:
    """Return what breaks the rules: the `rule`, and `what` breaks it, a sentence; each once."""
    lists = ["messages", "peers"]
    events = (
        read.where(F.col("kind").isNotNull())
        .drop(_UNREAD)
        .fillna(0)
        .fillna("")
        .withColumns({name: F.coalesce(name, F.array().cast(_KINDS["peers"])) for name in lists})
        .withColumn("message", F.lit(""))
        .withColumn("position", F.lit(0))
    )
    parts = _parts(events)
    shared = _of_queues(events)
    producers = parts.select("queue", "producer").distinct()
    everywhere = shared.join(producers, "queue", "left").fillna("", ["producer"])
    nodes = _nodes(events)

    def judge(part: pa.Table) -> pa.Table:
        history = History([*nodes, *_events(part.to_pylist())])
        found = [(name, what) for name, rule in RULES.items() for what in rule(history)]
        names, sentences = zip(*found, strict=True) if found else ((), ())
        return pa.table({"rule": pa.array(names, "string"), "what": pa.array(sentences, "string")})

    rows = parts.unionByName(everywhere).drop("messages")
    return rows.groupBy("producer").applyInArrow(judge, "rule string, what string").distinct()


def _parts(events: DataFrame) -> DataFrame:
    """Return what concerns messages, a row for each, beside the `producer` of the message."""
    puts = events.where(F.col("kind") == "put")
    producer = F.min("client").alias("producer")
    of_ops = puts.groupBy("op").agg(producer)
    of_names = puts.select("client", F.explode("messages").alias("message"))
    of_names = of_names.groupBy(_name().alias("name")).agg(producer)
    is_of_put = F.col("kind").isin(_OF_PUTS)
    columns = [name for name in events.columns if name not in {"message", "position"}]
    each = F.posexplode_outer("messages").alias("position", "message")
    put = events.where(is_of_put).select(*columns, each).join(of_ops, "op", "left")
    other = events.where(~is_of_put).select(
        *columns, F.posexplode("messages").alias("position", "message")
    )
    other = other.withColumn("name", _name()).join(of_names, "name", "left").drop("name")
    return put.unionByName(other).fillna(0, ["position"]).fillna("", ["message", "producer"])


def _name() -> Column:
    """Return the name of a message, without the sum of its body."""
    return F.substring_index("message", "#", 1)


def _of_queues(events: DataFrame) -> DataFrame:
    """Return what rules must know of a queue, whichever messages they judge; without messages.

    Besides what has none: who hands out, who has a report, and when a node kept most.
    """
    alone = [*_OF_NODES, *_OF_PUTS]
    rows = F.struct(*events.columns)
    stored = events.where(F.col("kind") == "stored").groupBy("queue")
    return reduce(
        DataFrame.unionByName,
        [
            events.where((F.size("messages") == 0) & ~F.col("kind").isin(alone)),
            events.where(F.col("kind").isin("handed", "report")).dropDuplicates(
                ["kind", "queue", "group", "node", "life"]
            ),
            stored.agg(F.max_by(rows, "size_bytes").alias("row")).select("row.*"),
        ],
    )


def _nodes(events: DataFrame) -> list[Event]:
    """Return what befell nodes, when the history ends, and whether it tells of copies at all."""
    rows = events.where(F.col("kind").isin(_OF_NODES)).orderBy("place").collect()
    found = _events([row.asDict() for row in rows])
    end = events.agg(F.max("at_us"), F.max(F.col("kind") == "stored")).first()
    if end is not None and end[0] is not None:
        found.append(Event(end[0], "stored" if end[1] else "kept"))
    return found


def _events(rows: list[dict[str, Any]]) -> list[Event]:
    """Return events, of each of which there are rows, one for each message."""
    rows.sort(key=itemgetter("place", "position"))
    found = []
    for _, group in groupby(rows, key=itemgetter("place")):
        same = list(group)
        fields = {name: same[0][name] for name in Event._fields if name != "messages"}
        messages = tuple(row["message"] for row in same if row["message"])
        found.append(Event(**{**fields, "messages": messages, "peers": tuple(fields["peers"])}))
    return found


def judge_files(
    name: str,
    read_files: Callable[[SparkSession, Sequence[Path]], DataFrame],
    judge: Callable[[DataFrame], DataFrame],
    shown_max: int,
    arguments: Sequence[str] | None,
) -> int:
    """Judge the history in some files by the rules of this name; return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m torture.{name.replace(' ', '_')}_spark")
    parser.add_argument("files", nargs="+", type=Path, help="lines of JSON, of one history")
    files = parser.parse_args(arguments).files
    for each in files:
        if not each.is_file():
            parser.error(f"there is no file {each}")
    spark = session(name, **{"spark.ui.enabled": "false"})
    try:
        read = read_files(spark, files)
    except ValueError as error:
        parser.error(str(error))
    found = judge(read).groupBy("rule").agg(F.sort_array(F.collect_list("what")).alias("what"))
    rows = found.orderBy("rule").collect()
    for row in rows:
        for what in row.what[:shown_max]:
            print(f"{row.rule}: {what}")
        if len(row.what) > shown_max:
            print(f"{row.rule}: and {len(row.what) - shown_max} more")
    return 1 if rows else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the history in some files."""
    return judge_files("cluster rules", read_history, broken, _SHOWN_MAX, arguments)


if __name__ == "__main__":
    sys.exit(main())
