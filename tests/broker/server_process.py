"""A server as users run it, `poe serve` in a process of its own, that can be killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from poe import protocol
from tests.python_process import environment
from torture.server import is_readable

_READY = b"ready on "


class ServerProcess:
    """Runs from construction until `kill`, `stop` or the end of the `with` block.

    Options are those of `poe serve`, with underscores.
    """

    def __init__(self, folder: Path, **options: object):
        command = [sys.executable, "-m", "poe", "serve", "--dir", str(folder), "--port", "0"]
        for name, value in options.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            cwd=folder.parent,
        )
        self.pid = self.process.pid
        self.port = int(self._ready_line().rpartition(b":")[2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def connect(self, timeout_s=20.0):
        return protocol.socket("127.0.0.1", self.port, timeout_s=timeout_s)

    def kill(self):
        """End it as a lack of memory or `kill -9` does."""
        self._end(signal.SIGKILL)

    def stop(self):
        """Let it drain, and tell its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number):
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(timeout=10)

    def _ready_line(self, timeout_s=20.0):
        """Read the line that tells the port."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline_s = time.monotonic() + timeout_s
        line = b""
        while not line.endswith(b"\n"):
            rest_s = max(0.0, deadline_s - time.monotonic())
            part = os.read(descriptor, 200) if is_readable(descriptor, rest_s) else b""
            if not part:
                self.kill()
                msg = f"server did not become ready: {line!r}"
                raise AssertionError(msg)
            line += part
        assert line.startswith(_READY), line
        return line.strip()
