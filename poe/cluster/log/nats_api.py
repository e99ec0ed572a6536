"""What is said to the engine's interface for streams, and what its answers mean; all of it pure."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from poe.cluster.log.engine import NotStored, Stored
from poe.errors import ClusterError, LogEngineUnfit, NoQuorum

DEDUPE_NS: Final = 120 * 10**9
CATALOG_REPLICAS: Final = 3

CREATE: Final = "$JS.API.STREAM.CREATE."
UPDATE: Final = "$JS.API.STREAM.UPDATE."
INFO: Final = "$JS.API.STREAM.INFO."
DELETE: Final = "$JS.API.STREAM.DELETE."
CONSUMER_CREATE: Final = "$JS.API.CONSUMER.CREATE."
CONSUMER_DELETE: Final = "$JS.API.CONSUMER.DELETE."
NEXT: Final = "$JS.API.CONSUMER.MSG.NEXT."
STEP_DOWN: Final = "$JS.API.STREAM.LEADER.STEPDOWN."
REMOVE_SERVER: Final = "$JS.API.SERVER.REMOVE"

# Codes of errors, which never change their meaning: `server/errors.json` of nats-server.
NO_SUITABLE_PEERS: Final = 10005
NOT_AVAILABLE: Final = 10008
NOT_A_MEMBER: Final = 10044
STREAM_NAME_IN_USE: Final = 10058
STREAM_NOT_FOUND: Final = 10059
MEMBERS_CHANGE: Final = 10202
WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
REPLICAS_ALONE: Final = 10074

REFUSED_BEFORE_ASKING: Final = frozenset(
    {10002, 10023, NOT_AVAILABLE, 10054, STREAM_NOT_FOUND, 10109}
)
"""Of a publishing: no room (10002, 10023), no leader, too large, no stream, or one that is sealed.

Other errors say nothing of that: with 10077 the leader tells that its own disk took nothing, which
it tries when a majority has the entry already.
"""

_ENTRY_TOKENS: Final = 9
_SILENT_NS: Final = 4 * 10**9
_IDLE_NS: Final = 60 * 10**9
"""So long the engine keeps a consumer of which it hears nothing."""


class EntryPlace(NamedTuple):
    """What the engine says of a message that it delivers, beside the message."""

    place: int
    number: int
    """It is the so-manieth of its consumer."""
    time_us: int
    rest: int
    """How many more there are."""


def place_of(reply: bytes) -> EntryPlace:
    """Return what the subject says on which a message would be acknowledged."""
    words = reply.split(b".")
    # With a domain and an account there are two words more in front, and perhaps one at the end.
    at = 5 if len(words) == _ENTRY_TOKENS else 7
    return EntryPlace(
        int(words[at]), int(words[at + 1]), int(words[at + 2]) // 1000, int(words[at + 3])
    )


def is_entry(reply: bytes) -> bool:
    """Return whether a message is one of a stream, and none of the engine's own."""
    return reply.startswith(b"$JS.ACK.")


def stream_settings(name: str, subject: str, replicas: int, bytes_max: int) -> dict[str, Any]:
    """Return those of a stream of entries, which are never changed but by the engine."""
    return {
        "name": name,
        "subjects": [subject],
        "num_replicas": replicas,
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_bytes": bytes_max,
        "max_age": 0,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "duplicate_window": DEDUPE_NS,
        "deny_delete": True,
        "deny_purge": True,
        "allow_direct": False,
    }


def catalog_settings(name: str, subjects: str) -> dict[str, Any]:
    """Return those of the catalog: the newest value of each key."""
    settings = stream_settings(name, subjects, CATALOG_REPLICAS, -1)
    return settings | {"max_msgs_per_subject": 1}


_HELD: Final = (
    "subjects", "storage", "retention", "discard", "max_age", "max_msgs", "max_msgs_per_subject",
    "duplicate_window", "deny_delete", "deny_purge", "num_replicas",
)  # fmt: skip
"""Settings that promises rest on."""
_NEVER: Final = {
    "sealed": False,
    "mirror": None,
    "sources": None,
    "republish": None,
    "subject_transform": None,
    "no_ack": False,
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "persist_mode": "default",
}
"""Settings that nobody is to have made, and what they are then."""


def changed_settings(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what somebody else has changed of a stream, as `key: value, not value`."""
    changed = [
        f"{key}: {found.get(key)!r}, not {wanted[key]!r}"
        for key in _HELD
        if found.get(key) != wanted[key]
    ]
    changed += [
        f"{key}: {found[key]!r}, not {value!r}"
        for key, value in _NEVER.items()
        if found.get(key) not in (value, None, False, [], "")
    ]
    return tuple(changed)


def unfit_stream(stream: str, changed: tuple[str, ...]) -> LogEngineUnfit:
    """Return the error for a stream that somebody has changed."""
    why = f"its stream {stream!r} has settings that nobody of this cluster has made"
    return LogEngineUnfit(f"{why} ({'; '.join(changed)})", "put them back as they were")


def consumer_settings(stream: str, start: int) -> dict[str, Any]:
    """Return the request for a consumer that reads a stream from a place on and keeps nothing."""
    return {
        "stream_name": stream,
        "config": {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _IDLE_NS,
        },
    }


def next_request(count: int, bytes_max: int, expires_s: float, heartbeat_s: float) -> bytes:
    """Return the request for the next entries."""
    request = {
        "batch": count,
        "max_bytes": bytes_max,
        "expires": int(expires_s * 10**9),
        "idle_heartbeat": int(heartbeat_s * 10**9),
    }
    return json.dumps(request).encode()


def is_reached(peer: Mapping[str, Any]) -> bool:
    """Return whether the leader of some servers hears of one of them, every second if it lives.

    That it is offline is said late: a minute may pass after a server was killed.
    """
    active_ns = int(peer.get("active", 0))
    is_heard = active_ns > 0 or bool(peer.get("current"))
    return is_heard and active_ns < _SILENT_NS and not peer.get("offline")


def error_code(answer: Mapping[str, Any]) -> int:
    """Return the code of the error in an answer; 0: it is none."""
    error = answer.get("error")
    if not isinstance(error, dict):
        return 0
    return int(error.get("err_code") or error.get("code") or -1)


def error_text(answer: Mapping[str, Any]) -> str:
    """Return what the engine says of an error."""
    error = answer.get("error")
    return str(error.get("description", "")) if isinstance(error, dict) else ""


def answer_to_publish(answer: Mapping[str, Any]) -> Stored | NotStored:
    """Return what became of an entry."""
    code = error_code(answer)
    if not code and isinstance(answer.get("seq"), int):
        return Stored(answer["seq"])
    return NotStored(
        code in REFUSED_BEFORE_ASKING, error_text(answer) or "the engine gave no answer that is one"
    )


def check_answer(answer: Mapping[str, Any], what: str) -> None:
    """Raise what an answer refuses.

    Raises:
        NoQuorum: the engine is not available.
        ClusterError: it refuses anything else.
    """
    code = error_code(answer)
    if code == NOT_AVAILABLE:
        raise NoQuorum(what)
    if code:
        msg = f"the engine of the replicated log refuses {what}: {error_text(answer)} ({code})"
        raise ClusterError(msg)
