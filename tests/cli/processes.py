"""`python -m poe …` as users start it: to the end, or in the background with its output at hand."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from unittest import mock

from poe.cli import main
from tests.python_process import environment
from torture.server import is_readable

DEADLINE_S = 60.0


def poe(*arguments, stdin=b"", port=None, **variables):
    """Run a command to its end."""
    if port is not None:
        variables["POE_PORT"] = str(port)
    return subprocess.run(
        [sys.executable, "-m", "poe", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
        env=environment(**variables),
    )


def poe_here(*arguments, port=None, **variables):
    """Run a command in this process: enough for what it refuses before it begins, and fast."""
    if port is not None:
        variables["POE_PORT"] = str(port)
    output, errors = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with (
        mock.patch.dict(os.environ, environment(**variables), clear=True),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        code = main([str(each) for each in arguments])
    told = (each.buffer.getvalue() for each in (output, errors))
    return subprocess.CompletedProcess(arguments, code, *told)


def complaint(run):
    """What a command that failed said: one sentence, and nothing else."""
    lines = run.stderr.decode().splitlines()
    assert len(lines) == 1, run.stderr
    assert run.stdout == b""
    return lines[0]


class Background:
    """A command that runs until it is told to end; its two outputs can be waited for."""

    def __init__(
        self, *arguments, port=None, stdin=None, stdout=subprocess.PIPE, cwd=None, **variables
    ):
        if port is not None:
            variables["POE_PORT"] = str(port)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "poe", *map(str, arguments)],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment(**variables),
            cwd=cwd,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def type(self, content):
        """Send bytes to its standard input, which stays open."""
        assert self.process.stdin is not None
        self.process.stdin.write(content)
        self.process.stdin.flush()

    def read_until(self, end, *, pipe=None, timeout_s=DEADLINE_S):
        """Return what comes until `end` has come, in that time."""
        source = pipe or self.process.stdout
        assert source is not None
        descriptor = source.fileno()
        deadline_s = time.monotonic() + timeout_s
        content = b""
        while end not in content:
            remaining_s = max(0.0, deadline_s - time.monotonic())
            part = os.read(descriptor, 65536) if is_readable(descriptor, remaining_s) else b""
            assert part, f"no {end!r} in {content!r}"
            content += part
        return content

    def end(self, number=signal.SIGTERM):
        """Send a signal and return exit code, and what came from both outputs."""
        self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, stdout, stderr


class Server(Background):
    """`poe serve` on a free port; exists once it is ready."""

    def __init__(self, folder, *options, **variables):
        super().__init__("serve", "--dir", folder, "--port", 0, *options, **variables)
        try:
            self.ready_line = self.read_until(b"\n").decode()
        except AssertionError:
            self.__exit__()
            raise
        ports = [int(port) for port in re.findall(r":(\d+)\b", self.ready_line)]
        self.port, self.tls_port = ports[0], ports[-1]
