"""Completion of commands, options and topics, in the shells themselves."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest

from tests.cli.processes import poe
from tests.python_process import environment

pytestmark = pytest.mark.slow

DEADLINE_S = 40
SHELLS = {
    "bash": ["bash", "--noprofile", "-i"],
    "zsh": ["zsh", "-i"],
    "fish": ["fish", "-i"],
}


@pytest.fixture(params=SHELLS)
def shell(request):
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.fixture
def home(tmp_path):
    """A home with `poe` in the path, and none of this machine's settings."""
    program = tmp_path / "bin" / "poe"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m poe "$@"\n')
    program.chmod(0o755)
    return tmp_path


def variables(home, **others):
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    kept = {**environment(), "HOME": str(home), "PATH": path, "TERM": "dumb", "ZDOTDIR": str(home)}
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        kept.pop(name, None)
    return {**kept, **others}


def typed(shell, home, keys, wanted, **others):
    """Type keys into an interactive shell, again while it does not show what is wanted."""
    master, slave = pty.openpty()
    # fish runs in a terminal of its own only.
    own = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    own += "os.execvp(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", own, *SHELLS[shell]],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=variables(home, **others),
        cwd=home,
    )
    os.close(slave)
    shown, deadline_s = b"", time.monotonic() + DEADLINE_S
    patience_s = 0.5  # that of a shell which has yet to begin; of one that completes it is longer
    try:
        while wanted not in shown and time.monotonic() < deadline_s:
            os.write(master, b"\x15" + keys)  # ^U empties the line
            quiet_s = time.monotonic() + patience_s
            patience_s *= 2
            while wanted not in shown and time.monotonic() < quiet_s:
                if select.select([master], [], [], 0.2)[0]:
                    shown += os.read(master, 65536)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return shown


def install(shell, home):
    """Let the shell itself ask for its completion."""
    return subprocess.run(
        [shell, "-c", "poe --install-completion; :"],
        capture_output=True,
        check=True,
        timeout=DEADLINE_S,
        env=variables(home),
    )


def test_what_is_installed_completes_commands_and_options(shell, home):
    assert f"{shell} completion installed" in install(shell, home).stdout.decode()
    assert b"poe serve" in typed(shell, home, b"poe serv\t", b"poe serve")
    line = typed(shell, home, b"poe serve --adopt\t", b"--adopt-folder")
    assert b"--adopt-folder" in line


def test_topics_of_a_running_server_are_completed(shell, home, server):
    poe("put", "unmistakable", "x", port=server.port)
    install(shell, home)
    wanted = b"poe read unmistakable"
    assert wanted in typed(shell, home, b"poe read unmi\t", wanted, POE_PORT=str(server.port))


def test_a_topic_of_several_partitions_is_completed_by_its_own_name_too(server):
    poe("topic", "create", "wide", "--partitions", 2, port=server.port)
    poe("put", "wide", "x", "--partition", 1, port=server.port)
    words = {"COMP_WORDS": "poe read wid", "COMP_CWORD": "2"}
    run = poe("", port=server.port, _POE_COMPLETE="complete_bash", **words)
    assert run.stdout.split() == [b"wide", b"wide-1"]


def test_without_a_server_there_are_no_topics_and_no_words(home):
    run = poe(
        "",
        port=1,
        _POE_COMPLETE="complete_bash",
        COMP_WORDS="poe read unmi",
        COMP_CWORD="2",
    )
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, b"", b"")


@pytest.mark.parametrize("shell_name", SHELLS)
def test_the_script_can_be_shown(shell_name):
    run = poe("--show-completion", shell_name, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert run.returncode == 0
    assert b"_POE_COMPLETE" in run.stdout
