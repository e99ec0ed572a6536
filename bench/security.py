"""Measures what TLS costs, and who is asked for a credential: calls, connections, memory, reloads.

One server listens in plaintext and with TLS, and both ports are loaded in turns of a fraction of a
second: what slows the machine down for a while does so for both. Of a round the best turn counts.
Likewise a server without users and one with, where each call needs a grant.
"""

import contextlib
import json
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench import rounds
from bench.build import BUILD, build
from bench.load import connect, exchange, pointer_frame, put_frame
from bench.processes import HOST, Running, poe, started
from bench.row import Sample
from poe import protocol
from poe.errors import PoeError
from poe.protocol import ControlRequest
from poe.security.credentials import Scram, Token
from poe.security.entry import Entry
from poe.security.scram import ScramKeys
from poe.security.token import make_token

ALPN = "poe/1"
CONNECTIONS = 6
MESSAGE_BYTES = 100
TURNS = 7
FILL_S = 0.5
READ = pointer_frame(b"t0", 0, 1)
PUT = put_frame(b"t0", [b"a" * MESSAGE_BYTES] * 100)
CALLS = (
    # what, mode, messages a call, least rate and most processor time, both × plaintext
    ("put, 100 per call", "write", 100, 0.65, 1.5),
    ("get, 100 per call", "read", 100, 0.60, 1.7),
    ("get, 1000 per call", "read", 1000, 0.45, 2.6),
)
USERS = 1000
RELOAD_S = 0.6
"""What reading so many takes, in a thread beside the loop, and some more."""
MAY_ALL = """
[[grants]]
principals = ["alice"]
operations = ["read", "write", "create"]
prefixes = [""]
"""
MAY_ONE = """
[[grants]]
principals = ["u{0}"]
operations = ["read", "write"]
topics = ["mine-{0}"]
"""
UNHURRIED = (
    *("--unauthenticated-max", "20000", "--unauthenticated-per-address-max", "20000"),
    *("--handshake-timeout", "120", "--connections-max", "30000"),
)


@dataclass
class Best:
    """The best of some turns: the most calls a second, and the least processor time for one."""

    calls_s: float = 0.0
    cpu_s: float = field(default=float("inf"))

    def take(self, calls_s: float, cpu_s: float) -> None:
        self.calls_s, self.cpu_s = max(self.calls_s, calls_s), min(self.cpu_s, cpu_s)


class Way(NamedTuple):
    """How a server is loaded."""

    program: str
    running: Running
    port: int
    first: bytes = b""
    """A frame that each connection sends first."""


class Secured:
    """Certificates for servers of this run, and clients that trust them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "poe", "certificates", str(folder), "--host", HOST]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        self.context.set_alpn_protocols([ALPN])

    @contextlib.contextmanager
    def serve(self, *options: str) -> Iterator[Running]:
        """A server with both ports, in a folder of its own."""
        files = self.folder / "server.pem", self.folder / "server.key"
        secure = ["--tls-port", "0", "--tls-certificate", str(files[0]), "--tls-key", str(files[1])]
        with (
            tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
            poe(Path(folder), [*secure, *UNHURRIED, *options]) as running,
        ):
            yield running

    def connect(self, running: Running) -> ssl.SSLSocket:
        """Connect by TLS; the handshake is done."""
        plain = socket.create_connection((HOST, running.tls_port), 60)
        return self.context.wrap_socket(plain, server_hostname=HOST)


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Start servers anew, round by round."""
    not_built = build()
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as name:
        secured = Secured(Path(name))
        for _ in range(count):
            samples: list[Sample] = []
            if "poeload_tls" in not_built or "poeload" in not_built:
                print(f"no rates: {not_built}", file=sys.stderr)
            else:
                samples += call_samples(secured, 0.1 if quick else 0.3)
                samples += grant_samples(secured.folder, 0.1 if quick else 0.3)
                samples += connection_samples(secured, 0.2 if quick else 1.0)
                samples += storm_samples(secured, 200 if quick else 5000)
            samples += memory_samples(secured, 300 if quick else 10_000)
            samples += stuck_samples(secured)
            yield samples


# ---- calls and connections ----------------------------------------------------------------------


def call_samples(secured: Secured, turn_s: float) -> list[Sample]:
    """What calls by TLS cost beside those in plaintext."""
    samples = []
    with secured.serve() as running:
        load(Way("poeload", running, running.port), "write", 100, FILL_S)
        for what, mode, batch, least, most in CALLS:
            plain, tls = compare(both_ports(running), mode, batch, turn_s)
            rate, cpu = tls.calls_s / plain.calls_s, tls.cpu_s / plain.cpu_s
            samples += [
                Sample.at_least(f"TLS, {what}, rate", rate, "× plain", least),
                Sample.at_most(f"TLS, {what}, processor time of the server", cpu, "× plain", most),
            ]
    return samples


