"""Turns the body of a POST into the messages that it stands for: all of them, or none.

    application/json                    one message, its bytes unchanged; but {"records": [...]} is
                                        a message for each record
    application/x-ndjson                a message for each line that is not blank
    application/x-www-form-urlencoded   a message for each field, with its name as key (kafboy)
    application/octet-stream, text/*    one message, its bytes unchanged

A record is `{"value": ..., "key": ..., "headers": {...}}`. Text stands for its bytes in UTF-8; any
other value stands for itself in JSON. `value_base64`, `key_base64` and `headers_base64` hold bytes.
"""

import asyncio
import json
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.parse import unquote_to_bytes

from poe.client.producer.payload import Message, Messages
from poe.errors import RequestRefused
from poe.errors.short_text import short_repr
from poe.gateway.http.refusal import refuse

JSON, NDJSON = "application/json", "application/x-ndjson"
FORM, RAW = "application/x-www-form-urlencoded", "application/octet-stream"
CONTENT_TYPES = (JSON, NDJSON, FORM, RAW, "text/plain")

_LARGE_BYTES = 32 << 10
_WHOLE_MAX = 1 << 63  # what goes through a frame
_RECORD = frozenset({"value", "value_base64", "key", "key_base64", "headers", "headers_base64"})


def messages_of(
    content_type: str,
    body: bytes,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    count_max: int,
) -> Messages:
    """Return the messages of a body, in order.

    Args:
        content_type: as sent; none means octets, as RFC 9110 has it.
        body: all of it.
        key: of the request, for each message that has none of its own; None without one.
        headers: likewise, by name.
        count_max: messages that one request may have.

    Raises:
        RequestRefused: 400 what is wrong, 413 too many messages, 415 another type.
    """
    if not body:
        refuse("the body is empty; an empty message is sent as a record")
    kind = content_type.partition(";")[0].strip().lower() or RAW
    values, records = [body], None
    if kind == JSON or (kind.startswith("application/") and kind.endswith("+json")):
        content = parsed(body, "the body")
        if isinstance(content, dict) and "records" in content:
            records = _records(content, count_max)
    elif kind in {NDJSON, "application/ndjson"}:
        values = _lines(body, count_max)
    elif kind == FORM:
        records = _fields(body, count_max)
    elif kind != RAW and not kind.startswith("text/"):
        why = f"content type {kind:.100} is not served; use one of {', '.join(CONTENT_TYPES)}"
        raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, why)
    if key is None and headers is None:
        return values if records is None else records
    return [
        Message(
            each.value,
            key if each.key is None else each.key,
            {**(headers or {}), **(each.headers or {})} or None,
        )
        for each in (map(Message, values) if records is None else records)
    ]


async def messages_in(
    content_type: str,
    body: bytes,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    count_max: int,
) -> Messages:
    """Return what `messages_of` does, one message at least.

    Raises:
        RequestRefused: as `messages_of`, or there is none.
    """
    arguments = content_type, body, key, headers, count_max
    if len(body) > _LARGE_BYTES:  # others get their turns while it is taken apart
        messages = await asyncio.to_thread(messages_of, *arguments)
    else:
        messages = messages_of(*arguments)
    if not messages:
        refuse("there is no message in the body; send 1 or more")
    return messages


