"""The topics that a consumer or a queue is made with, as callers pass them."""

from collections.abc import Iterable

from poe.errors import OptionError
from poe.protocol import topic_bytes


def topic_names(topics: bytes | str | Iterable[bytes | str]) -> list[bytes]:
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