def connection_samples(secured: Secured, turn_s: float) -> list[Sample]:
    """What a connection by TLS, with one request, costs above one in plaintext."""
    with secured.serve() as running:
        load(Way("poeload", running, running.port), "write", 100, FILL_S)
        plain, tls = compare(both_ports(running), "connect", 1, turn_s)
    above_us = (tls.cpu_s - plain.cpu_s) * 1e6
    return [Sample.at_most("TLS connection above plain, processor time", above_us, "µs", 700)]


def both_ports(running: Running) -> tuple[Way, Way]:
    """In plaintext and by TLS."""
    return (
        Way("poeload", running, running.port),
        Way("poeload_tls", running, running.tls_port),
    )


def compare(ways: tuple[Way, Way], mode: str, batch: int, turn_s: float) -> tuple[Best, Best]:
    """Load in two ways, in turns."""
    best = Best(), Best()
    for turn in range(TURNS):
        for number in (0, 1) if turn % 2 else (1, 0):
            way = ways[number]
            before_s = way.running.cpu_s()
            reported = load(way, mode, batch, turn_s)
            calls = reported["calls_s"] * turn_s
            best[number].take(reported["calls_s"], (way.running.cpu_s() - before_s) / calls)
    return best


def load(
    way: Way, mode: str, batch: int, seconds: float, connections: int = CONNECTIONS
) -> dict[str, float]:
    """Run the generator, and return what it reports.

    Raises:
        RuntimeError: it saw errors; a rate with errors in it means nothing.
    """
    work = [HOST, way.port, mode, connections, 1, batch, MESSAGE_BYTES, seconds]
    command = [str(BUILD / way.program), *map(str, work)]
    environment = os.environ | ({"POELOAD_FIRST": way.first.hex()} if way.first else {})
    pipe = subprocess.PIPE
    with started(command, stdout=pipe, stderr=pipe, env=environment) as run:
        output, errors = run.communicate()
    if run.returncode:
        msg = f"{way.program} {mode} failed: {output}{errors}"
        raise RuntimeError(msg)
    reported: dict[str, float] = json.loads(output)
    return reported


# ---- users and grants ----------------------------------------------------------------------------


