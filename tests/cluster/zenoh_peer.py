"""A session of zenoh as a node has one, bare: tells when it finds and when it loses others.

usage: python -m tests.cluster.zenoh_peer MODE NAME ADDRESS [SEED]
"""

import json
import os
import signal
import sys
import time

import zenoh

_PORT = 5557
_RECEIVERS = 32
"""Threads that receive. A session that expires keeps one of them busy until another one has ended
a task of that session; with fewer of them than sessions that expire at a time, all wait for 10 s.
"""


def main(mode: str, name: str, address: str, seed: str | None = None) -> None:
    """Print `up NAME SECONDS` and `down NAME SECONDS` by the system's monotonic clock."""
    os.environ["ZENOH_RUNTIME"] = f"(rx: (worker_threads: {_RECEIVERS}))"
    config = zenoh.Config()
    settings = {
        "mode": mode,
        "listen/endpoints": [f"tcp/{address}:{_PORT}"],
        "connect/endpoints": [f"tcp/{seed}:{_PORT}"] if seed else [],
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "scouting/multicast/enabled": False,
        # A router connects to its seeds alone, unless it is told to.
        "scouting/gossip/autoconnect": {"router": ["router"], "peer": ["peer"]},
        "transport/shared_memory/enabled": False,
        "transport/link/tx/lease": 2000,
        "transport/link/tx/keep_alive": 4,
    }
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    with zenoh.open(config) as session:
        liveliness = session.liveliness()
        with (
            liveliness.declare_subscriber("nodes/*", tell, history=True),
            liveliness.declare_token(f"nodes/{name}"),
        ):
            signal.sigwait({signal.SIGTERM})


def tell(sample: zenoh.Sample) -> None:
    what = "up" if sample.kind == zenoh.SampleKind.PUT else "down"
    print(what, str(sample.key_expr).removeprefix("nodes/"), time.monotonic(), flush=True)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main(*sys.argv[1:])
