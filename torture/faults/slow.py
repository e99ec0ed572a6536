"""Readers that ask for much and take nothing: they cost little, delay nobody, and are cut off."""

import contextlib
import socket as tcp
import time

from poe.protocol import PointerRequest, Socket
from torture.scenario import Run, Trial
from torture.server import Server

_TOPIC = b"large"
_SEND_TIMEOUT_S = 3.0
_RSS_MAX_BYTES_EACH = 64 << 10
_LATENCY_MAX_S = 0.1


def play(run: Run) -> None:
    """Stall as many readers as there are trials to do, then look at the server once."""
    run.one(0, lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    with (
        Server(run.folder / "data", send_timeout=_SEND_TIMEOUT_S) as server,
        server.connect() as client,
        contextlib.ExitStack() as opened,
    ):
        for _ in range(60):
            client.write(_TOPIC, [b"m" * 1_000_000])
        rss_bytes = server.rss_bytes()
        request = PointerRequest(_TOPIC, 0, 60).encode()
        stalled = []
        for _ in range(run.count):
            reader = opened.enter_context(tcp.socket())
            reader.setsockopt(tcp.SOL_SOCKET, tcp.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", server.port))
            reader.sendall(request)
            stalled.append(reader)
        latencies_s = sorted(_put(client) for _ in range(200))
        run.measure("put_p99_s", latencies_s[197])
        trial.expect(
            is_true=latencies_s[197] <= _LATENCY_MAX_S,
            otherwise=f"p99 of puts is {latencies_s[197]:.3f} s",
        )
        grown_bytes = (server.rss_bytes() - rss_bytes) // run.count
        run.measure("grown_bytes_each", grown_bytes)
        trial.expect(
            is_true=grown_bytes <= _RSS_MAX_BYTES_EACH, otherwise=f"each costs {grown_bytes} bytes"
        )
        deadline_s = time.monotonic() + 3 * _SEND_TIMEOUT_S + 5
        while server.descriptor_count() >= 60 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        left_count = server.descriptor_count()
        trial.expect(is_true=left_count < 60, otherwise=f"{left_count} descriptors are open still")
        trial.note(readers=run.count)


def _put(client: Socket) -> float:
    started_s = time.monotonic()
    client.write(b"other", [b"m"])
    return time.monotonic() - started_s
