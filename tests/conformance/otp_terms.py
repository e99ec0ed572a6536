"""Terms of the differential tests: what JSON says, what Python holds, and what OTP would call it.

The language is that of `otp_driver.erl`: a JSON string is an atom, an array a tuple, null is
`undefined`. Exit reasons of this runtime are written as OTP's: an exception that ended an actor is
`[reason, "$stack"]`, an address the name of its actor.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import Any, NoReturn, cast

from poe.actors import IGNORE, NO_REPLY, ActorExit, ActorRef, LoopAddress
from poe.errors import ChildStartFailed, InvalidChildSpec, UnknownRequest
from poe.supervision import RESTARTING

STACK = "$stack"


class Raised(Exception):
    """`error(Reason)` in Erlang: ends its process with `{Reason, Stack}`."""

    def __init__(self, reason: object) -> None:
        self.reason = reason
        super().__init__(reason)


class StartThrew(Raised):
    """`throw(Reason)` in a start function; the supervisor takes it for a returned error."""


class StartExited(Raised):
    """`exit(Reason)` in a start function: the child's error is `{'EXIT', Reason}`."""


def raise_error(reason: object) -> NoReturn:
    """End the actor that calls it as `error(Reason)` would.

    `{shutdown, Stack}` is an orderly reason to OTP, by the accident of its form.
    """
    raise ActorExit((reason, STACK)) if reason == "shutdown" else Raised(reason)


def term(value: Any) -> Any:
    """Return what a command says as a Python value."""
    return tuple(term(item) for item in value) if isinstance(value, list) else value


def key(value: Any) -> Hashable:
    """Return the id that a command names."""
    return cast("Hashable", term(value))


_OTP_NAMES = {
    "id": "duplicate_child_name",
    "strategy": "invalid_strategy",
    "intensity": "invalid_intensity",
    "period_s": "invalid_period",
    "auto_shutdown": "invalid_auto_shutdown",
    "restart": "invalid_restart_type",
    "significant": "invalid_significant",
    "kind": "invalid_child_type",
    "shutdown_s": "invalid_shutdown",
}


def invalid(error: InvalidChildSpec) -> object:
    """Return OTP's term for what is wrong with a child spec or a flag."""
    if isinstance(error.key, tuple):
        values = cast("tuple[object, ...]", error.value)
        return "bad_combination", tuple(zip(error.key, values, strict=True))
    return (_OTP_NAMES[error.key], error.value) if error.key in _OTP_NAMES else error.key


class Terms:
    """Writes values as JSON; `name_of` names actors."""

    def __init__(self, name_of: Callable[[ActorRef], str]) -> None:
        self._name_of = name_of

    def json(self, value: Any) -> Any:
        """Return a value as the JSON that `otp_driver.erl` writes for it."""
        if isinstance(value, BaseException):
            value = _reason_of(value)
        if isinstance(value, LoopAddress):
            return self._name_of(value)
        if isinstance(value, tuple | list):
            return [self.json(item) for item in value]
        if isinstance(value, Mapping):
            return {name: self.json(item) for name, item in value.items()}
        return _ATOMS[value] if isinstance(value, Enum) and value in _ATOMS else value


_ATOMS = {
    RESTARTING: "restarting",
    # The actors of the driver return these two where they must not.
    IGNORE: "bad",
    NO_REPLY: "bad",
}


def _reason_of(error: BaseException) -> object:
    """Return what an exception that ended an actor, or kept it from starting, is to OTP."""
    match error:
        case StartThrew(reason=reason):
            return reason
        case StartExited(reason=reason):
            return "EXIT", reason
        case Raised(reason=reason):
            return reason, STACK
        case ChildStartFailed(child_id=child_id, reason=reason):
            return "failed_to_start_child", child_id, reason
    if isinstance(error, InvalidChildSpec):
        return "start_spec", invalid(error)
    is_unknown = isinstance(error, UnknownRequest)
    return "function_clause" if is_unknown else f"{type(error).__name__}: {error}", STACK


def text(value: object) -> bytes:
    """Return JSON as the reference driver writes it; what has no order is sorted by this."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
