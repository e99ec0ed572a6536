"""`poe trim` and `poe delete`: what was named goes, and a topic only when somebody says so."""

import os
import pty
import subprocess
import sys

import pytest

from poe import protocol
from poe.errors import UnknownTopic
from tests.cli.processes import DEADLINE_S, Server, complaint, poe
from tests.python_process import environment

pytestmark = pytest.mark.slow


def on_terminal(*arguments, typed, port):
    """Run a command whose standard input is a terminal on which something is typed."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "poe", *arguments],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(POE_PORT=str(port)),
        ) as process:
            os.write(ours, typed)
            stdout, stderr = process.communicate(timeout=DEADLINE_S)
            return process.returncode, stdout, stderr
    finally:
        os.close(ours)
        os.close(theirs)


def test_trim_tells_how_many_segments_went(tmp_path):
    with (
        Server(tmp_path / "data", "--count-limit", 10) as server,
        protocol.socket(port=server.port) as socket,
    ):
        last = [socket.write(b"t", [b"m"] * 20) for _ in range(3)]
        run = poe("trim", "t", last[1], port=server.port)
        assert (run.returncode, run.stdout) == (0, b"2 segments deleted\n")
        assert len(socket.read(b"t", 0, 100)) == 20
        run = poe("trim", "t", last[1], port=server.port)
        assert (run.returncode, run.stdout) == (0, b"0 segments deleted\n")


def test_trim_refuses_what_is_no_pointer_and_a_topic_that_is_not_there(server):
    for pointer in ("x", "-1", 2**56):
        assert poe("trim", "--", "t", pointer, port=server.port).returncode == 2
    run = poe("trim", "t", 1, port=server.port)
    assert run.returncode == 1
    assert "topic 't' is not known" in complaint(run)


def test_a_topic_is_deleted_where_yes_is_given_and_nothing_is_where_nobody_can_be_asked(server):
    with protocol.socket(port=server.port) as socket:
        socket.write(b"t", [b"one", b"two"])
        run = poe("delete", "t", port=server.port)
        assert run.returncode == 2
        assert "give --yes" in complaint(run)
        assert socket.topics() == [b"t"]
        run = poe("delete", "t", "--yes", port=server.port)
        assert (run.returncode, run.stdout) == (0, b"topic t, 2 messages: deleted\n")
        with pytest.raises(UnknownTopic):
            socket.segments(b"t")
        assert poe("delete", "t", "--yes", port=server.port).returncode == 1


@pytest.mark.parametrize(
    ("typed", "code", "left"),
    [(b"yes\n", 0, []), (b"n\n", 1, [b"t"]), (b"\n", 1, [b"t"]), (b"\x04", 1, [b"t"])],
)
def test_on_a_terminal_it_asks(server, typed, code, left):
    with protocol.socket(port=server.port) as socket:
        socket.write(b"t", [b"one"])
        ended, stdout, stderr = on_terminal("delete", "t", typed=typed, port=server.port)
        assert ended == code
        assert b"delete topic t, 1 message? yes or no" in stderr
        assert stdout == (b"topic t, 1 message: deleted\n" if code == 0 else b"")
        assert socket.topics() == left
