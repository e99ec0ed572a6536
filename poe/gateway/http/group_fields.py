"""What clients say to groups in JSON: the members of an object, checked, as values.

Names of topics and units are written as in a path, percent-encoded: of most names that changes
nothing, and it can say all of them. Members are 32 hexadecimal digits. Leases are text, since their
numbers are greater than those that JavaScript has.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import quote, unquote_to_bytes

from poe.errors.short_text import short_repr
from poe.gateway.http.body import options_in, parsed
from poe.gateway.http.refusal import refuse
from poe.protocol.leases import LEASE_COUNT_MAX, MEMBER_BYTES, VERDICTS, Done, Failed
from poe.record import POINTER_MAX

Field = Callable[[str, object], Any]

LEASE_PATTERN = "^[0-9]{1,19}$"
MEMBER_PATTERN = f"^[0-9a-f]{{{2 * MEMBER_BYTES}}}$"
GENERATION_MAX = 2**53 - 1
"""As far as JavaScript counts; there will be such a generation in 2311."""

_HEX = frozenset({"id", "owner"})
"""Where bytes are no names."""


def fields_of(body: bytes, fields: Mapping[str, Field], required: set[str]) -> dict[str, Any]:
    """Return the members of the object that a body is; an empty body is one without members.

    Raises:
        RequestRefused: it is none, lacks some, or has others than there are.
    """
    return _members("the body", parsed(body, "the body") if body else {}, fields, required)


def _members(
    place: str, content: object, fields: Mapping[str, Field], required: set[str]
) -> dict[str, Any]:
    if not isinstance(content, dict) or not required <= content.keys() <= fields.keys():
        needed = f"; it needs {', '.join(sorted(required))}" if required else ""
        allowed = ", ".join(sorted(fields)) or "nothing"
        refuse(f"{place} is {short_repr(content)}; send an object of {allowed}{needed}")
    return {name: fields[name](name, value) for name, value in content.items()}


def _rows(
    field: str, value: object, fields: Mapping[str, Field], required: set[str]
) -> Iterator[dict[str, Any]]:
    """Yield the members of each object of an array."""
    for i, each in enumerate(_items(field, value)):
        yield _members(f"{field}[{i}]", each, fields, required)


def name_text(name: bytes) -> str:
    """Return the name of a topic or unit as it is told."""
    return quote(name, safe="")


def told_of(value: object, key: str = "") -> Any:  # noqa: ANN401 - as JSON has it
    """Return what a server tells of a group as JSON can hold it."""
    if isinstance(value, dict):
        return {name: told_of(each, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [told_of(each, key) for each in value]
    if isinstance(value, bytes):
        return value.hex() if key in _HEX else name_text(value)
    return value


def member_of(text: str) -> bytes:
    """Return the id of a member.

    Raises:
        RequestRefused: it is none.
    """
    if re.fullmatch(MEMBER_PATTERN, text) is None:
        refuse(f"member {text!r:.100} is none; use {2 * MEMBER_BYTES} digits from 0 to f")
    return bytes.fromhex(text)


def flag(name: str, value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        _refuse_value(name, value, "true or false")
    return value


def text(name: str, value: object) -> str:
    """Return text, which UTF-8 has a form of."""
    if not isinstance(value, str) or not _is_characters(value):
        _refuse_value(name, value, "text")
    return value


def _is_characters(value: str) -> bool:
    """Return whether all of a text is characters: halves of surrogate pairs are none."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def choice(*allowed: str) -> Field:
    """Return what takes one of some texts."""

    def take(name: str, value: object) -> str:
        if value not in allowed:
            _refuse_value(name, value, " or ".join(allowed))
        return str(value)

    return take


def options(name: str, value: object) -> dict[str, Any]:
    """Return options by name, which the broker checks."""
    if not isinstance(value, dict):
        _refuse_value(name, value, "an object")
    for each in value:
        if isinstance(value[each], str):
            text(f"{name}.{each}", value[each])
    return options_in(value)


def seconds(maximum: float) -> Field:
    """Return the field of a time of 0 to `maximum` seconds."""

    def field(name: str, value: object) -> float:
        # True is a number to Python; what is not finite is none that is less than the maximum.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and 0 <= value <= maximum:  # type: ignore[operator]  # it is a number
            return float(value)  # type: ignore[arg-type]  # likewise
        _refuse_value(name, value, f"seconds from 0 to {maximum:g}")

    return field


