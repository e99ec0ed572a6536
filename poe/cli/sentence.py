"""Turns an error into the sentence for a person at a command line."""

from poe.errors import ConnectionClosed, PoeError


def sentence_of(error: PoeError) -> str:
    """Say what happened; where the error's own way out is one for programs, say the person's."""
    if isinstance(error, ConnectionClosed):
        return "the connection to the server was lost (does it still run?)"
    return str(error)
