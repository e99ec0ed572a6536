"""A connection that is ended for its errors ends in order: all replies arrive, nothing lingers."""

import contextlib
import ssl

import pytest

from poe.errors import FrameTooLarge
from poe.protocol import DataReply, PointerRequest
from tests.scenarios.clients import connection_count
from tests.scenarios.conftest import TOPIC
from tests.waiting import wait_until

BOMB = b"\xff" * 8


def flood(raw):
    """Send garbage until the kernel takes no more for now."""
    timeout_s = raw.socket.gettimeout()
    raw.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
        send_for_ever(raw, BOMB * 10_000)
    raw.socket.settimeout(timeout_s)


def send_for_ever(raw, data):
    while True:
        raw.socket.send(data)


def test_replies_on_their_way_arrive_although_garbage_follows_their_requests(node, raw):
    """A socket closed with bytes unread is reset, which once threw the last replies away."""
    node.put_many(b"big", [b"x" * 1000] * 500)
    raw.send(PointerRequest(b"big", 0, 500).encode() * 20)
    flood(raw)
    for _ in range(20):
        message_type, body = raw.frame()
        assert message_type == DataReply.MESSAGE_TYPE
        assert len(body) == 500 * 1011
    assert isinstance(raw.error(), FrameTooLarge)


@pytest.mark.slow
def test_a_peer_that_ignores_its_error_is_closed_all_the_same(node, raw):
    raw.send(BOMB)
    wait_until(lambda: connection_count(node) == 0)
    assert isinstance(raw.error(), FrameTooLarge)
    raw.assert_closed()


@pytest.mark.slow
def test_a_peer_that_sends_on_after_its_error_is_not_served(node, raw):
    raw.send(BOMB)
    assert isinstance(raw.error(), FrameTooLarge)
    with pytest.raises((ConnectionError, ssl.SSLError)):
        send_for_ever(raw, PointerRequest(TOPIC, 0, 1).encode() * 1000)
    assert connection_count(node) == 0
