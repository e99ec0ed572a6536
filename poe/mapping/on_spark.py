"""Rules applied to messages in Spark; the same `Compiled.decide` judges them on the executors.

Needs the extra `poe-queue[spark]`; nothing else in this package loads it.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from poe.errors import InvalidMapping
from poe.mapping.action import Retry, Stop
from poe.mapping.decision import Decisions
from poe.mapping.message import Columns, topic_bytes, topic_text
from poe.mapping.rule import Call
from poe.mapping.rule_set import RuleSet

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
        yield Columns(
            topic_bytes(topic),
            [each["pointer"] for each in run],
            [each["message"] for each in run],
            [each["key"] for each in run],
            [dict(each["headers"]) if each["headers"] else None for each in run],
        )
