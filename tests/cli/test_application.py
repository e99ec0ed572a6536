"""The command line as a whole: help, version, and what a mistyped word gets."""

import subprocess
import sys

import pytest

from poe.cli import main
from poe.version import VERSION
from tests.python_process import environment

COMMANDS = [
    "serve",
    "put",
    "read",
    "topics",
    "status",
    "tree",
    "trim",
    "delete",
    "check",
    "unlock",
    "bench",
    "certificates",
    "user",
    "grant",
    "grants",
    "login",
    "logout",
    "reload",
]


def test_a_mistyped_command_gets_a_suggestion(capsys):
    assert main(["stauts"]) == 2
    assert capsys.readouterr().err == (
        "poe: No such command 'stauts'. Did you mean 'status'?; see poe --help\n"
    )


@pytest.mark.parametrize("group", ["topic", "queue", "group", "user", "cluster"])
def test_a_group_without_a_command_shows_which_there_are(capsys, group):
    assert main([group]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"poe: a command is missing\n\nUsage: poe {group} ")
    assert "see poe" not in told


def test_a_missing_argument_names_it_and_its_command(capsys):
    assert main(["put"]) == 2
    assert "see poe put --help" in capsys.readouterr().err


def test_no_command_prints_the_list_of_commands(capsys):
    assert main([]) == 2
    told = capsys.readouterr().err
    for command in COMMANDS:
        assert f"\n  {command} " in told


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(capsys, command):
    assert main([command, "--help"]) == 0
    assert f"Usage: poe {command}" in capsys.readouterr().out


def test_help_of_serve_shows_each_option_with_its_docstring_and_default(capsys):
    assert main(["serve", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "--count-limit INTEGER Messages in a segment; a fast producer may double it," in told
    assert "[1 or more (messages)] [default: 100000]" in told
    assert "a copy in memory, the kernel, or the disk. [default: flushed]" in told
    assert "--insecure / --no-insecure Allow an address that others can reach." in told


def test_version(capfdbinary):
    assert main(["--version"]) == 0
    assert capfdbinary.readouterr().out == f"poe {VERSION}\n".encode()


@pytest.mark.slow
def test_a_command_has_no_threads_of_blas_and_what_it_starts_may_have_them():
    code = """if True:
        import os
        from poe.cli import application
        application._load("serve:serve_command()")
        print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
    """
    chosen = environment()
    chosen.pop("OPENBLAS_NUM_THREADS", None)
    run = subprocess.run([sys.executable, "-c", code], env=chosen, check=True, capture_output=True)
    assert run.stdout.split() == [b"1", b"None"]
    chosen["OPENBLAS_NUM_THREADS"] = "2"
    run = subprocess.run([sys.executable, "-c", code], env=chosen, check=True, capture_output=True)
    assert run.stdout.split()[1] == b"2"


def test_a_command_runs_with_the_collector_which_passes_over_what_was_loaded():
    code = """if True:
        import atexit, gc, sys
        atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 0))
        from poe.cli import main
        sys.argv = ["poe", "--version"]
        main()
    """
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment(), check=True, capture_output=True)
    assert run.stdout.splitlines()[1:] == [b"True True"]
