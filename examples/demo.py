"""The main job, end to end: real log lines through a real server that is killed in the middle.

Several producers send the lines of log files one by one through the socket and note each pointer
that comes back. In the middle the server is killed with SIGKILL and started again. A producer
whose line got no answer looks whether it is there, and sends it again only when it is not. At the
end every line is read back and compared. The exit code is 0 only when every acknowledged line is
there exactly once, unaltered and in its producer's order, and no other line is there twice.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import poe
from poe.errors import ConnectFailed, ConnectionClosed

TOPIC = "demo_log"
PRODUCERS_COUNT = 4
BATCH_COUNT = 1000
DEADLINE_S = 30.0
EXAMPLES = Path(__file__).resolve().parent
LOGHUB = Path(os.environ.get("LOGHUB", EXAMPLES.parents[1] / "shared" / "data" / "loghub"))


class Server:
    """`poe serve` in a process of its own; after a kill it comes back on another port."""

    def __init__(self, folder: Path) -> None:
        self._command = [sys.executable, "-m", "poe", "serve", "--dir", str(folder), "--port", "0"]
        # Small segments, so that the status at the end has something to show.
        self._command += ["--count-limit", "2000", "--log-level", "warning"]
        self._is_ready = threading.Event()
        self.start()

    def start(self) -> None:
        """Return when clients can connect."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready on "):
            sys.exit("the server did not start")
        self.port = int(line.rpartition(":")[2])
        self._is_ready.set()

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self._is_ready.clear()
        self._process.send_signal(number)
        self._process.communicate(timeout=DEADLINE_S)
        return self._process.returncode

    def connect(self) -> poe.protocol.Socket:
        """Wait until the server is up, and connect."""
        if not self._is_ready.wait(DEADLINE_S):
            msg = "the server did not come back"
            raise TimeoutError(msg)
        return poe.protocol.socket(port=self.port, timeout_s=DEADLINE_S)


@dataclass
class Producer:
    """Sends its lines in order, each marked with the producer's name and the line's number."""

    name: str
    lines: list[bytes]
    acknowledged: list[bytes] = field(default_factory=list)
    found_count: int = 0
    """Lines that got no answer and were there all the same."""
    resent_count: int = 0
    """Lines that got no answer and were not there."""
    is_halfway: threading.Event = field(default_factory=threading.Event)

    @property
    def messages(self) -> list[bytes]:
        """Return the marked lines."""
        return [b"%b:%d %b" % (self.name.encode(), n, line) for n, line in enumerate(self.lines)]

    def run(self, server: Server) -> None:
        """Send everything, however often the server goes away."""
        unsent = iter(self.messages)
        message = next(unsent, None)
        pointer, is_unanswered = 0, False
        while message is not None:
            try:
                with server.connect() as socket:
                    while message is not None:
                        if is_unanswered and self._is_there(message, pointer, socket):
                            self.found_count += 1
                        else:
                            self.resent_count += is_unanswered
                            is_unanswered = True
                            pointer = socket.write(TOPIC, [message])
                            self._note(message)
                        is_unanswered = False
                        message = next(unsent, None)
            except (ConnectionClosed, ConnectFailed):
                continue  # `connect` waits until the server is back

    def _is_there(self, message: bytes, pointer: int, socket: poe.protocol.Socket) -> bool:
        """Look for a line behind the last pointer that was acknowledged."""
        while records := socket.read(TOPIC, pointer, BATCH_COUNT):
            if message in [found for _, found in records]:
                return True
            pointer = records[-1][0]
        return False

    def _note(self, message: bytes) -> None:
        self.acknowledged.append(message)
        if len(self.acknowledged) >= len(self.lines) // 2:
            self.is_halfway.set()


def log_lines() -> tuple[str, list[bytes]]:
    """Return the lines of the real logs, where they are, else of the sample; and what they are."""
    logs = sorted(LOGHUB.glob("*.log")) or [EXAMPLES / "data" / "sample.log"]
    lines = [line for log in logs for line in log.read_bytes().split(b"\n") if line]
    return ", ".join(log.name for log in logs), lines


