"""Copies of replicated topics: what a node has of one may end before what another node has.

A copy is all that was agreed on, up to some place. So a node that has a pointer of a topic, or
knows that it was removed, has all that lies before it. One that does not lags, and is not to be
believed that there is nothing: it is asked again, or another one is.
"""

from collections.abc import Sequence
from typing import Final

from poe.errors import NodeIsBehind, NotReplicated
from poe.errors.root import shown
from poe.protocol import Socket
from poe.spark.planning import NO_LIMIT
from poe.storage import POINTER_MAX

_ASKED: Final = "the server that was asked"


def check_reaches(socket: Socket, topic: bytes, pointer: int) -> None:
    """Make sure that a server's copy goes up to a pointer that the topic is known to have.

    Raises:
        NodeIsBehind: it does not.
        PoeError: the server's refusal.
    """
    is_there = socket.span(topic, pointer - 1, POINTER_MAX, 1, NO_LIMIT) is not None
    if not is_there and socket.removed(topic, pointer).newest < pointer:
        raise NodeIsBehind(_ASKED, f"topic {shown(topic)} up to pointer {pointer}")


def check_replicated(socket: Socket, topics: Sequence[bytes]) -> None:
    """Make sure that a server knows topics as replicated ones: a put would make others its own.

    Raises:
        NodeIsBehind: it does not know one of them, or not yet.
        NotReplicated: one of them is its own.
        PoeError: the server's refusal.
    """
    for topic in topics:
        found = socket.find_topic(topic)
        if found is None:
            raise NodeIsBehind(_ASKED, f"topic {shown(topic)}")
        if not found.properties.is_replicated:
            raise NotReplicated(topic)
