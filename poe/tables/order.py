"""What makes two keys the same, and which comes first: Erlang's rules for Python values.

Python takes 1, 1.0 and True for the same key; ETS does not. A set or a bag *matches* keys, so that
all three are different; an ordered set *compares* them, and there 1 and 1.0 are one key while True
is still another. Each rule is a function from a value to something Python compares as wanted.

Source: Erlang reference manual, "Term Comparisons"; None, booleans and strings take the place of
atoms. Lists and dictionaries are no keys here, since they can change.
"""

from typing import Any

from poe.actors.actor_cell import LoopAddress
from poe.errors import InvalidTableArgument

ALLOWED = "None, a boolean, number, string, bytes, address of an actor, or a tuple of those"

_DISTINCT = frozenset({int, str, bytes, type(None), LoopAddress})
"""Types whose values are equal to values of the same type only, those here taken together."""


def match_key(value: Any) -> Any:  # noqa: ANN401 - any value that a row may hold
    """Return what is equal for values that match: those of one type, part by part."""
    kind = type(value)
    if kind in _DISTINCT:
        return value
    if kind is tuple:
        return (tuple, *map(match_key, value))
    if kind is list:
        return (list, *map(match_key, value))
    return kind, value


def hashable_key(value: object) -> Any:  # noqa: ANN401
    """Return the `match_key` of what is to be a key.

    Raises:
        InvalidTableArgument: a list or anything else that can change, or no number at all.
    """
    key = match_key(value)
    try:
        hash(value)
    except TypeError:
        raise InvalidTableArgument("key", value, "a value that cannot change") from None
    if value != value:  # noqa: PLR0124 - true of a NaN only, which nobody would find again
        raise InvalidTableArgument("key", value, "a value that is equal to itself")
    return key


def order_key(value: Any) -> Any:  # noqa: ANN401
    """Return what sorts as Erlang does: number < atom < address < tuple < bytes.

    Tuples go by length first, then part by part.

    Raises:
        InvalidTableArgument: a value of another type, or a NaN.
    """
    kind = type(value)
    if kind is int or kind is float:
        if value != value:  # noqa: PLR0124 - a NaN has no place in any order
            raise InvalidTableArgument("key", value, ALLOWED)
        return 0, value
    if kind is str:
        return 3, value
    if value is None or kind is bool:
        return (1, 0) if value is None else (2, value)
    if kind is tuple:
        return 5, len(value), *map(order_key, value)
    if kind is bytes:
        return 6, value
    if kind is LoopAddress:
        return 4, value.serial
    raise InvalidTableArgument("key", value, ALLOWED)
