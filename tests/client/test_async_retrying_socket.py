import asyncio

import pytest

from poe.client.async_retrying_socket import AsyncRetryingSocket
from poe.errors import CallTimeout, ConnectionClosed, NoQuorum, PutUnconfirmed
from poe.protocol.server import Server
from poe.testing import broker


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


@pytest.mark.parametrize(
    "refusal", [NoQuorum("topic t"), CallTimeout("a group", 10.0), PutUnconfirmed("t", 3.0)]
)
async def test_what_a_node_says_that_is_cut_off_has_the_next_one_asked(refusal):
    """It can be reached itself, and would be asked for ever."""
    with broker() as cut_off, broker() as other:
        cut_off.fail(refusal, 1000)
        servers = []
        for each in (cut_off, other):
            host, _, port = each.url.removeprefix("poe://").rpartition(":")
            servers.append(Server(host, int(port)))
        calling = AsyncRetryingSocket(
            servers, timeout_s=5, request_timeout_s=10.0, on_lost=lambda: None
        )
        await calling.call(lambda socket: socket.write("t", [b"1"]))
        await calling.close()
        assert [each.value for each in other.collected("t")] == [b"1"]
