"""Turns an error into the sentence for a person at a command line."""

import re
from typing import Final

from poe.cli.argument import flag_of
from poe.errors import (
    AuthenticationRequired,
    ConnectionClosed,
    PoeError,
    ProcessStartFailed,
    TlsFailed,
)

WAYS_IN: Final = "--user with --password-file, or --token-file"
_ARGUMENT: Final = re.compile("`(ca|certificate|server_name)`")
"""Of a program, for which a command has an option."""


def sentence_of(error: PoeError | OSError) -> str:
    """Say what happened; where the error's own way out is one for programs, say the person's."""
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"the system refuses: {error.strerror or error}{where}"
    # A process of ours has said it in such a sentence.
    if isinstance(error, ProcessStartFailed) and error.report:
        return error.report
    if isinstance(error, ConnectionClosed):
        return "the connection to the server was lost (does it still run?)"
    if isinstance(error, AuthenticationRequired):
        return f"authenticate first: give {WAYS_IN}, or use poe login; or --dir on its own machine"
    if isinstance(error, TlsFailed):
        told = str(error).replace("use poes://, or `tls`", "use --url poes://…")
        return _ARGUMENT.sub(lambda found: flag_of(found[1]), told)
    return str(error)
