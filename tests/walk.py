"""Which of our files one call enters, over all threads; a program, so that it alone is watched.

Calls follow each other, as they do under load. What does not belong to most of them, such as what
a timer does now and then, is not counted.
"""

import json
import logging
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.waiting import wait_until

WARM_UP_COUNT = 50
CALLS_COUNT = 101
MESSAGE = b"x" * 100
SOURCES = f"{Path(__file__).parent.parent / 'poe'}/"


class Walk:
    """Notes the file of each Python function that is called, in the threads that begin after it."""

    def __init__(self) -> None:
        self._entered: set[str] = set()
        sys.setprofile(self._note)
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        del argument
        if event == "call":
            self._entered.add(frame.f_code.co_filename)

    def of(self, call: Callable[[], object]) -> list[str]:
        """Return the files under `poe` that most calls enter."""
        for _ in range(WARM_UP_COUNT):
            call()
        times: Counter[str] = Counter()
        for _ in range(CALLS_COUNT):
            self._entered = set()
            call()
            times.update(self._entered.copy())
        return sorted(
            name.removeprefix(SOURCES)
            for name, count in times.items()
            if name.startswith(SOURCES) and count > CALLS_COUNT // 2
        )


def main() -> None:
    """Print the files of each kind of call, as JSON."""
    walk = Walk()
    # What crashes here on purpose is nobody's business.
    logging.getLogger("poe").addHandler(logging.NullHandler())
    # Only now, so that their threads are watched.
    import poe  # noqa: PLC0415
    from poe.client import Producer  # noqa: PLC0415

    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="poe-walk-") as folder:
        # Nothing happens by itself meanwhile.
        node = poe.start(dir=folder, port=0, check_interval=3600, sync_interval=3600)
        assert node.address is not None
        poe.put(b"topic", MESSAGE)
        store = node._store  # noqa: SLF001
        assert store is not None
        wait_until(lambda: store.bound.quiet_until > 0)  # raised once in ten seconds of puts
        found["in-process put"] = walk.of(lambda: poe.put(b"topic", MESSAGE))
        found["in-process next"] = walk.of(lambda: poe.next(b"topic", 0))
        host, port = node.address
        with socket.create_connection((host, port)) as connection:
            put, get = put_request(), get_request()
            found["socket put"] = walk.of(lambda: exchange(connection, put))
            found["socket get"] = walk.of(lambda: exchange(connection, get))
        with Producer(f"poe://{host}:{port}", linger_s=0.001) as producer:
            batched = producer.produce_async_batched
            found["produce_async_batched"] = walk.of(lambda: batched(b"topic", MESSAGE).result(10))
        poe.stop()
    found["restart"] = restart(walk)
    print(json.dumps(found))


def put_request() -> bytes:
    from poe.protocol import PutRequest  # noqa: PLC0415

    return PutRequest(b"topic", [MESSAGE]).encode()


def get_request() -> bytes:
    from poe.protocol import PointerRequest  # noqa: PLC0415

    return PointerRequest(b"topic", 0, 1).encode()


def exchange(connection: socket.socket, frame: bytes) -> None:
    """Send a request, and receive its reply without any code of ours."""
    connection.sendall(frame)
    assert connection.recv(65536)


def restart(walk: Walk) -> list[str]:
    """Return the files of a supervisor's restart of a child."""
    from poe.actors import GenServer, LoopSystem  # noqa: PLC0415
    from poe.supervision import ChildSpec, Supervisor, SupervisorFlags  # noqa: PLC0415

    started = threading.Semaphore(0)
    refs: list[Any] = []

    class Child(GenServer):
        def init(self) -> None:
            refs.append(self.ref)
            started.release()

    system = LoopSystem()
    flags = SupervisorFlags(intensity=1_000_000, period_s=1)
    supervisor = system.start(Supervisor, flags, [ChildSpec(id="child", actor=Child)])
    assert supervisor is not None
    started.acquire()

    def kill() -> None:
        system.exit(refs[-1], "boom")
        assert started.acquire(timeout=10)

    files = walk.of(kill)
    system.stop(supervisor, "shutdown", timeout_s=5)
    system.shutdown()
    return files


if __name__ == "__main__":
    main()
