"""Turn a topic, which is any bytes, into the name of its folder, or refuse it.

Strategy: a short list of what is allowed instead of a list of what is dangerous. Every allowed
name is its own folder name, as in the original, so no two topics share a folder and no name can
leave `topics/` or hide in it.
"""

import re

from poe.errors import InvalidTopicName

# No leading dot keeps out ".", ".." and hidden folders. `fullmatch` is used, since `$` would let a
# final newline pass.
_ALLOWED = re.compile(rb"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def check_topic(topic: bytes) -> str:
    """Tell the folder name of a topic.

    Raises:
        InvalidTopicName: the topic is not 1 to 200 of `A-Z a-z 0-9 . _ -`, or begins with a dot.
    """
    if _ALLOWED.fullmatch(topic) is None:
        raise InvalidTopicName(topic)
    return topic.decode("ascii")


def is_topic_folder(name: str) -> bool:
    """Tell whether a folder found on disk could have been made for a topic."""
    # File names that are not valid UTF-8 arrive with surrogates, which encode to "?" here.
    return _ALLOWED.fullmatch(name.encode("ascii", "replace")) is not None
