import asyncio

import pytest

from poe.client.async_retrying_socket import AsyncRetryingSocket
from poe.errors import ConnectionClosed
from poe.protocol.server import Server


async def test_a_cancel_that_comes_with_a_failure_is_not_forgotten():
    """It would go on trying for ever, and a consumer that closes wait for it."""

    async def serve(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    place = Server(*server.sockets[0].getsockname())
    calling = AsyncRetryingSocket(
        [place], timeout_s=None, request_timeout_s=60.0, on_lost=lambda: None
    )
    attempts = []

    async def fail(task):
        await asyncio.sleep(0)
        task.cancel()
        raise ConnectionClosed("server", "it is gone")

    async def request(_):
        attempts.append(1)
        await asyncio.gather(fail(asyncio.current_task()), asyncio.sleep(60))

    task = asyncio.create_task(calling.call(request))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), 5)
    assert len(attempts) == 1
    await calling.close()
    server.close()
    await server.wait_closed()
