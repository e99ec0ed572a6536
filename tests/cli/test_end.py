"""How a service's process ends that has loaded what may crash as Python ends."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, types
if sys.argv[1] == "loaded":
    sys.modules["zenoh"] = types.ModuleType("zenoh")
from poe.cli.service import end_process
atexit.register(print, "Python ends")
print("told")
end_process(3)
"""


@pytest.mark.parametrize(
    ("what", "code", "told"), [("loaded", 3, "told\n"), ("not loaded", 0, "told\nPython ends\n")]
)
def test_a_process_with_threads_of_others_ends_before_python_is_taken_apart(what, code, told):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, what],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (code, told, "")
