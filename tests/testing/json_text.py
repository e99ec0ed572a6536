"""JSON as the reference driver writes it, which tells 1 from 1.0."""

import json


def json_text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
