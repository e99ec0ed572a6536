"""Describes the gateway's routes in OpenAPI 3.1, for people, generated clients and tests."""

import math
from typing import Any

from poe.gateway.http.body import FORM, JSON, NDJSON, RAW
from poe.gateway.http.options import GatewayOptions
from poe.option import allowed
from poe.topic_properties import TopicProperties
from poe.version import VERSION

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_POSITION = r"^(oldest|newest|-1|\d{1,16}|\d{1,9}:(-1|\d{1,16})(,\d{1,9}:(-1|\d{1,16}))*)$"


def document(options: GatewayOptions) -> Json:
    """Return the document, as a value for JSON; the limits in it are those of the options."""
    posts = {
        "/async/{topic}": ("Send at once; answered before it is delivered.", _accepted()),
        "/batch/async/{topic}": ("Send when the batch is full or old.", _accepted()),
        "/sync/{topic}": ("Send at once, and wait for the broker.", _delivered()),
        "/batch/sync/{topic}": (
            "Send when the batch is full or old, and tell how much waits there, if anything does.",
            _accepted(buffered=_array(_object(partition=_COUNT, buffered_count=_COUNT))),
        ),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Poe's HTTP gateway",
            "version": VERSION,
            "description": "Puts messages onto topics of Poe or Kafka, and reads them.",
        },
        "paths": {
            **{path: {"post": _post(*row, options)} for path, row in posts.items()},
            "/topics": {"get": _get("List topics.", {"200": _json(_topics())}, "503", "504")},
            "/topics/{topic}": {"get": _read(options)},
            "/topics/{topic}/properties": {
                "get": _get("Tell what a topic has.", _described(), "404", *_ASKED) | _of_topic(),
                "put": _changed("Make a topic.", _described("201"), "404"),
                "patch": _changed("Change what a topic has.", _described(), "404"),
            },
            "/healthz": {"get": _get("Tell that the gateway runs.", {"200": _status("ok")})},
            "/readyz": {
                "get": _get("Tell whether the broker answers.", {"200": _status("ready")}, "503")
            },
            "/metrics": {"get": _get("Counts, for Prometheus.", {"200": _plain()})},
            "/disco": {"get": _get("The name of this gateway.", {"200": _plain()})},
            "/openapi.json": {"get": _get("This document.", {"200": _json({"type": "object"})})},
            "/docs": {"get": _get("This document as a page for people.", {"200": _page()})},
        },
        "components": {
            "schemas": {"Message": _message(), "Record": _record(), "Error": _error()},
            "responses": {status: _refusal(*row) for status, row in _REFUSALS.items()},
        },
    }


_REFUSALS: dict[str, tuple[str, bool]] = {
    "400": ("What is wrong with the request.", False),
    "403": ("A page of a browser asks whose origin is not allowed.", False),
    "404": ("There is no such topic, or no such partition of it.", False),
    "406": ("Nothing of what is accepted is served.", False),
    "408": ("The body took too long.", False),
    "409": ("The topic is there already, or is not what it is taken for.", False),
    "410": ("What followed the pointer was deleted.", False),
    "413": ("The body, or one of its messages, is too large, or there are too many.", False),
    "415": ("The content type, or the content encoding, is not served.", False),
    "421": ("The host is none of this gateway.", False),
    "429": ("The buffer is full; nothing was taken.", True),
    "500": ("The edit hook, or the gateway, has failed; nothing was taken.", False),
    "501": ("The transfer encoding, or that on Kafka, is not served.", False),
    "502": ("The broker refuses it.", False),
    "503": ("No broker answers, or a limit is reached; nothing was taken.", True),
    "504": ("The broker took too long; it may have been done.", False),
}
"""By status: what it means, and whether Retry-After comes with it."""
_OF_ALL = ("400", "403", "421")


def _post(summary: str, replies: Json, options: GatewayOptions) -> Json:
    raw: Json = {"type": "string", "minLength": 1, "maxLength": options.body_max}
    records = _object(
        records=_array({"$ref": "#/components/schemas/Record"})
        | {"minItems": 1, "maxItems": options.messages_max}
    ) | {"additionalProperties": False}
    other = {"not": {"type": "object", "required": ["records"]}}
    refused = ("408", "409", "413", "415", "429", "500", "501", "502", "503", "504")
    key = {
        "name": "key",
        "in": "query",
        "description": "Of each message without one.",
        "schema": _TEXT,
    }
    return {
        "summary": summary,
        "parameters": [_topic(), key],
        "requestBody": {
            "required": True,
            "description": "As it is, or in gzip, which Content-Encoding then says.",
            "content": {
                JSON: {"schema": {"anyOf": [records, other]}},
                NDJSON: {"schema": {"description": "A line of JSON for each message."}},
                FORM: {"schema": _texts() | {"minProperties": 1}},
                RAW: {"schema": raw},
            },
        },
        "responses": replies | _refusals(*_OF_ALL, *refused),
    }


