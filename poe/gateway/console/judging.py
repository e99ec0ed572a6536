"""The process that judges messages by what somebody has typed: it has no way to the node.

Rules and filters are data, but may be made to take long: the process is killed when it does.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.errors import RequestRefused

_LINE_MAX: Final = 8 << 20


@asynccontextmanager
async def process() -> AsyncIterator[asyncio.subprocess.Process]:
    """Lend a process that judges; it is gone afterwards."""
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "poe.mapping.dry_run_process"),
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LINE_MAX,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def send(process: asyncio.subprocess.Process, message: object) -> None:
    """Have it take something.

    Raises:
        RequestRefused: it has ended, and why.
    """
    assert process.stdin is not None, "it was asked for"
    process.stdin.write(msgpack.packb(message))
    try:
        await process.stdin.drain()
    except ConnectionError as error:
        await answer(process)  # which tells why it has ended
        raise _failed() from error


async def answer(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Return what it answers.

    Raises:
        RequestRefused: it refuses what was typed, or has ended.
    """
    assert process.stdout is not None, "it was asked for"
    try:
        line = await process.stdout.readline()
    except ValueError as error:
        why = f"the answer has more than {_LINE_MAX} bytes; look at fewer messages"
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, why) from error
    if not line:
        raise _failed()
    told: dict[str, Any] = json.loads(line)
    if "error" in told:
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, told["error"])
    return told


def _failed() -> RequestRefused:
    why = "the rules have taken too much memory or processor time; look at fewer messages"
    return RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, why)
