"""Describes the gateway's routes in OpenAPI 3.1, for people, generated clients and tests."""

from poe.client.group.queue_core import COPIES_MAX, DEADLINE_MAX_S, DELAY_MAX_S
from poe.gateway.http.body import FORM, JSON, NDJSON, RAW
from poe.gateway.http.openapi_groups import group_paths
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
    texts,
)
from poe.topic_properties import REPLICAS, TopicProperties
from poe.version import VERSION

_POSITION = r"^(oldest|newest|-1|\d{1,16}|\d{1,9}:(-1|\d{1,16})(,\d{1,9}:(-1|\d{1,16}))*)$"


def document(options: GatewayOptions) -> Json:
    """Return the document, as a value for JSON; the limits in it are those of the options."""
    posts = {
        "/async/{topic}": ("Send at once; answered before it is delivered.", _accepted()),
        "/batch/async/{topic}": ("Send when the batch is full or old.", _accepted()),
        "/sync/{topic}": ("Send at once, and wait for the broker.", _delivered()),
        "/batch/sync/{topic}": (
            "Send when the batch is full or old, and tell how much waits there, if anything does.",
            _accepted(buffered=array_of(object_of(partition=COUNT, buffered_count=COUNT))),
        ),
    }
    return _secured(options) | {
        "openapi": "3.1.0",
        "info": {
            "title": "Poe's HTTP gateway",
            "version": VERSION,
            "description": "Puts messages onto topics of Poe or Kafka, and reads them; "
            "of Poe also in groups.",
        },
        "paths": {
            **{path: {"post": _post(*row, options)} for path, row in posts.items()},
            "/topics": {"get": get("List topics.", {"200": json_of(_topics())}, "503", "504")},
            "/topics/{topic}": {"get": _read(options)},
            "/topics/{topic}/properties": {
                "get": get("Tell what a topic has.", _described(), "404", *_ASKED) | _of_topic(),
                "put": _changed("Make a topic.", _described("201"), "404"),
                "patch": _changed("Change what a topic has.", _described(), "404"),
            },
            **group_paths(options),
            "/queues": {
                "get": get("List queues of the cluster.", {"200": json_of(_queues())}, *_ASKED)
            },
            "/queues/{topic}": {"post": _onto_queue(options)},
            "/cluster": {
                "get": get(
                    "How the cluster is.", {"200": json_of({"type": "object"})}, "404", *_ASKED
                )
            },
            "/healthz": {
                "get": get("Tell that the gateway runs.", {"200": _status("ok")}) | {"security": []}
            },
            "/readyz": {
                "get": get(
                    "Tell whether the broker answers and takes puts.",
                    {"200": _status("ready")},
                    "503",
                )
            },
            "/metrics": {"get": get("Counts, for Prometheus.", {"200": _plain()})},
            "/disco": {"get": get("The name of this gateway.", {"200": _plain()})},
            "/openapi.json": {"get": get("This document.", {"200": json_of({"type": "object"})})},
            "/docs": {"get": get("This document as a page for people.", {"200": _page()})},
        },
        "components": {
            "schemas": {"Message": _message(), "Record": _record(), "Error": _error()},
            "responses": {status: _refusal(*row) for status, row in _REFUSALS.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _secured(options: GatewayOptions) -> Json:
    return {"security": [{"bearer": []}]} if options.authentication == "bearer" else {}


_REFUSALS: dict[str, tuple[str, bool]] = {
    "400": ("What is wrong with the request.", False),
    "401": ("The token is missing, or nobody's; only where tokens are asked for.", False),
    "403": ("The owner of the token may not, or a page whose origin is not allowed.", False),
    "404": ("There is no such topic, partition or group.", False),
    "406": ("Nothing of what is accepted is served.", False),
    "408": ("The body took too long.", False),
    "409": ("The topic or the group is another one, or is in use; or this is no member.", False),
    "410": ("What followed the pointer was deleted; or the lease is not held any more.", False),
    "413": ("The body, or one of its messages, is too large, or there are too many.", False),
    "415": ("The content type, or the content encoding, is not served.", False),
    "421": ("The host is none of this gateway.", False),
    "429": ("The buffer or the group is full, or a quota used up; nothing was taken.", True),
    "500": ("The edit hook, or the gateway, has failed; nothing was taken.", False),
    "501": ("The transfer encoding, or that on Kafka, is not served.", False),
    "502": ("The broker refuses it.", False),
    "503": ("No broker answers, or a limit is reached; nothing was taken.", True),
    "504": ("The broker took too long; it may have been done.", False),
}
"""By status: what it means, and whether Retry-After comes with it."""


_LATER: list[Json] = [
    {
        "name": "delay_s",
        "in": "query",
        "description": "Seconds until the messages are to come.",
        "schema": {"type": "number", "minimum": 0, "maximum": DELAY_MAX_S},
    },
    {
        "name": "at",
        "in": "query",
        "description": "When they are to come, from 1970 to 4253; not together with delay_s.",
        "schema": {"type": "string", "format": "date-time"},
    },
]


def _post(summary: str, replies: Json, options: GatewayOptions) -> Json:
    raw: Json = {"type": "string", "minLength": 1, "maxLength": options.body_max}
    records = object_of(
        records=array_of({"$ref": "#/components/schemas/Record"})
        | {"minItems": 1, "maxItems": options.messages_max}
    ) | {"additionalProperties": False}
    other = {"not": {"type": "object", "required": ["records"]}}
    refused = ("408", "409", "413", "415", "429", "500", "501", "502", "503", "504")
    key = {
        "name": "key",
        "in": "query",
        "description": "Of each message without one.",
        "schema": TEXT,
    }
    return {
        "summary": summary,
        "parameters": [_topic(), key, *_LATER],
        "requestBody": {
            "required": True,
            "description": "As it is, or in gzip, which Content-Encoding then says.",
            "content": {
                JSON: {"schema": {"anyOf": [records, other]}},
                NDJSON: {"schema": {"description": "A line of JSON for each message."}},
                FORM: {"schema": texts() | {"minProperties": 1}},
                RAW: {"schema": raw},
            },
        },
        "responses": replies | refusals(*OF_ALL, *refused),
    }


def _onto_queue(options: GatewayOptions) -> Json:
    stored = object_of(delivered=COUNT, pointer=COUNT)
    fewer = object_of(accepted=COUNT)
    replies = {"200": json_of(stored), "202": json_of(fewer)}
    found = _post("Put onto a queue; 202 where it is later, or on fewer nodes.", replies, options)
    copies = {"type": "integer", "minimum": 0, "maximum": COPIES_MAX, "default": 0}
    deadline = {"type": "number", "minimum": 0, "maximum": DEADLINE_MAX_S, "default": 0}
    terms: list[Json] = [
        {"name": "copies", "in": "query", "schema": copies},
        {"name": "deadline_s", "in": "query", "schema": deadline},
    ]
    found["parameters"] = [_topic(), *terms, *_LATER]
    found["responses"] |= refusals("404")
    return found


def _queues() -> Json:
    return object_of(queues=array_of(object_of(name=TEXT)))


def _read(options: GatewayOptions) -> Json:
    page = object_of(messages=array_of({"$ref": "#/components/schemas/Message"}), next=TEXT)
    limit = COUNT | {
        "minimum": 1,
        "maximum": options.read_count_max,
        "default": options.read_count,
    }
    pointer = {"type": "string", "pattern": _POSITION, "default": "oldest"}
    headers = {each: {"schema": TEXT} for each in ("Poe-Next", "Poe-Pointer", "Poe-Partition")}
    content = {
        JSON: {"schema": page},
        RAW: {"schema": TEXT},
        "text/event-stream": {"schema": TEXT},
    }
    described = {
        "200": {"description": "Messages.", "headers": headers, "content": content},
        "204": {"description": "No message follows; of octets only.", "headers": headers},
    }
    refused = ("404", "406", "409", "410", "502", "503", "504")
    return get("Read what follows a pointer.", described, *refused) | {
        "parameters": [
            _topic(),
            {"name": "pointer", "in": "query", "schema": pointer},
            {"name": "limit", "in": "query", "schema": limit, "description": "Of JSON only."},
            {
                "name": "Last-Event-ID",
                "in": "header",
                "schema": TEXT,
                "description": "Of events: where to go on.",
            },
        ],
    }


_ASKED = ("409", "501", "502", "503", "504")
"""How a question to the broker may be refused."""


def _of_topic() -> Json:
    return {"parameters": [_topic()]}


def _changed(summary: str, replies: Json, *refused: str) -> Json:
    """Return an operation whose body is properties."""
    body = {"required": False, "content": {JSON: {"schema": _properties()}}}
    all_refused = (*refused, "408", "413", "415", *_ASKED)
    return get(summary, replies, *all_refused) | _of_topic() | {"requestBody": body}


def _described(status: str = "200") -> Json:
    row = object_of(messages=COUNT, bytes=COUNT, segments=COUNT)
    told = object_of(
        id=TEXT,
        created_us=COUNT,
        version=COUNT,
        properties=_properties(),
        partitions=array_of(row),
    )
    return {status: json_of(told)}


def _properties() -> Json:
    """Return the schema of what a topic has; null stands for the node's option."""
    found = options_of(TopicProperties)
    group = {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$"}
    found["properties"]["keep_unread"] = array_of(group) | {"maxItems": 100}
    found["properties"]["replicas"] = {"type": "integer", "enum": list(REPLICAS)}
    return found


def _refusal(description: str, is_retried: bool) -> Json:  # noqa: FBT001 - a row of the table
    reply = json_of({"$ref": "#/components/schemas/Error"}) | {"description": description}
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
    return {
        "202": _taken(**more, due_us=COUNT | {"description": "Of messages for later."}),
        "207": {"description": "A picker has refused some messages."},
    }


def _taken(**more: Json) -> Json:
    taken = object_of(accepted=COUNT)
    return json_of(taken | {"properties": taken["properties"] | more})


def _delivered() -> Json:
    delivery = object_of(partition=COUNT, pointer=COUNT, count=COUNT)
    # -1: the picker has chosen none.
    failure = object_of(partition={"type": "integer", "minimum": -1}, error={"type": "object"})
    whole = object_of(delivered=COUNT, deliveries=array_of(delivery))
    part = object_of(delivered=COUNT, deliveries=array_of({"anyOf": [delivery, failure]}))
    return {
        "200": json_of(whole) | {"description": "Delivered; pointers are those of last messages."},
        "202": _taken(due_us=COUNT) | {"description": "Kept until they are due."},
        "207": json_of(part) | {"description": "Some messages with keys were delivered."},
    }


def _topics() -> Json:
    return object_of(topics=array_of(object_of(url=TEXT) | {"additionalProperties": TEXT}))


def _status(word: str) -> Json:
    return json_of(object_of(status={"const": word}))


def _plain() -> Json:
    return {"description": "Text.", "content": {"text/plain": {"schema": TEXT}}}


def _page() -> Json:
    return {"description": "HTML.", "content": {"text/html": {"schema": TEXT}}}


def _record() -> Json:
    """Return the schema of a record; the bytes of a member may be given as `…base64` instead."""
    properties = {
        "value": {"description": "Text stands for itself, any other value for its JSON."},
        "value_base64": base64(),
        "key": {},
        "key_base64": base64(),
        "headers": texts(),
        "headers_base64": {"type": "object", "additionalProperties": base64()},
    }
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}],
        "not": {"required": ["key", "key_base64"]},
    }


def _message() -> Json:
    members = {"key": TEXT, "value": {"type": ["string", "null"]}, "headers": texts()}
    binary = {"key_base64": base64(), "value_base64": base64(), "headers_base64": texts()}
    placed = object_of(partition=COUNT, pointer={"type": "integer", "minimum": 0})
    return placed | {"properties": placed["properties"] | members | binary}


def _error() -> Json:
    error = object_of(code=COUNT, name=TEXT, message=TEXT, retriable={"type": "boolean"})
    return object_of(error=error)
