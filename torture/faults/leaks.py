"""Polls, rotations, topics that come and go, by the thousand: nothing of them stays."""

import time
from collections.abc import Callable

from torture.scenario import Run, Trial
from torture.server import Server

_RSS_MAX_BYTES = 5 << 20
_TOPIC = b"t"
Do = Callable[[Server, int], None]


def play(run: Run) -> None:
    """Do each thing `run.count` times, and compare with before; what is done once may stay."""
    for number, (do, options) in enumerate(_KINDS):
        if run.mutant and run.failed_count:
            return
        run.one(number, lambda trial, do=do, options=options: _trial(run, trial, do, options))  # type: ignore[misc]  # bound now


def _trial(run: Run, trial: Trial, do, options) -> None:  # type: ignore[no-untyped-def]
    with Server(trial.folder / "data", worker_timeout=0.02, **options) as server:
        do(server, max(run.count // 5, 50))
        descriptors_count, rss_bytes = _settled(server, 2)
        do(server, run.count)
        now_count, now_bytes = _settled(server, 5, descriptors_count, rss_bytes + _RSS_MAX_BYTES)
        name = getattr(do, "__name__", "").removeprefix("_")
        run.measure(f"{name}_grown_bytes", now_bytes - rss_bytes)
        trial.expect(
            is_true=now_count <= descriptors_count,
            otherwise=f"{name}: {now_count - descriptors_count} descriptors stay",
        )
        trial.expect(
            is_true=now_bytes - rss_bytes <= _RSS_MAX_BYTES,
            otherwise=f"{name}: {now_bytes - rss_bytes} bytes stay",
        )
        trial.note(**{name: run.count})


def _settled(
    server: Server, patience_s: float, count_max: int = 0, bytes_max: int = 0
) -> tuple[int, int]:
    """Tell descriptors and memory when all is asleep, or as soon as there are no more than this."""
    least_count = server.descriptor_count()
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        if least_count <= count_max and server.rss_bytes() <= bytes_max:
            break
        time.sleep(0.1)
        least_count = min(least_count, server.descriptor_count())
    return least_count, server.rss_bytes()


def _tail_polls(server: Server, count: int) -> None:
    with server.connect() as client:
        pointer = client.write(_TOPIC, [b"m"])
        for _ in range(10 * count):
            assert client.read(_TOPIC, pointer, 10) == []


def _clients(server: Server, count: int) -> None:
    for _ in range(count):
        with server.connect() as client:
            client.write(_TOPIC, [b"m"])


def _rotations(server: Server, count: int) -> None:
    """Fill segments of one message, which go again as soon as they are old."""
    with server.connect() as client:
        for _ in range(count):
            client.write(_TOPIC, [b"m"] * 2)
        while len(client.control("segments", topic=_TOPIC)) > 2:
            time.sleep(0.05)


_KINDS: tuple[tuple[Do, dict[str, float]], ...] = (
    (_clients, {}),
    (_tail_polls, {}),
    (_rotations, {"count_limit": 1, "check_interval": 0.005, "max_age": 0.5}),
)
