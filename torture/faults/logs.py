"""The log under attack: no byte of a message, no raw control character, few lines."""

import re
import time
from random import Random

from poe.errors import PoeError
from poe.protocol import PutRequest
from torture.faults.frames import _attack
from torture.scenario import Run, Trial
from torture.server import Server

_SECRET = b"SECRET-PAYLOAD"
_LINES_PER_S_MAX = 50
_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\x1b")


def play(run: Run) -> None:
    """Attack a server in different ways, and read what it wrote of it."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    folder = trial.folder / "data"
    started_s = time.monotonic()
    with Server(folder, log_level=("info", "warning")[trial.number % 2]) as server:
        with server.connect() as client:
            client.write(b"good", [_SECRET * 3])
            client.read(b"good", 0, 10)
            for name in (b"bad\x1b[31m\nname", b"\0\x07", _SECRET + b"/"):
                try:
                    client.write(name, [_SECRET])
                except PoeError:
                    continue
        _attack(server, trial.random, count=300)
        _send_halves(server, trial.random)
        server.stop()
    duration_s = time.monotonic() - started_s
    log = server.log.read_bytes()
    lines = log.splitlines()
    trial.expect(is_true=_SECRET not in log.replace(_SECRET + b"/", b""),
                 otherwise="the log has bytes of a message")  # fmt: skip
    if (found := _CONTROL.search(log)) is not None:
        trial.failures.append(f"control character in the log: {log[found.start() - 60 :][:90]!r}")
    trial.expect(
        is_true=len(lines) <= _LINES_PER_S_MAX * duration_s + 100,
        otherwise=f"{len(lines)} lines in {duration_s:.1f} s",
    )
    trial.note(lines=len(lines))


def _send_halves(server: Server, random: Random) -> None:
    """Hang up in the midst of requests that hold a secret."""
    frame = PutRequest(b"good", [_SECRET * 5]).encode()
    for _ in range(50):
        with server.connect_raw() as raw:
            raw.sendall(frame[: random.randrange(len(frame))])