def send_through_a_kill(server: Server, producers: list[Producer]) -> float:
    """Run all producers, kill the server when half is done; return the seconds of sending."""
    threads = [threading.Thread(target=each.run, args=(server,)) for each in producers]
    started_s = time.perf_counter()
    for thread in threads:
        thread.start()
    if not producers[0].is_halfway.wait(DEADLINE_S):
        sys.exit("the producers do not get on")
    killed_s = time.perf_counter()
    code = server.end(signal.SIGKILL)
    server.start()
    down_s = time.perf_counter() - killed_s
    print(f"killed the server in the middle (exit code {code}); ready again after {down_s:.2f} s")
    for thread in threads:
        thread.join()
    return time.perf_counter() - started_s - down_s


def read_back(server: Server) -> tuple[list[bytes], float]:
    """Return all messages of the topic, and the seconds it took to read them."""
    messages: list[bytes] = []
    pointer = 0
    started_s = time.perf_counter()
    with server.connect() as socket:
        while records := socket.read(TOPIC, pointer, BATCH_COUNT):
            pointer = records[-1][0]
            messages += [message for _, message in records]
    return messages, time.perf_counter() - started_s


def send_in_batches(server: Server, messages: list[bytes]) -> float:
    """Put all messages onto another topic, a thousand per call; return the seconds it took."""
    batches = [messages[at : at + BATCH_COUNT] for at in range(0, len(messages), BATCH_COUNT)]
    started_s = time.perf_counter()
    with server.connect() as socket:
        for _ in socket.write_batches(f"{TOPIC}_batches", batches):
            pass
    return time.perf_counter() - started_s


def check(producers: list[Producer], stored: list[bytes]) -> bool:
    """Compare what is stored with what was acknowledged, and tell the result."""
    counts = Counter(stored)
    is_good = True
    for producer in producers:
        mark = producer.name.encode() + b":"
        own = [message for message in stored if message.startswith(mark)]
        lost_count = sum(counts[message] == 0 for message in producer.acknowledged)
        twice_count = sum(counts[message] > 1 for message in producer.messages)
        # All were sent in the end, so order and content can be compared as a whole.
        is_same = own == producer.messages
        is_good &= is_same and not lost_count and not twice_count
        print(
            f"  {producer.name}: {len(producer.acknowledged)} acknowledged, {lost_count} lost, "
            f"{twice_count} twice, {'in order' if is_same else 'NOT AS SENT'}; without answer: "
            f"{producer.found_count} found stored, {producer.resent_count} sent again"
        )
    return is_good and len(stored) == sum(len(producer.lines) for producer in producers)


def main() -> int:
    """Run the demonstration and return the exit code."""
    source, lines = log_lines()
    producers = [
        Producer(f"producer{n}", lines[n::PRODUCERS_COUNT]) for n in range(PRODUCERS_COUNT)
    ]
    with tempfile.TemporaryDirectory(prefix="poe-demo-") as folder:
        server = Server(Path(folder) / "data")
        try:
            print(f"{len(lines)} lines of {source}, from {PRODUCERS_COUNT} producers")
            send_s = send_through_a_kill(server, producers)
            stored, read_s = read_back(server)
            is_good = check(producers, stored)
            batches_s = send_in_batches(server, stored)
            print("\nstatus (w writer, r reader, h hibernating reader):")
            status = [sys.executable, "-m", "poe", "status", "--port", str(server.port)]
            sys.stdout.flush()
            subprocess.run(status, check=True)
        finally:
            code = server.end(signal.SIGTERM)
    print(f"\n{'request':<36}{'lines/s':>12}")
    print(f"{f'write, 1 per call, {PRODUCERS_COUNT} producers':<36}{len(lines) / send_s:>12,.0f}")
    print(f"{f'write, {BATCH_COUNT} per call, pipelined':<36}{len(lines) / batches_s:>12,.0f}")
    print(f"{f'read, {BATCH_COUNT} per call':<36}{len(lines) / read_s:>12,.0f}")
    print("\nevery acknowledged line is there once and in order" if is_good else "\nFAILED")
    return 0 if is_good and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
