"""Turn a topic, which is any bytes, into the name of its folder and back, or refuse it.

Strategy: a short list of what stands for itself instead of a list of what is dangerous. These names
are their own folder names, as in the original. With `names="escape"` each other byte becomes `%XX`.
So no two topics share a folder, and no name can leave `topics/` or hide in it.
"""

import contextlib
import re
from typing import Literal

from poe.errors import InvalidTopicName

NamePolicy = Literal["strict", "escape"]
"""What becomes of names that are not their own folder names: refused, or escaped."""

# No leading dot keeps out ".", ".." and hidden folders. `fullmatch` is used, since `$` would let a
# final newline pass.
_PLAIN = re.compile(rb"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_FOLDER_BYTES_MAX = 255
"""What file systems allow."""
_TO_ESCAPE = re.compile(rb"^\.|[^A-Za-z0-9._-]")
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")


def is_plain(topic: bytes) -> bool:
    """Return whether a topic is its own folder name, whatever the policy."""
    return _PLAIN.fullmatch(topic) is not None


def folder_name(topic: bytes, names: NamePolicy = "strict") -> str:
    """Return the name of a topic's folder.

    Raises:
        InvalidTopicName: the policy does not allow it, or it is empty or too long.
    """
    if is_plain(topic):
        return topic.decode("ascii")
    # A name may be a frame long: it is not escaped to find that out.
    if names == "strict" or not 0 < len(topic) <= _FOLDER_BYTES_MAX:
        raise InvalidTopicName(topic, names)
    escaped = _TO_ESCAPE.sub(lambda found: b"%%%02X" % found[0][0], topic)
    if len(escaped) > _FOLDER_BYTES_MAX:
        raise InvalidTopicName(topic, names)
    return escaped.decode("ascii")


def topic_of(name: str) -> bytes | None:
    """Return the topic that has a folder of this name, with one of the policies; None: no topic."""
    escaped = folder_bytes(name)
    topic = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), escaped)
    try:
        # What is escaped without need, or not at all, is the folder of another topic or of none.
        return topic if folder_name(topic, "escape") == name else None
    except InvalidTopicName:
        return None


def original_topic_of(name: str) -> bytes | None:
    """Return the topic for which the original made a folder that is none of ours; None: no topic.

    It took each byte of a name for a character, and the character went to the disk as UTF-8: what
    was UTF-8 already is encoded twice. A name that was not, or that was encoded once, as with
    another locale, could be that of two topics, and is not guessed at.
    """
    try:
        topic = folder_bytes(name).decode().encode("latin-1")
        topic.decode()
    except UnicodeError:
        return None
    return None if topic.startswith(b".") or topic_of(name) is not None else topic


def topic_in(name: str) -> bytes | None:
    """Return the topic of a folder, be it ours or the original's; None: no topic."""
    topic = topic_of(name)
    return original_topic_of(name) if topic is None else topic


def names_of_folder(name: str) -> list[str]:
    """Return the names that a folder of the same topic may have: this one, ours, the original's."""
    names = [name]
    topic = topic_in(name)
    if topic is not None:
        names.append(topic.decode("latin-1"))
        with contextlib.suppress(InvalidTopicName):
            names.append(folder_name(topic, "escape"))
    return list(dict.fromkeys(names))


def folder_bytes(name: str) -> bytes:
    """Return the name of a folder as it is on the disk: what is no UTF-8 came as surrogates."""
    return name.encode("utf-8", "surrogateescape")


def topic_text(topic: bytes) -> str:
    """Return a topic for people to read; what is no text, or would break a line, is escaped."""
    text = topic.replace(b"\\", rb"\\").decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
