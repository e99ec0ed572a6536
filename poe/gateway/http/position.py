"""Where a reader of a topic stands, as text: for `pointer=`, and for the ids of events.

1361043504873813    the pointer of the last message; of a topic with one partition
0:17,1:23           a pointer for each partition
oldest, newest      before all messages, behind all
"""

import re
from collections.abc import Mapping
from http import HTTPStatus

from poe.client.consumer.source import Start
from poe.errors import RequestRefused
from poe.record import POINTER_MAX

_WORDS: Mapping[str, Start] = {"oldest": "oldest", "newest": "newest"}
_POINTER = re.compile(r"-1|[0-9]{1,19}")
_PARTITIONS = re.compile(r"[0-9]{1,9}:(-1|[0-9]{1,19})(,[0-9]{1,9}:(-1|[0-9]{1,19}))*")


def position_text(position: Mapping[int, int]) -> str:
    """Return what `start_of` takes back."""
    if position.keys() == {0}:
        return str(position[0])
    return ",".join(f"{partition}:{pointer}" for partition, pointer in sorted(position.items()))


def start_of(text: str) -> Start:
    """Return where to begin reading.

    Raises:
        RequestRefused: the text is no position.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _POINTER.fullmatch(text) and int(text) <= POINTER_MAX:
        return int(text)
    if _PARTITIONS.fullmatch(text):
        pairs = [each.split(":") for each in text.split(",")]
        position = {int(partition): int(pointer) for partition, pointer in pairs}
        if len(position) == len(pairs) and max(position.values()) <= POINTER_MAX:
            return position
    why = f"pointer {text!r:.100} is none; use a pointer, oldest, newest, or what `next` has told"
    raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
