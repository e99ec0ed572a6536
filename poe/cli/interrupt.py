"""Turns SIGINT (Ctrl-C) and SIGTERM into an exception, at a moment when a command can bear it."""

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Self

from poe.cli.exit_code import ExitCode

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_S: Final = 0.01


class Interrupt:
    """Raises KeyboardInterrupt at SIGINT and SIGTERM while it is entered, in the main thread.

    While it is held, the first signal is only noted; a second one is raised in any case. A signal
    that the process was started to ignore, as shells do in the background, stays ignored.

    Attributes:
        number: the first signal that came; None before.
        is_held: the first signal is noted and not raised.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.is_held = False
        self._handlers_before: dict[int, Callable[[int, FrameType | None], object] | int] = {}
        self._is_left = threading.Event()
        self._has_left_hook = threading.Event()
        self._has_left_hook.set()

    def __enter__(self) -> Self:
        for number in _NUMBERS:
            # None stands for a handler that was not set from Python, and could not be restored.
            if signal.getsignal(number) not in {signal.SIG_IGN, None}:
                self._handlers_before[number] = signal.signal(number, self._take)  # type: ignore[assignment]  # not None, as just asked
        self._is_left.clear()
        self._hook_before = sys.unraisablehook
        sys.unraisablehook = self._take_again
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._hook_before
        self._is_left.set()
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self._handlers_before.clear()

    def release(self) -> None:
        """Hold no longer, and raise what came meanwhile."""
        self.is_held = False
        if self.number is not None:
            raise KeyboardInterrupt

    @property
    def word(self) -> str:
        """How the signal is called in a sentence."""
        return "terminated" if self.number == signal.SIGTERM else "interrupted"

    @property
    def exit_code(self) -> ExitCode:
        """How the command ends by the signal."""
        return ExitCode.TERMINATED if self.number == signal.SIGTERM else ExitCode.INTERRUPTED

    def _take_again(self, ignored: Any) -> None:  # noqa: ANN401 - as `sys` has it
        """Have a signal come once more that came where Python ignores what is raised.

        That is in the callbacks of weak references, of which each import makes some.
        """
        number = self.number
        if number is None or not isinstance(ignored.exc_value, KeyboardInterrupt):
            self._hook_before(ignored)
            return
        self._has_left_hook.clear()
        self.number = None  # it comes as the first one does
        try:
            threading.Thread(target=self._send, args=(number,)).start()
        finally:
            self._has_left_hook.set()

    def _send(self, number: int) -> None:
        """Send the main thread a signal once it has left the hook, where it would be lost again."""
        self._has_left_hook.wait()
        if self._is_left.wait(_AGAIN_S):  # the hook is still returning
            return
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, number)

    def _take(self, number: int, frame: FrameType | None) -> None:
        del frame
        if not self._has_left_hook.is_set():
            return  # one is on its way, and what is raised in the hook is lost
        is_first = self.number is None
        if is_first:
            self.number = number
        if not (self.is_held and is_first):
            raise KeyboardInterrupt
