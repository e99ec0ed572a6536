"""The words in which the OpenAPI document is written: schemas, answers and refusals."""

import math
from typing import Any

from poe.gateway.http.body import JSON
from poe.option import Allowed, allowed

Json = dict[str, Any]

TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
OF_ALL = ("400", "401", "403", "421", "429", "503")
"""What any request may be answered with."""


def get(summary: str, replies: Json, *refused: str) -> Json:
    """Return an operation without a body; `refused` are the statuses beside those of all."""
    return {"summary": summary, "responses": replies | refusals(*OF_ALL, *refused)}


def refusals(*statuses: str) -> Json:
    """Return the answers of these statuses, which the document has once."""
    return {each: {"$ref": f"#/components/responses/{each}"} for each in statuses}


def json_of(schema: Json) -> Json:
    """Return an answer in JSON."""
    return {"description": "Done.", "content": {JSON: {"schema": schema}}}


def object_of(**properties: Json) -> Json:
    """Return the schema of an object that has all of these."""
    return {"type": "object", "required": list(properties), "properties": properties}


def array_of(items: Json) -> Json:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def texts() -> Json:
    """Return the schema of an object of text to text."""
    return {"type": "object", "additionalProperties": TEXT}


def base64() -> Json:
    """Return the schema of bytes."""
    return {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}


def options_of(kind: type) -> Json:
    """Return the schema of a class of options: an object of some of them, and no others."""
    options = {name: _option(each) for name, each in allowed(kind).items()}
    return {"type": "object", "properties": options, "additionalProperties": False}


def _option(kind: Allowed) -> Json:
    if kind.choices == (True, False):
        return {"type": "boolean"}
    found: list[Json] = [{"const": choice} for choice in kind.choices]
    if kind.range is not None:
        least = "exclusiveMinimum" if kind.range.is_above else "minimum"
        number: Json = {"type": "integer" if kind.is_whole else "number", least: kind.range.least}
        if kind.range.most < math.inf:
            number["maximum"] = kind.range.most
        found.append(number)
    if not found:
        found.append(TEXT)
    if kind.may_be_none:
        found.append({"type": "null"})
    return {"anyOf": found}