def options_in(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by name; JSON has one kind of numbers, in which 1.0 is a whole one."""
    return {name: _whole(value) for name, value in content.items()}


def properties_in(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties of a topic by name.

    Raises:
        RequestRefused: one has the name of an argument of the client that would be handed it.
    """
    for name in content.keys() & {"self", "topic"}:
        refuse(f"there is no property {name!r}")
    return options_in(content)


def _whole(value: object) -> object:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE_MAX
    return int(value) if is_whole else value  # type: ignore[call-overload]  # it is a number


def query_of(query: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a query or a form, percent-decoded; they need be no UTF-8."""
    pairs = (field.partition(b"=") for field in query.replace(b"+", b" ").split(b"&") if field)
    return [(unquote_to_bytes(name), unquote_to_bytes(value)) for name, _, value in pairs]


def once(query: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the parameters of a query.

    Raises:
        RequestRefused: one that is there a second time.
    """
    seen = set()
    for name, value in query_of(query):
        if name in seen:
            refuse(f"parameter {shown(name)} is given twice; give it once")
        seen.add(name)
        yield name, value


def shown(name: bytes) -> str:
    """Return a parameter's name as an error tells it."""
    return short_repr(name.decode("utf-8", "backslashreplace"))


def _lines(body: bytes, count_max: int) -> list[bytes]:
    lines = [line for line in map(bytes.strip, body.split(b"\n")) if line]
    _check_count(len(lines), count_max)
    for number, line in enumerate(lines, start=1):
        parsed(line, f"message {number}")
    return lines


def _fields(body: bytes, count_max: int) -> list[Message]:
    # curl -d sends JSON as a form, unless it is told better.
    if body.lstrip()[:1] in {b"{", b"["}:
        refuse(f"this form looks like JSON; send it with Content-Type: {JSON}")
    _check_count(body.count(b"&") + 1, count_max)
    fields = query_of(body)
    _check_count(len(fields), count_max)
    return [Message(value, key) for key, value in fields]


def _records(content: dict[str, Any], count_max: int) -> list[Message]:
    records = content["records"]
    if len(content) > 1 or not isinstance(records, list):
        refuse(
            'an object with "records" is {"records": [...]} and nothing else; to send this one as '
            f"a message, use Content-Type: {RAW}"
        )
    _check_count(len(records), count_max)
    return [_record(f"records[{i}]", each) for i, each in enumerate(records)]


def _record(place: str, record: Any) -> Message:  # noqa: ANN401 - as JSON has it
    if not isinstance(record, dict) or not record.keys() <= _RECORD:
        refuse(f"{place} is {short_repr(record)}; use an object of {', '.join(sorted(_RECORD))}")
    if not record.keys() & {"value", "value_base64"}:
        refuse(f"{place} has no value; give value or value_base64")
    value, key = _member(place, record, "value"), _member(place, record, "key")
    headers = _headers(place, record, "headers", _encoded)
    headers |= _headers(place, record, "headers_base64", _from_base64)
    return Message(value, key, headers or None)


def _member(place: str, record: dict[str, Any], name: str) -> bytes | None:
    """Return the bytes of a value or a key; None where it is null or absent."""
    if name + "_base64" in record:
        if name in record:
            refuse(f"{place} has both of {name} and {name}_base64; use one")
        return _from_base64(f"{name}_base64 of {place}", record[name + "_base64"])
    content = record.get(name)
    return None if content is None else _encoded(f"{name} of {place}", content)


def _headers(
    place: str, record: dict[str, Any], name: str, encode: Callable[[str, Any], bytes]
) -> dict[str, bytes]:
    if name not in record:
        return {}
    headers = record[name]
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        refuse(f"{name} of {place} are {short_repr(headers)}; use an object of text to text")
    return {each: encode(f"{name} of {place}", text) for each, text in headers.items()}


def _encoded(place: str, content: Any) -> bytes:  # noqa: ANN401 - as JSON has it
    name = place.partition(" ")[0]
    try:
        text = content if isinstance(content, str) else _ENCODER.encode(content)
        return text.encode()
    except UnicodeEncodeError:
        refuse(f"{place} has half of a surrogate pair, which is no text; use {name}_base64")
    except ValueError:  # Python reads 1e400, and would write Infinity
        refuse(f"{place} has a number that is too large; use {name}_base64")
    except RecursionError:
        refuse(f"{place} is nested too deeply")


def _from_base64(place: str, text: Any) -> bytes:  # noqa: ANN401 - as JSON has it
    try:
        return b64decode(text, validate=True)
    except (TypeError, ValueError):
        refuse(f"{place} is {short_repr(text)}; use text in base64")


def parsed(text: bytes, place: str) -> Any:  # noqa: ANN401 - whatever it holds
    """Return what JSON stands for.

    Raises:
        RequestRefused: it is none.
    """
    try:
        return _DECODER.decode(text.decode())
    # Its own words say where, but for two: those of a long number are for programmers.
    except ValueError as error:
        if "sys.set_int_max_str_digits" in str(error):
            digits = sys.get_int_max_str_digits()
            refuse(f"{place} has a number of more than {digits} digits; send it as text")
        refuse(f"{place} is no JSON: {error}")
    except RecursionError:
        refuse(f"{place} is nested too deeply")


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is no number of JSON"
    raise ValueError(msg)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _check_count(count: int, count_max: int) -> None:
    if count > count_max:
        why = (
            f"{count} messages in one request; send at most {count_max} (option messages_max; with "
            "a long key or many headers for all of them, fewer)"
        )
        raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
