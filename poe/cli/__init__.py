"""The command line: turns arguments into calls of a node or a client, and errors into exit codes.

Each command is a module; `application` knows them all. `import poe` never loads this package.
"""

from __future__ import annotations

# What `signal` wraps, which takes longer to load than all else here: until `main` runs, Ctrl-C ends
# in a traceback.
import _signal as signal  # type: ignore[import-not-found]  # typeshed leaves it out
import os
import sys

# As `typing` has it, for the same reason.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; errors are told on stderr in one sentence.

    Args:
        arguments: of the command. None stands for those of the process, which then has nothing else
            to do: it keeps the handlers of signals to its end.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    if before[signal.SIGINT] is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    try:
        # Late, since loading is most of what a short command does: Ctrl-C meanwhile must be quiet.
        from poe.cli.hangup import outlive_hangups  # noqa: PLC0415

        outlive_hangups(sys.argv[1:] if arguments is None else arguments)
        import gc  # noqa: PLC0415

        if arguments is None:
            # To look for garbage takes an eighth of the time in which a command is loaded, and
            # finds none; `run` begins with it.
            gc.disable()
        from poe.cli.application import run  # noqa: PLC0415

        code = run(arguments)
        if arguments is None:
            from poe.cli.end import end_process  # noqa: PLC0415

            end_process(code)
        return code
    finally:
        if arguments is not None:
            for number, handler in before.items():
                signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process as shells expect it; an exception could get lost in somebody's import."""
    del frame
    os._exit(128 + number)
