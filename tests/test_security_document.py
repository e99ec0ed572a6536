"""The three commands of docs/security.md are typed as they stand there, by who has nothing yet."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.cli.processes import DEADLINE_S
from tests.python_process import ROOT, environment
from tests.test_readme import blocks, free_port

pytestmark = pytest.mark.slow

DOCUMENT = ROOT / "docs" / "security.md"


@pytest.fixture
def ports():
    return {"5555": free_port(), "5556": free_port()}


@pytest.fixture
def shell(tmp_path, ports):
    """What runs a line in an empty folder of a user who has never used Poe."""
    command = tmp_path / "bin" / "poe"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m poe "$@"\n')
    command.chmod(0o755)
    (tmp_path / "here").mkdir()
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    variables = environment(PATH=path, HOME=str(tmp_path), XDG_CONFIG_HOME="", XDG_DATA_HOME="")

    def start(line):
        line = line.replace("poe serve", f"poe serve --port {ports['5555']}")
        line = line.replace("5556", ports["5556"])
        line = line.replace("poes://localhost", f"poes://localhost:{ports['5556']}")
        return subprocess.Popen(
            ["sh", "-c", f"exec {line}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path / "here",
            env=variables,
            text=True,
        )

    return start


def lines(number):
    return blocks(DOCUMENT, "sh")[number].splitlines()


def typed(shell, line):
    with shell(line) as process:
        told, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    return told


def test_three_commands_make_a_node_with_tls_one_user_and_one_topic(shell, tmp_path, ports):
    *making, serving = lines(0)
    assert len(making) == 2
    for line in making:
        typed(shell, line)
    with shell(serving) as server:
        try:
            assert server.stdout is not None
            ready = server.stdout.readline()
            assert re.search(
                rf"ready on \S+:{ports['5555']} and \S+:{ports['5556']} \(TLS\)", ready
            )
            login, put, read = lines(1)
            assert typed(shell, login).startswith("logged in as alice at poes://localhost:")
            typed(shell, put)
            assert typed(shell, read) == "hello\n"
            with shell("poe put another hello") as refused:
                _, errors = refused.communicate(timeout=DEADLINE_S)
            assert refused.returncode == 1
            assert "not authorized" in errors
            # Who owns the folder needs no login.
            told = typed(shell, f"poe status --port {ports['5555']} --dir data")
            assert told == "orders\t:w\n"
        finally:
            server.terminate()
            _, log = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0
    users = tmp_path / "here" / "users.toml"
    assert f"in plaintext, to whoever proves to be a user of {users}" in log
    secret = (tmp_path / "here" / "alice.password").read_text().strip()
    assert secret not in log
