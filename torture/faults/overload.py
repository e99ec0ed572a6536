"""Ten times as many producers as the server can take: it slows them down, and loses nothing.

The server gets a small share of a processor, so that producers in Python can ask too much of it.
What it can take is measured first. Then the others come, and clients that send without end and take
no answers; and in the end a kill.
"""

import contextlib
import signal
import socket as tcp
import threading
import time
from collections.abc import Iterator, Sequence
from random import Random

from poe.protocol import PutRequest
from torture.checker import Journal
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_topics

_FEW = 4
_MANY = 10 * _FEW
_FLOODS = 16
_FLOODED = b"flooded"
_CONTROL_S = 4.0
_OVERLOADED_S = 15.0
_WAIT_MAX_S = 2.0
_GROWN_MAX_BYTES = 32 << 20
_RATE_MIN = 0.1
"""Of what few producers are served: beyond that, overload would cost more than it asks for."""

_PERIOD_S = 0.01
_SHARE = 0.15


def play(run: Run) -> None:
    """Overload a server, kill it, and look what it has."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    journal = Journal()
    folder = trial.folder / "data"
    producers: list[Producer] = []
    with Server(folder, count_limit=20_000) as server:
        with _slowed_down(server):
            _start(producers, server, journal, trial.random, _FEW)
            begun_s = time.monotonic()
            producers[0].join(_CONTROL_S)
            few_rate = len(_waits(producers, begun_s)) / _CONTROL_S
            rss_bytes = server.rss_bytes()
            with _flooded(server):
                _start(producers, server, journal, trial.random, _MANY - _FEW)
                begun_s = time.monotonic()
                producers[0].join(_OVERLOADED_S)
                waits_s = _waits(producers, begun_s)
                grown_bytes = server.rss_bytes() - rss_bytes
        trial.expect(is_true=server.is_alive, otherwise="the server has ended")
        server.kill()
        for producer in producers:
            producer.join()
    with Server(folder) as server:
        stored = read_topics(server)
        flooded = stored.pop(_FLOODED)
        trial.failures += journal.judge(stored)
    p99_s = waits_s[len(waits_s) * 99 // 100]
    rate = len(waits_s) / _OVERLOADED_S
    refused = [producer.refused for producer in producers if producer.refused]
    trial.expect(is_true=not refused, otherwise=f"puts were refused: {refused[:1]}")
    trial.expect(is_true=p99_s <= _WAIT_MAX_S, otherwise=f"p99 of answers is {p99_s:.2f} s")
    told = f"{rate:.0f} puts are served in a second, of few producers {few_rate:.0f}"
    trial.expect(is_true=rate >= _RATE_MIN * few_rate, otherwise=told)
    trial.expect(is_true=grown_bytes <= _GROWN_MAX_BYTES, otherwise=f"grew by {grown_bytes} B")
    run.measure("p99_s", p99_s)
    run.measure("grown_bytes", grown_bytes)
    run.measure("rate_of_few", few_rate)
    run.measure("rate_of_all", rate)
    trial.note(acked=journal.acked_count(), flooded=len(flooded))


def _start(
    producers: list[Producer], server: Server, journal: Journal, random: Random, count: int
) -> None:
    """Add so many producers, each with a topic of its own."""
    for _ in range(count):
        topic = b"t%d" % len(producers)
        producer = Producer(server, journal, topic, Random(random.random()), window=16, count_max=5)
        producer.start()
        producers.append(producer)


def _waits(producers: Sequence[Producer], since_s: float) -> list[float]:
    """Tell how long the answers took to the puts begun since a moment, sorted."""
    waits = [wait for producer in producers for wait in list(producer.waits)]
    return sorted(wait_s for at_s, wait_s in waits if at_s >= since_s)


@contextlib.contextmanager
def _flooded(server: Server) -> Iterator[None]:
    """Have clients send small puts without end, as fast as TCP lets them, and take no answer."""
    has_to_end = threading.Event()
    frame = PutRequest(_FLOODED, [b"m"]).encode()

    def flood(client: tcp.socket) -> None:
        with contextlib.suppress(OSError):  # closed under way, or with its server
            while not has_to_end.is_set():
                client.sendall(frame * 1000)

    with contextlib.ExitStack() as ending:
        for _ in range(_FLOODS):
            client = ending.enter_context(server.connect_raw())
            thread = threading.Thread(target=flood, args=[client])
            thread.start()
            ending.callback(thread.join)
            ending.callback(client.shutdown, tcp.SHUT_RDWR)  # which ends its sendall
        ending.callback(has_to_end.set)
        yield


@contextlib.contextmanager
def _slowed_down(server: Server) -> Iterator[None]:
    """Let the server run for a share of the time only."""
    has_to_end = threading.Event()

    def slow_down() -> None:
        while not has_to_end.wait(_PERIOD_S * _SHARE):
            server.process.send_signal(signal.SIGSTOP)
            has_to_end.wait(_PERIOD_S * (1 - _SHARE))
            server.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        yield
    finally:
        has_to_end.set()
        thread.join()
