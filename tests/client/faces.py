"""The ways in which a program asks a server: blocking, and on either event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

import poe.client
import poe.protocol

T = TypeVar("T")

FACES = ("blocking", "asyncio", "uvloop")


def topics_by(face: str, port: int, *, count: int = 1, timeout_s: float = 10, **entry):
    """Connect, ask for the topics `count` times, and return the last answer."""
    if face == "blocking":
        with poe.protocol.socket(port=port, timeout_s=timeout_s, **entry) as socket:
            for _ in range(count):
                found = socket.topics()
            return found

    async def session():
        async with await poe.client.connect(port=port, timeout_s=timeout_s, **entry) as socket:
            for _ in range(count):
                found = await socket.topics()
            return found

    return run(face, session)


def run(face: str, session: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a session comes to, on the event loop of a face."""
    factory = uvloop.new_event_loop if face == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(session())
