"""Turns an error into the sentence for a person at a command line."""

from poe.errors import ConnectionClosed, PoeError, ProcessStartFailed


def sentence_of(error: PoeError | OSError) -> str:
    """Say what happened; where the error's own way out is one for programs, say the person's."""
    if isinstance(error, OSError):
        return f"the system refuses: {error.strerror or error}"
    # A process of ours has said it in such a sentence.
    if isinstance(error, ProcessStartFailed) and error.report:
        return error.report
    if isinstance(error, ConnectionClosed):
        return "the connection to the server was lost (does it still run?)"
    return str(error)
