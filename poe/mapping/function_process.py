"""A process that calls a function for others: both ends of it.

Wire (each way): u32 length, pickle. There go tuples of messages; back comes, message by message,
what the function has returned and how it ended. Output of the function goes to standard error.
"""

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from poe.errors import InvalidMapping
from poe.mapping.function_file import answer_of, run_file

_LENGTH: Final = struct.Struct(">I")
_MESSAGES_MAX: Final = 256
"""Messages that are sent at a time."""
_START_S: Final = 30.0
_END_S: Final = 1.0
_LOOK_S: Final = 1.0

_PROGRAM: Final = f"import sys; from {__name__} import main; main(*sys.argv[1:])"
"""Not `-m`: Python would warn that the package has loaded this module already."""

Told = tuple[object, str]
"""What was returned, and the error, or nothing."""


class FunctionProcess:
    """The end of who asks; started when it is first asked, and again when it was ended.

    One thread at a time may ask.
    """

    def __init__(self, path: Path, name: str, timeout_s: float) -> None:
        self._path = path
        self._name = name
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, messages: Sequence[Any]) -> list[Told]:
        """Return what the function says of each message.

        Raises:
            OSError: no process can be started.
        """
        told: list[Told] = []
        while len(told) < len(messages):
            told += self._ask_some(messages[len(told) : len(told) + _MESSAGES_MAX])
        return told

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # what it was not told is still there
                        pipe.close()
            self._process = None

    def __del__(self) -> None:
        self.close()

    def _ask_some(self, messages: Sequence[Any]) -> Iterator[Told]:
        """Yield what is said, up to a message for which the process had to be ended."""
        try:
            process = self._started()
            _write(process.stdin, tuple(messages))
        except (EOFError, BrokenPipeError) as error:
            self.close()
            yield None, f"its process cannot be used: {error}"
            return
        for _ in messages:
            try:
                yield self._read(process, self._timeout_s)
            except TimeoutError:
                self.close()
                yield None, f"it took longer than {self._timeout_s:g} s"
                return
            except Exception as error:  # noqa: BLE001 - what it says may be anything, or cut off
                yield None, self._end(process, error)
                return

    def _end(self, process: subprocess.Popen[bytes], error: Exception) -> str:
        """End a process that has said nothing more, or what cannot be read; return why it is so."""
        try:
            code = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return f"its process said what cannot be read ({type(error).__name__}: {error})"
        finally:
            self.close()
        return f"its process ended with {code}"

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it has ended since the last message, and not of one
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-c", _PROGRAM, str(self._path), self._name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for who asks, who has the call end in order
            )
            try:
                self._read(self._process, _START_S)
            except (TimeoutError, EOFError) as error:
                msg = "it did not start"
                raise EOFError(msg) from error
        return self._process

    @staticmethod
    def _read(process: subprocess.Popen[bytes], timeout_s: float) -> Any:  # noqa: ANN401
        """Return what comes next, in full, within a time."""
        assert process.stdout is not None
        deadline_s = time.monotonic() + timeout_s
        descriptor = process.stdout.fileno()
        coming = select.poll()  # `select` knows none beyond 1023
        coming.register(descriptor, select.POLLIN)

        def exactly(count: int) -> bytes:
            found = bytearray()
            while len(found) < count:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not coming.poll(left_s * 1000):
                    raise TimeoutError
                piece = os.read(descriptor, count - len(found))
                if not piece:
                    raise EOFError
                found += piece
            return bytes(found)

        [length] = _LENGTH.unpack(exactly(_LENGTH.size))
        return pickle.loads(exactly(length))  # noqa: S301 - our own process


def _write(stream: IO[bytes] | None, value: object) -> None:
    assert stream is not None
    pickled = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(pickled)) + pickled)
    stream.flush()


def main(path: str, name: str) -> None:
    """Be the process: call a function of a file for what comes in, until nothing does."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # A service manager tells all processes to end: the call that is under way is waited for.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # What the function prints must not come between.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        function = run_file(Path(path))[name]
    except (InvalidMapping, KeyError) as error:
        sys.exit(f"{name}: {error}")
    _write(out, "ready")
    while head := sys.stdin.buffer.read(_LENGTH.size):
        messages = pickle.loads(sys.stdin.buffer.read(*_LENGTH.unpack(head)))  # noqa: S301
        for message in messages:
            answer = answer_of(function, message)
            try:
                _write(out, tuple(answer))
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                _write(out, (None, f"what it returned cannot be sent: {error}"))


def _end_with(parent_pid: int) -> None:
    """End this process soon after who started it was killed, though a call hangs.

    The kernel would end it with the thread alone that started it, of which there come others.
    """
    while os.getppid() == parent_pid:
        time.sleep(_LOOK_S)
    os._exit(1)
