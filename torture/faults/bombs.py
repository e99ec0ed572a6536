"""Lengths that lie, by the thousand and all at once: refused at once, and no memory for them."""

import contextlib
import socket as tcp
import time

from poe.protocol import PutRequest
from torture.scenario import Run, Trial
from torture.server import Server

_CONNECTIONS = 100
_RSS_MAX_BYTES = 300 << 20
_REFUSED_MAX_S = 0.5
"""Of a whole trial's connections; one takes less than 10 ms of it."""

_TOO_LONG = (2**32 - 1, 2**31, 2**31 - 1, (1 << 26) + 1)


def play(run: Run) -> None:
    """Announce too much on `_CONNECTIONS` connections in each trial."""
    with Server(run.folder / "data") as server:
        rss_bytes = server.rss_bytes()
        run.each(lambda trial: _trial(run, trial, server, rss_bytes))


def _trial(run: Run, trial: Trial, server: Server, rss_bytes: int) -> None:
    random = trial.random
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(server.connect_raw()) for _ in range(_CONNECTIONS)]
        started_s, waited_s = time.monotonic(), server.kept_waiting_s()
        for client in clients:
            client.sendall(random.choice(_TOO_LONG).to_bytes(4, "big") + b"\0\2" + b"x" * 100)
        for client in clients:
            trial.expect(is_true=_is_refused(client), otherwise="a bomb was not refused")
        took_s = time.monotonic() - started_s - (server.kept_waiting_s() - waited_s)
        run.measure("refused_s_per_100", took_s)
        trial.expect(is_true=took_s <= _REFUSED_MAX_S, otherwise=f"refused after {took_s:.2f} s")
    with contextlib.ExitStack() as opened:
        # The most that may be announced, of which a little comes; and inner lengths that lie.
        frame = PutRequest(b"t", [b"m" * 50]).encode()
        for number in range(_CONNECTIONS):
            client = opened.enter_context(server.connect_raw())
            if number % 2:
                client.sendall((1 << 26).to_bytes(4, "big") + frame[4:])
            else:
                client.sendall(frame[:6] + b"\xff\xff\xff\xff" + frame[10:])
                trial.expect(is_true=_is_refused(client), otherwise="a lie was not refused")
        grown_bytes = server.rss_bytes() - rss_bytes
        run.measure("grown_bytes", grown_bytes)
        trial.expect(is_true=grown_bytes <= _RSS_MAX_BYTES, otherwise=f"grew by {grown_bytes} B")
    trial.note(frames=2 * _CONNECTIONS)


def _is_refused(client: tcp.socket) -> bool:
    """Tell whether the server says something, and closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(4096):
            received += part
    return len(received) > 6 and received[4:6] == (18).to_bytes(2, "big")
