"""A short text for any value, which costs little whatever the value is.

An exit reason, an id or a payload may be huge, endlessly deep, or raise when it is asked for its
text; an error that names it must come into being all the same.
"""

import reprlib
from typing import Final

TEXT_LENGTH_MAX: Final = 1000

_PLAIN_TYPES = frozenset({bool, float, type(None)})


class _ShortRepr(reprlib.Repr):
    """As `repr`, with a limit at each place that can be large."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxtuple = self.maxlist = self.maxarray = self.maxdeque = 20
        self.maxdict = self.maxset = self.maxfrozenset = 20
        self.maxstring = self.maxlong = self.maxother = TEXT_LENGTH_MAX

    def repr_bytes(self, value: bytes, level: int) -> str:
        """Show the beginning alone: escaped, all of it may be four times as long."""
        del level
        return repr(value[:TEXT_LENGTH_MAX]) + ("..." if len(value) > TEXT_LENGTH_MAX else "")


_short_repr = _ShortRepr()


def printable(text: str) -> str:
    """Escape what would break the line, or command the terminal: clients may give any names."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def short_repr(value: object) -> str:
    """Return `repr(value)`, shortened; the type's name alone if the value has no text."""
    if (type(value) is str and len(value) < TEXT_LENGTH_MAX) or type(value) in _PLAIN_TYPES:
        return repr(value)
    try:
        text = _short_repr.repr(value)
    except Exception:  # noqa: BLE001 - whatever a foreign __repr__ does, or too deep
        return f"<{type(value).__name__}>"
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"
