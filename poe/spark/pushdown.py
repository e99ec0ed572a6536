"""Turn filters of Spark into what a read need not look at: bounds of pointers, and topics.

Timestamps are pointers with another type, so filters on either move the same bounds; neither they
nor topics are ever null. What is not understood stays with Spark.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from poe.spark.read_options import pointer_at


@dataclass(slots=True)
class Pushdown:
    """What is read: pointers greater than `after`, up to `last`, of topics that pass all tests."""

    after: int
    last: int
    topic_filters: list[Filter] = field(default_factory=list)

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take in what can be, and return the filters that Spark has to apply still."""
        return [each for each in filters if not self._take(each)]

    def selects(self, topic: str) -> bool:
        """Return whether messages of a topic may pass."""
        return all(_passes(each, topic) for each in self.topic_filters)

    def _take(self, filter_: Filter) -> bool:
        """Take in a filter; tell whether it is applied in full."""
        column = getattr(filter_, "attribute", ())
        if isinstance(filter_, IsNotNull):
            return column in {("topic",), ("pointer",), ("timestamp",)}
        if column in {("pointer",), ("timestamp",)}:
            return self._bound(filter_)
        inner = filter_.child if isinstance(filter_, Not) else filter_
        if getattr(inner, "attribute", ()) == ("topic",) and isinstance(inner, _TOPIC_FILTERS):
            self.topic_filters.append(filter_)
            return True
        return False

    def _bound(self, filter_: Filter) -> bool:
        """Move the bounds; tell whether nothing but the bounds is left of the filter."""
        if isinstance(filter_, In):
            pointers = [_pointer(value) for value in filter_.value]
            known = [pointer for pointer in pointers if pointer is not None]
            if known and len(known) == len(pointers):
                self._narrow(min(known) - 1, max(known))
            return False
        pointer = _pointer(getattr(filter_, "value", None))
        if pointer is None:
            return False
        match filter_:
            case EqualTo() | EqualNullSafe():
                self._narrow(pointer - 1, pointer)
            case GreaterThan():
                self._narrow(pointer, self.last)
            case GreaterThanOrEqual():
                self._narrow(pointer - 1, self.last)
            case LessThan():
                self._narrow(self.after, pointer - 1)
            case LessThanOrEqual():
                self._narrow(self.after, pointer)
            case _:
                return False
        return True

    def _narrow(self, after: int, last: int) -> None:
        self.after = max(self.after, after)
        self.last = min(self.last, last)


_TOPIC_FILTERS = (EqualTo, EqualNullSafe, In, StringStartsWith, StringEndsWith, StringContains)


def _passes(filter_: Filter, topic: str) -> bool:
    passes = True
    match filter_:
        case Not(child):
            passes = not _passes(child, topic)
        case EqualTo(_, value) | EqualNullSafe(_, value):
            passes = topic == value
        case In(_, values):
            passes = topic in values
        case StringStartsWith(_, part):
            passes = topic.startswith(part)
        case StringEndsWith(_, part):
            passes = topic.endswith(part)
        case StringContains(_, part):
            passes = part in topic
    return passes


def _pointer(value: object) -> int | None:
    """Return the pointer that a literal stands for; None where it is neither number nor time."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return pointer_at(value)
    return value if type(value) is int else None
