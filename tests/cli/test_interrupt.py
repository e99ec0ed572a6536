"""SIGINT and SIGTERM: when they are raised, and what each client command says at its end."""

import ast
import signal
import socket
import subprocess
import sys
import time

import pytest

from poe import protocol
from poe.cli.interrupt import Interrupt
from tests.cli.processes import Background, poe
from tests.protocol.scripted_server import Peer
from tests.python_process import environment

ENDINGS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


@pytest.fixture
def handlers():
    """The handlers of the test run, put back at the end."""
    before = {number: signal.getsignal(number) for number, _, _ in ENDINGS}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "exit_code", "word"), ENDINGS)
def test_a_signal_is_raised_or_held_back_once(handlers, number, exit_code, word):
    with Interrupt() as interrupt:
        interrupt.is_held = True
        signal.raise_signal(number)
        assert (interrupt.number, interrupt.exit_code, interrupt.word) == (number, exit_code, word)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) == handlers[number]


def test_what_was_ignored_before_stays_ignored(handlers):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.number is None
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 10, 100, 250])
def test_ctrl_c_while_the_program_is_loaded_is_quiet(at):
    """From the first module on that is loaded once `main` runs."""
    interrupted_import = f"""
import importlib.abc, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    count = 0
    def find_spec(self, name, path, target=None):
        self.count += 1
        if self.count == {at}:
            signal.raise_signal(signal.SIGINT)

from poe.cli import main
sys.meta_path.insert(0, Interrupting())
sys.exit(main())
"""
    run = subprocess.run(
        [sys.executable, "-c", interrupted_import, "topics"],
        capture_output=True,
        check=False,
        timeout=20,
        env=environment(),
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, b"", b"")


@pytest.mark.slow
def test_nothing_is_loaded_before_ctrl_c_is_taken():
    """What is loaded before takes time in which Ctrl-C is a traceback."""
    program = "import sys; before = {*sys.modules}; import poe.cli; print({*sys.modules} - before)"
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        timeout=20,
        env=environment(),
    )
    loaded = ast.literal_eval(run.stdout.decode())
    assert loaded <= {"poe", "poe.cli", "__future__"}


@pytest.mark.parametrize(
    "behind_start", ["pass", "time.sleep(0.1)", "signal.raise_signal(signal.SIGINT)"]
)
def test_ctrl_c_where_python_ignores_what_is_raised_comes_again(behind_start):
    """Once more in the same place, too."""
    program = f"""
import signal, threading, time, weakref
from poe.cli.interrupt import Interrupt

start = threading.Thread.start

def held_up(self):
    start(self)
    {behind_start}

threading.Thread.start = held_up

class Thing: ...

thing = Thing()
ref = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
try:
    with Interrupt():
        del thing
        time.sleep(20)
except KeyboardInterrupt:
    print("interrupted")
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env=environment()
    )
    assert (run.stdout, run.stderr) == (b"interrupted\n", b"")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["--version", "topics"])
def test_ctrl_c_at_any_moment_is_quiet(command, server):
    """But for that in which Python itself starts, before it looks at this program."""
    for delay_ms in range(0, 300, 15):
        with Background(command, port=server.port) as run:
            time.sleep(delay_ms / 1000)  # the moment is the test
            code, _, stderr = run.end(signal.SIGINT)
        if b"Traceback" in stderr or stderr.startswith(b"Fatal Python error: init_import_site"):
            assert b"poe/cli/" not in stderr
        else:
            assert (code, stderr) in {(130, b""), (0, b""), (-signal.SIGINT, b"")}


@pytest.mark.slow
@pytest.mark.parametrize(("number", "exit_code", "word"), ENDINGS)
def test_put_tells_what_was_acknowledged(server, number, exit_code, word):
    with Background("put", "t", "-", stdin=subprocess.PIPE, port=server.port) as put:
        put.type(b"first\nsecond\nunfin")
        with protocol.socket(port=server.port, timeout_s=20) as connection:
            assert connection.wait("t", 0, timeout_s=20)
        code, stdout, stderr = put.end(number)
    assert code == exit_code
    assert stdout.startswith(b"2 messages, last pointer ")
    assert stderr.decode() == f"poe: {word}; acknowledged messages: 2\n"
    assert poe("read", "t", port=server.port).stdout == b"first\nsecond\n"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "exit_code", "word"), ENDINGS)
def test_read_tells_where_to_continue(server, number, exit_code, word):
    pointer = int(poe("put", "t", "one", "two", port=server.port).stdout.split()[-1])
    with Background("read", "t", "--follow", port=server.port) as follower:
        follower.read_until(b"two\n")
        code, stdout, stderr = follower.end(number)
    assert (code, stdout) == (exit_code, b"")
    assert stderr.decode() == f"poe: {word}; continue with --pointer {pointer}\n"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "exit_code", "word"), ENDINGS)
def test_watching_ends_quietly(server, number, exit_code, word):
    del word
    poe("put", "t", "one", port=server.port)
    with Background("status", "--watch", "--interval", 3600, port=server.port) as watch:
        watch.read_until(b"t\t:w\n")
        assert watch.end(number) == (exit_code, b"", b"")


@pytest.mark.slow
def test_an_unanswered_put_says_that_nobody_knows():
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Background("put", "t", "one", port=silent.getsockname()[1]) as put,
    ):
        for is_put in (False, True):
            connection, _ = silent.accept()
            with connection:
                peer = Peer(connection)
                peer.receive()
                if is_put:
                    code, stdout, stderr = put.end(signal.SIGINT)
                else:
                    peer.send_error(302, "RemoteProtocolError", "control op 'describe' is unknown")
    assert (code, stdout) == (130, b"")
    assert stderr == b"poe: interrupted; nobody knows whether 1 message got stored\n"
