"""Ports for servers of tests."""

import contextlib
import random
import socket

_QUIET = range(20_000, 32_000)
"""Below those that the kernel gives to who takes any, as servers of other tests and clients do."""
_CHANCE = random.SystemRandom()
"""Tests set the seed of the other one, and two that did would look for the same ports."""


def quiet_ports(count: int) -> list[int]:
    """Return ports that are free, and that nobody gets who takes any, as servers do meanwhile."""
    found: list[int] = []
    while len(found) < count:
        port = _CHANCE.choice(_QUIET)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found += [port] if port not in found else []
    return found


def free_port() -> int:
    """A port that nobody listens on; should somebody take it meanwhile, the test fails loudly."""
    [port] = quiet_ports(1)
    return port
