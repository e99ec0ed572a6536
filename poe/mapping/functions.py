"""Calls functions of rules, each within a time, in a thread or in a process.

What a function returns, or ends with, is told message by message; a batch costs one thread, or
one exchange with the process for some messages.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from poe.mapping.function_file import Answer, answer_of, file_of
from poe.mapping.function_process import FunctionProcess
from poe.mapping.message import Message
from poe.mapping.rule import Call

HANGING_MAX: Final = 4
"""Calls that may hang at a time: a thread cannot be ended."""


class CannotCall(Exception):
    """No function can be called now, whatever the message: the mapping waits."""


class FunctionsHang(CannotCall):
    """Too many calls have not come back."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{HANGING_MAX} calls of {name} have not come back; mend it, or write "
            "isolation = 'process'"
        )


class Runner(Protocol):
    """What calls a function."""

    def run(self, messages: Sequence[Message]) -> list[Answer]:
        """Return what the function says of each message.

        Raises:
            CannotCall: too many calls have not come back, or the machine has no thread or process.
        """

    def close(self) -> None:
        """End what it has for that; nobody asks it again."""


def runner_of(call: Call) -> Runner:
    """Return what calls a function as a rule wants it."""
    return InProcess(call) if call.isolation == "process" else InThread(call)


@contextmanager
def _starting(what: str) -> Iterator[None]:
    """Have it no error of a message that the machine has no room for what calls its function."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        msg = f"no {what} can be started for its functions: {error}"
        raise CannotCall(msg) from error


class InThread:
    """Calls a function in a thread, which is left alone when a call takes too long."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._left: list[_Thread] = []

    def run(self, messages: Sequence[Message]) -> list[Answer]:
        """Return what the function says of each message; see `Runner`."""
        answers: list[Answer] = []
        while len(answers) < len(messages):
            self._left = [each for each in self._left if each.is_alive()]
            if len(self._left) >= HANGING_MAX:
                raise FunctionsHang(self._call.name)
            thread = _Thread(self._call.function, messages[len(answers) :])
            with _starting("thread"):
                thread.start()
            thread.wait(self._call.timeout_s)
            answers += thread.answers
            if len(answers) < len(messages):
                self._left.append(thread)
                answers.append(Answer(None, f"it took longer than {self._call.timeout_s:g} s"))
        return answers

    def close(self) -> None:
        """Do nothing: threads that were left alone cannot be ended; see `Runner`."""


class _Thread(threading.Thread):
    """Calls a function for some messages."""

    def __init__(self, function: Callable[..., Any], messages: Sequence[Message]) -> None:
        super().__init__(daemon=True, name="function of a mapping")
        self._function = function
        self._messages = messages
        self._lock = threading.Lock()
        self._is_left = False
        self._began_s = time.monotonic()
        self.answers: list[Answer] = []

    def run(self) -> None:
        """Call it for one after the other."""
        for message in self._messages:
            answer = answer_of(self._function, message)
            with self._lock:
                if self._is_left:
                    return
                self.answers.append(answer)
                self._began_s = time.monotonic()

    def wait(self, timeout_s: float) -> None:
        """Wait to the end, or until a call takes too long: what it says then is not looked at."""
        while self.is_alive():
            with self._lock:
                left_s = timeout_s - (time.monotonic() - self._began_s)
                self._is_left = left_s <= 0
            if self._is_left:
                return
            self.join(left_s)


class InProcess:
    """Calls a function in a process, which is ended when a call takes too long."""

    def __init__(self, call: Call) -> None:
        path = file_of(call.function)
        assert path is not None, "asked for where the rule was read"
        self._process = FunctionProcess(path, call.function.__name__, call.timeout_s)

    def run(self, messages: Sequence[Message]) -> list[Answer]:
        """Return what the function says of each message; see `Runner`."""
        with _starting("process"):
            return [Answer(*each) for each in self._process.ask(messages)]

    def close(self) -> None:
        """End the process; see `Runner`."""
        self._process.close()
