"""Ports for servers of tests."""

import contextlib
import random
import socket
from collections.abc import Iterator, Sequence

import pytest

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


@contextlib.contextmanager
def swallowing_port() -> Iterator[int]:
    """A port with which no connection comes about, as where a firewall drops all packets."""
    with contextlib.ExitStack() as sockets:
        listener, *waiting = (sockets.enter_context(socket.socket()) for _ in range(3))
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in waiting:  # one has all the room there is
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def name_ports(monkeypatch: pytest.MonkeyPatch, name: str, ports: Sequence[int]) -> None:
    """Have a name stand for several addresses."""
    system = socket.getaddrinfo

    def look_up(host, port, *arguments, **options):
        if host != name:
            return system(host, port, *arguments, **options)
        if options.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "it is a name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in ports]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
