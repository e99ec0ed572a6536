"""The command line: turns arguments into calls of a node or a client, and errors into exit codes.

Each command is a module; `application` knows them all. `import poe` never loads this package.
"""

import os
import signal
from collections.abc import Sequence
from types import FrameType

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; errors are told on stderr in one sentence."""
    handler_before = signal.getsignal(signal.SIGINT)
    if handler_before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    try:
        # Late, since loading is most of what a short command does: Ctrl-C meanwhile must be quiet.
        from poe.cli.application import run  # noqa: PLC0415

        return run(arguments)
    finally:
        signal.signal(signal.SIGINT, handler_before)


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process as shells expect it; an exception could get lost in somebody's import."""
    del frame
    os._exit(128 + number)
