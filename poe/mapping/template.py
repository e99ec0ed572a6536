"""Names with gaps that a message fills: `orders.eu.{body.user.country}`.

A gap is `topic`, `key`, `header.NAME` or a path into the body. What fills it is a text or a whole
number; anything else, and what is not there, is an error of the rule.
"""

import re
from typing import Any, Final

from poe.errors import InvalidMapping, RuleError, UndecodableMessage
from poe.mapping.message import Message

_GAP = re.compile(r"\{([^{}]*)\}")
_ROOTS: Final = ("topic", "key", "header", "body")


class Template:
    """A text with gaps.

    Args:
        text: see the module; braces stand for gaps alone.
        rule: for errors.
        place: likewise, of the text.

    Raises:
        InvalidMapping: on construction, a gap is none.
    """

    def __init__(self, text: str, rule: str, place: str) -> None:
        self.text = text
        self._rule = rule
        pieces = _GAP.split(text)
        self._texts = pieces[::2]
        self._gaps = [each.split(".") for each in pieces[1::2]]
        place = f"rule {rule!r}: {place}"
        if any(brace in piece for piece in self._texts for brace in "{}"):
            raise InvalidMapping(place, f"is {text!r}, in which braces do not match")
        for gap in self._gaps:
            root, *path = gap
            is_path = bool(path) and all(path)
            if root not in _ROOTS or is_path != (root in {"header", "body"}) or not all(gap):
                problem = (
                    f"has the gap {{{'.'.join(gap)}}}; "
                    "use {topic}, {key}, {header.NAME} or {body.FIELD}"
                )
                raise InvalidMapping(place, problem)

    @property
    def is_fixed(self) -> bool:
        """Whether it has no gaps."""
        return not self._gaps

    def fill(self, message: Message) -> str:
        """Return the text that a message makes of it.

        Raises:
            RuleError: something is missing in it, or is neither a text nor a whole number.
        """
        filled = [self._texts[0]]
        for gap, text in zip(self._gaps, self._texts[1:], strict=True):
            filled += (self._filled(gap, message), text)
        return "".join(filled)

    def _filled(self, gap: list[str], message: Message) -> str:
        try:
            value = _found(gap, message)
        except (UndecodableMessage, UnicodeDecodeError) as error:
            raise RuleError(self._rule, f"{{{'.'.join(gap)}}}: {error}") from error
        if type(value) is int:
            return str(value)
        if type(value) is str:
            return value
        what = "missing" if value is None else f"a {type(value).__name__}"
        why = f"{{{'.'.join(gap)}}} is {what}; a text or a whole number can be put there"
        raise RuleError(self._rule, why)


def looks_like(text: str) -> str:
    """Return a template with a `*` for each gap."""
    return _GAP.sub("*", text)


def _found(gap: list[str], message: Message) -> Any:  # noqa: ANN401 - whatever a message holds
    root, *path = gap
    match root:
        case "topic":
            return message.topic
        case "key":
            return None if message.key is None else message.key.decode()
        case "header":
            value = (message.headers or {}).get(".".join(path))
            return None if value is None else value.decode()
        case _:
            value = message.body
            for name in path:
                value = value.get(name) if type(value) is dict else None
            return value
