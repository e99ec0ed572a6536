"""Ids of children as keys of a table: a foreign `==`, hash or text may do whatever it does.

An id is any hashable value that a user has. Its class may raise when it is compared with an id that
it does not know, or after it was changed; in the supervisor that would be the end of all children.
"""

from collections.abc import Hashable

from poe.actors.reason import is_same
from poe.errors.short_text import short_repr

_PLAIN_LENGTH_MAX = 200
"""Characters, bytes or bits of an id whose text is taken as it is."""


class _Key:
    """Stands for an id; equal to another where the ids say so, and to itself in any case."""

    __slots__ = ("_hash", "_id")

    def __init__(self, child_id: Hashable) -> None:
        self._id = child_id
        self._hash = hash(child_id)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return is_same(self._id, other._id if type(other) is _Key else other)

    def __repr__(self) -> str:
        return short_repr(self._id)

    def __reduce__(self) -> tuple[type["_Key"], tuple[Hashable]]:
        return _Key, (self._id,)


def key_of(child_id: Hashable) -> Hashable:
    """Return what stands for an id in tables; for one that has no hash, what is like no other.

    Its text is that of the id, and short.
    """
    if _is_plain(child_id):
        return child_id
    try:
        return _Key(child_id)
    except Exception:  # noqa: BLE001 - a foreign __hash__
        return object()


def _is_plain(child_id: Hashable) -> bool:
    """Return whether an id is its own key: its comparison, hash and text raise nothing."""
    if type(child_id) is str or type(child_id) is bytes:
        return len(child_id) <= _PLAIN_LENGTH_MAX
    if type(child_id) is int:
        return child_id.bit_length() <= _PLAIN_LENGTH_MAX
    return child_id is None


def is_hashable(value: object) -> bool:
    """Return whether a value can be an id."""
    # isinstance(value, Hashable) would say yes to a tuple that holds a list.
    try:
        hash(value)
    except Exception:  # noqa: BLE001 - a foreign __hash__
        return False
    return True
