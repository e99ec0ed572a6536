"""Measures how long a node is away when its process is killed: `python -m bench.isolation`.

The time runs from SIGKILL of the node's process to the first reply to a client that tries again and
again; the service listens all the while. Each service is killed four times, as often as it allows.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from poe import protocol
from poe.errors import PoeError

SERVICES = 5
KILLS = 4
DEADLINE_S = 20.0


def start_service(folder: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a service on a free port; return it and the port."""
    command = [sys.executable, "-m", "poe", "serve", "--isolation", "process", "--port", "0"]
    service = subprocess.Popen(
        [*command, "--dir", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert service.stdout is not None
    return service, int(service.stdout.readline().rpartition(b":")[2])


def heal(service: subprocess.Popen[bytes], port: int) -> float:
    """Kill the node's process and return the seconds until a put is acknowledged."""
    children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text()
    began_s = time.monotonic()
    os.kill(int(children), signal.SIGKILL)
    while True:
        with (
            contextlib.suppress(PoeError, OSError),
            protocol.socket(port=port, timeout_s=DEADLINE_S) as connection,
        ):
            connection.write("t0", [b"again"])
            return time.monotonic() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1, help="topics of 1000 messages to recover")
    topics = parser.parse_args().topics
    times_s = []
    for _ in range(SERVICES):
        with tempfile.TemporaryDirectory() as folder:
            service, port = start_service(folder)
            try:
                with protocol.socket(port=port) as connection:
                    for number in range(topics):
                        connection.write(f"t{number}", [bytes(100)] * 1000)
                times_s += [heal(service, port) for _ in range(KILLS)]
            finally:
                service.terminate()
                service.communicate()
    print(
        f"{topics} topics: median {statistics.median(times_s):.3f} s of {len(times_s)} kills, "
        f"{min(times_s):.3f} to {max(times_s):.3f}"
    )


if __name__ == "__main__":
    main()
