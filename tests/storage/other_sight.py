"""Runs code where less can be seen of the machine: as another user, or in a container."""

import contextlib
import os
import pickle
import subprocess
import sys

import pytest

from tests.python_process import environment

SOMEBODY, SOMEBODY_ELSE = 65534, 65533


@contextlib.contextmanager
def opened(path, user=None, group=None):
    """Have another process, of a user and group, hold a file open during the block."""
    with path.open() as file:
        holder = subprocess.Popen(["sleep", "60"], stdin=file, user=user, group=group or user)
    try:
        yield
    finally:
        holder.kill()
        holder.wait()


def run_as(user, action):
    """Call `action` as a user, in a process of its own; return or raise what it did."""
    if os.geteuid() != 0:
        pytest.skip("only root may be somebody else")
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(user)
            os.setuid(user)
            try:
                result = True, action()
            except Exception as error:  # noqa: BLE001 - for the parent to raise
                result = False, error
            os.write(write_end, pickle.dumps(result))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        is_done, result = pickle.loads(pipe.read())
    os.waitpid(pid, 0)
    if not is_done:
        raise result
    return result


def run_in_container(code, *arguments):
    """Run Python code where no process but itself can be seen."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may have processes of its own")
    return subprocess.run(
        [*unshare, sys.executable, "-c", code, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
    )
