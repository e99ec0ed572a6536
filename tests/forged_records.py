"""Records of TLS 1.3 that no library would send, made with the keys of a real handshake."""

import hashlib
import hmac
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.tls import Tap

ALERT, HANDSHAKE, DATA = 21, 22, 23
_KEY_UPDATE = struct.pack(">B3sB", 24, b"\0\0\1", 1)
"""Asks the other side to change its keys, too."""


class ForgedRecords:
    """What a client sends behind its handshake, record by record, whatever they hold.

    The tap has shaken hands with TLS_AES_256_GCM_SHA384, and its context wrote a log of its keys;
    it sends nothing itself from then on, and receives.
    """

    def __init__(self, tap: Tap, key_log: Path):
        self.tap = tap
        (line,) = [
            line for line in key_log.read_text().splitlines() if "CLIENT_TRAFFIC_SECRET_0" in line
        ]
        self._use(bytes.fromhex(line.split()[2]))

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._aead = AESGCM(_expanded(secret, b"key", 32))
        self._iv = int.from_bytes(_expanded(secret, b"iv", 12), "big")
        self._sequence = 0

    def record(self, content: bytes, kind: int = DATA) -> bytes:
        """Return one record; its content may be empty, or too long."""
        inner = content + bytes([kind])
        header = struct.pack(">BHH", DATA, 0x0303, len(inner) + 16)
        nonce = (self._iv ^ self._sequence).to_bytes(12, "big")
        self._sequence += 1
        return header + self._aead.encrypt(nonce, inner, header)

    def key_update(self) -> bytes:
        """Return a record after which other keys hold."""
        record = self.record(_KEY_UPDATE, HANDSHAKE)
        self._use(_expanded(self._secret, b"traffic upd", 48))
        return record


def _expanded(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, without a context; of one block."""
    name = b"tls13 " + label
    info = struct.pack(">HB", size, len(name)) + name + b"\0" + b"\1"
    return hmac.digest(secret, info, hashlib.sha384)[:size]
