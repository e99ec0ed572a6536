"""Measures the HTTP gateway: posts of 1 KB JSON, 50 connections, one gateway process, one node.

Each connection sends its next post when the last one is answered, on raw sockets: a client library
would be slower than the gateway. This process is the load, so that two processors are shared by
load, gateway and node.

It is measured in plaintext, and with all there is: TLS to the gateway, a bearer token of which the
node says what it may, and TLS from there to the node.
"""

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import uvloop

from bench import rounds
from bench.build import ROOT
from bench.processes import HOST, Running, free_port, gateway, poe
from bench.row import Sample

CONNECTIONS = 50
BODY = json.dumps({"text": "a" * 1009}).encode()
"""1 KB: what the bar is about."""
SECONDS, QUICK_SECONDS = 5.0, 1.0
WARM_UP_S = 0.5
BARS = {"/async/bench": (8000, 25), "/sync/bench": (0, 1000)}
"""Requests per second at least, and ms of the slowest one in a hundred at most."""
SECURED_BARS = {"/async/bench": (0, 1000)}


@dataclass(frozen=True, slots=True)
class Way:
    """How clients get to the gateway, and the gateway to the node."""

    title: str = ""
    node_options: Sequence[str] = ()
    gateway_options: Sequence[str] = ()
    head: str = ""
    """What a request has among its headers."""
    context: ssl.SSLContext | None = None


PLAIN = Way()


def secured(folder: Path) -> Way:
    """With TLS on both ways, and the token of somebody who may post."""
    tls, users = folder / "tls", folder / "users.toml"
    certificate = ["--tls-certificate", f"{tls}/server.pem", "--tls-key", f"{tls}/server.key"]
    for command in (
        ("certificates", tls, "--host", "localhost"),
        ("user", "add", "gateway", "--prefix", "", "--to", folder / "password", "--users", users),
        ("grant", "gateway", "--operations", "authorize", "--users", users),
        ("user", "add", "alice", "--topic", "bench", "--to", folder / "other", "--users", users),
        ("user", "token", "alice", "--to", folder / "token", "--users", users),
    ):
        line = [sys.executable, "-m", "poe", *map(str, command)]
        subprocess.run(line, check=True, capture_output=True, cwd=ROOT)
    entry = ["--ca", f"{tls}/ca.pem", "--user", "gateway", "--password-file", f"{folder}/password"]
    port = free_port()
    return Way(
        ", TLS and a token",
        ["--users", str(users), "--tls-port", str(port), *certificate],
        ["--broker", f"poes://{HOST}:{port}", "--authentication", "bearer", *entry, *certificate],
        f"Authorization: Bearer {(folder / 'token').read_text().strip()}\r\n",
        ssl.create_default_context(cafile=f"{tls}/ca.pem"),
    )


class Load(asyncio.Protocol):
    """One connection: as soon as a reply is whole, the next request."""

    def __init__(self, request: bytes, until_s: float, times_s: list[float]) -> None:
        self._request = request
        self._until_s = until_s
        self._times_s = times_s
        self._rest = b""
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: the transports of uvloop are of no asyncio class.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._rest += data
        head, separator, body = self._rest.partition(b"\r\n\r\n")
        if not separator or len(body) < _length_in(head):
            return
        if not head.startswith(b"HTTP/1.1 20"):
            self.ended.set_exception(RuntimeError(self._rest.decode()))
            return
        now = time.perf_counter()
        self._times_s.append(now - self._sent_s)
        self._rest = b""
        if now < self._until_s:
            self._send()
        else:
            self._transport.close()
            self.ended.set_result(None)

    def _send(self) -> None:
        self._sent_s = time.perf_counter()
        self._transport.write(self._request)


def _length_in(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"content-length:")
    return int(rest.partition(b"\r\n")[0])


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Start node and gateway, round by round."""
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder:
        ways = [(PLAIN, BARS), (secured(Path(folder)), SECURED_BARS)]
        for _ in range(count):
            samples = []
            for way, bars in ways:
                with (
                    tempfile.TemporaryDirectory(prefix="poe-bench-") as data,
                    poe(Path(data), way.node_options) as node,
                    gateway(node, way.gateway_options) as front,
                ):
                    for path, bar in bars.items():
                        samples += measure(front, path, way, bar, quick=quick)
            yield samples


def measure(
    front: Running, path: str, way: Way, bar: tuple[int, int], *, quick: bool
) -> list[Sample]:
    """Requests per second, and the slowest one in a hundred."""
    rate_bar, slow_bar_ms = bar
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(load(front.port, path, WARM_UP_S, way))
        seconds = QUICK_SECONDS if quick else SECONDS
        times_s = sorted(runner.run(load(front.port, path, seconds, way)))
    slow_s = times_s[len(times_s) * 99 // 100]
    name = f"POST {path.rpartition('/')[0]}, 1 KB, {CONNECTIONS} connections{way.title}"
    return [
        Sample.at_least(name, len(times_s) / seconds, "requests/s", rate_bar),
        Sample.at_most(f"{name}, p99", slow_s * 1e3, "ms", slow_bar_ms),
    ]


async def load(port: int, path: str, seconds: float, way: Way = PLAIN) -> list[float]:
    """Post for so long, and return the time of each request."""
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    head += way.head
    request = f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    until_s, times_s = time.perf_counter() + seconds, list[float]()
    loop = asyncio.get_running_loop()
    protocols = []
    for _ in range(CONNECTIONS):
        _, protocol = await loop.create_connection(
            lambda: Load(request, until_s, times_s), HOST, port, ssl=way.context
        )
        protocols.append(protocol)
    for protocol in protocols:
        await protocol.ended
    return times_s


if __name__ == "__main__":
    rounds.main(measure_rounds)
