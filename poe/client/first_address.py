"""Which of the addresses of a name is connected to: the first that answers.

A name has often two, and one of them may swallow all packets, as IPv6 does on many a network.
"""

import asyncio
import socket
from asyncio.staggered import staggered_race
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from poe.errors import PoeError

T = TypeVar("T")

_NEXT_S = 0.25
"""For how long one has not answered when the next one is tried beside it, as RFC 8305 has it."""


async def at_first_address(host: str, port: int, connect: Callable[[str, int], Awaitable[T]]) -> T:
    """Return what `connect` comes to at the first address where it does; others are cancelled.

    Raises:
        OSError, UnicodeError, OverflowError: it is no name, or no port.
        Exception: as `connect`, where it has failed at all of them: a `PoeError`, or the last one.
    """
    find = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = find(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name, which takes a thread
        found = await asyncio.get_running_loop().run_in_executor(None, find)
    attempts = [partial(connect, str(place[0]), int(place[1])) for *_, place in found]
    if len(attempts) == 1:
        return await attempts[0]()
    made, _, errors = await staggered_race(attempts, _NEXT_S)
    if made is None:
        # What somebody there has answered tells more than that nobody listens elsewhere.
        raise next((each for each in errors if isinstance(each, PoeError)), errors[-1]) or OSError
    return made  # type: ignore[no-any-return]  # what `connect` returns
