"""Thousands of idle connections: little memory, and a new client is served at once."""

import contextlib
import resource
import time

from torture.scenario import Run, Trial
from torture.server import Server

_RSS_MAX_BYTES = 100 << 20
_SERVED_MAX_S = 0.05


def play(run: Run) -> None:
    """Open as many connections as there are trials to do; then look at the server once."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    run.one(0, lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    with Server(run.folder / "data") as server, contextlib.ExitStack() as clients:
        with server.connect() as client:
            client.write(b"t", [b"m"])
        rss_bytes = server.rss_bytes()
        # Below what the server takes, less one for the new client.
        for _ in range(min(run.count, 9_900)):
            clients.enter_context(server.connect_raw())
        served_s = sorted(_serve(server) for _ in range(100))
        run.measure("served_p99_s", served_s[98])
        trial.expect(
            is_true=served_s[98] <= _SERVED_MAX_S, otherwise=f"served after {served_s[98]:.3f} s"
        )
        grown_bytes = server.rss_bytes() - rss_bytes
        run.measure("grown_bytes", grown_bytes)
        trial.expect(is_true=grown_bytes <= _RSS_MAX_BYTES, otherwise=f"grew by {grown_bytes} B")
        trial.note(connections=run.count)


def _serve(server: Server) -> float:
    started_s = time.monotonic()
    with server.connect(5.0) as client:
        assert client.read(b"t", 0, 1)
    return time.monotonic() - started_s
