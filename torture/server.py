"""The whole server as a victim: `poe serve` in a process of its own, and what talks to it.

Run as a program, this is `poe serve` as variables want it: `TORTURE_MUTANT`, `TORTURE_BOOT_ID`,
`TORTURE_SLOW_SYNC` and `TORTURE_POISON`.
"""

import contextlib
import os
import select
import signal
import socket as tcp
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from poe import protocol
from poe.errors import PoeError
from torture import mutants
from torture.checker import Record

_ROOT = Path(__file__).parent.parent
_READY = b"ready on "
_BOOT_ID = "TORTURE_BOOT_ID"
_SLOW_SYNC = "TORTURE_SLOW_SYNC"
POISON = "TORTURE_POISON"
"""Names a message that crashes whoever is to store it, as a bug in the product could."""


class Server:
    """A server from construction until `kill`, `stop` or the end of the `with` block.

    Its log goes to a file beside its folder. Each of its syncs takes `sync_s` longer. `options` are
    those of `poe serve`, with underscores.
    """

    def __init__(
        self,
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        boot: int = 0,
        sync_s: float = 0.0,
        ready_s: float = 20.0,
        log: Path | None = None,
        **options: object,
    ) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("POE_")}
        variables = {**inherited, "PYTHONPATH": str(_ROOT), **(environment or {})}
        if boot:
            variables[_BOOT_ID] = f"{boot:036}"
        if sync_s:
            variables[_SLOW_SYNC] = str(sync_s)
        # Unchanged, where nothing is to be changed.
        changes = {_BOOT_ID, _SLOW_SYNC, POISON, mutants.VARIABLE}
        is_changed = not changes.isdisjoint(variables)
        module = "torture.server" if is_changed else "poe"
        command = [sys.executable, "-m", module, "serve", "--dir", str(folder), "--port", "0"]
        for name, value in options.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        self.log = log or folder.with_name(folder.name + ".log")
        started_s = time.monotonic()
        with self.log.open("ab") as log_file:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log_file, env=variables, cwd=_ROOT
            )
        self.port = int(self._ready_line(ready_s).rpartition(b":")[2])
        self.start_s = time.monotonic() - started_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def connect(self, timeout_s: float = 20.0) -> protocol.Socket:
        """Open a blocking client."""
        return protocol.socket("127.0.0.1", self.port, timeout_s=timeout_s)

    def connect_raw(self, timeout_s: float = 20.0) -> tcp.socket:
        """Open a bare socket."""
        return tcp.create_connection(("127.0.0.1", self.port), timeout_s)

    def kill(self) -> None:
        """End it as a lack of memory or `kill -9` does; fine when it has ended."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all of its threads, each behind the system call that it is in."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def stop(self) -> int:
        """Let it drain, and tell its exit code."""
        return self._end(signal.SIGTERM)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def descriptor_count(self) -> int:
        """Count its open descriptors."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def rss_bytes(self) -> int:
        """Tell how much memory it has."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def kept_waiting_s(self) -> float:
        """Tell how long it was ready to run since its start, and other programs did; see below."""
        threads: list[tuple[int, int]] = []
        with contextlib.suppress(OSError):  # it has ended
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                with contextlib.suppress(OSError):  # this thread has
                    ran_ns, waited_ns, _ = map(int, (task / "schedstat").read_text().split())
                    threads.append((ran_ns, waited_ns))
        return kept_waiting_ns(threads) / 1e9

    def _end(self, number: signal.Signals) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return self.process.wait(timeout=20)

    def _ready_line(self, timeout_s: float) -> bytes:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline_s = time.monotonic() + timeout_s
        line = b""
        while not line.endswith(b"\n"):
            rest_s = max(0.0, deadline_s - time.monotonic())
            part = os.read(descriptor, 200) if is_readable(descriptor, rest_s) else b""
            if not part:
                self.kill()
                raise NotReady(self.log.read_text(errors="replace")[-300:])
            line += part
        assert line.startswith(_READY), line
        return line.strip()


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """Wait until something comes, also by a descriptor that is too great for `select`."""
    coming = select.poll()
    coming.register(descriptor, select.POLLIN)
    return bool(coming.poll(timeout_s * 1000))


def kept_waiting_ns(threads: Iterable[tuple[int, int]]) -> int:
    """Tell how long the thread that ran most was ready to run, and other programs did.

    Of each thread Linux counts how long it ran, and how long others did while it was ready. What
    its own program's others ran meanwhile is no excuse.
    """
    *others, (_, waited_ns) = sorted(threads) or [(0, 0)]
    return max(waited_ns - sum(ran_ns for ran_ns, _ in others), 0)


class NotReady(Exception):
    """A server did not start; the end of its log."""


def read_all(client: protocol.Socket, topic: bytes, limit: int = 1000) -> list[Record]:
    """Read a topic from its beginning."""
    records: list[Record] = []
    pointer = 0
    while found := client.read(topic, pointer, limit):
        records += found
        pointer = found[-1][0]
    return records


def read_topics(server: Server, limit: int = 1000) -> dict[bytes, list[Record]]:
    """Read everything that a server has."""
    with server.connect() as client:
        return {topic: read_all(client, topic, limit) for topic in client.topics()}


def wait_until_served(server: Server, timeout_s: float = 10.0) -> float:
    """Wait until a new client is answered; tell how long it took."""
    started_s = time.monotonic()
    while True:
        try:
            with server.connect(2.0) as client:
                client.control("health")
                return time.monotonic() - started_s
        except PoeError:
            if time.monotonic() - started_s > timeout_s:
                raise
            time.sleep(0.005)


def main() -> None:
    """Be the victim."""
    from poe.cli import main as poe_main
    from poe.storage import real_files

    mutants.apply_chosen()
    boot_id = os.environ.get(_BOOT_ID)
    if boot_id is not None:
        real_files._read_boot_id = lambda: boot_id
    if _SLOW_SYNC in os.environ:
        _slow_down(float(os.environ[_SLOW_SYNC]))
    if POISON in os.environ:
        _crash_at(os.environ[POISON].encode())
    sys.exit(poe_main())


def _slow_down(sync_s: float) -> None:
    from poe.storage.real_files import RealFile

    sync = RealFile.sync

    def wait_and_sync(file: RealFile) -> None:
        time.sleep(sync_s)
        sync(file)

    patched: Any = RealFile
    patched.sync = wait_and_sync


def _crash_at(poison: bytes) -> None:
    from poe.storage import Segment

    append = Segment.append

    def crash(segment: Segment, messages: Sequence[bytes], now_us: int, put_id: Any = None) -> int:
        if bytes(messages[0]) == poison:
            raise RuntimeError("poisoned")
        return append(segment, messages, now_us, put_id)

    patched: Any = Segment
    patched.append = crash


if __name__ == "__main__":
    main()
