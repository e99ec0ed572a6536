"""A server that hangs up on a request, and then takes connections without a word."""

import socket
import threading
import time

import pytest

import poe.client
import poe.protocol
from poe.errors import ConnectionClosed
from poe.protocol import PutId

LIMIT_S = 0.3
PUT = ("t", [b"x"], PutId(b"p" * 16, 0, 0))
"""Of a kind that the original lacks, so that it is asked whether it is that."""


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            connection, _ = listener.accept()
            connection.recv(100)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_a_call_takes_no_longer_than_its_time_out(port):
    with poe.protocol.socket(port=port, timeout_s=LIMIT_S) as client:
        begun_s = time.monotonic()
        with pytest.raises(ConnectionClosed):
            client.write(*PUT)
        assert time.monotonic() - begun_s < LIMIT_S + 1


async def test_a_call_of_a_task_does_not_either(port):
    async with await poe.client.connect(port=port, timeout_s=LIMIT_S) as client:
        begun_s = time.monotonic()
        with pytest.raises(ConnectionClosed):
            await client.write(*PUT)
        assert time.monotonic() - begun_s < LIMIT_S + 1
