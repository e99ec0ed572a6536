"""Measures what many topics cost a node: to make, to leave alone, to tell of, to stop and to start.

Each round makes the topics by a put each, beside a second client that puts onto a topic of its own
all the time; the same files are made by a bare loop in a folder beside them. Then the node is left
alone, asked for all its topics, stopped, started, killed and started again.

`python -m bench.topics --count 100000` takes another number of topics.
"""

import argparse
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from bench import rounds
from bench.build import ROOT
from bench.load import connect, exchange, put_frame
from bench.processes import HOST, poe_command, started
from bench.row import Sample
from poe.protocol import socket as open_socket

COUNT = 10_000
QUICK_COUNT = 500
LARGE_COUNT = 50_000
"""From so many topics on the second bar of each pair holds."""

SETTLE_S = 4.0
"""What was put is synced by then, and who slept late sleeps."""
IDLE_S = 8.0
PAUSE_S = 0.001
STOP_MAX_S = 300.0
READY_MAX_S = 600.0
CONTROL_TIMEOUT_S = 300.0

HEADER_BYTES = 32
ENTRY_BYTES = 48
LOCK_BYTES = 72


def measure_rounds(count: int, *, quick: bool, topic_count: int = COUNT) -> Iterator[list[Sample]]:
    """Begin with an empty folder, round by round."""
    for _ in range(count):
        with tempfile.TemporaryDirectory(prefix="poe-bench-") as name:
            yield measure(Path(name), QUICK_COUNT if quick else topic_count)


def measure(folder: Path, count: int) -> list[Sample]:
    """One life of a node with so many topics."""
    is_large = count >= LARGE_COUNT
    idle_bar, stop_bar, start_bar, kill_bar = (2, 8, 8, 25) if is_large else (1, 2, 1, 3)
    many = f"{count:,} topics"
    samples = []
    bare_s = make_bare(folder / "bare", count)
    base = folder / "base"
    with serving(base) as (process, port, _):
        with latencies_beside(port) as beside:
            created_s = create(port, count)
        samples += [
            Sample.at_most(f"{many}: made, by bare files", created_s / bare_s, "×", 2),
            Sample.at_most(f"{many}: made", created_s, "s", 0),
            Sample.at_most(f"{many}: others' put while they are made, p99", beside[0], "ms", 20),
            Sample.at_most(f"{many}: others' put while they are made, most", beside[1], "ms", 0),
        ]
        time.sleep(SETTLE_S)
        samples.append(
            Sample.at_most(f"{many}: idle", 100 * idle_share(process.pid), "% of a core", idle_bar)
        )
        for op in ("status", "info"):
            with latencies_beside(port) as beside:
                asked_s = ask_all(port, op, count)
            samples += [
                Sample.at_most(f"{many}: `{op}`", asked_s, "s", 0),
                Sample.at_most(f"{many}: others' put during `{op}`, most", beside[1], "ms", 20),
            ]
        stop_s = ended_by(process, signal.SIGTERM)
        samples.append(Sample.at_most(f"{many}: SIGTERM", stop_s, "s", stop_bar))
    with serving(base) as (process, port, ready_s):
        samples.append(Sample.at_most(f"{many}: start after a clean stop", ready_s, "s", start_bar))
        create(port, count)  # touches all
        ended_by(process, signal.SIGKILL)
    with serving(base) as (process, _, ready_s):
        samples.append(Sample.at_most(f"{many}: start after kill -9", ready_s, "s", kill_bar))
        again_s = ended_by(process, signal.SIGTERM)
        samples.append(Sample.at_most(f"{many}: SIGTERM, untouched", again_s, "s", stop_bar))
    return samples


@contextlib.contextmanager
def serving(base: Path) -> Iterator[tuple["subprocess.Popen[str]", int, float]]:
    """Serve a folder until the block ends; give process, port, and seconds until it was ready."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    before = time.perf_counter()
    command = poe_command(base, ["--log-level", "error", "--topics-max", "1000000"])
    with started(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready on "):
            msg = f"poe ended before it was ready: {line!r}"
            raise RuntimeError(msg)
        yield process, int(line.rpartition(":")[2]), time.perf_counter() - before


def make_bare(folder: Path, count: int) -> float:
    """Make the files of so many topics by nothing but system calls; return the seconds."""
    folder.mkdir()
    contents = {
        "_data": b"a" * 111,
        "_index": b"b" * 12,
        "_sum": b"c" * (HEADER_BYTES + ENTRY_BYTES),
        "_lock": b"d" * LOCK_BYTES,
    }
    begun = time.perf_counter()
    base_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(count):
        os.mkdir(f"t{number}", 0o700, dir_fd=base_fd)
        for suffix, content in contents.items():
            path = f"t{number}/1600000000000000{suffix}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=base_fd)
            os.write(fd, content)
            os.close(fd)
    os.close(base_fd)
    return time.perf_counter() - begun


def create(port: int, count: int) -> float:
    """Put a message onto each topic, one after the other; return the seconds."""
    reply = bytearray(1024)
    begun = time.perf_counter()
    with connect(HOST, port) as connection:
        for number in range(count):
            exchange(connection, put_frame(b"t%d" % number, [b"a" * 100]), reply)
    return time.perf_counter() - begun


def ask_all(port: int, op: str, count: int) -> float:
    """Ask for all topics as the command line does; return the seconds."""
    begun = time.perf_counter()
    with open_socket(HOST, port, timeout_s=CONTROL_TIMEOUT_S) as connection:
        told = connection.status() if op == "status" else connection.control("info")
    if len(told) < count:
        msg = f"{op} tells of {len(told)} topics, of {count}"
        raise RuntimeError(msg)
    return time.perf_counter() - begun


def idle_share(pid: int) -> float:
    """Tell how much of a core a process that is left alone takes."""
    before, begun = cpu_s(pid), time.perf_counter()
    time.sleep(IDLE_S)
    return (cpu_s(pid) - before) / (time.perf_counter() - begun)


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far, those of the kernel on its behalf, too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended_by(process: "subprocess.Popen[str]", number: signal.Signals) -> float:
    """Send a signal and wait for the end; return the seconds."""
    begun = time.perf_counter()
    process.send_signal(number)
    process.wait(timeout=STOP_MAX_S)
    return time.perf_counter() - begun


@contextlib.contextmanager
def latencies_beside(port: int) -> Iterator[list[float]]:
    """Put all the time from a process of its own; then fill in p99 and most, in milliseconds."""
    found: list[float] = []
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_put_beside, args=(port, theirs))
    process.start()
    try:
        ours.recv()
        yield found
        ours.send(None)
        latencies = sorted(ours.recv())
        found += [latencies[int(len(latencies) * 0.99)], latencies[-1]]
    finally:
        process.kill()
        process.join()


def _put_beside(port: int, pipe: Connection) -> None:
    frame, reply = put_frame(b"beside", [b"a" * 100]), bytearray(1024)
    latencies: list[float] = []
    with connect(HOST, port) as connection:
        exchange(connection, frame, reply)
        pipe.send(None)
        while not pipe.poll():
            begun = time.perf_counter()
            exchange(connection, frame, reply)
            latencies.append((time.perf_counter() - begun) * 1000)
            time.sleep(PAUSE_S)
    pipe.send(latencies)


def main() -> None:
    """Take the number of topics from the command line, and leave the rest to all scripts."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--count", type=int, default=COUNT)
    arguments, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    rounds.main(partial(measure_rounds, topic_count=arguments.count))


if __name__ == "__main__":
    main()
