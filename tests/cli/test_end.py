"""How the process of a command ends: Python is not taken apart, where nothing is lost by that."""

import subprocess
import sys

import pytest

from tests.python_process import environment

PROGRAM = """
import atexit, sys, threading, time, types

class Rest:
    def __del__(self):
        print("taken apart")

def end():
    threading.main_thread().join()
    print("a thread has ended")

rest = Rest()
if sys.argv[1] == "zenoh":
    sys.modules["zenoh"] = types.ModuleType("zenoh")
if sys.argv[1] == "thread":
    threading.Thread(target=end).start()
if sys.argv[1] == "full":
    sys.stdout = open("/dev/full", "w")
from poe.cli.end import end_process
atexit.register(print, "at exit", file=sys.stderr)
print("told")
end_process(3)
"""


@pytest.mark.parametrize(
    ("what", "code", "told", "errors"),
    [
        ("nothing", 3, "told\n", "at exit\n"),
        ("zenoh", 3, "told\n", ""),
        ("thread", 0, "told\na thread has ended\ntaken apart\n", "at exit\n"),
    ],
)
def test_python_is_not_taken_apart_unless_threads_are_to_be_waited_for(what, code, told, errors):
    run = run_program(what)
    assert (run.returncode, run.stdout, run.stderr) == (code, told, errors)


def test_what_cannot_be_written_at_the_end_is_told():
    assert "No space left on device" in run_program("full").stderr


def run_program(what):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, what],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(),
    )
