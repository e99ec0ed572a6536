"""Turns results and errors into HTTP replies: the one place where a `PoeError` becomes a status.

429, 503    not taken, and may be sent again after Retry-After: the buffer is full, the broker
            cannot be reached, a limit is reached
409         the topic is there already, or is not what it is taken for
504         the broker has not answered in time: it may have been done
502         the broker refuses it
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from poe.errors import (
    BufferFull,
    CallTimeout,
    ConnectionClosed,
    DeliveryTimeout,
    Dropped,
    GroupActive,
    GroupFenced,
    GroupFull,
    GroupMismatch,
    InvalidGroupName,
    InvalidMessage,
    InvalidPayload,
    InvalidTopicName,
    KafkaRefused,
    LeaseLost,
    LocalProtocolError,
    MessagesLost,
    NodeAlive,
    NoLogEngine,
    NotAQueue,
    NotATopic,
    NotInCluster,
    OptionError,
    PoeError,
    PointerOutOfRange,
    ProducerClosed,
    PropertyFixed,
    PropertyMismatch,
    PutTooLarge,
    PutUnconfirmed,
    QueueBusy,
    QueueMismatch,
    RangeNotLeased,
    RequestRefused,
    ReservedTopic,
    SpoolDamaged,
    TopicExists,
    UnknownGroup,
    UnknownNode,
    UnknownPipeline,
    UnknownQueue,
    UnknownTopic,
)
from poe.errors.delivery import NEVER_SENT
from poe.gateway.http.admission import Denied

JSON = "application/json"

_STATUSES: Mapping[type[PoeError], int] = {
    InvalidPayload: HTTPStatus.BAD_REQUEST,
    InvalidTopicName: HTTPStatus.BAD_REQUEST,
    LocalProtocolError: HTTPStatus.BAD_REQUEST,
    PointerOutOfRange: HTTPStatus.BAD_REQUEST,
    InvalidGroupName: HTTPStatus.BAD_REQUEST,
    RangeNotLeased: HTTPStatus.BAD_REQUEST,
    OptionError: HTTPStatus.BAD_REQUEST,
    ReservedTopic: HTTPStatus.FORBIDDEN,
    UnknownGroup: HTTPStatus.NOT_FOUND,
    GroupFenced: HTTPStatus.CONFLICT,
    GroupActive: HTTPStatus.CONFLICT,
    GroupMismatch: HTTPStatus.CONFLICT,
    PropertyMismatch: HTTPStatus.CONFLICT,
    LeaseLost: HTTPStatus.GONE,
    GroupFull: HTTPStatus.TOO_MANY_REQUESTS,
    UnknownTopic: HTTPStatus.NOT_FOUND,
    TopicExists: HTTPStatus.CONFLICT,
    PropertyFixed: HTTPStatus.CONFLICT,
    NoLogEngine: HTTPStatus.CONFLICT,
    PutUnconfirmed: HTTPStatus.GATEWAY_TIMEOUT,
    NotInCluster: HTTPStatus.NOT_FOUND,
    UnknownNode: HTTPStatus.NOT_FOUND,
    UnknownPipeline: HTTPStatus.NOT_FOUND,
    NodeAlive: HTTPStatus.CONFLICT,
    UnknownQueue: HTTPStatus.NOT_FOUND,
    QueueMismatch: HTTPStatus.CONFLICT,
    NotATopic: HTTPStatus.CONFLICT,
    NotAQueue: HTTPStatus.CONFLICT,
    PutTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    QueueBusy: HTTPStatus.TOO_MANY_REQUESTS,
    MessagesLost: HTTPStatus.GONE,
    InvalidMessage: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    BufferFull: HTTPStatus.TOO_MANY_REQUESTS,
    ProducerClosed: HTTPStatus.SERVICE_UNAVAILABLE,
    CallTimeout: HTTPStatus.GATEWAY_TIMEOUT,
    ConnectionClosed: HTTPStatus.GATEWAY_TIMEOUT,
}
_KAFKA_TOO_LARGE = 10
"""MSG_SIZE_TOO_LARGE; told without Kafka's library, which most gateways do not have."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


def json_reply(value: object, status: int = 200) -> Response:
    """Return a reply with a value in JSON."""
    return Response(as_json(value), status, media_type=JSON)


def as_json(value: object) -> bytes:
    """Return a value as compact JSON."""
    return _ENCODER.encode(value).encode()


def error_reply(error: PoeError, retry_after_s: int) -> Response:
    """Return the reply that tells an error."""
    status = status_of(error)
    headers = {"Retry-After": str(retry_after_s)} if status in _LATER else {}
    if status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
        headers["Accept-Encoding"] = "gzip"
    return Response(as_json({"error": told(error)}), status, headers, JSON)


def denied_reply(denied: Denied) -> Response:
    """Return the reply to who may not."""
    content = as_json({"error": told(denied.error)})
    return Response(content, denied.status, denied.headers, JSON)


def status_of(error: PoeError) -> int:
    """Return the status that says the most of an error."""
    if isinstance(error, RequestRefused):
        return error.status
    if isinstance(error, DeliveryTimeout | Dropped | SpoolDamaged):
        is_gone = error.fate == NEVER_SENT
        return HTTPStatus.SERVICE_UNAVAILABLE if is_gone else HTTPStatus.GATEWAY_TIMEOUT
    if isinstance(error, KafkaRefused) and error.kafka_code == _KAFKA_TOO_LARGE:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    for kind in type(error).__mro__:
        if kind in _STATUSES:
            return _STATUSES[kind]
    return HTTPStatus.SERVICE_UNAVAILABLE if error.retriable else HTTPStatus.BAD_GATEWAY


def told(error: PoeError) -> dict[str, Any]:
    """Return what a client is told of an error, as all of Poe's doors tell it."""
    return {
        "code": error.code,
        "name": type(error).__name__,
        "message": str(error),
        "retriable": error.retriable or status_of(error) in _LATER,
    }
