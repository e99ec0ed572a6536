"""200 MB of memory, and clients that ask for more: they wait or are refused, the server lives on.

It is in a cgroup that has so much, its page cache included; the kernel kills it if it takes more.
"""

import contextlib
import socket as tcp
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from poe.protocol import PointerRequest, PutRequest
from torture.checker import Journal
from torture.producer import Producer
from torture.scenario import MEMORY_GROUPS, Run, Trial
from torture.server import Server, read_all, wait_until_served

_LIMIT_BYTES = 200 << 20
_IN_FLIGHT_MAX = 32 << 20
_FRAME_MAX = 8 << 20
_LARGE = b"large"
_LARGE_BYTES = 7 << 20
_HOGS = 150
_READERS = 60
_OVERLOADED_S = 4.0
_HELD_S = 1.0
"""For so long each holds back the end of its first message, so that all of them ask at once."""
_SERVED_MAX_S = 5.0


def play(run: Run) -> None:
    """Limit a server's memory, ask it for more, kill it, look what it has."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    journal = Journal()
    folder = trial.folder / "data"
    options = {"in_flight_max": _IN_FLIGHT_MAX, "frame_max": _FRAME_MAX}
    with _group(run) as group, Server(folder, **options) as server:  # type: ignore[arg-type]  # of several types
        (group / "cgroup.procs").write_text(str(server.process.pid))
        with server.connect() as client:
            client.write(_LARGE, [b"m" * _LARGE_BYTES])
        producers = [
            Producer(server, journal, b"t%d" % number, Random(trial.random.random()), window=4)
            for number in range(4)
        ]
        for producer in producers:
            producer.start()
        with contextlib.ExitStack() as ending:
            for _ in range(_READERS):
                reader = ending.enter_context(server.connect_raw())
                reader.sendall(PointerRequest(_LARGE, 0, 1).encode())  # and takes nothing
            begun_s = time.monotonic()
            hogs = [_Hog(server, ending, begun_s + _HELD_S) for _ in range(_HOGS)]
            producers[0].join(_OVERLOADED_S)
            run.measure("rss_bytes", server.rss_bytes() if server.is_alive else 0)
        trial.expect(is_true=server.is_alive, otherwise="the server has ended")
        served_s = wait_until_served(server)
        trial.expect(is_true=served_s <= _SERVED_MAX_S, otherwise=f"served after {served_s:.2f} s")
        for producer in producers:
            producer.stop()
            is_served = producer.acked_count and not producer.is_gone and not producer.refused
            trial.expect(is_true=bool(is_served), otherwise="small puts were not served")
        server.kill()
    with Server(folder) as server, server.connect() as client:
        trial.failures += journal.judge({topic: read_all(client, topic) for topic in journal.puts})
    closed_count = sum(hog.is_gone for hog in hogs)
    trial.expect(is_true=closed_count <= _HOGS // 2, otherwise=f"{closed_count} had to go")
    trial.note(
        acked=journal.acked_count(),
        large=sum(hog.answered_count for hog in hogs),
        closed=closed_count,
    )


class _Hog(threading.Thread):
    """Puts large messages without end."""

    def __init__(
        self, server: Server, ending: contextlib.ExitStack, finish_first_at_s: float
    ) -> None:
        super().__init__(daemon=True)
        self._finish_first_at_s = finish_first_at_s
        self.answered_count = 0
        self.is_gone = False
        self._client = ending.enter_context(server.connect_raw())
        self._has_to_end = threading.Event()
        self.start()
        ending.callback(self.join)
        ending.callback(self._end)

    def run(self) -> None:
        large = PutRequest(_LARGE, [b"m" * _LARGE_BYTES]).encode()
        try:
            self._client.sendall(large[:-1])
            self._has_to_end.wait(max(self._finish_first_at_s - time.monotonic(), 0))
            self._client.sendall(large[-1:])
            while self._client.recv(4096):
                self.answered_count += 1
                self._client.sendall(large)
        except OSError:
            pass
        self.is_gone = not self._has_to_end.is_set()

    def _end(self) -> None:
        self._has_to_end.set()
        with contextlib.suppress(OSError):  # it is closed already
            self._client.shutdown(tcp.SHUT_RDWR)


@contextlib.contextmanager
def _group(run: Run) -> Iterator[Path]:
    """Make a cgroup of little memory; its process has to end before."""
    group = MEMORY_GROUPS / run.folder.name
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(_LIMIT_BYTES))
        yield group
    finally:
        group.rmdir()
