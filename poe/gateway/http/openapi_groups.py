"""Describes the routes of groups in OpenAPI."""

from poe.broker.groups.options import NAME_BYTES_MAX, GroupOptions
from poe.gateway.http.body import JSON
from poe.gateway.http.group_fields import GENERATION_MAX, LEASE_PATTERN, MEMBER_PATTERN
from poe.gateway.http.groups import EXTEND_MAX_S, WAIT_MAX_S
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.schema import (
    COUNT,
    OF_ALL,
    TEXT,
    Json,
    array_of,
    base64,
    get,
    json_of,
    object_of,
    options_of,
    refusals,
)
from poe.protocol.leases import VERDICTS
from poe.record import POINTER_MAX

_NAME: Json = {"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX}
_LABEL: Json = {"type": "string", "maxLength": NAME_BYTES_MAX}
_LEASE: Json = {"type": "string", "pattern": LEASE_PATTERN}
_MEMBER: Json = {"type": "string", "pattern": MEMBER_PATTERN}
_FLAG: Json = {"type": "boolean", "default": False}
_POINTER: Json = COUNT | {"maximum": POINTER_MAX}
_GENERATION: Json = COUNT | {"maximum": GENERATION_MAX}
_GROUP_PARAMETER: Json = {
    "name": "group",
    "in": "path",
    "required": True,
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]*$",
    },
}
_MEMBER_PARAMETER: Json = {"name": "member", "in": "path", "required": True, "schema": _MEMBER}
_REFUSED = ("404", "409", "501", "502", "503", "504")
_BODY_REFUSED = ("408", "413", "415", "429", *_REFUSED)
_GROUP_URL = "/groups/{group}"
_MEMBER_URL = "/groups/{group}/members/{member}"


def group_paths(options: GatewayOptions) -> Json:
    """Return the paths of groups; the limits in them are those of the options."""
    limit = COUNT | {
        "minimum": 1,
        "maximum": options.read_count_max,
        "default": options.read_count,
    }
    wait_s = _seconds(WAIT_MAX_S) | {"default": 0}
    told = {"done": array_of(_done()), "failed": array_of(_failed())}
    force = {"name": "force", "in": "query", "schema": {"enum": ["true", "false"]}}
    anything = json_of({"type": "object"})
    listed = object_of(groups=array_of(object_of(group=TEXT, mode=TEXT, topics=array_of(TEXT))))
    placed = object_of(units=array_of(object_of(unit=TEXT, pointer=COUNT)))
    lost = object_of(lost=array_of(_LEASE))
    return {
        "/groups": {"get": get("List groups.", {"200": json_of(listed)}, *_REFUSED)},
        _GROUP_URL: {
            "get": _of_group("Describe a group: members, units, what has happened.", anything),
            "put": _post_group(
                "Make a group.",
                _body({"mode": _mode(), "topics": _topics(), "options": _options()}, 2),
                {"201": anything},
            ),
            "delete": _of_group("Delete a group; one with members by force.", anything, force),
        },
        f"{_GROUP_URL}/lag": {
            "get": _of_group(
                "How far behind each unit is, in messages and seconds.",
                json_of(object_of(units=array_of(object_of(unit=TEXT, messages=COUNT)))),
            )
        },
        f"{_GROUP_URL}/positions": {
            "get": _of_group(
                "How far a group of mode ordered is; null: it never had a position.",
                json_of(object_of(units=array_of(object_of(unit=TEXT)))),
            )
        },
        f"{_GROUP_URL}/pause": {
            "post": _post_group("Hand nothing out from now on.", _body({}), {"200": anything})
        },
        f"{_GROUP_URL}/resume": {
            "post": _post_group("Go on after a pause.", _body({}), {"200": anything})
        },
        f"{_GROUP_URL}/reset": {
            "post": _post_group(
                "Go on somewhere else, or with `dry` tell what that would mean.",
                _reset(),
                {"200": json_of(object_of(units=array_of(object_of(unit=TEXT, new=COUNT))))},
            )
        },
        f"{_GROUP_URL}/members": {
            "post": _post_group(
                "Join; with a mode, the group is made where there is none.",
                _body(
                    {
                        "member": _MEMBER,
                        "name": _LABEL,
                        "instance": _LABEL,
                        "topics": _topics(),
                        "mode": _mode(),
                        "options": _options(),
                    }
                ),
                {"200": json_of(object_of(member=_MEMBER, generation=COUNT, units=array_of(TEXT)))},
            )
        },
        _MEMBER_URL: {
            "delete": _of_group("Leave.", anything, _MEMBER_PARAMETER),
        },
        f"{_MEMBER_URL}/heartbeat": _post_member(
            "Stay a member; what it may own, and what it is to give up.",
            _body({"generation": _GENERATION, "owned": array_of(_NAME)}),
            object_of(generation=COUNT, keep=array_of(TEXT), revoke=array_of(TEXT)),
        ),
        f"{_MEMBER_URL}/read": _post_member(
            "Mode ordered: messages of a unit that is the member's own.",
            _body(
                {
                    "generation": _GENERATION,
                    "units": array_of(_body({"unit": _NAME, "pointer": _POINTER}, 1)),
                    "limit": limit,
                    "wait_s": wait_s,
                }
            ),
            placed | object_of(generation=COUNT, revoke=array_of(TEXT), messages=array_of({})),
        ),
        f"{_MEMBER_URL}/commit": _post_member(
            "Mode ordered: how far the member is.",
            _body({"generation": _GENERATION, "positions": array_of(_position())}, 2),
            placed,
        ),
        f"{_MEMBER_URL}/lease": _post_member(
            "Mode shared: messages to work on, until they are acknowledged.",
            _body({"limit": limit, "wait_s": wait_s, **told}),
            object_of(
                lease={"type": ["string", "null"]}, lost=array_of(_LEASE), messages=array_of({})
            ),
        ),
        f"{_MEMBER_URL}/acknowledge": _post_member(
            "Mode shared: what became of messages.", _body(told), lost
        ),
        f"{_MEMBER_URL}/extend": _post_member(
            "Mode shared: work on messages for longer.",
            _body({"leases": array_of(_LEASE), "seconds": _seconds(EXTEND_MAX_S)}, 2),
            lost,
        ),
    }


