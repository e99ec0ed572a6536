"""When a request whose appendix server has ended is made again, and how often."""

from poe.actors import KILLED, NOPROC, is_orderly
from poe.actors.reason import is_word
from poe.errors import ActorDead

TRIES_MAX = 500
"""Tries of one request while an appendix server is being replaced, `RETRY_S` apart."""
RETRY_S = 0.01


def may_repeat(error: ActorDead, *, is_put: bool) -> bool:
    """Tell whether a request whose appendix server ended may be made again.

    One that was never there or was stopped in good order has not touched the request: it answers
    all that it began. One that was killed may have stored a put that waited for the disk. One that
    crashed may have done so because of the request, and its successor is not fed the same again.
    """
    reason = error.reason
    return is_word(reason, NOPROC) or is_orderly(reason) or (is_word(reason, KILLED) and not is_put)
