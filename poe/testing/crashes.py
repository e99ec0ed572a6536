"""Crashes on order: which actor, at which message or callback, how often, and with what reason.

The actor's class stays as it is: the actor gets a subclass of the same name, whose callbacks look
at the orders first.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from poe.actors import ActorExit, GenServer, LoopSystem
from poe.actors.actor_cell import ActorCell, LoopAddress
from poe.actors.actor_table import ActorTable
from poe.actors.clock import SimulatedClock
from poe.actors.run_queue import RunQueue
from poe.actors.server_cell import cell_of_actor

_MESSAGE_CALLBACKS: Final = ("handle_call", "handle_cast", "handle_info")
_CALLBACKS: Final = ("init", *_MESSAGE_CALLBACKS, "handle_continue", "terminate")


class InjectedCrash(Exception):
    """The reason of an injected crash, unless another one was ordered."""


class Crash:
    """One order, made by `CrashingSystem.crash`; `count` tells how often it was carried out."""

    def __init__(self, callbacks: tuple[str, ...], at: int, times: int, reason: object) -> None:
        self._callbacks = callbacks
        self._at = at
        self._times = times
        self._reason = reason
        # By address: the class of an actor may have an `==` or a hash of its own.
        self._entered: WeakKeyDictionary[LoopAddress, int] = WeakKeyDictionary()
        self.count = 0

    def enter(self, actor: GenServer, callback: str) -> None:
        """Raise if this is the moment; called when an actor begins with a callback."""
        if callback not in self._callbacks or self.count == self._times:
            return
        address = cell_of_actor(actor).address
        self._entered[address] = entered = self._entered.get(address, 0) + 1
        if entered == self._at:
            self.count += 1
            reason = self._reason
            raise reason if isinstance(reason, Exception) else ActorExit(reason)


class CrashingActors(ActorTable):
    """The actors of a system, some of whose classes are to crash."""

    def __init__(self, run_queue: RunQueue) -> None:
        super().__init__(run_queue)
        self._orders: dict[type[GenServer], list[Crash]] = {}

    def order(self, actor_class: type[GenServer], crash: Crash) -> None:
        """Have each actor of a class that is started from now on obey."""
        self._orders.setdefault(actor_class, []).append(crash)

    def spawn(
        self, actor_class: type[GenServer], parent: ActorCell | None, name: str | None
    ) -> ActorCell:
        """Make an actor that obeys the orders for its class."""
        orders = self._orders.get(actor_class)
        return super().spawn(
            _crashing(actor_class, orders) if orders else actor_class, parent, name
        )


class CrashingSystem(LoopSystem):
    """A `LoopSystem` whose actors can be made to crash."""

    def __init__(
        self, *, clock: SimulatedClock | None = None, run_queue: RunQueue | None = None
    ) -> None:
        """Begin as `LoopSystem`; a `run_queue` stands in place of one with that clock."""
        self._crashing = CrashingActors(RunQueue(clock) if run_queue is None else run_queue)
        super().__init__(actors=self._crashing)

    def crash(
        self,
        actor: type[GenServer] | LoopAddress | str,
        *,
        callback: str | None = None,
        at: int = 1,
        times: int = 1,
        reason: object = None,
    ) -> Crash:
        """Make an actor crash when it begins with its `at`-th message, before the callback runs.

        Args:
            actor: the ref or the name of one actor that runs, or a class: then each actor of
                exactly this class that is started from now on counts for itself.
            callback: count only this one, such as "init" or "handle_cast"; by default messages of
                all kinds count: "handle_call", "handle_cast" and "handle_info".
            at: 1 or more, counted from the order or from the start of the actor.
            times: crashes in all; with a class a restarted actor may crash again.
            reason: an exception, which is raised, or any other exit reason; by default an
                `InjectedCrash`.

        Raises:
            ValueError: there is no such callback or actor; `at` or `times` is less than 1.
            TypeError: `at` or `times` is no whole number, or the reason is a class of exceptions,
                or one that no actor can crash with (KeyboardInterrupt and its like).
        """
        _check_count("at", at)
        _check_count("times", times)
        is_class = isinstance(reason, type) and issubclass(reason, BaseException)
        if is_class or (isinstance(reason, BaseException) and not isinstance(reason, Exception)):
            msg = f"reason is {reason!r}; use an Exception object, such as OSError('disk')"
            raise TypeError(msg)
        if callback is not None and callback not in _CALLBACKS:
            msg = f"no callback is called {callback!r}; use one of {', '.join(_CALLBACKS)}"
            raise ValueError(msg)
        callbacks = _MESSAGE_CALLBACKS if callback is None else (callback,)
        crash = Crash(callbacks, at, times, InjectedCrash() if reason is None else reason)
        if isinstance(actor, type):
            self._crashing.order(actor, crash)
            return crash
        cell = self._crashing.find(actor)  # type: ignore[arg-type]  # it is no class
        if cell is None or not isinstance(cell.instance, GenServer):
            msg = f"{actor} is no actor that runs; order a crash of its class instead"
            raise ValueError(msg)
        cell.instance.__class__ = _crashing(type(cell.instance), [crash])
        return crash


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{name} is {value!r}; use a whole number, 1 or more"
        raise TypeError(msg)
    if value < 1:
        msg = f"{name} is {value}; use 1 or more"
        raise ValueError(msg)


def _crashing(actor_class: type[GenServer], orders: list[Crash]) -> type[GenServer]:
    callbacks = {name: _obeying(getattr(actor_class, name), name, orders) for name in _CALLBACKS}
    return type(
        actor_class.__name__, (actor_class,), {**callbacks, "__module__": actor_class.__module__}
    )


def _obeying(callback: Any, name: str, orders: list[Crash]) -> Callable[..., Any]:  # noqa: ANN401
    def obey(self: GenServer, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        for crash in orders:
            crash.enter(self, name)
        return callback(self, *args, **kwargs)

    async def obey_later(self: GenServer, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return await obey(self, *args, **kwargs)

    # A supervisor's class insists on an `init` that is async.
    return obey_later if inspect.iscoroutinefunction(callback) else obey
