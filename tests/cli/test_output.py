"""Standard streams that are full, closed or no longer read: what was done is told all the same."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from poe.cli.output import ReaderGone, counted
from poe.cli.read import _batches
from tests.cli.processes import DEADLINE_S, Background, poe
from tests.python_process import environment

pytestmark = pytest.mark.slow


def in_shell(redirection, *arguments, port):
    """Run a command as a shell does with its redirection; stdout here is what goes to a pipe."""
    script = f'exec "$0" -m poe "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, sys.executable, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
        env=environment(POE_PORT=str(port)),
    )


@pytest.mark.parametrize(
    ("redirection", "reason"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")]
)
def test_output_that_cannot_be_written_is_one_sentence(server, redirection, reason):
    told = f"poe: cannot write to standard output ({reason})"

    def run(*arguments):
        done = in_shell(redirection, *arguments, port=server.port)
        assert done.returncode == 4
        return done.stderr.decode()

    assert run("put", "t", "one").startswith(f"{told}; stored: 1 message, last pointer ")
    assert poe("read", "t", port=server.port).stdout == b"one\n"
    assert run("read", "t").startswith(f"{told}; continue with --pointer 0, of the next 1 message ")
    for command in ("topics", "status", "bench", "--version"):
        assert run(command) == f"{told}\n", command


def test_help_that_cannot_be_written_is_told(server):
    run = in_shell(">/dev/full", "--help", port=server.port)
    assert (run.returncode, run.stderr) == (
        1,
        b"poe: the system refuses: No space left on device\n",
    )


def test_closed_standard_input_has_no_lines(server):
    run = in_shell("<&-", "put", "t", "-", port=server.port)
    assert run.returncode == 2
    assert b"standard input is closed; pipe lines in" in run.stderr
    assert poe("topics", port=server.port).stdout == b""


def test_input_that_cannot_be_read_is_told(server, tmp_path):
    # What is open for writing only is the one file of which Python does not complain by itself.
    unreadable = tmp_path / "unreadable"
    run = in_shell(f"0>{unreadable}", "put", "t", "-", port=server.port)
    assert run.returncode == 1
    told = b"poe: cannot read standard input (Bad file descriptor); acknowledged messages: 0\n"
    assert run.stderr == told


def test_an_error_that_nobody_can_see_goes_nowhere_else(server):
    run = in_shell("2>&-", "read", "nosuch", port=server.port)
    assert (run.returncode, run.stdout, run.stderr) == (1, b"", b"")
    assert in_shell("2>/dev/full", "read", "nosuch", port=server.port).returncode == 1


def test_all_closed_streams_do_not_reach_the_connection(server):
    assert in_shell("<&- >&- 2>&-", "put", "t", "one", port=server.port).returncode == 4
    assert poe("read", "t", port=server.port).stdout == b"one\n"


def test_help_is_shown_in_a_locale_that_has_not_all_of_its_characters():
    run = poe("put", "--help", PYTHONIOENCODING="latin-1")
    assert (run.returncode, run.stderr) == (0, b"")
    assert rb"poes://\u2026 for TLS" in b" ".join(run.stdout.split())


def test_a_reader_that_has_gone_is_no_failure(server):
    commands = ("put", "t", "one"), ("read", "t"), ("topics",), ("status",), ("--help",)
    for arguments in (*commands, ("serve", "--help")):
        with Background(*arguments, port=server.port) as command:
            command.process.stdout.close()
            assert command.process.wait(DEADLINE_S) == 0
            assert command.process.stderr.read() == b""


def test_who_follows_a_quiet_topic_hears_that_its_reader_has_gone(monkeypatch):
    """As in `poe read t --follow | head -1`, which went on until the next message came."""
    read, write = os.pipe()
    with os.fdopen(write, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        waits = []

        def wait(*_):
            waits.append(1)
            os.close(read)  # while it waits

        connection = SimpleNamespace(wait=wait)
        following = _batches(connection, lambda *_: [], b"t", 0, None, follow=True)  # type: ignore[arg-type]
        with pytest.raises(ReaderGone):
            next(following)
    assert waits == [1]


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 segments"), (1, "1 segment"), (2, "2 segments")]
)
def test_one_thing_has_no_plural(count, told):
    assert counted(count, "segment") == told
