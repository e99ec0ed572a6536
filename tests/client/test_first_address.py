"""Which of the addresses of a name is connected to, and what is told where none is."""

import pytest

from poe.client.first_address import at_first_address
from poe.errors import ConnectFailed
from tests.ports import name_ports


async def test_what_one_address_answers_is_told_though_nobody_listens_at_the_next(monkeypatch):
    """As that its certificate is none to be trusted."""

    async def connect(_, port):
        if port == 1:
            raise ConnectFailed("two.test", port, "it speaks something else")
        raise ConnectionRefusedError

    name_ports(monkeypatch, "two.test", [1, 2])
    with pytest.raises(ConnectFailed, match="something else"):
        await at_first_address("two.test", 0, connect)


async def test_the_next_address_is_tried_at_once_where_nobody_listens_at_the_first(monkeypatch):
    async def connect(_, port):
        if port == 1:
            raise ConnectionRefusedError
        return port

    monkeypatch.setattr("poe.client.first_address._NEXT_S", 1000.0)
    name_ports(monkeypatch, "two.test", [1, 2])
    assert await at_first_address("two.test", 0, connect) == 2
