"""What the socket benchmark measures: the work, the servers that do it, and the bars.

A scenario names poeload's arguments once; every server gets the same work through the generator
of its own protocol.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import processes
from bench.build import BUILD, ROOT, is_built
from bench.processes import HOST, Running
from bench.warm_pages import warm_pages

CONNECTIONS = 6
MESSAGE_BYTES = 100
START_S = 0.2
FILL_S = 0.05
FILL_MESSAGES = 200_000
"""What is read: as much as `limit_loop.c` has, which stays in the processor's cache."""
POE = "poe"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One line of work and what Poe must reach in it, relative to the other servers."""

    name: str
    mode: str
    topics: int
    batch: int
    bars: dict[str, float]
    """Server -> the least ratio of Poe's rate to that server's."""

    connections: int = CONNECTIONS


SCENARIOS = (
    Scenario("write, 100 per call, 1 topic", "write", 1, 100, {"limit": 0.68, "redis": 2.5}),
    Scenario("write, 100 per call, 100 topics", "write", 100, 100, {"limit": 0.52, "redis": 2.5}),
    Scenario("write, 1000 per call", "write", 1, 1000, {"limit": 0.78}),
    Scenario("read, 100 per call, 1 topic", "read", 1, 100, {"limit": 0.62, "redis": 1.6}),
    Scenario("read, 100 per call, 100 topics", "read", 100, 100, {"limit": 0.56, "redis": 1.6}),
    Scenario("read, 1000 per call", "read", 1, 1000, {"limit": 0.62}),
)

Starter = Callable[[Path], contextlib.AbstractContextManager[Running]]
SERVERS: dict[str, tuple[Starter, str]] = {
    POE: (processes.poe, "poeload"),
    "limit": (processes.limit, "poeload"),
    "redis": (processes.redis, "redisload"),
    "nats": (processes.nats, "natsload"),
}


def left_out(not_built: dict[str, str]) -> dict[str, str]:
    """Which servers cannot be measured here, and why; `not_built` is what `build` returned.

    Poe always can: without poeload, `bench/load.py` loads it.
    """
    programs = {"limit": "limit_loop", "redis": "redisload", "nats": "natsload"}
    reasons = {}
    for server, program in programs.items():
        if server != "limit" and shutil.which(f"{server}-server") is None:
            reasons[server] = f"no {server}-server"
        elif program in not_built:
            reasons[server] = not_built[program]
    return reasons


def measure(server: str, scenario: Scenario, seconds: float) -> dict[str, Any]:
    """What the generator reports of one server in one scenario, started fresh in an empty folder.

    Fresh, so that no measurement pays for the files and the memory of the one before. A server
    that is read from is filled first; `limit` brings its own data.
    """
    start, generator = SERVERS[server]
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, start(Path(folder)) as running:
        if scenario.mode == "write":
            # Topics are made here: 100 of them take 5 % of a second, and stay for good.
            load(generator, running.port, scenario, START_S)
            warm_pages(seconds)
        elif server != "limit":
            _fill(generator, running.port, scenario.topics)
        return load(generator, running.port, scenario, seconds)


def load(generator: str, port: int, scenario: Scenario, seconds: float) -> dict[str, Any]:
    """Run a generator and return what it reports: `msgs_s`, `p50_us` and others.

    Raises:
        RuntimeError: the generator saw errors; a rate with errors in it means nothing.
    """
    program = [str(BUILD / generator)]
    if not is_built(generator):
        program = [sys.executable, "-m", "bench.load"]
    of_scenario = [scenario.mode, scenario.connections, scenario.topics, scenario.batch]
    work = [*of_scenario, MESSAGE_BYTES, seconds]
    command = [*program, *map(str, [HOST, port, *work])]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with processes.started(command, cwd=ROOT, **pipes) as run:
        output, errors = run.communicate()
    if run.returncode:
        msg = f"{generator} {scenario.mode} failed: {output}{errors}"
        raise RuntimeError(msg)
    reported: dict[str, Any] = json.loads(output)
    return reported


def _fill(generator: str, port: int, topics: int) -> None:
    writing = Scenario("fill", "write", topics, 100, {})
    stored = 0.0
    while stored < FILL_MESSAGES:
        stored += load(generator, port, writing, FILL_S)["msgs_s"] * FILL_S
