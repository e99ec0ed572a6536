"""Starts the programs under test on 127.0.0.1 and ends each by its own process id.

A started program is a `Running`: where it listens and how much memory it holds. Readiness is the
line `ready on HOST:PORT` for Poe and an accepted connection for the others.
"""

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.build import BUILD, ROOT

HOST = "127.0.0.1"
READY_TIMEOUT_S = 30.0
END_TIMEOUT_S = 300.0
"""A node that has just looked into 100,000 topics of another program takes more than a minute."""


@dataclass(frozen=True, slots=True)
class Running:
    """One program under test."""

    pid: int
    port: int
    ready_after_s: float
    tls_port: int = 0
    """Of a node with TLS."""

    def cpu_s(self) -> float:
        """Processor time of all its threads so far."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory_bytes(self, field: str = "VmRSS") -> int:
        """A line of the kernel's process status: VmRSS, RssAnon, RssFile."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        msg = f"process {self.pid} has no {field}"
        raise LookupError(msg)


def poe_command(folder: Path, options: Sequence[str]) -> list[str]:
    """The command that serves `folder` on a free port; the one place that knows Poe's CLI."""
    return [sys.executable, "-m", "poe", "serve", "--dir", str(folder), "--port", "0", *options]


def raise_descriptor_limit() -> None:
    """Lift the soft limit on open files to the hard one; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Interrupts:
    """Turns the first SIGINT or SIGTERM into a KeyboardInterrupt, and ignores the others.

    A second one would break into the clean-up that the first one began. While `is_held`, the first
    one waits: between a program's start and the block that ends it, it would leave the program.
    """

    def __init__(self) -> None:
        self.is_held = False
        self._came = False

    def take(self, *_: object) -> None:
        """Handle a signal."""
        is_first, self._came = not self._came, True
        if is_first and not self.is_held:
            raise KeyboardInterrupt

    def hold(self) -> None:
        """Keep back what comes from now on."""
        self.is_held = True

    def let_through(self) -> None:
        """Raise what was kept back, if something was."""
        self.is_held = False
        if self._came:
            raise KeyboardInterrupt


_interrupts = _Interrupts()


def interrupt_once() -> None:
    """Make SIGTERM an interrupt like Ctrl-C, and let only the first of them interrupt."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupts.take)


@contextlib.contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program, with the options of `Popen`, and end it with the block, whatever happens."""
    _interrupts.hold()
    process = subprocess.Popen(command, text=True, **options)
    try:
        _interrupts.let_through()
        yield process
    finally:
        _end(process)
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


@contextlib.contextmanager
def poe(folder: Path, options: Sequence[str] = ()) -> Iterator[Running]:
    """Serve `folder` until the block ends."""
    with _ready(poe_command(folder, options)) as running:
        yield running


@contextlib.contextmanager
def gateway(broker: Running, options: Sequence[str] = ()) -> Iterator[Running]:
    """Run an HTTP gateway to a server of Poe until the block ends."""
    command = [sys.executable, "-m", "poe", "gateway", "--port", "0"]
    with _ready([*command, "--broker", f"poe://{HOST}:{broker.port}", *options]) as running:
        yield running


@contextlib.contextmanager
def _ready(command: Sequence[str]) -> Iterator[Running]:
    """Run a program of Poe that tells when it is ready."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    before = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as log,
        started(command, env=environment, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        ports = _ports_of_readiness_line(process)
        if not ports:
            log.seek(0)
            msg = f"poe ended before it was ready: {log.read()[-1000:]}"
            raise RuntimeError(msg)
        yield Running(process.pid, ports[0], time.perf_counter() - before, ports[-1])


@contextlib.contextmanager
def limit(folder: Path, size: int = 100) -> Iterator[Running]:
    """Run the C program that does the least that a server of one event loop can do."""
    port = free_port()
    command = [str(BUILD / "limit_loop"), str(port), str(folder), str(size)]
    with _listening(command, port) as running:
        yield running


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Running]:
    """Run Redis with its append-only file synced every second and no snapshots beside it."""
    port = free_port()
    command = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(folder)]
    command += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    command += ["--auto-aof-rewrite-percentage", "0"]
    with _listening(command, port) as running:
        yield running


@contextlib.contextmanager
def nats(folder: Path) -> Iterator[Running]:
    """Run NATS with JetStream's file store."""
    port = free_port()
    command = ["nats-server", "-a", HOST, "-p", str(port), "-js", "-sd", str(folder)]
    with _listening(command, port) as running:
        yield running


def free_port() -> int:
    """A port that nothing listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _listening(command: list[str], port: int) -> Iterator[Running]:
    before = time.perf_counter()
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with started(command, **silent) as process:
        while not _accepts(port):
            _check_alive(process, before)
            time.sleep(0.01)
        yield Running(process.pid, port, time.perf_counter() - before)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _check_alive(process: subprocess.Popen[str], started_at: float) -> None:
    if process.poll() is not None or time.perf_counter() - started_at > READY_TIMEOUT_S:
        msg = f"{process.args!r} is not ready; exit code {process.poll()}"
        raise RuntimeError(msg)


def _ports_of_readiness_line(process: subprocess.Popen[str]) -> list[int]:
    """Where a program listens: in plaintext, then with TLS; nowhere, if it has ended."""
    for line in process.stdout or ():
        if line.startswith("ready on "):
            return [int(port) for port in re.findall(r":(\d+)", line)]
    return []


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
