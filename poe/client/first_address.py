"""Which of the addresses of a name is connected to: the first that answers.

A name has often two, and one of them may swallow all packets, as IPv6 does on many a network.
"""

import asyncio
import socket
from asyncio.staggered import staggered_race
from functools import partial
from typing import Any

from poe.protocol.wire import place_of

_NEXT_S = 0.25
"""For how long one has not answered when the next one is tried beside it, as RFC 8305 has it."""


async def connect_first(host: str, port: int) -> socket.socket:
    """Return a connection to the first address that answers; the other attempts are given up.

    Raises:
        OSError: nobody listens at any of them; it is the error of the last one.
        OSError, UnicodeError, OverflowError: it is no name, or no port.
    """
    find = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = find(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name, which takes a thread
        found = await asyncio.get_running_loop().run_in_executor(None, find)
    made: list[socket.socket] = []
    attempts = [partial(_connect, made, *place) for place in found]
    try:
        _, winner, errors = await staggered_race(attempts, _NEXT_S)
    except BaseException:  # cancelled, maybe when one had been made
        for each in made:
            each.close()
        raise
    if winner is None:
        raise errors[-1] or OSError
    first, *others = made
    for each in others:  # they were there in the same turn of the loop
        each.close()
    return first


async def _connect(
    made: list[socket.socket],
    family: int,
    kind: int,
    protocol: int,
    _: str,
    address: Any,  # noqa: ANN401 - as `socket` has it
) -> None:
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, place_of(address))
    except BaseException:
        connection.close()
        raise
    made.append(connection)
