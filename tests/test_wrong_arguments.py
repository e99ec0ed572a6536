"""The same mistake gets the same error, in process, through the blocking and the asyncio client."""

import asyncio

import numpy as np
import pytest

from poe import client, protocol
from poe.errors import LocalProtocolError, PointerOutOfRange

PUTS = [
    ("t", []),
    ("t", [b""]),
    ("t", [b"m", b""]),
    ("t", [b"m", memoryview(b"")]),
    ("t", b"m"),
    ("t", "m"),
    ("t", ["m"]),
    ("t", [b"m", 7]),
    ("t", 7),
    ("t", [np.uint8(3)]),
    ("t", np.frombuffer(b"one message", np.uint8)),
    ("", [b"m"]),
    (b"", [b"m"]),
    (7, [b"m"]),
    (None, [b"m"]),
    ("\udcff", [b"m"]),
]
READS = [("t", -1), ("t", 2**56), ("t", "0"), ("t", None), ("t", 1.5), ("", 0), (7, 0)]


@pytest.fixture(scope="module")
def node(shared_node):
    shared_node.put("t", b"first")
    return shared_node


def refusal(call, *arguments):
    with pytest.raises((LocalProtocolError, PointerOutOfRange)) as caught:
        call(*arguments)
    return type(caught.value), str(caught.value)


def through_asyncio(node, name):
    """A call of the asyncio client as a plain function."""

    async def call(*arguments):
        async with await client.connect(*node.address, timeout_s=10) as connection:
            return await getattr(connection, name)(*arguments)

    return lambda *arguments: asyncio.run(call(*arguments))


@pytest.mark.parametrize("arguments", PUTS)
def test_what_cannot_be_put(node, arguments):
    expected = refusal(node.put_many, *arguments)
    with protocol.socket(*node.address, timeout_s=10) as socket:
        assert refusal(socket.write, *arguments) == expected
    assert refusal(through_asyncio(node, "write"), *arguments) == expected
    assert expected[0] is LocalProtocolError
    assert "; " in expected[1], "it says what to do"
    assert node.info()[0][1][0][1].count == 1, "nothing was stored"


@pytest.mark.parametrize("message", [b"", "m", None, 7, [b"m"], np.uint8(3)], ids=repr)
def test_a_single_message_that_cannot_be_put(node, message):
    assert refusal(node.put, "t", message) == refusal(node.put_many, "t", [message])


@pytest.mark.parametrize("arguments", READS, ids=repr)
def test_what_cannot_be_read(node, arguments):
    expected = refusal(node.next, *arguments)
    with protocol.socket(*node.address, timeout_s=10) as socket:
        assert refusal(socket.read, *arguments, 1) == expected
        assert refusal(socket.wait, *arguments, 0.0) == expected
    assert refusal(through_asyncio(node, "read"), *arguments, 1) == expected


@pytest.mark.parametrize("limit", [-1, 2**32, "1", None], ids=repr)
def test_a_limit_that_is_none(node, limit):
    with protocol.socket(*node.address, timeout_s=10) as socket:
        expected = refusal(socket.read, "t", 0, limit)
        assert refusal(socket.wait, "t", 0, str(limit))[1].startswith("timeout_s is ")
    assert refusal(through_asyncio(node, "read"), "t", 0, limit) == expected
    assert expected[1] == f"limit is {limit!r}; use 0 to {2**32 - 1}"