def _read(options: GatewayOptions) -> Json:
    page = _object(messages=_array({"$ref": "#/components/schemas/Message"}), next=_TEXT)
    limit = {"type": "integer", "minimum": 1, "maximum": options.read_count_max, "default": 100}
    pointer = {"type": "string", "pattern": _POSITION, "default": "oldest"}
    headers = {each: {"schema": _TEXT} for each in ("Poe-Next", "Poe-Pointer", "Poe-Partition")}
    content = {
        JSON: {"schema": page},
        RAW: {"schema": _TEXT},
        "text/event-stream": {"schema": _TEXT},
    }
    described = {
        "200": {"description": "Messages.", "headers": headers, "content": content},
        "204": {"description": "No message follows; of octets only.", "headers": headers},
    }
    refused = ("404", "406", "409", "410", "502", "503", "504")
    return _get("Read what follows a pointer.", described, *refused) | {
        "parameters": [
            _topic(),
            {"name": "pointer", "in": "query", "schema": pointer},
            {"name": "limit", "in": "query", "schema": limit, "description": "Of JSON only."},
            {
                "name": "Last-Event-ID",
                "in": "header",
                "schema": _TEXT,
                "description": "Of events: where to go on.",
            },
        ],
    }


def _get(summary: str, replies: Json, *refused: str) -> Json:
    return {"summary": summary, "responses": replies | _refusals(*_OF_ALL, *refused)}


_ASKED = ("409", "501", "502", "503", "504")
"""How a question to the broker may be refused."""


def _of_topic() -> Json:
    return {"parameters": [_topic()]}


def _changed(summary: str, replies: Json, *refused: str) -> Json:
    """Return an operation whose body is properties."""
    body = {"required": False, "content": {JSON: {"schema": _properties()}}}
    refusals = (*refused, "408", "413", "415", *_ASKED)
    return _get(summary, replies, *refusals) | _of_topic() | {"requestBody": body}


def _described(status: str = "200") -> Json:
    row = _object(messages=_COUNT, bytes=_COUNT, segments=_COUNT)
    told = _object(
        id=_TEXT,
        created_us=_COUNT,
        version=_COUNT,
        properties=_properties(),
        partitions=_array(row),
    )
    return {status: _json(told)}


def _properties() -> Json:
    """Return the schema of what a topic has; null stands for the node's option."""
    properties: Json = {}
    for name, each in allowed(TopicProperties).items():
        if each.choices == (True, False):
            properties[name] = {"type": "boolean"}
            continue
        found: list[Json] = [{"const": choice} for choice in each.choices]
        if each.range is not None:
            least = "exclusiveMinimum" if each.range.is_above else "minimum"
            number: Json = {"type": "integer" if each.is_whole else "number"}
            number[least] = each.range.least
            if each.range.most < math.inf:
                number["maximum"] = each.range.most
            found.append(number)
        if each.may_be_none:
            found.append({"type": "null"})
        properties[name] = {"anyOf": found}
    group = {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$"}
    properties["keep_unread"] = _array(group) | {"maxItems": 100}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _refusals(*statuses: str) -> Json:
    return {each: {"$ref": f"#/components/responses/{each}"} for each in statuses}


def _refusal(description: str, is_retried: bool) -> Json:  # noqa: FBT001 - a row of the table
    reply = _json({"$ref": "#/components/schemas/Error"}) | {"description": description}
    if is_retried:
        reply["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "required": True}}
    return reply


def _topic() -> Json:
    schema = {
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]*$",
    }
    return {"name": "topic", "in": "path", "required": True, "schema": schema}


def _accepted(**more: Json) -> Json:
    accepted = _object(accepted=_COUNT)
    return {
        "202": _json(accepted | {"properties": accepted["properties"] | more}),
        "207": {"description": "A picker has refused some messages."},
    }


def _delivered() -> Json:
    delivery = _object(partition=_COUNT, pointer=_COUNT, count=_COUNT)
    # -1: the picker has chosen none.
    failure = _object(partition={"type": "integer", "minimum": -1}, error={"type": "object"})
    whole = _object(delivered=_COUNT, deliveries=_array(delivery))
    part = _object(delivered=_COUNT, deliveries=_array({"anyOf": [delivery, failure]}))
    return {
        "200": _json(whole) | {"description": "Delivered; pointers are those of last messages."},
        "207": _json(part) | {"description": "Some messages with keys were delivered."},
    }


def _topics() -> Json:
    return _object(topics=_array(_object(url=_TEXT) | {"additionalProperties": _TEXT}))


def _status(word: str) -> Json:
    return _json(_object(status={"const": word}))


def _plain() -> Json:
    return {"description": "Text.", "content": {"text/plain": {"schema": _TEXT}}}


def _page() -> Json:
    return {"description": "HTML.", "content": {"text/html": {"schema": _TEXT}}}


def _json(schema: Json) -> Json:
    return {"description": "Done.", "content": {JSON: {"schema": schema}}}


def _object(**properties: Json) -> Json:
    return {"type": "object", "required": list(properties), "properties": properties}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _texts() -> Json:
    return {"type": "object", "additionalProperties": _TEXT}


def _base64() -> Json:
    return {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}


def _record() -> Json:
    """Return the schema of a record; the bytes of a member may be given as `…_base64` instead."""
    properties = {
        "value": {"description": "Text stands for itself, any other value for its JSON."},
        "value_base64": _base64(),
        "key": {},
        "key_base64": _base64(),
        "headers": _texts(),
        "headers_base64": {"type": "object", "additionalProperties": _base64()},
    }
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}],
        "not": {"required": ["key", "key_base64"]},
    }


def _message() -> Json:
    members = {"key": _TEXT, "value": {"type": ["string", "null"]}, "headers": _texts()}
    binary = {"key_base64": _base64(), "value_base64": _base64(), "headers_base64": _texts()}
    placed = _object(partition=_COUNT, pointer={"type": "integer", "minimum": 0})
    return placed | {"properties": placed["properties"] | members | binary}


def _error() -> Json:
    error = _object(code=_COUNT, name=_TEXT, message=_TEXT, retriable={"type": "boolean"})
    return _object(error=error)
