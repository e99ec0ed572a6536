"""One message in JSON, in such a way that it can be posted again."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any


def record_of(
    key: bytes | None, value: bytes | None, headers: Mapping[str, bytes] | None
) -> dict[str, Any]:
    """Return a message as a record; a tombstone has the value null."""
    content = {"value": None} if value is None else text_member("value", value)
    record: dict[str, Any] = {**content}
    if key is not None:
        record |= text_member("key", key)
    for name, header in (headers or {}).items():
        ((member, text),) = text_member("headers", header).items()
        record.setdefault(member, {})[name] = text
    return record


def text_member(name: str, content: bytes) -> dict[str, str]:
    """Return bytes as a member: text where they are UTF-8, else `name_base64`."""
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {name + "_base64": b64encode(content).decode()}
