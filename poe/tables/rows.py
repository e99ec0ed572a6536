"""The rows of one table: what is stored under a key, for each kind of table; no actors here.

A row is a tuple, and one of its elements is its key. What "the same key" means is a function of
`order.py`; everything else follows from it. Values that can change are copied in and out, so that
nobody changes a table but through its operations.
"""

import copy
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, StrEnum
from typing import Any, Final

from poe.errors import InvalidTableArgument
from poe.tables.order import hashable_key, match_key, order_key

Row = tuple[Any, ...]
"""One object of a table."""


class Marker(Enum):
    """Values that stand for a meaning only."""

    ANY = "any value, in a pattern"
    END_OF_TABLE = "there is no further key"


ANY: Final = Marker.ANY
"""Stands for any value in the pattern of a `match`."""
END_OF_TABLE: Final = Marker.END_OF_TABLE
"""Returned by `first`, `last`, `next` and `previous` where there is no such key."""


class TableKind(StrEnum):
    """How many rows a key has, and whether keys are in order."""

    SET = "set"
    """One row a key."""
    ORDERED_SET = "ordered_set"
    """One row a key, in the order of keys; 1 and 1.0 are one key. Adding a key moves those behind
    it: 0.1 ms with a million of them."""
    BAG = "bag"
    """Any number of different rows a key."""
    DUPLICATE_BAG = "duplicate_bag"
    """Any number of rows a key, equal ones too."""


