"""The actors of a running mapping.

    mapping_sup NAME       rest_for_one, 5 in 60 s
    ├── rules              looks whether the file has changed
    ├── workers            simple_one_for_one
    │   └── worker …       transient, one for each partition that this process has
    ├── member             is there for the group, and starts a worker for what it gets
    └── reporter           tells the node how far it is

A worker's own thread carries out what `unit.py` says. What a crash leaves is what was written down:
a worker that is started anew has the membership renewed, so that nobody goes on with numbers of
before, and whoever gets the partition then begins with the plan.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Final

from poe.actors import NORMAL, GenServer, LoopSystem, Stop
from poe.client.async_socket import AsyncSocket
from poe.client.consumer.loop_thread import LoopThread
from poe.client.group.membership import MemberInfo, Membership, Reach
from poe.client.patience import NOT_LET_IN
from poe.client.server_order import ServerOrder
from poe.errors import (
    CorruptGroup,
    GroupMismatch,
    InvalidTopicName,
    NotAuthorized,
    NotReplicated,
    OptionError,
    PoeError,
    RulesChanged,
    SecurityFileError,
    TopicExists,
    UnknownGroup,
    UnknownPlan,
)
from poe.mapping.doors import Place
from poe.mapping.message import topic_bytes
from poe.mapping.report import Reporter
from poe.mapping.rule_set import RuleSet
from poe.mapping.station import Run, Station
from poe.supervision import (
    Backoff,
    ChildKind,
    ChildSpec,
    Restart,
    StartDynamicChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
)

INTENSITY: Final = 5
PERIOD_S: Final = 60
_GO: Final = "go"
_LOOK_S: Final = 1.0
_SHUTDOWN_S: Final = 10.0
_EARLIER_MAX: Final = 4
"""Rules of before that are kept, should a batch be planned with them."""
_LET_GO_S: Final = 5.0
"""The end waits no longer for batches that are under way."""
_REQUEST_S: Final = 30.0
_FINAL: Final = (
    *NOT_LET_IN,
    CorruptGroup,
    InvalidTopicName,
    NotAuthorized,
    NotReplicated,
    OptionError,
    SecurityFileError,
)
_REFUSED: Final = (UnknownPlan, RulesChanged)


class Rules(GenServer):
    """Takes a new file over; a bad one changes nothing, and is told."""

    def init(self, station: Station, load: Callable[[], RuleSet | None]) -> None:
        """Begin; `load` returns the rules where the file has changed since it was asked last."""
        self._station = station
        self._load = load
        self.send_after(_LOOK_S, _GO)

    async def handle_info(self, message: object) -> None:
        """Look, and look again later."""
        del message
        station = self._station
        try:
            rules = await self.run_blocking(self._load)
            if rules is not None:
                rules.compile()
                _check_same(station.rules, rules)
                station.earlier = (*station.earlier[-_EARLIER_MAX + 1 :], station.rules)
                station.rules = rules
                station.tell("new rules hold from the next batch on")
        except PoeError as error:
            station.tell(f"the new file is not taken, the rules stay as they were: {error}")
        self.send_after(_LOOK_S, _GO)


def _check_same(old: RuleSet, new: RuleSet) -> None:
    """Refuse what a running mapping cannot change.

    Raises:
        OptionError: says what, and that it takes a start.
    """
    for name in ("name", "source", "start", "retries"):
        if getattr(old, name) != getattr(new, name):
            raise OptionError(name, getattr(new, name), "what it was, as long as the mapping runs")


class Worker(GenServer):
    """Has a thread work on one unit."""

    trap_exits = True

    def init(self, run: Run, over: Callable[[Run, bool], object]) -> None:
        """Begin.

        Args:
            run: what to work on; one that a worker before has used is worked on no more.
            over: is told when nobody works on it any more, and whether all is known that was
                written down. Called in a thread: it may wait for the member's own, which may wait
                for an actor's turn.
        """
        self._run = run
        self._over = over
        self.send_after(0, _GO)

    async def handle_info(self, message: object) -> Stop | None:
        """Work until the unit is to go."""
        if message is not _GO:
            return Stop(NORMAL)
        run = self._run
        if run.is_used:
            await self.run_blocking(self._over, run, False)
            return Stop(NORMAL)
        try:
            is_known = await self.run_blocking(run.work)
        except _REFUSED as error:
            run.station.refusal = error
            is_known = True
        await self.run_blocking(self._over, run, is_known)
        return Stop(NORMAL)


class Member(GenServer):
    """Is there for the group; starts a worker for each unit that it is given."""

    trap_exits = True

    def init(self, station: Station, system: LoopSystem, workers: str) -> None:
        """Join; trying again does not change a final refusal, which ends the run."""
        self._station = station
        self._workers = workers
        # In a thread of its own: a heartbeat is not late for anything that the actors do.
        self._units = Units(station, lambda run: system.cast(self.ref, run))
        self.send_after(0, _GO)

    async def handle_info(self, message: object) -> None:
        """Join."""
        if message is not _GO:
            return
        try:
            await self.run_blocking(self._units.open)
        except GroupMismatch as error:
            self._station.refusal = _told_of_group(error, self._station)
        except _FINAL as error:
            self._station.refusal = error
        except (PoeError, RuntimeError):
            if not self._station.is_ending:
                raise
        else:
            self._station.has_joined = True

    async def handle_cast(self, run: Run) -> None:
        """Start a worker for a unit."""
        await self.call(self._workers, StartDynamicChild(args=(run, self._units.over)))

    async def terminate(self, reason: object) -> None:
        """Let go of all."""
        del reason
        await self.run_blocking(self._units.close)


def _told_of_group(error: GroupMismatch, station: Station) -> PoeError:
    """Return what to do where the group was made for other topics, which never change."""
    if error.what != "topics":
        return error
    has, _, _ = str(error).partition(";")
    allowed = (
        f"what the mapping was first run with, and the same `retries` ({has}); or another name; or "
        f"`poe group delete {station.group}`, after which it begins anew, at its `start`"
    )
    return OptionError("source.topics", list(station.rules.source.topics), allowed)


class Units:
    """What a member has of the group; see `Work` of the client's membership.

    All but the first three methods runs in the thread of its loop.
    """

    def __init__(self, station: Station, start: Callable[[Run], object]) -> None:
        """Begin; `start` has a worker started."""
        self._station = station
        self._start = start
        self._runs: dict[bytes, Run] = {}
        self._group_us: int | None = None
        """When the group was made; None: it was not asked since it was joined."""
        self._opening: asyncio.Task[Any] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._is_ending = False
        self._has_less = asyncio.Event()
        """Set when fewer units are worked on."""
        options = {
            "session_s": station.options.session_s,
            "start": station.rules.start,
            "dead_letter_topic": f"{station.rules.name}.dead",
        }
        self._servers = ServerOrder(station.servers)
        self._membership = Membership(
            Reach(self._servers, None, _REQUEST_S),
            MemberInfo(group=station.group, mode="ordered", topics=station.topics, options=options),
            self,
            lambda: None,
        )
        station.runs, station.leave = self.runs, self.close
        self._loop = LoopThread("member of a mapping", self._end, RuntimeError)

    def open(self) -> None:
        """Join.

        Raises:
            PoeError: a refusal.
            RuntimeError: it was closed meanwhile.
        """
        try:
            self._loop.run(self._open())
        except CancelledError:
            raise RuntimeError from None

    def close(self) -> None:
        """Leave, once batches that are under way have ended; units are others' at once then."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.run(self._let_go())
        self._loop.close()

    def over(self, run: Run, is_known: bool) -> None:  # noqa: FBT001 - a callback
        """Note that nobody works on a unit any more."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.run(self._over(run, is_known=is_known))

    # ---- for the membership -------------------------------------------------------------------

    def owned(self) -> list[bytes]:
        """Return the units that somebody works on."""
        return list(self._runs)

    async def heard(self, granted: Mapping[bytes, Sequence[Any]], revoke: Sequence[bytes]) -> bool:
        """Begin with what is granted, have the workers of what is revoked come to an end."""
        for unit in revoke:
            if unit in self._runs:
                self._runs[unit].signals.leave.set()
        if granted and self._group_us is None:
            self._group_us = int((await self._membership.ask("group"))["created_us"])
        new = [unit for unit in granted if unit not in self._runs and not self._is_ending]
        for unit in new:
            assert self._group_us is not None
            topic, _, position = granted[unit]
            station, membership = self._station, self._membership
            # The worker begins at the node that has told the member so.
            servers, generation = self._servers.all, membership.generation
            place = Place(servers, station.group, membership.id, generation, unit, topic)
            self._runs[unit] = run = Run(station, place, position, self._group_us)
            self._start(run)
        return bool(new)

    async def lost(self) -> None:
        """Have nobody do anything more."""
        for run in self._runs.values():
            run.signals.end()
        self._runs.clear()
        self._group_us = None
        self._has_less.set()

    def failed(self, error: PoeError) -> None:
        """Tell that the group could not be asked; it is asked again, or is there no more."""
        station = self._station
        if isinstance(error, GroupMismatch):  # deleted, and made anew for others
            station.refusal = _told_of_group(error, station)
        elif isinstance(error, CorruptGroup | UnknownGroup):
            station.refusal = error
        text = f"its group cannot be asked: {error}"
        if text not in station.notes:
            station.tell(text)

    def runs(self) -> list[Run]:
        """Return what is worked on; any thread may ask."""
        return list(self._runs.values())

    # ---- inside -------------------------------------------------------------------------------

    async def _over(self, run: Run, *, is_known: bool) -> None:
        if self._runs.get(run.place.unit) is not run:
            return
        if is_known:
            del self._runs[run.place.unit]
            self._has_less.set()
            self._membership.hurry()
        elif self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        """Have the group take all units away, and join anew: the old generation is over then."""
        with contextlib.suppress(PoeError):
            await self._membership.ask("group_leave")
        await self.lost()
        self._membership.hurry()

    async def _open(self) -> None:
        self._opening = asyncio.current_task()
        await self._prepare()
        await self._membership.open()

    async def _prepare(self) -> None:
        """Make sure that all that the group is to read is replicated, or nothing of it.

        Raises:
            NotReplicated: a topic is of one node alone, and there are others to go on at.
        """
        rules = self._station.rules
        replicas = 1
        for name in map(topic_bytes, rules.source.topics):
            if b"*" in name:
                continue
            found = await self._membership.call(partial(AsyncSocket.find_topic, topic=name))
            is_replicated = found is not None and found.properties.is_replicated
            if self._servers.others_count and not is_replicated:
                raise NotReplicated(name)
            replicas = max(replicas, found.properties.replicas if found else 1)
        if replicas > 1 and rules.retries == "unordered":
            topic = rules.retry_topic
            made = partial(AsyncSocket.create_topic, topic=topic, envelope=True, replicas=replicas)
            with contextlib.suppress(TopicExists):
                await self._membership.call(made)

    async def _let_go(self) -> None:
        """Begin with nothing more, and wait a while for what is under way."""
        self._is_ending = True
        for run in self._runs.values():
            run.signals.leave.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LET_GO_S):
                while self._runs:
                    self._has_less.clear()
                    await self._has_less.wait()

    async def _end(self) -> None:
        for task in (self._opening, self._renewing):
            if task is not None:
                task.cancel()
        await self.lost()
        await self._membership.close()


def mapping_sup(
    station: Station, system: LoopSystem, load: Callable[[], RuleSet | None], backoff_s: float = 0.1
) -> tuple[SupervisorFlags, list[ChildSpec]]:
    """Return flags and children of the supervisor of one mapping."""
    name = station.rules.name
    workers = f"workers {name}"
    worker = ChildSpec(id="worker", actor=Worker, restart=Restart.TRANSIENT, shutdown_s=_SHUTDOWN_S)
    flags = SupervisorFlags(
        strategy=Strategy.SIMPLE_ONE_FOR_ONE,
        intensity=INTENSITY,
        period_s=PERIOD_S,
        backoff=Backoff(first_s=backoff_s, max_s=5.0),
    )
    children = [
        ChildSpec(id="rules", actor=Rules, args=(station, load)),
        ChildSpec(
            id="workers",
            actor=Supervisor,
            args=(flags, [worker]),
            name=workers,
            kind=ChildKind.SUPERVISOR,
        ),
        ChildSpec(
            id="member",
            actor=Member,
            args=(station, system, workers),
            shutdown_s=_SHUTDOWN_S + _LET_GO_S,
            name=f"member {name}",
        ),
        ChildSpec(id="reporter", actor=Reporter, args=(station,)),
    ]
    return SupervisorFlags(
        strategy=Strategy.REST_FOR_ONE, intensity=INTENSITY, period_s=PERIOD_S
    ), children
