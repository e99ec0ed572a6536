"""Starts the programs under test on 127.0.0.1 and ends each by its own process id.

A started program is a `Running`: where it listens and how much memory it holds. Readiness is the
line `ready on HOST:PORT` for Poe and an accepted connection for the others.
"""

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.build import BUILD, ROOT

HOST = "127.0.0.1"
READY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """One program under test."""

    pid: int
    port: int
    ready_after_s: float

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


@contextlib.contextmanager
def poe(folder: Path, options: Sequence[str] = ()) -> Iterator[Running]:
    """Serve `folder` until the block ends."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    started = time.perf_counter()
    process = subprocess.Popen(
        poe_command(folder, options), env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        port = _port_of_readiness_line(process)
        yield Running(process.pid, port, time.perf_counter() - started)
    finally:
        _end(process)
        if process.stdout:
            process.stdout.close()


@contextlib.contextmanager
def limit(folder: Path, size: int = 100) -> Iterator[Running]:
    """Run the C program that does the least a server can do."""
    port = free_port()
    with _listening([str(BUILD / "limit"), str(port), str(folder), str(size)], port) as running:
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


def installed(name: str) -> bool:
    """Whether the server can be measured here."""
    if name == "limit":
        return (BUILD / "limit").exists()
    return name == "poe" or shutil.which(f"{name}-server") is not None


def free_port() -> int:
    """A port that nothing listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _listening(command: list[str], port: int) -> Iterator[Running]:
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not _accepts(port):
            _check_alive(process, started)
            time.sleep(0.01)
        yield Running(process.pid, port, time.perf_counter() - started)
    finally:
        _end(process)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _check_alive(process: subprocess.Popen[bytes], started: float) -> None:
    if process.poll() is not None or time.perf_counter() - started > READY_TIMEOUT_S:
        msg = f"{process.args!r} is not ready; exit code {process.poll()}"
        raise RuntimeError(msg)


def _port_of_readiness_line(process: subprocess.Popen[str]) -> int:
    for line in process.stdout or ():
        if line.startswith("ready on "):
            return int(line.rpartition(":")[2])
    msg = f"poe ended before it was ready; exit code {process.wait()}"
    raise RuntimeError(msg)


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
