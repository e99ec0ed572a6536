"""What binds an authentication to a server's certificate: `tls-server-end-point` of RFC 5929.

The standard library knows `tls-unique` alone, which TLS 1.3 has not.
"""

import hashlib
import re

# Identifiers of algorithms, as DER has them: RSA, ECDSA, and the hash in the parameters of RSA-PSS.
_HASH = re.compile(
    rb"\x2a\x86\x48\x86\xf7\x0d\x01\x01([\x0b-\x0e])"
    rb"|\x2a\x86\x48\xce\x3d\x04\x03([\x01-\x04])"
    rb"|\x60\x86\x48\x01\x65\x03\x04\x02([\x01-\x04])",
    re.DOTALL,
)
_RSA = ("sha256", "sha384", "sha512", "sha224")
_ECDSA = ("sha224", "sha256", "sha384", "sha512")
_LONG = 0x80


def endpoint_binding(certificate: bytes) -> bytes:
    """Return the hash of a certificate that both ends of a connection can tell.

    It is made by the hash of the certificate's own signature, or by SHA-256 where that is older or
    has none of its own, as with Ed25519.

    Args:
        certificate: as DER, and checked by TLS before.
    """
    whole, _ = _content(certificate, 0)
    _, signed_end = _content(certificate, whole)
    begin, end = _content(certificate, signed_end)
    return hashlib.new(_hash_name(certificate[begin:end]), certificate).digest()


def _content(der: bytes, begin: int) -> tuple[int, int]:
    """Return where the content of the value that begins there begins, and where it ends."""
    length, start = der[begin + 1], begin + 2
    if length >= _LONG:
        size = length - _LONG
        length, start = int.from_bytes(der[start : start + size]), start + size
    return start, start + length


def _hash_name(algorithm: bytes) -> str:
    match = _HASH.search(algorithm)
    if match is None:
        return "sha256"
    rsa, ecdsa, pss = match.groups()
    if rsa is not None:
        return _RSA[rsa[0] - 0x0B]
    return _ECDSA[ecdsa[0] - 1] if ecdsa is not None else _RSA[pss[0] - 1]
