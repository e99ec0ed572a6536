"""Topics with any name on the command line: put, read, told and checked."""

import os

import pytest

from tests.cli.processes import Server, complaint, poe

pytestmark = pytest.mark.slow

TOPIC = "bücher/neu\n"


def test_a_topic_with_any_name_goes_through_all_commands(tmp_path):
    with Server(tmp_path / "data", "--names", "escape") as server:
        for topic in (TOPIC, os.fsdecode(b"\xff"), "plain"):
            assert poe("put", topic, "one", port=server.port).returncode == 0, topic
        assert poe("read", TOPIC, port=server.port).stdout == b"one\n"
        told = poe("topics", port=server.port).stdout.decode()
        assert told == "bücher/neu\\n\nplain\n\\xff\n"
        told = poe("status", port=server.port).stdout.decode()
        assert told == "bücher/neu\\n\t:w\nplain\t:w\n\\xff\t:w\n"
        server.end()
    told = poe("check", tmp_path / "data", "--verbose").stdout.decode().splitlines()
    assert told[0].startswith("topics/%FF/")
    assert "(topic \\xff): 1 message" in told[0]
    assert "(topic bücher/neu\\n): 1 message" in told[1]
    assert "topic" not in told[2].removeprefix("topics/plain/")
    assert told[-1].endswith("all sound")


def test_a_server_that_refuses_a_name_says_what_it_takes(tmp_path):
    with Server(tmp_path / "data") as server:
        run = poe("put", "bad/name", "-", stdin=b"x\n", port=server.port)
        assert run.returncode == 1
        assert "topic name 'bad/name' is not allowed; use 1 to 200 of" in complaint(run)
        run = poe("read", "bad/name", "--follow", port=server.port)
        assert run.returncode == 2
        assert "set the server's option names to escape" in complaint(run)
