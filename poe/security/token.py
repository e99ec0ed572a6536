"""Bearer tokens: opaque secrets of 256 random bits, with a public id to find them by.

Layout: `poe_<id>_<secret>_<crc>`
    id      1 to 64 of A-Z a-z 0-9 . -   public: in files, logs and listings
    secret  43 characters                32 random bytes, base64url without padding
    crc     8 hex digits                 CRC-32 of all before the last `_`

The prefix and the checksum let scanners find tokens that leaked, and nearly nothing else. Being
random, tokens need no slow hash: files hold their SHA-256.
"""

import hashlib
import re
import secrets
import zlib
from typing import Final, TypeGuard

from poe.errors import OptionError

IDS_ALLOWED: Final = "1 to 64 of A-Z a-z 0-9 . -"
_ID = re.compile(r"[A-Za-z0-9.-]{1,64}")
_TOKEN = re.compile(r"(poe_([A-Za-z0-9.-]{1,64})_[A-Za-z0-9_-]{43})_([0-9a-f]{8})")
_SECRET_BYTES = 32


def is_token_id(text: object) -> TypeGuard[str]:
    """Return whether a token may have this id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def make_token(id: str) -> tuple[str, str]:  # noqa: A002 - what files call it
    """Return a new token and its digest, which is what the file of users keeps: SHA-256 in hex.

    Raises:
        OptionError: no token may have this id.
    """
    if not is_token_id(id):
        raise OptionError("id", id, IDS_ALLOWED)
    head = f"poe_{id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    text = f"{head}_{_checksum(head)}"
    return text, _digest(text)


def split_token(text: str) -> tuple[str, str] | None:
    """Return the id and the digest of a token; None: it is none, or was not copied whole."""
    match = _TOKEN.fullmatch(text)
    if match is None or _checksum(match[1]) != match[3]:
        return None
    return match[2], _digest(text)


def hide_tokens(text: str) -> str:
    """Return a text with only the ids of the tokens that are in it."""
    if "poe_" not in text:  # most have none, and this is looked for faster
        return text
    return _TOKEN.sub(r"poe_\2_…", text)


def _checksum(head: str) -> str:
    return f"{zlib.crc32(head.encode()):08x}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