def _of_group(summary: str, reply: Json, *parameters: Json) -> Json:
    found = get(summary, {"200": reply}, *_REFUSED)
    return found | {"parameters": [_GROUP_PARAMETER, *parameters]}


def _post_group(summary: str, body: Json, replies: Json, *parameters: Json) -> Json:
    return {
        "summary": summary,
        "parameters": [_GROUP_PARAMETER, *parameters],
        "requestBody": {
            "required": bool(body.keys() & {"required", "oneOf"}),
            "content": {JSON: {"schema": body}},
        },
        "responses": replies | refusals(*OF_ALL, *_BODY_REFUSED),
    }


def _post_member(summary: str, body: Json, reply: Json) -> Json:
    replies = {"200": json_of(reply), **refusals("410")}
    return {"post": _post_group(summary, body, replies, _MEMBER_PARAMETER)}


def _body(members: Json, required_count: int = 0) -> Json:
    """Return the schema of an object of no other members; the first ones must be there."""
    found: Json = {"type": "object", "properties": members, "additionalProperties": False}
    required = list(members)[:required_count]
    return found | ({"required": required} if required else {})


def _seconds(most: float) -> Json:
    return {"type": "number", "minimum": 0, "maximum": most}


def _mode() -> Json:
    return {"enum": ["ordered", "shared"]}


def _topics() -> Json:
    return array_of(_NAME) | {"minItems": 1, "maxItems": 1000}


def _done() -> Json:
    ranges = array_of(_body({"after": _POINTER, "last": _POINTER}, 2))
    return _body({"lease": _LEASE, "ranges": ranges}, 1)


def _failed() -> Json:
    place = {"lease": _LEASE, "after": _POINTER, "last": _POINTER}
    verdict = {"enum": list(VERDICTS), "default": VERDICTS[0]}
    more = {"verdict": verdict, "delay_s": _seconds(86_400), "reason": TEXT}
    return _body({**place, **more}, 3)


def _position() -> Json:
    data = {"type": "string", "maxLength": 255}
    kept = base64() | {"maxLength": 1024}
    return _body({"unit": _NAME, "pointer": _POINTER, "data": data, "data_base64": kept}, 2)


def _reset() -> Json:
    place = _body({"unit": _NAME, "pointer": _POINTER}, 2)
    ways = {
        "to": {"enum": ["oldest", "newest"]},
        "time_us": _POINTER,
        "positions": array_of(place) | {"minItems": 1},
    }
    more = {"units": array_of(_NAME), "dry": _FLAG, "force": _FLAG}
    return _body({**ways, **more}) | {"oneOf": [{"required": [each]} for each in ways]}


def _options() -> Json:
    """Return the schema of the options of a group, as their class has them."""
    found = options_of(GroupOptions)
    found["properties"]["dead_letter_topic"] = {"anyOf": [_NAME, {"type": "null"}]}
    return found
