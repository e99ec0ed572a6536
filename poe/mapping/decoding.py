"""Turns the value of a message into a body, and back.

JSON is read the same with and without orjson, which is several times as fast: what it refuses is
refused (NaN, an infinite number, half a surrogate pair), and whole numbers beyond 64 bits are
floats. So a mapping decides the same wherever it runs.
"""

import json
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, get_args

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.errors import UndecodableMessage

try:
    import orjson
except ModuleNotFoundError:
    HAS_ORJSON = False
else:
    HAS_ORJSON = True

Decode = Literal["json", "msgpack", "text", "bytes"]
"""How the value of a message becomes its body."""

DECODES: Final = get_args(Decode)
Decoder = Callable[[bytes | None], Any]


class _Undecoded:
    def __repr__(self) -> str:
        return "what is not decoded"


UNDECODED: Final = _Undecoded()
"""In the place of a body that could not be decoded, or need not be."""

_WORD = f"w{secrets.token_hex(16)}"
_BETWEEN = b',"%b",' % _WORD.encode()
_INTEGER_LEAST, _INTEGER_MOST = -(1 << 63), (1 << 64) - 1
# In a text that is known to be JSON: pairs of surrogates, halves, and other things escaped.
_ESCAPES = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)|\\.", re.DOTALL
)


def decoder(decode: Decode) -> Decoder:
    """Return what decodes values: None, a tombstone, stays None.

    What it returns raises `UndecodableMessage`.
    """
    return _DECODERS[decode]


def loader(decode: Decode) -> Callable[[bytes | None], Any]:
    """Return the same with less around it: what it raises is one of `REFUSALS`.

    Of a tombstone, too; whoever gets that asks `decoder` for the reason.
    """
    return _LOADERS[decode]


def load_all(decode: Decode, values: Sequence[bytes | None]) -> list[Any]:
    """Return what `loader` makes of each of some values, a sixth quicker where they are JSON.

    They are read as one list, in which a word that nobody can know stands between each two. Where
    it stands at each second place of the list, and nowhere else, each value was one document: a
    quotation mark or a bracket that a value has left open would have taken the word in.

    Raises:
        Exception: as `loader`.
    """
    if HAS_ORJSON and decode == "json" and len(values) > 1:
        with suppress(*REFUSALS):
            found = orjson.loads(b"[%b]" % _BETWEEN.join(values))  # type: ignore[arg-type]
            if len(found) == 2 * len(values) - 1 and found[1::2] == [_WORD] * (len(values) - 1):
                return found[::2]  # type: ignore[no-any-return]
    return list(map(_LOADERS[decode], values))


def encode_body(decode: Decode, body: object) -> bytes | None:
    """Return the value of which a body would be decoded.

    Raises:
        UndecodableMessage: it cannot be that.
    """
    try:
        return _ENCODERS[decode](body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UndecodableMessage(decode, str(error)) from error


def json_without_orjson(value: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return what orjson would.

    Raises:
        ValueError: it would refuse.
    """
    text = value.decode("utf-8")
    try:
        found = _JSON.decode(text)
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None
    if any(each["half"] for each in _ESCAPES.finditer(text)):
        msg = "half a surrogate pair is no character"
        raise ValueError(msg)
    return found


def _integer(digits: str) -> int | float:
    number = int(digits) if len(digits) < len(str(_INTEGER_MOST)) + 1 else None
    if number is not None and _INTEGER_LEAST <= number <= _INTEGER_MOST:
        return number
    return _float(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if number in {float("inf"), float("-inf")}:
        msg = "a number is infinite"
        raise ValueError(msg)
    return number


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")  # noqa: EM102, TRY003 - a part of a sentence


_JSON = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_refuse_constant)
_load_json: Callable[[bytes], Any] = orjson.loads if HAS_ORJSON else json_without_orjson


def _load_msgpack(value: bytes) -> Any:  # noqa: ANN401 - msgpack
    return msgpack.unpackb(value, strict_map_key=False)


def _load_text(value: bytes) -> str:
    return value.decode("utf-8")


def _load_bytes(value: bytes) -> bytes:
    return value


def _decoder(decode: Decode, load: Callable[[bytes], Any]) -> Decoder:
    def of(value: bytes | None) -> Any:  # noqa: ANN401 - whatever the value holds
        if value is None:
            return None
        try:
            return load(value)
        except REFUSALS as error:
            raise UndecodableMessage(decode, str(error) or type(error).__name__) from error

    return of


def _dump_json(body: object) -> bytes:
    if HAS_ORJSON:
        return orjson.dumps(body)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _dump_text(body: object) -> bytes | None:
    if body is None or isinstance(body, str):
        return None if body is None else body.encode("utf-8")
    raise TypeError(f"{type(body).__name__} is no text")  # noqa: EM102, TRY003 - as above


def _dump_bytes(body: object) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    raise TypeError(f"{type(body).__name__} is no bytes")  # noqa: EM102, TRY003 - as above


# What libraries raise for bytes that are not theirs; of None, a tombstone, the last two.
REFUSALS: Final = (
    ValueError,
    RecursionError,
    msgpack.UnpackException,
    TypeError,
    AttributeError,
)
_LOADERS: Final[dict[Decode, Callable[[Any], Any]]] = {
    "json": _load_json,
    "msgpack": _load_msgpack,
    "text": _load_text,
    "bytes": _load_bytes,
}
_DECODERS: Final = {decode: _decoder(decode, load) for decode, load in _LOADERS.items()}
_ENCODERS: Final[dict[Decode, Callable[[object], bytes | None]]] = {
    "json": _dump_json,
    "msgpack": msgpack.packb,
    "text": _dump_text,
    "bytes": _dump_bytes,
}
