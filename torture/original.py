"""The original itself, in Erlang, as another program that works on our folders.

Its code is not part of this tree: `TORTURE_ORIGINAL` names a folder with its compiled modules.
"""

import os
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Self

from torture.checker import Put, Record

VARIABLE = "TORTURE_ORIGINAL"
_MODULES = ("poe", "poe_sup", "poe_server", "poe_appendix_sup", "gen_server2",
            "appendix_server", "bisect", "bisect_server")  # fmt: skip
_DRIVER = Path(__file__).parent / "original.escript"


class Refused(Exception):
    """It did not start on a folder."""


class Original:
    """A running original; it stops cleanly at the end of the `with` block, unless killed.

    Like it, this knows single messages only. What it has acknowledged may be in its memory, until
    `sync`.
    """

    def __init__(self, folder: Path) -> None:
        modules = os.environ[VARIABLE]
        self._process = subprocess.Popen(
            ["escript", _DRIVER, modules, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self._line() != b"ready":
            self._end()
            raise Refused(str(folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def put(self, put: Put) -> None:
        """Have a put of one message stored, and note its acknowledgement."""
        (message,) = put.messages
        put.pointer = int(self._ask(b"put", put.topic, b64encode(message)))

    def begin(self, put: Put) -> None:
        """Ask for a put of one message, and wait for no reply; only `kill` may follow."""
        (message,) = put.messages
        self._send(b"put", put.topic, b64encode(message))

    def sync(self, topic: bytes) -> None:
        """Have what it has of a topic written."""
        self._ask(b"sync", topic)

    def rotate(self) -> None:
        """Have new segments begun where there are ten messages."""
        self._ask(b"rotate")

    def read_all(self, limit: int) -> dict[bytes, list[Record]]:
        """Have it read everything, that many messages at a time."""
        found: dict[bytes, list[Record]] = {}
        line = self._ask(b"read", b"%d" % limit)
        while line != b"end":
            topic, pointer, message = line.split(b" ")
            found.setdefault(topic, []).append((int(pointer), b64decode(message)))
            line = self._line()
        return found

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._process.kill()
        self._end()

    def _ask(self, *words: bytes) -> bytes:
        self._send(*words)
        return self._line()

    def _send(self, *words: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b" ".join(words) + b"\n")
        self._process.stdin.flush()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return line.removesuffix(b"\n")

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=20)


def missing() -> str | None:
    """Tell why it cannot be run here."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return f"set {VARIABLE} to a folder with its compiled modules: {', '.join(_MODULES)}"
    absent = [name for name in _MODULES if not Path(folder, f"{name}.beam").exists()]
    return f"{', '.join(absent)} not in {folder}" if absent else None
