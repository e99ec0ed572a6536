"""What goes through a proxy arrives as if there were none, by TLS as well as in plaintext."""

import random

import pytest

from poe.client.consumer.loop_thread import LoopThread
from poe.protocol import DataReply, PointerRequest, PutReply, PutRequest
from poe.testing.frame_proxy import FrameProxy
from tests.scenarios.clients import RawClient, SecureAddress
from tests.tls import BOTH

TRANSPORTS = BOTH
SIZES = (1, 2, 100, 4090, 16_361, 16_384, 40_000, 130_000, 300_000)


@pytest.fixture
def proxy(node):
    """A proxy before a node, and what runs it."""
    address = node.address
    tls = address.context if isinstance(address, SecureAddress) else None
    proxy = FrameProxy(address[0], address[1], tls)
    thread = LoopThread("proxy of a test", proxy.stop, RuntimeError)
    thread.run(proxy.start())
    yield proxy
    thread.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_frames_of_all_sizes_are_answered_in_their_order(proxy, seed):
    """A small frame behind a large one lies in the same TLS record, which nobody is told of."""
    dice = random.Random(seed)
    with RawClient(("127.0.0.1", proxy.port)) as client:
        stored: list[bytes] = []
        for _ in range(10):
            messages = [dice.randbytes(dice.choice(SIZES)) for _ in range(10)]
            puts = [PutRequest(b"t", [message]).encode() for message in messages]
            client.send(b"".join(puts) + PointerRequest(b"t", 0, 1).encode())
            stored += messages
            for _ in messages:
                assert client.frame()[0] == PutReply.MESSAGE_TYPE
            kind, body = client.frame()
            assert kind == DataReply.MESSAGE_TYPE
            assert body.endswith(stored[0])
        pointer, found = 0, []
        while records := client.read(b"t", pointer, 7):
            found += [message for _, message in records]
            pointer = records[-1][0]
        assert found == stored
