"""What a user may be called, here and in certificates.

Few characters on purpose: what SASL would map to something else, or a log would have to escape, is
in no name.
"""

import re
from typing import Final, TypeGuard

ADMINISTRATOR: Final = "poe.admin"
"""Who administers the node on its own machine: built in, in no file, and allowed everything."""

EVERYBODY: Final = "*"
"""In a grant: whoever has authenticated."""

USER_NAMES: Final = "1 to 200 of A-Z a-z 0-9 . _ @ -, not beginning with 'poe.'"
_USER = re.compile(r"(?!poe\.)[A-Za-z0-9._@-]{1,200}")

CERTIFICATE_NAMES: Final = '"URI:…" or "DNS:…", as the certificate has it'
_CERTIFICATE = re.compile(r"(?:URI|DNS):[\x21-\x7e]{1,1000}")


def is_user_name(name: object) -> TypeGuard[str]:
    """Return whether a user may have this name."""
    return isinstance(name, str) and _USER.fullmatch(name) is not None


def is_certificate_name(name: object) -> TypeGuard[str]:
    """Return whether this can be an alternative name of a certificate."""
    return isinstance(name, str) and _CERTIFICATE.fullmatch(name) is not None
