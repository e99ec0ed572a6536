"""SIGHUP: services go on, whatever process of theirs it reaches and however early; clients end."""

import ctypes
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from poe import protocol
from poe.cli.hangup import SERVICES
from tests.cli.processes import DEADLINE_S, Background, Server, poe
from tests.process_tree import descendants, is_running
from tests.python_process import environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TOLD = b"SIGHUP: there is nothing to reload; going on\n"

EARLY = """
import importlib.abc, signal, sys

class HangingUp(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if not name.startswith(("poe", "__future__")):
            signal.raise_signal(signal.SIGHUP)

from poe.cli import main
sys.meta_path.insert(0, HangingUp())
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def hangups_are_not_ignored():
    """As they would be by all that is started below `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def serves(port):
    with protocol.socket(port=port, timeout_s=DEADLINE_S) as client:
        return client.write("t", [b"x"]) > 0


@pytest.mark.parametrize("options", [(), ("--isolation", "process"), ("--thespian-port", None)])
def test_a_server_goes_on_in_all_its_processes_and_says_so(tmp_path, options):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [port if each is None else each for each in options]
    with Server(tmp_path / "data", *options) as server:
        pids = [server.process.pid, *descendants(server.process.pid)]
        for pid in pids * 2:
            os.kill(pid, signal.SIGHUP)
        assert server.read_until(TOLD, pipe=server.process.stderr)
        assert serves(server.port)
        assert all(map(is_running, pids))
        assert server.end()[0] == 0
    assert not any(map(is_running, pids))


def test_a_server_outlives_its_terminal(tmp_path):
    """The kernel sends SIGHUP to all that run in a terminal whose window is closed."""
    controlling, terminal = pty.openpty()
    arguments = ["serve", "--dir", str(tmp_path / "data"), "--port", "0", "--isolation", "process"]
    # setsid and TIOCSCTTY make the terminal the process's own.
    program = "import fcntl, os, sys, termios; fcntl.ioctl(1, termios.TIOCSCTTY, 0); "
    program += "os.execv(sys.executable, [sys.executable, '-m', 'poe', *sys.argv[1:]])"
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env=environment(),
    ) as process:
        os.close(terminal)
        told = b""
        while b"ready on" not in told or not told.endswith(b"\n"):
            told += os.read(controlling, 65536)
        port = int(told.partition(b"ready on 127.0.0.1:")[2].split()[0])
        os.close(controlling)
        try:
            assert serves(port)
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()


def test_the_gateway_goes_on_and_says_so(server):
    broker = f"poe://127.0.0.1:{server.port}"
    with Background("gateway", "--port", 0, "--broker", broker) as gateway:
        line = gateway.read_until(b"\n").decode()
        gateway.process.send_signal(signal.SIGHUP)
        gateway.read_until(TOLD, pipe=gateway.process.stderr)
        with socket.create_connection(("127.0.0.1", int(line.rpartition(":")[2]))) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert gateway.end()[0] == 0


def test_the_gateway_ends_by_a_signal_that_its_waiting_thread_has_not_seen(server):
    """The kernel gives it to any thread, and to the main one just before that waits, too."""
    broker = f"poe://127.0.0.1:{server.port}"
    with Background("gateway", "--port", 0, "--broker", broker) as gateway:
        gateway.read_until(b"\n")
        pid = gateway.process.pid
        other = next(each for each in Path(f"/proc/{pid}/task").iterdir() if each.name != str(pid))
        assert ctypes.CDLL(None).tgkill(pid, int(other.name), signal.SIGTERM) == 0
        assert gateway.process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("service", SERVICES, ids=" ".join)
def test_a_service_that_is_still_being_loaded_goes_on(tmp_path, service):
    """It is told of an option that is none then, and that is the end that it chose."""
    run = subprocess.run(
        [sys.executable, "-c", EARLY, *service, "--no-such-option"],
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
        env=environment(),
        cwd=tmp_path,
    )
    assert (run.returncode, run.stdout) == (2, b"")
    assert b"no-such-option" in run.stderr


def test_a_client_ends_with_its_terminal(server):
    poe("put", "t", "one", port=server.port)
    with Background("read", "t", "--follow", port=server.port) as follower:
        follower.read_until(b"one\n")
        assert follower.end(signal.SIGHUP)[0] == -signal.SIGHUP
    wait_until(lambda: not is_running(follower.process.pid), DEADLINE_S)