class Rows:
    """Rows by key, in a dictionary; the behaviour of a set.

    Invariant: a key in `_rows` has at least one row, and exactly one unless the table is a bag.
    """

    is_bag = False
    _key_of: Callable[[Any], Any] = staticmethod(hashable_key)

    def __init__(self, key_index: int) -> None:
        self.key_index = key_index
        self._rows: dict[Any, list[Row]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        for rows in self._rows.values():
            for row in rows:
                yield copied(row)

    def check(self, row: object) -> Row:
        """Return a row's own copy.

        Raises:
            InvalidTableArgument: it is no tuple, too short, or its key is none.
        """
        if type(row) is not tuple or len(row) <= self.key_index:
            allowed = f"a tuple of {self.key_index + 1} or more elements"
            raise InvalidTableArgument("row", row, allowed)
        key = row[self.key_index]
        table_key = self._key_of(key)
        own: Row = copied(row)
        if own is not row and self._key_of(own[self.key_index]) != table_key:
            raise InvalidTableArgument("key", key, "a value that is equal to its copy")
        return own

    def has(self, key: object) -> bool:
        """Return whether a key has a row."""
        return self._key_of(key) in self._rows

    def get(self, key: object) -> list[Row]:
        """Return the rows of a key, oldest first."""
        return [copied(row) for row in self._rows.get(self._key_of(key), ())]

    def put(self, row: Row) -> None:
        """Add a checked row, in place of the one that has its key."""
        self._rows[self._key_of(row[self.key_index])] = [row]

    def remove(self, key: object) -> None:
        """Remove the rows of a key, if there are any."""
        self._rows.pop(self._key_of(key), None)

    def remove_row(self, row: Row) -> None:
        """Remove all rows that match a row."""
        key = self._key_of(row[self.key_index])
        wanted = match_key(row)
        left = [each for each in self._rows.get(key, ()) if match_key(each) != wanted]
        if left:
            self._rows[key] = left
        else:
            self.remove(row[self.key_index])

    def clear(self) -> None:
        """Remove everything."""
        self._rows.clear()

    # ---- in order -----------------------------------------------------------------------------

    def keys(self) -> list[Any]:
        """Return all keys, in the table's order."""
        return [copied(rows[0][self.key_index]) for rows in self._rows.values()]

    def end(self, *, is_last: bool) -> Any:  # noqa: ANN401 - a key
        """Return the first or the last key; a table without order calls the same one both."""
        del is_last
        return next(iter(self.keys()), END_OF_TABLE)

    def neighbour(self, key: object, *, is_before: bool) -> Any:  # noqa: ANN401 - a key
        """Return the key after another; before it is the same without order. Takes a walk.

        Raises:
            InvalidTableArgument: the key is not there.
        """
        del is_before
        if not self.has(key):
            raise InvalidTableArgument("key", key, "a key that is in the table")
        keys = list(self._rows)
        index = keys.index(self._key_of(key)) + 1
        return END_OF_TABLE if index == len(keys) else self._rows[keys[index]][0][self.key_index]


class OrderedRows(Rows):
    """Rows in the order of their keys.

    Invariant: `_order` holds the keys of `_rows`, sorted.
    """

    _key_of = staticmethod(order_key)

    def __init__(self, key_index: int) -> None:
        super().__init__(key_index)
        self._order: list[Any] = []

    def __iter__(self) -> Iterator[Row]:
        for key in self._order:
            yield copied(self._rows[key][0])

    def put(self, row: Row) -> None:
        """Add a checked row, in place of the one whose key compares equal."""
        key = order_key(row[self.key_index])
        if key not in self._rows:
            insort(self._order, key)
        self._rows[key] = [row]

    def remove(self, key: object) -> None:
        """Remove the row of a key, if there is one."""
        found = order_key(key)
        if self._rows.pop(found, None) is not None:
            del self._order[bisect_left(self._order, found)]

    def clear(self) -> None:
        """Remove everything."""
        super().clear()
        self._order.clear()

    def keys(self) -> list[Any]:
        """Return all keys, least first."""
        return [self._rows[key][0][self.key_index] for key in self._order]

    def end(self, *, is_last: bool) -> Any:  # noqa: ANN401 - a key
        """Return the least or the greatest key."""
        return self._at(len(self._order) - 1 if is_last else 0)

    def neighbour(self, key: object, *, is_before: bool) -> Any:  # noqa: ANN401 - a key
        """Return the next greater or smaller key; the key itself need not be there."""
        found = order_key(key)
        if is_before:
            return self._at(bisect_left(self._order, found) - 1)
        return self._at(bisect_right(self._order, found))

    def _at(self, index: int) -> Any:  # noqa: ANN401 - a key
        if not 0 <= index < len(self._order):
            return END_OF_TABLE
        return self._rows[self._order[index]][0][self.key_index]


class BagRows(Rows):
    """Any number of rows a key, in the order they came."""

    is_bag = True

    def __init__(self, key_index: int, *, has_duplicates: bool) -> None:
        super().__init__(key_index)
        self._has_duplicates = has_duplicates

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def put(self, row: Row) -> None:
        """Add a checked row; in a bag one that matches another is no further row."""
        rows = self._rows.setdefault(self._key_of(row[self.key_index]), [])
        wanted = match_key(row)
        if self._has_duplicates or all(match_key(each) != wanted for each in rows):
            rows.append(row)


def make_rows(kind: TableKind, key_index: int) -> Rows:
    """Make the empty table of a kind."""
    if kind is TableKind.SET:
        return Rows(key_index)
    if kind is TableKind.ORDERED_SET:
        return OrderedRows(key_index)
    return BagRows(key_index, has_duplicates=kind is TableKind.DUPLICATE_BAG)


def matching(rows: Iterable[Row], pattern: Row) -> list[Row]:
    """Return the rows that are like a pattern, in which `ANY` stands for anything."""
    return [row for row in rows if _matches(row, pattern)]


def _matches(value: Any, pattern: Any) -> bool:  # noqa: ANN401
    if pattern is ANY:
        return True
    if type(pattern) is tuple and type(value) is tuple:
        return len(value) == len(pattern) and all(map(_matches, value, pattern))
    return bool(match_key(value) == match_key(pattern))


_UNCHANGING = frozenset({int, float, str, bytes, bool, type(None)})


def copied(value: Any) -> Any:  # noqa: ANN401
    """Return a copy; the value itself where it cannot change."""
    if type(value) in _UNCHANGING:
        return value
    if type(value) is tuple and all(type(part) in _UNCHANGING for part in value):
        return value
    return copy.deepcopy(value)
