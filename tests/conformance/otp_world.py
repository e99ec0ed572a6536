"""One sequence of commands: its actor system, who is called what, and what has happened.

`World.run` does something inside the *main actor*, which stands for the process that types the
commands: it is the parent of what it starts, and it traps exits. Time is simulated and moves only
while a command waits for it.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, cast

from poe.actors import (
    KILL,
    NO_REPLY,
    NORMAL,
    ActorExit,
    ActorRef,
    Call,
    Down,
    GenServer,
    LoopSystem,
)
from poe.actors.actor_cell import ActorCell
from poe.errors import ActorDead, CallTimeout
from poe.testing import SimulatedClock
from tests.conformance.otp_terms import Terms, text

LIMIT_S = 3.0
"""How long the reference driver waits for anything."""

NOT_RUNNING = "not_running"

Command = dict[str, Any]
Event = tuple[Any, ...]
Action = Callable[[Any], Any]
"""What an actor is told to do: a function of the actor, which may return an awaitable."""


class CommandClock(SimulatedClock):
    """Each command on supervisors begins at a whole second, and only `advance` counts seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0

    def begin_command(self) -> None:
        """Forget the milliseconds that the last command took."""
        self._now_s = float(self._second)

    def count(self, seconds: int) -> None:
        """Let seconds pass between two commands."""
        self._second += seconds
        self.begin_command()


class Task:
    """Something that an actor is to do, and what came of it."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self.is_done = False
        self.value: Any = None
        self.error: Exception | None = None


class Main(GenServer):
    """The parent of all that the commands start."""

    trap_exits = True

    async def handle_cast(self, task: Task) -> None:
        """Carry out a task."""
        try:
            value = task.action(self)
            task.value = await value if isinstance(value, Awaitable) else value
        except Exception as error:  # noqa: BLE001 - raised again where the task was given
            task.error = error
        task.is_done = True

    def handle_info(self, message: object) -> None:
        """Ignore the exits of what was started."""


class Stranger(GenServer):
    """Does one thing and ends; nobody's parent."""

    def handle_cast(self, action: Action) -> None:
        """Do it; end with the reason that it returns."""
        reason = action(self)
        raise ActorExit(NORMAL if reason is None else reason)


class Silence(GenServer):
    """Never answers."""

    def handle_call(self, request: object, caller: Call) -> object:
        """Let the caller wait."""
        del request, caller
        return NO_REPLY


class Observer(ActorCell):
    """Hears of every end at the moment when it happens, before whoever else is told acts on it."""

    heard: Callable[[Down], None]

    def post(self, message: object, sender: object = None) -> None:
        """Take a `Down` past the queue."""
        del sender
        self.heard(cast("Down", message))


class World:
    """What the driver knows of the actors that commands have started since the last `reset`."""

    def __init__(self) -> None:
        self.clock = CommandClock()
        self.system = LoopSystem(clock=self.clock)
        self.main = cast("ActorRef", self.system.start(Main))
        self.silence = cast("ActorRef", self.system.start(Silence))
        self.terms = Terms(self.name_of)
        self.current: dict[Hashable, ActorRef] = {}
        self._events: list[Event] = []
        self._names: dict[ActorRef, str] = {}
        self._counts: defaultdict[Hashable, int] = defaultdict(int)
        self._observer = Observer(self.system.actors, None, "observer", self.main.cell.queue)
        self._observer.instance = self.main.cell.instance
        self._observer.heard = self._on_end

    def close(self) -> None:
        """End all actors."""
        self.system.shutdown()

    def send(self, ref: ActorRef, message: object) -> None:
        """Send an actor a message that is neither call nor cast."""
        self.system.run_queue.send_from_outside(ref.cell, message, None)

    # ---- actors and their names ---------------------------------------------------------------

    def register(self, actor_id: Hashable, ref: ActorRef) -> int:
        """Call an actor the n-th of its id, watch it, and return n."""
        self._counts[actor_id] += 1
        self.name(actor_id, ref, f"{actor_id}#{self._counts[actor_id]}")
        return self._counts[actor_id]

    def name(self, actor_id: Hashable, ref: ActorRef, name: str) -> None:
        """Call an actor by a name from now on, and watch it."""
        self._names[ref] = name
        self.current[actor_id] = ref
        self._observer.monitor(ref.cell)

    def name_of(self, ref: ActorRef) -> str:
        """Return the name of an actor, or what stands for an unknown one."""
        return self._names.get(ref, "#pid")

    def live(self, actor_id: Hashable) -> ActorRef | None:
        """Return the last actor of an id if it is alive."""
        ref = self.current.get(actor_id)
        return ref if ref is not None and self.system.is_alive(ref) else None

    # ---- events -------------------------------------------------------------------------------

    def note(self, *event: Any) -> None:
        """Record an event."""
        self._events.append(tuple(self.terms.json(event)))

    @property
    def event_count(self) -> int:
        """Return how many events there are to take."""
        return len(self._events)

    def take_events(self) -> list[Event]:
        """Return the events since the last call, oldest first."""
        events, self._events = self._events, []
        return events

    def _on_end(self, down: Down) -> None:
        self.note("exit", down.ref, down.reason)

    # ---- doing things -------------------------------------------------------------------------

    def run(self, action: Action) -> Any:
        """Do something in the main actor, and let time pass until it is done."""
        task = Task(action)
        self.system.cast(self.main, task)
        self.wait_until(lambda: task.is_done)
        assert task.is_done, "the command waits for something that never comes"
        if task.error is not None:
            raise task.error
        return task.value

    def wait_until(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Let time pass from timer to timer until something is so, for `timeout_s` at most."""
        end_s = None if timeout_s is None else self.clock.monotonic_s() + timeout_s
        while not is_done():
            next_s = self.system.run_queue.next_deadline_s()
            if next_s is None or (end_s is not None and next_s > end_s):
                return
            self.system.advance(max(0.0, next_s - self.clock.monotonic_s()))

    def settle(self) -> None:
        """Let all timers run out."""
        self.wait_until(lambda: False)

    def call(self, ref: ActorRef, request: object, timeout_s: float | None = LIMIT_S) -> Any:
        """Call an actor from the main actor.

        Raises:
            ActorDead: as `GenServer.call`; so CallTimeout and what the server answered.
        """
        return self.run(lambda main: main.call(ref, request, timeout_s))

    def as_stranger(self, action: Action) -> None:
        """Do something in an actor that nobody knows; it ends with the reason that comes back."""
        self.system.cast(cast("ActorRef", self.system.start(Stranger)), action)

    def end(self, ref: ActorRef | None, how: str, reason: object) -> str:
        """End an actor in one of the ways of the language, and tell whether it did."""
        if ref is None:
            return NOT_RUNNING
        if how == "kill":
            self.system.exit(ref, KILL)
        elif how == "signal":
            self.as_stranger(lambda stranger: stranger.exit(ref, reason))
        else:
            self.send(ref, Die(how, reason))
        if not self.system.is_alive(ref):
            return "ok"
        if how != "signal":
            self.system.advance(LIMIT_S)
        return "alive"


class Die:
    """The message that makes an actor of the driver end by itself."""

    def __init__(self, how: str, reason: object) -> None:
        self.how = how
        self.reason = reason


def exit_reason(error: Exception) -> object:
    """Return what a call that did not come back exits with in OTP."""
    if isinstance(error, CallTimeout):
        return "timeout"
    if isinstance(error, ActorDead):
        return error.reason
    raise error


def sort_events(events: list[Event]) -> list[Event]:
    """Sort events whose order OTP leaves open."""
    return sorted(events, key=text)
