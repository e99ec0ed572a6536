"""A program on a host: what it prints is kept, and it ends with the test, whatever happens."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from tests.cluster.network import Host
from tests.python_process import ROOT, environment
from tests.waiting import wait_until

_END_S = 40


class Program:
    """One process of a Python program; it is killed where the test itself is killed."""

    def __init__(self, host: Host, arguments: Iterable[str], log: Path, **variables: str) -> None:
        self.log = log
        """Where its errors are."""
        self.lines: list[str] = []
        """What it has printed so far."""
        # A thread that was there before is elsewhere: this one starts it, where it is to be.
        with host.namespace.entered(), log.open("ab") as errors:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env=environment(PYTHONUNBUFFERED="1", **variables),
            )
        self._reader = threading.Thread(target=self._read, name=f"output of {self.pid}")
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, begin: str, timeout_s: float = 60) -> str:
        """Return the first line that begins so."""
        found: list[str] = []

        def is_printed() -> bool:
            found[:] = [line for line in self.lines if line.startswith(begin)]
            assert found or self.is_running, f"it has ended with {self._process.returncode}"
            return bool(found)

        wait_until(is_printed, timeout_s)
        return found[0]

    def kill(self) -> None:
        """End it at once; nothing of it runs any more afterwards."""
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        finally:
            self.kill()
        return self._process.returncode

    def freeze(self) -> None:
        """Let it do nothing, though all its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))
