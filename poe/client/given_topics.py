"""The topics that a consumer or a queue is made with, as callers pass them."""

from collections.abc import Iterable

from poe.errors import OptionError
from poe.protocol import topic_bytes

Topics = bytes | str | Iterable[bytes | str]
"""A topic, or with a group several, and patterns in which `*` stands for anything."""


def topic_names(topics: Topics) -> list[bytes]:
    """Return the names of one topic, or of several, or of patterns.

    Raises:
        LocalProtocolError: one of them is none.
        OptionError: there is none, or it is neither a name nor several.
    """
    try:
        names = [topics] if isinstance(topics, bytes | str) else list(topics)
    except TypeError as error:
        raise OptionError("topics", topics, "a name as bytes or text, or several") from error
    if not names:
        raise OptionError("topics", topics, "one or more")
    return [topic_bytes(each) for each in names]