class Guarded:
    """Users, grants, and what lets a client in."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "users.toml"
        self.token, digest = make_token("bench")
        rows = [f'[[users.alice.tokens]]\nid = "bench"\nsha256 = "{digest}"', MAY_ALL]
        for number in range(USERS):
            keys = ScramKeys.of_password("secret").text()
            rows.append(f'[users.u{number}]\nscram_sha_256 = "{keys}"')
            rows.append(MAY_ONE.format(number))
        self.path.write_text("version = 1\n" + "\n".join(rows))
        self.path.chmod(0o600)
        arguments = {"mechanism": "BEARER", "data": self.token.encode()}
        self.first = ControlRequest("auth", 1, arguments).encode()

    @contextlib.contextmanager
    def serve(self) -> Iterator[Running]:
        """A server that asks who is there; on loopback no TLS is needed for that."""
        with (
            tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
            poe(Path(folder), [*UNHURRIED, "--users", str(self.path)]) as running,
        ):
            yield running


def grant_samples(folder: Path, turn_s: float) -> list[Sample]:
    """What calls cost where each needs a grant, beside a server without users."""
    guarded, samples = Guarded(folder), []
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as other,
        poe(Path(other), UNHURRIED) as unasked,
        guarded.serve() as asked,
    ):
        ways = (
            Way("poeload", unasked, unasked.port),
            Way("poeload", asked, asked.port, guarded.first),
        )
        for way in ways:
            load(way, "write", 100, FILL_S)
        for what, mode in (("put", "write"), ("get", "read")):
            without, needing = compare(ways, mode, 100, turn_s)
            rate, cpu = needing.calls_s / without.calls_s, needing.cpu_s / without.cpu_s
            name = f"grants, {what}, 100 per call"
            samples += [
                Sample.at_least(f"{name}, rate", rate, "× without users", 0.97),
                Sample.at_most(f"{name}, processor time", cpu, "× without users", 1 / 0.97),
            ]
        samples += [login_sample(asked, unasked), *reload_samples(guarded, asked)]
    return samples


def login_sample(asked: Running, unasked: Running) -> Sample:
    """What a login by a password costs the server, two requests and a request besides."""
    scram = Entry(credentials=Scram("u1", "secret"))
    above_us = (connection_s(asked, scram) - connection_s(unasked, Entry())) * 1e6
    return Sample.at_most("login by SCRAM, processor time of the server", above_us, "µs", 100)


def connection_s(running: Running, entry: Entry, count: int = 400) -> float:
    """Return the processor time that the server takes for a connection and its login."""
    before_s = running.cpu_s()
    for _ in range(count):
        with protocol.socket(HOST, running.port, credentials=entry.credentials) as client:
            client.topics()
    return (running.cpu_s() - before_s) / count


def reload_samples(guarded: Guarded, running: Running, count: int = 20) -> list[Sample]:
    """How long others wait for a reload, and until a user who is gone is cut off in a long poll."""
    text = guarded.path.read_text()
    token = Token(guarded.token)
    with (
        protocol.socket(HOST, running.port, credentials=token) as client,
        protocol.socket(HOST, running.port, credentials=Scram("u1", "secret")) as poller,
    ):
        pauses_s = [
            longest_put_s(client, running, guarded.path, f"{text}\n# {number}")
            for number in range(count)
        ]
        gone: list[float] = []
        polling = threading.Thread(target=poll, args=(poller, gone))
        polling.start()
        time.sleep(0.2)
        guarded.path.write_text(text.replace("[users.u1]", "[users.v1]"))
        began_s = time.perf_counter()
        os.kill(running.pid, signal.SIGHUP)
        polling.join()
    return [
        Sample.at_most(
            f"longest put while {USERS:,} users are reloaded",
            statistics.median(pauses_s) * 1e3,
            "ms",
            20,
        ),
        Sample.at_most("a revoked user's long poll ends after", gone[0] - began_s, "s", 2),
    ]


def longest_put_s(client: protocol.Socket, running: Running, path: Path, text: str) -> float:
    """Put while a server takes another file of users, and return how long the slowest put took."""
    path.write_text(text)
    os.kill(running.pid, signal.SIGHUP)
    longest_s, now_s = 0.0, time.perf_counter()
    end_s = now_s + RELOAD_S
    while now_s < end_s:
        client.write(b"t0", [b"a"])
        before_s, now_s = now_s, time.perf_counter()
        longest_s = max(longest_s, now_s - before_s)
    return longest_s


def poll(client: protocol.Socket, gone: list[float]) -> None:
    """Wait for news of a topic that gets none, until that is refused."""
    with contextlib.suppress(PoeError):
        client.wait(b"mine-1", 0, 60.0)
    gone.append(time.perf_counter())


# ---- many at once -------------------------------------------------------------------------------


def storm_samples(secured: Secured, client_count: int) -> list[Sample]:
    """How long puts take while thousands of clients reconnect by TLS, each once."""
    with secured.serve() as running, connect(HOST, running.port) as writer:
        idle_s: list[float] = []
        end_s = time.perf_counter() + 2
        while time.perf_counter() < end_s:
            idle_s.append(put_time_s(writer))
        way = Way("poeload_tls", running, running.tls_port)
        storm = threading.Thread(target=load, args=(way, "connect", 1, 0.001, client_count))
        stormy_s: list[float] = []
        storm.start()
        while storm.is_alive():
            stormy_s.append(put_time_s(writer))
    ratio = p99(stormy_s) / p99(idle_s)
    name = f"p99 of a put while {client_count:,} clients reconnect by TLS"
    return [
        Sample.at_most(name, ratio, "× idle", 10),
        Sample.at_most(f"{name}, itself", p99(stormy_s) * 1e3, "ms", float("inf")),
    ]


def put_time_s(writer: socket.socket) -> float:
    """Put a batch, and return how long that took; others have the processor in between."""
    time.sleep(0.001)
    began_s = time.perf_counter()
    exchange(writer, PUT, bytearray(1024))
    return time.perf_counter() - began_s


def p99(times_s: list[float]) -> float:
    return sorted(times_s)[len(times_s) * 99 // 100]


# ---- memory -------------------------------------------------------------------------------------


def memory_samples(secured: Secured, count: int) -> list[Sample]:
    """What idle connections hold, each after one request."""
    with secured.serve() as running, contextlib.ExitStack() as opened:
        ask(opened.enter_context(secured.connect(running)))
        before = running.memory_bytes()
        for _ in range(count):
            ask(opened.enter_context(secured.connect(running)))
        whole = running.memory_bytes()
        share = (whole - before) / count
    return [
        Sample.at_most("idle TLS connection, RSS", share / 1024, "KiB", 24),
        Sample.at_most(f"{count:,} idle TLS connections, RSS in all", whole / 1e6, "MB", 300),
    ]


def ask(client: ssl.SSLSocket) -> None:
    """Send a request, and receive its reply."""
    client.sendall(READ)
    client.recv(65536)


def stuck_samples(secured: Secured, count: int = 256) -> list[Sample]:
    """What clients hold that say hello and nothing more, and whether another one gets in."""
    with secured.serve() as running, contextlib.ExitStack() as opened:
        ask(opened.enter_context(secured.connect(running)))
        before = running.memory_bytes()
        hello = first_bytes(secured.context)
        for _ in range(count):
            client = opened.enter_context(socket.create_connection((HOST, running.tls_port)))
            client.sendall(hello)
            client.recv(65536)  # the server's part; nothing follows it
        held = running.memory_bytes() - before
        began_s = time.perf_counter()
        ask(opened.enter_context(secured.connect(running)))
        took_s = time.perf_counter() - began_s
    return [
        Sample.at_most(f"{count} stuck handshakes, RSS", held / (1 << 20), "MiB", 32),
        Sample.at_most(f"a client connects beside {count} stuck ones", took_s, "s", 1),
    ]


def first_bytes(context: ssl.SSLContext) -> bytes:
    """What a client sends first."""
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=HOST)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


if __name__ == "__main__":
    rounds.main(measure_rounds)
