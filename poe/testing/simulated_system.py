"""An actor system without threads: time passes when the test says so, order is chosen by a seed.

Nothing depends on the machine: the same test with the same seed runs the same callbacks in the same
order.
"""

import inspect
import os
import random
from collections import deque
from collections.abc import Callable
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self

from poe.actors.actor_cell import LoopAddress
from poe.actors.call import Call, Start
from poe.actors.clock import SimulatedClock
from poe.actors.idle_time import TimeUp
from poe.actors.latch import Latch
from poe.actors.message import REPLY, DownSignal, Entry, ExitSignal
from poe.actors.run_queue import RunQueue
from poe.errors import OptionError
from poe.testing.crashes import CrashingSystem

SEED_VARIABLE: Final = "POE_TEST_SEED"

_CHOICE_MAX = 100
"""Entries that are looked at for the next one; all of a long queue would take too long."""

_PATIENCE_S = 3600.0
"""Simulated seconds that a call without a time limit may take."""


class SimulatedSystem(CrashingSystem):
    """A `LoopSystem` in simulated time; `with SimulatedSystem() as system:` ends it as well.

    Whoever waits lets time pass: a `call`, `start` or `stop` that is not done at once moves the
    clock from timer to timer, so that ten minutes take no time. Otherwise time stands still until
    `advance(seconds)` or `wait_until(condition)`.

    With a `seed`, messages are delivered in an order that it chooses among all that could happen:
    two messages of one sender to one receiver keep their order, as always, and an actor's `init`
    comes first. What a test finds so is repeated by the same seed; an exception that leaves the
    `with` block names it.

    Raises:
        TypeError: the seed is no whole number.
    """

    def __init__(
        self,
        *,
        clock: SimulatedClock | None = None,
        seed: int | None = None,
        run_queue: Callable[[SimulatedClock, deque[Entry]], RunQueue] = RunQueue,
    ) -> None:
        """Begin without actors.

        Args:
            clock: the time; None: one of its own.
            seed: chooses the order; None: the usual one.
            run_queue: makes what runs the actors.
        """
        if seed is not None and not isinstance(seed, int):
            msg = f"seed is {seed!r}; use a whole number, or None for the usual order"
            raise TypeError(msg)
        self.seed = seed
        queue = deque[Entry]() if seed is None else _ShuffledQueue(seed)
        super().__init__(run_queue=run_queue(clock or SimulatedClock(), queue))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self.seed is not None:
            error.add_note(f"repeat it with SimulatedSystem(seed={self.seed})")
        self.shutdown()

    def wait_until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Let simulated time pass until `condition()` is true; looked at whenever a timer fires.

        Raises:
            AssertionError: it was still false after `timeout_s`.
        """
        if not self._pass_time(condition, timeout_s):
            msg = f"not true within {timeout_s} simulated seconds: {condition}"
            raise AssertionError(msg)

    def _pass_time(self, condition: Callable[[], object], timeout_s: float) -> bool:
        end_s = self.run_queue.monotonic_s() + timeout_s
        while not condition():
            next_s = self.run_queue.next_deadline_s()
            if next_s is None or next_s > end_s:
                self.advance(end_s - self.run_queue.monotonic_s())
                return bool(condition())
            self.advance(max(0.0, next_s - self.run_queue.monotonic_s()))
        return True

    def _wait(self, event: Latch, timeout_s: float | None) -> bool:
        if self._pass_time(event.is_set, _PATIENCE_S if timeout_s is None else timeout_s):
            return True
        if timeout_s is None:
            msg = "the call has no time limit, and no timer will ever bring its answer"
            raise AssertionError(msg)
        return False


def try_seeds(test: Callable[[SimulatedSystem], object], count: int = 100) -> None:
    """Run `test(system)` with the seeds 0 to `count` - 1, each with a new `SimulatedSystem`.

    The environment variable POE_TEST_SEED, if it is set, is the only seed that is tried.

    Raises:
        Exception: whatever `test` raised first, with a note that names the seed.
        TypeError: `test` is async; a test calls actors, and waits for them, as a thread does.
        ValueError: there is no seed to try.
        OptionError: POE_TEST_SEED is no whole number.
    """
    if inspect.iscoroutinefunction(test):
        msg = f"{test} is async and would not run; use a plain function"
        raise TypeError(msg)
    if count < 1:
        msg = f"count is {count}; use 1 or more"
        raise ValueError(msg)
    for seed in _chosen_seeds() or range(count):
        try:
            with SimulatedSystem(seed=seed) as system:
                test(system)
        except Exception as error:
            error.add_note(f"or with {SEED_VARIABLE}={seed}")
            raise


def _chosen_seeds() -> list[int]:
    """Return the seed that the environment names, if it names one."""
    text = os.environ.get(SEED_VARIABLE)
    if text is None:
        return []
    try:
        return [int(text)]
    except ValueError as error:
        raise OptionError(SEED_VARIABLE, text, "a whole number, or unset it") from error


class _ShuffledQueue(deque[Entry]):
    """A run queue that takes out any entry that may come next, chosen by a seeded generator."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)  # noqa: S311 - no secret

    def popleft(self) -> Entry:
        """Take an entry that no other one has to precede."""
        heads: dict[tuple[object, object], int] = {}
        starting: set[object] = set()
        for place, entry in enumerate(islice(self, _CHOICE_MAX)):
            receiver, sender = _pair(entry)
            if type(entry[0]) is TimeUp and any(each == receiver for each, _ in heads):
                continue  # a time-out gives way to all that came before it
            if receiver in starting:
                continue
            if type(entry[1]) is Start:
                starting.add(receiver)
            heads.setdefault((receiver, sender), place)
        place = self._random.choice(list(heads.values()))
        entry = self[place]
        del self[place]
        return entry


def _pair(entry: Entry) -> tuple[object, object]:
    """Return receiver and sender of an entry; None stands for application threads and timers."""
    receiver, message, sender = entry
    actor: Any = receiver
    if type(receiver) is TimeUp:
        actor = receiver.cell
    if isinstance(message, Call):
        return actor, message.server if sender is REPLY else message.caller
    if isinstance(message, Start):
        return actor, message.call.caller
    if isinstance(message, ExitSignal | DownSignal):
        sender = message.ref
    return actor, sender.cell if isinstance(sender, LoopAddress) else sender
