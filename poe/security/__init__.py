"""Who gets in and what they may do: values and decisions, without sockets or actors.

Here is what a client needs to get in; what a node needs is in the modules.
"""

from poe.security.credentials import (
    Certificate,
    Credentials,
    PasswordFile,
    Scram,
    Token,
    TokenFile,
)
from poe.security.entry import Entry
from poe.security.tls import Tls

__all__ = [
    "Certificate",
    "Credentials",
    "Entry",
    "PasswordFile",
    "Scram",
    "Tls",
    "Token",
    "TokenFile",
]
