"""The arguments of control requests: what msgpack carried, checked and turned into values."""

from typing import Any, TypeAlias

from poe.errors import RemoteProtocolError
from poe.errors.short_text import short_repr
from poe.protocol.control import CONTROL_COUNT_MAX
from poe.storage import PRODUCER_BYTES

Arguments: TypeAlias = dict[str, Any]

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1


def topic(arguments: Arguments, name: str = "topic") -> bytes:
    """Return a name of a topic, which may be sent as text.

    Raises:
        RemoteProtocolError: it is missing, empty or neither.
    """
    return checked_name(name, arguments.get(name))


def checked_name(argument: str, value: object) -> bytes:
    """Return a value of an argument as the name of a topic.

    Raises:
        RemoteProtocolError: it is missing, empty or neither bytes nor text.
    """
    value = value.encode() if isinstance(value, str) else value
    if not isinstance(value, bytes) or not value:
        msg = f"argument {argument} is {short_repr(value)}; send bytes or text of length 1 or more"
        raise RemoteProtocolError(msg)
    return value


def place(arguments: Arguments, name: str) -> bytes:
    """Return the name behind which to go on; an empty one, or none, is the begin.

    Raises:
        RemoteProtocolError: it is neither bytes nor text.
    """
    value = arguments.get(name)
    is_begin = value is None or (isinstance(value, bytes | str) and not value)
    return b"" if is_begin else checked_name(name, value)


def names(arguments: Arguments, name: str) -> tuple[bytes, ...]:
    """Return names of topics, each of which may be sent as text; none where nothing is said.

    Raises:
        RemoteProtocolError: it is no array, or of too many, or holds what is no name.
    """
    value = arguments.get(name, [])
    if not isinstance(value, list) or len(value) > CONTROL_COUNT_MAX:
        msg = f"argument {name} is {value!r:.80}; send an array of names"
        raise RemoteProtocolError(msg)
    return tuple(checked_name(name, each) for each in value)


def producer(arguments: Arguments) -> bytes:
    """Return the name of a producer.

    Raises:
        RemoteProtocolError: it is missing, or none.
    """
    value = arguments.get("producer")
    if not isinstance(value, bytes) or len(value) != PRODUCER_BYTES:
        msg = f"argument producer is {short_repr(value)}; send {PRODUCER_BYTES} bytes"
        raise RemoteProtocolError(msg)
    return value


def flag(arguments: Arguments, name: str) -> bool:
    """Return whether something is asked for; it is not where nothing is said.

    Raises:
        RemoteProtocolError: it is neither true nor false.
    """
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        msg = f"argument {name} is {short_repr(value)}; send true or false"
        raise RemoteProtocolError(msg)
    return value


def number(arguments: Arguments, name: str, maximum: float) -> float:
    """Return a number from 0 to `maximum`.

    Raises:
        RemoteProtocolError: it is missing, or another one.
    """
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
        msg = f"argument {name} is {short_repr(value)}; send a number from 0 to {maximum}"
        raise RemoteProtocolError(msg)
    return value


def wait_s(arguments: Arguments, maximum: float) -> float:
    """Return for how long to wait: what `wait_s` says, up to `maximum`; 0 where it is missing.

    Raises:
        RemoteProtocolError: it is no such number.
    """
    return min(number(arguments, "wait_s", U32_MAX), maximum) if "wait_s" in arguments else 0.0


def whole(arguments: Arguments, name: str, maximum: int) -> int:
    """Return a whole number from 0 to `maximum`.

    Raises:
        RemoteProtocolError: it is missing, or another one.
    """
    value = number(arguments, name, maximum)
    if not isinstance(value, int):
        msg = f"argument {name} is {value!r}; send a whole number"
        raise RemoteProtocolError(msg)
    return value
