"""Children for supervision tests: they record what happens to them, and fail on order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from poe.actors import IGNORE, ActorRef, Down, GenServer, LoopSystem, Stop
from poe.errors import PoeError
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
    SupervisorRequest,
    WhichChildren,
    call_supervisor,
)
from poe.testing import SimulatedClock

HANGS = 1e9

FIELDS = ("shutdown_s", "name", "backoff", "start_timeout_s")
"""What `World.spec` takes for the spec; other options are for the worker."""


@dataclass
class Journal:
    """What happened, oldest first, and what the next starts of each child shall do."""

    events: list[tuple[Any, ...]] = field(default_factory=list)
    plans: dict[str, list[object]] = field(default_factory=dict)
    witness: ActorRef | None = None
    """A `Client` that is told of each failing start."""

    def take(self) -> list[tuple[Any, ...]]:
        """Return the events since the last call."""
        events, self.events[:] = list(self.events), []
        return events


class Worker(GenServer):
    """Ends as it is told by a cast: ("stop", reason) or "raise"."""

    def init(self, journal, label, *, trap=True, cleanup_s=0.0, ends_as=None):
        self.trap_exits = trap
        self.journal, self.label = journal, label
        self.cleanup_s, self.ends_as = cleanup_s, ends_as
        plan = journal.plans.get(label)
        outcome = plan.pop(0) if plan else "ok"
        journal.events.append(("start", label) if outcome == "ok" else ("fail", label))
        if outcome == "ignore":
            return IGNORE
        if outcome != "ok" and journal.witness is not None:
            self.cast(journal.witness, "a start fails")
            return self._fail_after_the_witness(outcome)
        return None if outcome == "ok" else Stop(outcome)

    async def _fail_after_the_witness(self, outcome):
        await self.start_link(GenServer)  # behind what the witness is told
        return Stop(outcome)

    def handle_cast(self, message):
        if message == "raise":
            raise ValueError(self.label)
        if message == "unlink":
            assert self.parent is not None
            self.unlink(self.parent)
            return None
        return Stop(message[1])

    async def terminate(self, reason):
        if isinstance(reason, ValueError):
            reason = "raised"
        self.journal.events.append(("stop", self.label, reason))
        if self.cleanup_s:
            await self.sleep(self.cleanup_s)
            self.journal.events.append(("clean", self.label))
        if self.ends_as is not None:
            raise self.ends_as


class Client(GenServer):
    """Sends its requests once, all together, at the first cast it gets; keeps what came back.

    Told by a failing start, it reaches the supervisor before the retry that the failure queues.
    """

    def init(self, supervisor, requests):
        self.supervisor, self.requests, self.answers = supervisor, requests, []

    async def handle_cast(self, message):
        del message
        calls = [self.call(self.supervisor, request, None) for request in self.requests]
        self.requests = []
        for call in calls:
            try:
                self.answers.append(await call)
            except PoeError as error:
                self.answers.append(error)

    def handle_call(self, request, caller):
        del request, caller
        return self.answers


class Coroner(GenServer):
    """Records the exit reasons of whom it is told to watch."""

    def init(self):
        self.reasons = {}

    def handle_cast(self, ref):
        self.monitor(ref)

    def handle_info(self, message):
        assert isinstance(message, Down)
        self.reasons[message.ref] = message.reason

    def handle_call(self, request, caller):
        del caller
        return self.reasons.get(request)


class World:
    """One actor system with a clock of its own, and short names for what tests do."""

    def __init__(self, start_s: float = 100.0) -> None:
        self.base = LoopSystem(clock=SimulatedClock(start_s))
        self.journal = Journal()
        coroner = self.base.start(Coroner)
        assert coroner is not None
        self.coroner = coroner

    def spec(self, label: str, *, restart=Restart.PERMANENT, significant=False, **options):
        """Make the spec of a Worker."""
        fields = {key: options.pop(key) for key in FIELDS if key in options}
        return ChildSpec(
            id=label,
            actor=Worker,
            args=(self.journal, label),
            kwargs=options,
            restart=restart,
            significant=significant,
            **fields,
        )

    def specs(self, labels: Sequence[str], **options):
        return [self.spec(label, **options) for label in labels]

    def nested(self, label: str, flags: SupervisorFlags, children, **options):
        """Make the spec of a supervisor."""
        return ChildSpec(
            id=label,
            actor=Supervisor,
            args=(flags, children),
            kind=ChildKind.SUPERVISOR,
            **options,
        )

    def supervise(self, children, strategy=Strategy.ONE_FOR_ONE, **flags) -> ActorRef:
        """Start a supervisor whose end the coroner records; forget the events of its start."""
        supervisor = self.base.start(
            Supervisor, SupervisorFlags(strategy=strategy, **flags), children
        )
        self.watch(supervisor)
        self.journal.take()
        return supervisor

    @property
    def now_s(self) -> float:
        """The simulated time."""
        return self.base.run_queue.monotonic_s()

    def watch(self, ref: ActorRef) -> ActorRef:
        self.base.cast(self.coroner, ref)
        return ref

    def reason_of(self, ref: ActorRef) -> object:
        """Tell why a watched actor ended; None while it lives."""
        return self.base.call(self.coroner, ref)

    def ask(self, supervisor: ActorRef, request: SupervisorRequest[Any]):
        return call_supervisor(self.base, supervisor, request)

    def slots(self, supervisor: ActorRef) -> dict[Any, Any]:
        """Map ids to slots, in start order."""
        children = self.ask(supervisor, WhichChildren())
        return {child.id: child.ref for child in reversed(children)}

    def ref(self, supervisor: ActorRef, label: str) -> ActorRef:
        return self.slots(supervisor)[label]

    def end(
        self, supervisor: ActorRef, label: str, reason: object = "boom"
    ) -> list[tuple[Any, ...]]:
        """Make a child end by itself with `reason`, and return what happened."""
        self.base.cast(self.ref(supervisor, label), ("stop", reason))
        return self.journal.take()
