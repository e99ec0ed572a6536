"""Rules applied to messages in Spark; the same `Compiled.decide` judges them on the executors.

Needs the extra `poe-queue[spark]`; nothing else in this package loads it.
"""

import re
import time
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, functions

from poe.errors import InvalidMapping
from poe.mapping.action import Retry, Stop
from poe.mapping.decision import Decisions
from poe.mapping.judge import Judge
from poe.mapping.message import Columns, topic_bytes, topic_text
from poe.mapping.rule import Call
from poe.mapping.rule_set import RuleSet, onward
from poe.mapping.unit import Judged
from poe.spark import Pipeline

SCHEMA: Final = (
    "topic string, pointer bigint, action string, target string, message binary, key binary, "
    "headers map<string,binary>, rule string, reason string"
)
"""One row for each put (action `to`), and for each message that failed or is dead; none for one
that is done with or dropped."""

_ARROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("pointer", pa.int64()),
        ("action", pa.string()),
        ("target", pa.string()),
        ("message", pa.binary()),
        ("key", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.binary())),
        ("rule", pa.string()),
        ("reason", pa.string()),
    ]
)


PUTS_SCHEMA: Final = "topic string, message binary, key binary, headers map<string,binary>"
_ARROW_PUTS: Final = pa.schema(
    [_ARROW.field("topic"), *(_ARROW.field(name) for name in ("message", "key", "headers"))]
)


def check(rules: RuleSet) -> None:
    """Refuse what cannot be done in Spark.

    Raises:
        InvalidMapping: a rule calls a function, or messages are to wait.
    """
    fates = [(f"rule {each.id!r}", each.fate) for each in rules.rules]
    for place, fate in [*fates, ("otherwise", rules.otherwise)]:
        if isinstance(fate, Call | Retry | Stop):
            problem = f"{type(fate).__name__.lower()} cannot be done in Spark"
            raise InvalidMapping(place, problem)
    if rules.on_error.retry or rules.on_error.then == "stop":
        problem = "nothing waits in Spark; use then = 'dead', 'drop' or 'ok', without retry"
        raise InvalidMapping(place="on_error", problem=problem)


def judged(messages: DataFrame, rules: RuleSet) -> DataFrame:
    """Return what becomes of messages, with the columns of `SCHEMA`.

    Args:
        messages: with the columns topic, pointer, message, key and headers.
        rules: which mapping.

    Raises:
        InvalidMapping: it does what cannot be done in Spark.
    """
    check(rules)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = rules.compile()
        for batch in batches:
            for columns in _runs(batch.to_pylist()):
                rows = list(rows_of(columns, compiled.decide(columns)))
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    chosen = messages.select("topic", "pointer", "message", "key", "headers")
    return chosen.mapInArrow(judge, SCHEMA)


def puts(messages: DataFrame, rules: RuleSet) -> DataFrame:
    """Return what is put, as a sink takes it: topic, message, key and headers; with dead letters.

    Args:
        messages: as for `judged`.
        rules: which mapping.

    Raises:
        InvalidMapping: it does what cannot be done in Spark.
    """
    check(rules)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = Judge(rules.compile(), _now_us)
        for batch in batches:
            for columns in _runs(batch.to_pylist()):
                rows = list(put_rows(found.judge(columns)))
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_PUTS)

    chosen = messages.select("topic", "pointer", "message", "key", "headers")
    return chosen.mapInArrow(judge, PUTS_SCHEMA)


def put_rows(judged: Judged) -> Iterator[dict[str, Any]]:
    """Yield what is put of a batch as rows; see `PUTS_SCHEMA`.

    Raises:
        RuntimeError: rules have made too many topics: trying again does not help.
    """
    if judged.held is not None:
        raise RuntimeError(judged.held.reason)
    decided = judged.decided
    for topic, put in decided.puts.items():
        is_own = topic in decided.own
        keys = put.keys or [None] * len(put.places)
        headers = put.headers or [None] * len(put.places)
        for place, value, key, held in zip(put.places, put.values, keys, headers, strict=True):
            told = held
            # Where there were neither keys nor headers the target may have no envelopes.
            if not is_own and (key is not None or held is not None):
                told = onward(decided.batch, place, held)
            row = {"topic": topic_text(topic), "message": value, "key": key}
            yield {**row, "headers": list(told.items()) if told else None}


