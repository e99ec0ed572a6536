"""The local administrator: whose token is found, and which server it is shown to."""

import os
import socket

import pytest

from poe.cli import administrator
from poe.cli.administrator import administrator_token
from poe.protocol.server import Server
from poe.security.loopback import Listener


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "admin.token").write_text("a token")
    return tmp_path


@pytest.fixture(params=["127.0.0.1", "::1"])
def listening(request):
    """A server that this user runs."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as server:
        yield Server(request.param, server.getsockname()[1])


def test_the_owner_of_the_folder_has_a_token(folder, listening):
    assert administrator_token(listening, str(folder)) == folder / "admin.token"
    assert administrator_token(Server("localhost", listening.port), str(folder))


def test_a_server_of_another_user_is_not_shown_the_token(folder, listening, monkeypatch):
    users = os.getuid(), os.getuid() + 1
    found = [Listener("0100007F", user) for user in users]
    monkeypatch.setattr(administrator, "listeners", lambda _: iter(found))
    assert administrator_token(listening, str(folder)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_owner_of_a_socket_is_told_by_the_system(folder, listening):
    os.chown(folder / "admin.token", os.getuid() + 1, -1)
    assert administrator_token(listening, str(folder)) is None


def test_where_nobody_listens_no_token_is_shown(folder, listening):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert administrator_token(Server("127.0.0.1", port), str(folder)) is None


@pytest.mark.parametrize("host", ["10.0.0.1", "poe.example.com", "localhost.example.com", ""])
def test_another_machine_is_not_shown_the_token(folder, listening, host):
    assert administrator_token(Server(host, listening.port), str(folder)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_where_a_server_listens_on_all_addresses_is_this_machine(folder, listening, host):
    """As by POE_HOST, where one environment serves a server and its clients."""
    assert administrator_token(Server(host, listening.port), str(folder))


def test_without_a_file_there_is_no_administrator(tmp_path, listening):
    assert administrator_token(listening, str(tmp_path)) is None


def test_the_folder_is_the_one_that_a_node_finds(folder, listening, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POE_DIR", str(folder))
    assert administrator_token(listening, None)
    monkeypatch.delenv("POE_DIR")
    (tmp_path / "poe.toml").write_text(f"dir = {str(folder)!r}")
    assert administrator_token(listening, None)
    (tmp_path / "poe.toml").write_text("dir = [")
    assert administrator_token(listening, None) is None, "a client asks all the same"
