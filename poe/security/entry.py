"""How a client gets in: what it demands of the connection, and what it proves on it."""

import ssl
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from poe.errors import OptionError, RemoteProtocolError
from poe.security.credentials import Certificate, Credentials, Scram, Token
from poe.security.scram import ScramClient
from poe.security.tls import Tls

BEARER: Final = "BEARER"
EXTERNAL: Final = "EXTERNAL"

Step = tuple[str, bytes]
"""Mechanism and data of one control request `auth`."""

Login = Generator[Step, Mapping[str, Any], float | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """How a client gets in; the default is to a server on this machine that asks for nothing."""

    tls: Tls | ssl.SSLContext | None = None
    """None: without TLS."""

    credentials: Credentials | None = None
    """None: without saying who it is."""

    def __post_init__(self) -> None:
        """Refuse what is neither, and do not show it: it may be a secret.

        Raises:
            OptionError: one of them is nothing that it can be.
        """
        if not isinstance(self.tls, Tls | ssl.SSLContext | None):
            allowed = "Tls(ca=…), an ssl.SSLContext, or None"
            raise OptionError("tls", "(hidden)", allowed)
        if not isinstance(self.credentials, Credentials | None):
            allowed = "Scram(user, password), Token(…), TokenFile(path), PasswordFile(user, path), "
            raise OptionError("credentials", "(hidden)", f"{allowed}Certificate(), or None")


def login(entry: Entry, binding: bytes | None, *, is_loopback: bool = False) -> Login:
    """Authenticate on a new connection, or again on one that is authenticated.

    Yields what a control request `auth` carries and is sent the result of its reply; the caller
    owns the connection, its time-outs and its errors. It yields nothing where there are no
    credentials. Files and functions of credentials are asked before the first step, and a password
    of many iterations takes its time in the second: who must not wait has it done in a thread.

    Args:
        entry: how the client gets in.
        binding: `endpoint_binding` of the server's certificate; None on a connection without TLS.
        is_loopback: whether the connection does not leave this machine.

    Returns:
        Seconds from now on for which the login is good; None: for ever.

    Raises:
        OptionError: the credentials cannot be used on this connection; nothing was sent.
        SecurityFileError: a file of the credentials cannot be used; nothing was sent.
        RemoteProtocolError: the server's answers are none.
        SecurityError: the server has not proved that it is the right one.
    """
    credentials = None if entry.credentials is None else entry.credentials.resolve()
    match credentials:
        case None:
            return None
        case Scram(user, password):
            client = ScramClient(user, password, binding)
            result = yield client.mechanism, client.first()
            result = yield client.mechanism, client.final(_data(result))
            client.check(_data(result))
        case Token(str(text)):
            if binding is None and not is_loopback:
                allowed = "TLS (poes://): a token is never sent in the clear"
                raise OptionError("credentials", "a token", allowed)
            result = yield BEARER, text.encode()
        case Certificate():
            if binding is None:
                allowed = "TLS (poes://), which shows the certificate"
                raise OptionError("credentials", "a certificate", allowed)
            result = yield EXTERNAL, b""
    return _expiry(result)


def _data(result: Mapping[str, Any]) -> bytes:
    data = result.get("data")
    if not isinstance(data, bytes):
        msg = "the server answers an authentication without data"
        raise RemoteProtocolError(msg)
    return data


def _expiry(result: Mapping[str, Any]) -> float | None:
    match result.get("expires_s"):
        case None:
            return None
        case int() | float() as expires_s:
            return float(expires_s)
    msg = "the server answers an authentication with a wrong time of expiry"
    raise RemoteProtocolError(msg)