def pipeline_of(rules: RuleSet, checkpoint: str) -> Pipeline:
    """Return a mapping as a pipeline of one query; exactly once by its checkpoint.

    Args:
        rules: which mapping.
        checkpoint: folder or URL that all executors reach.

    Raises:
        InvalidMapping: it does what cannot be done in Spark.
    """
    check(rules)
    pipeline = Pipeline(rules.name, checkpoint=checkpoint)
    begin = {"startingPointer": "earliest" if rules.start == "oldest" else "latest"}
    names = [each for each in rules.source.topics if "*" not in each]
    words = [re.escape(each).replace(r"\*", ".*") for each in rules.source.topics if "*" in each]
    if names:
        pipeline.source("named", options={**begin, "topics": repr(names)})
    if words:  # they are matched with the names of partitions
        pattern = f"({'|'.join(words)})(-[0-9]+)?"
        pipeline.source("matched", options={**begin, "topicPattern": pattern})

    def step(*found: DataFrame) -> DataFrame:
        read = [_of(each, names, words) for each in found]
        if words:  # neither what is read by its name, nor what only looks like a partition
            topic = functions.col("topic")
            read[-1] = read[-1].where(topic.rlike(_whole(words)) & ~topic.isin(names))
        return puts(reduce(DataFrame.unionByName, read), rules)

    sources = ("named",) * bool(names) + ("matched",) * bool(words)
    pipeline.step("puts", takes=sources, function=step)
    pipeline.sink("puts", takes="puts", format="poe")
    return pipeline


def _of(messages: DataFrame, names: Sequence[str], words: Sequence[str]) -> DataFrame:
    """Return messages with the names of their topics where they have those of partitions.

    Partition 0 of a topic cannot be told from another topic that is called so. It is taken for that
    where the mapping names it, or reads no topic of the shorter name.
    """
    topic = functions.col("topic")
    end = functions.concat(functions.lit("-"), functions.col("partition").cast("string"))
    holder = functions.expr("left(topic, length(topic) - length(concat('-', partition)))")
    is_read = holder.isin(names) | holder.rlike(_whole(words))
    is_partition = topic.endswith(end) & is_read & ~topic.isin(names)
    return messages.withColumn("topic", functions.when(is_partition, holder).otherwise(topic))


def _whole(words: Sequence[str]) -> str:
    """Return the regular expression, as Java reads it, of names that one of some words matches."""
    return rf"(?s)\A({'|'.join(words)})\z"


def _now_us() -> int:
    return time.time_ns() // 1000


def rows_of(batch: Columns, decisions: Decisions) -> Iterator[dict[str, Any]]:
    """Yield decisions about a batch as rows; see `SCHEMA`.

    Raises:
        RuntimeError: rules have made too many topics.
    """
    if decisions.stopped is not None:
        raise RuntimeError(decisions.stopped.why)

    def row(place: int, action: str, **rest: object) -> dict[str, Any]:
        pointer = batch.pointers[place]
        return {"topic": topic_text(batch.topic), "pointer": pointer, "action": action, **rest}

    for topic, put in decisions.puts.items():
        for at, place in enumerate(put.places):
            headers = put.headers[at] if put.headers else None
            yield row(
                place,
                "to",
                target=topic_text(topic),
                message=put.values[at],
                key=put.keys[at] if put.keys else None,
                headers=list(headers.items()) if headers else None,
            )
    for action, fallen in (("error", decisions.failed), ("dead", decisions.dead)):
        for each in fallen:
            yield row(each.place, action, rule=each.rule, reason=each.why)


def _runs(rows: list[dict[str, Any]]) -> Iterator[Columns]:
    for topic, group in groupby(rows, key=lambda each: each["topic"]):
        run = list(group)
        keys = [each["key"] for each in run]
        headers = [dict(each["headers"]) if each["headers"] else None for each in run]
        # Where nobody has any the topic is taken for one without envelopes: rows do not tell.
        yield Columns(
            topic_bytes(topic),
            [each["pointer"] for each in run],
            [each["message"] for each in run],
            keys if any(each is not None for each in keys) else None,
            headers if any(headers) else None,
        )
