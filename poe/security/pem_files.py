"""Load PEM files into a TLS context of either end; what is wrong names its file, and what helps."""

import os
import ssl
from typing import Final, NoReturn

from poe.errors import SecurityFileError
from poe.security.small_file import check_writers, read_small

PathText = str | os.PathLike[str]

_BYTES_MAX: Final = 64 << 20
"""Bytes of a file: the largest are lists of a million revoked certificates."""


def load_certificate(context: ssl.SSLContext, certificate: PathText, key: PathText | None) -> None:
    """Have a context show a certificate; without `key`, that is in the same file.

    Raises:
        SecurityFileError: a file cannot be read, or they do not hold a certificate and its key.
    """
    key = certificate if key is None else key
    for path in (certificate, key):
        read_file(path)

    def refuse_password() -> str:  # without it OpenSSL asks for one on the terminal
        _refuse(key, "the key is encrypted; use one that is not")

    try:
        context.load_cert_chain(certificate, key, refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            _refuse(key, f"this is not the key of the certificate {os.fspath(certificate)}")
        load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)
        fits = f"it holds no key in PEM form that fits {os.fspath(certificate)}"
        _refuse(key, f"{fits} ({words_of(error)})")


def load_authorities(context: ssl.SSLContext, path: PathText) -> None:
    """Have a context trust the authorities of a file.

    Raises:
        SecurityFileError: it cannot be read, or holds no certificate.
    """
    read_file(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        _refuse(path, f"it holds no certificate in PEM form ({words_of(error)})")


def read_file(path: PathText) -> bytes:
    """Return what a file holds.

    Raises:
        SecurityFileError: it cannot be read, is no file, or is too large.
    """
    return read_small(os.fspath(path), _BYTES_MAX)[0]


def read_trusted(path: PathText) -> bytes:
    """Return what a file holds that says whose certificates are taken.

    Raises:
        SecurityFileError: others than its owner may write it; or as `read_file`.
    """
    data, mode = read_small(os.fspath(path), _BYTES_MAX)
    check_writers(os.fspath(path), mode, "644")
    return data


def words_of(error: Exception) -> str:
    """Return what an error of TLS or of a socket says, without where in OpenSSL it came from."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, str):
        return reason.lower().replace("_", " ")
    return str(getattr(error, "strerror", None) or error)


def _refuse(path: PathText, why: str) -> NoReturn:
    raise SecurityFileError(os.fspath(path), None, why) from None