def whole(least: int, most: int) -> Field:
    """Return the field of a whole number between two."""

    def field(name: str, value: object) -> int:
        # 1.0 is a whole number to JSON, which knows one kind of them.
        found = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(found, int) and not isinstance(found, bool) and least <= found <= most:
            return found
        _refuse_value(name, value, f"a whole number from {least} to {most}")

    return field


pointer = whole(0, POINTER_MAX)


def name(field: str, value: object) -> bytes:
    """Return the name of a topic or unit."""
    found = unquote_to_bytes(text(field, value))
    if not found:
        _refuse_value(field, value, "the name of a topic")
    return found


def names(field: str, value: object) -> list[bytes]:
    """Return names of topics or units."""
    return [name(f"{field}[{i}]", each) for i, each in enumerate(_items(field, value))]


def lease(field: str, value: object) -> int:
    """Return the number of a lease."""
    number = text(field, value)
    if re.fullmatch(LEASE_PATTERN, number, re.ASCII) is None:
        _refuse_value(field, value, "the number of one, as text")
    return int(number)


def leases(field: str, value: object) -> list[int]:
    """Return the numbers of leases."""
    return [lease(f"{field}[{i}]", each) for i, each in enumerate(_items(field, value))]


def done(field: str, value: object) -> tuple[Done, ...]:
    """Return what of leases is done."""
    fields = {"lease": lease, "ranges": _ranges}
    return tuple(Done(**row) for row in _rows(field, value, fields, {"lease"}))


def failed(field: str, value: object) -> tuple[Failed, ...]:
    """Return what of leases was not done."""
    fields: Mapping[str, Field] = {
        "lease": lease,
        "after": pointer,
        "last": pointer,
        "verdict": choice(*VERDICTS),
        "delay_s": seconds(86_400),
        "reason": text,
    }
    found = []
    for row in _rows(field, value, fields, {"lease", "after", "last"}):
        _check_range(row["after"], row["last"])
        found.append(Failed(**row))
    return tuple(found)


def places(field: str, value: object) -> dict[bytes, int | None]:
    """Return where to read units: a pointer, or None where the group knows."""
    fields = {"unit": name, "pointer": pointer}
    rows = _rows(field, value, fields, {"unit"})
    return {row["unit"]: row.get("pointer") for row in rows}


def positions(field: str, value: object) -> dict[bytes, list[Any]]:
    """Return how far units are, and the bytes that a client keeps with that."""
    fields = {"unit": name, "pointer": pointer, "data": text, "data_base64": _base64}
    found = {}
    for row in _rows(field, value, fields, {"unit", "pointer"}):
        kept = row.get("data", "").encode(errors="surrogatepass") or row.get("data_base64", b"")
        found[row["unit"]] = [row["pointer"], kept]
    return found


def pointers(field: str, value: object) -> dict[bytes, int]:
    """Return where units are to go on."""
    fields = {"unit": name, "pointer": pointer}
    rows = _rows(field, value, fields, {"unit", "pointer"})
    return {row["unit"]: row["pointer"] for row in rows}


def _ranges(field: str, value: object) -> tuple[tuple[int, int], ...]:
    fields = {"after": pointer, "last": pointer}
    found = []
    for row in _rows(field, value, fields, {"after", "last"}):
        _check_range(row["after"], row["last"])
        found.append((row["after"], row["last"]))
    return tuple(found)


def _check_range(after: int, last: int) -> None:
    if not after < last:
        refuse(f"the range behind {after} up to {last} is empty; it ends with the pointer `last`")


def _base64(field: str, value: object) -> bytes:
    try:
        return b64decode(text(field, value), validate=True)
    except ValueError:
        _refuse_value(field, value, "text in base64")


def _items(field: str, value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > LEASE_COUNT_MAX:
        _refuse_value(field, value, f"an array of {LEASE_COUNT_MAX} items at most")
    return value


def _refuse_value(field: str, value: object, allowed: str) -> NoReturn:
    refuse(f"{field} is {short_repr(value)}; send {allowed}")
