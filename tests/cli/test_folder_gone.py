"""A running server whose folder is gone refuses puts, and says so to everybody who asks."""

import pytest

from poe import protocol
from poe.errors import StoreGone
from tests.cli.processes import Server, complaint, poe
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_puts_are_refused_and_health_and_status_say_why_until_the_folder_is_back(tmp_path):
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    with Server(folder) as server, protocol.socket("127.0.0.1", server.port) as client:
        client.write(b"t", [b"before"])
        assert client.control("health")["status"] == "ok"
        folder.rename(elsewhere)
        wait_until(lambda: client.control("health")["status"] == "refusing")
        with pytest.raises(StoreGone, match="removed, renamed or replaced"):
            client.write(b"t", [b"lost"])
        assert client.control("health")["refusal"].startswith(f"folder {folder} is not the one")
        told = poe("status", port=server.port).stdout
        assert f"server:\tfolder {folder} is not the one".encode() in told
        run = poe("put", "new", "m", port=server.port)
        assert run.returncode != 0
        assert "removed, renamed or replaced" in complaint(run)
        elsewhere.rename(folder)
        wait_until(lambda: client.control("health")["status"] == "ok")
        client.write(b"t", [b"after"])
        assert [message for _, message in client.read(b"t", 0, 9)] == [b"before", b"after"]
        assert server.end()[0] == 0
