"""What callers pass, checked before anything is sent, as it goes on the wire."""

from typing import Any

from poe.errors import LocalProtocolError, PointerOutOfRange
from poe.record import POINTER_MAX

LIMIT_MAX = (1 << 32) - 1
"""Records that one request can ask for."""


def topic_bytes(topic: bytes | str) -> bytes:
    """Return the topic's name as it goes on the wire: text as UTF-8.

    Raises:
        LocalProtocolError: the name is empty, no valid text, or neither bytes nor text.
    """
    msg = f"topic is {topic!r}; use bytes or text of length 1 or more"
    try:
        name = topic.encode() if isinstance(topic, str) else bytes(memoryview(topic))
    except (TypeError, UnicodeEncodeError) as error:
        raise LocalProtocolError(msg) from error
    if not name:
        raise LocalProtocolError(msg)
    return name


def range_arguments(
    topic: bytes | str, pointer: int, last: int, limit: int, bytes_max: int
) -> dict[str, Any]:
    """Return the arguments of the control op `span`: those of a range request.

    Raises:
        LocalProtocolError: empty topic, or a limit that does not fit 32 bits.
        PointerOutOfRange: a pointer does not fit 56 bits.
    """
    name = topic_bytes(topic)
    check_pointer(pointer)
    check_pointer(last)
    check_limit(limit)
    check_limit(bytes_max, "bytes_max")
    return {
        "topic": name,
        "pointer": pointer,
        "last": last,
        "limit": limit,
        "bytes_max": bytes_max,
    }


def check_pointer(pointer: int) -> None:
    """Refuse what does not fit 56 bits.

    Raises:
        LocalProtocolError: it is no number.
        PointerOutOfRange: the pointer is negative or too large.
    """
    if not isinstance(pointer, int):
        msg = f"pointer is {pointer!r}; use a whole number"
        raise LocalProtocolError(msg)
    if not 0 <= pointer <= POINTER_MAX:
        raise PointerOutOfRange(pointer)


def check_limit(limit: object, name: str = "limit") -> None:
    """Refuse what does not fit 32 bits.

    Raises:
        LocalProtocolError: the limit is no number, negative or too large.
    """
    if not isinstance(limit, int) or not 0 <= limit <= LIMIT_MAX:
        msg = f"{name} is {limit!r}; use 0 to {LIMIT_MAX}"
        raise LocalProtocolError(msg)
