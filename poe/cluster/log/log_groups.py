"""A node's part in coordinating the groups of replicated topics: who does, asking them, claiming.

One node of a cluster coordinates: whose claim the catalog has (`claims.py`). Who is asked for a
group asks that node, by the engine. While it waits for an answer it asks it now and then whether
it is there; where it has not been for `SUSPECT_S`, or nobody coordinates, this node claims. That
takes a majority, and of several who try one succeeds. The one before is fenced off by the first put
of the new one (`fenced_log.py`), whatever it believes.
"""

import logging
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, cast
from weakref import proxy

from poe.actors import NO_REPLY, ActorRef, Call, GenServer, Mailslot, Stop
from poe.actors import Down as ActorDown
from poe.broker.coordinator.fenced_log import FENCED_WRITER, End, Fence, Fenced
from poe.broker.coordinator.group_floors import GroupFloors
from poe.broker.coordinator.log_coordination import Coordination, coordination
from poe.broker.coordinator.registry import GroupParts
from poe.broker.registry.log_groups_table import LogGroupsTable
from poe.broker.requests.log_groups import (
    DOUBT,
    HERE,
    NOT_HERE,
    AskCoordinator,
    Question,
)
from poe.broker.requests.request_handler import RequestHandler
from poe.cluster.log.claims import CLAIM_KEY, NONCE_BYTES, Claim, ClaimHeard, Claims
from poe.cluster.log.engine import LogEngine
from poe.errors import PoeError, RemoteProtocolError
from poe.protocol import ErrorReply
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
    dynamic_supervisor,
    start_dynamic_child,
    supervisor_spec,
    terminate_child,
)

logger = logging.getLogger("poe.cluster")

LOG_GROUPS_SUP: Final = "log_groups_sup"
COORDINATION_SUP: Final = "coordination_sup"
ANSWERS_SUP: Final = "log_group_answers_sup"
SUSPECT_S: Final = 3.0
"""For so long a node that coordinates may say nothing, while somebody waits for it."""
PING_S: Final = 0.5
PING_ANSWER_S: Final = 1.0
CLAIM_PAUSE_S: Final = 0.5
"""From one try to claim to the next."""
_PING: Final = "ping"


@dataclass(frozen=True, slots=True)
class LogGroupParts:
    """What this node takes part with."""

    engine: LogEngine
    me: str
    claims: Claims
    groups: GroupParts
    """What groups work with, but for the fence."""
    table: LogGroupsTable


class PeerQuestion(NamedTuple):
    """Posted: another node asks; `answer` may be called once."""

    payload: bytes
    answer: Any


class _Answered(NamedTuple):
    number: int
    answer: bytes | PoeError | None
    """An error: nobody has heard it; None: no answer came."""


class _Pinged(NamedTuple):
    claim: Claim
    answer: bytes | PoeError | None


class _Claimed(NamedTuple):
    claim: Claim
    outcome: int | PoeError


class _Asked(NamedTuple):
    caller: Call
    claim: Claim


_LOOK = object()


class LogGroups(GenServer):
    """Asks whoever coordinates, and coordinates where nobody else does; registered `LOG_GROUPS`.

    Always: `_table.here` is set while this node coordinates, as `_own` says.
    """

    def init(self, parts: LogGroupParts) -> None:
        """Begin with what was heard until now."""
        self._parts = parts
        self._table = parts.table
        self._table.here = None
        self._slot = Mailslot(self)
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._claim = parts.claims.newest
        self._trying: Claim | None = None
        """What this node tries to claim by."""
        self._not_before_s = 0.0
        self._own: tuple[Fence, ActorRef] | None = None
        """Under what this node coordinates, and who does it."""
        self._last: Fence | None = None
        """Under which this life has coordinated last, or tried to."""
        self._heard_s = self.monotonic_s()
        """When whoever coordinates was last heard of, or began to."""
        self._asked_s = float("-inf")
        """When somebody last asked for it."""
        self._is_looking = False
        parts.claims.slot = self._slot

    def terminate(self, reason: Any) -> None:  # noqa: ANN401 - as `GenServer`
        """Let nobody ask any more."""
        del reason
        self._table.here = None
        if self._parts.claims.slot is self._slot:
            self._parts.claims.slot = None
        if self._own is not None:
            self._own[0].is_over = True

    def describe_role(self) -> str:
        """Return who coordinates."""
        if self._claim is None:
            return "nobody coordinates"
        node = "this node" if self._table.here is not None else self._claim.node
        return f"{node} coordinates, claim {self._claim.revision}"

    # ---- messages -------------------------------------------------------------------------------

    def handle_call(self, request: AskCoordinator, caller: Call) -> Any:  # noqa: ANN401
        """Pass a question on to who coordinates."""
        claim = self._claim
        if claim is None or claim.node == self._parts.me:
            self._try_to_claim()
            return NOT_HERE
        self._number += 1
        self._asked[self._number] = _Asked(caller, claim)
        told = partial(_post_answer, self._slot, self._number)
        self._parts.engine.ask(claim.node, request.payload, request.deadline_s, told)
        self._look_later()
        return NO_REPLY

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401 - one case each
        """Take what the engine tells, and what other nodes ask."""
        match message:
            case ClaimHeard():
                await self._hear()
            case _Claimed():
                self._claimed(message)
            case _Answered(number, answer):
                self._answered(number, answer)
            case _Pinged(claim, answer):
                self._pinged(claim, answer)
            case PeerQuestion():
                await self._take_question(message)
            case ActorDown():
                self._ended(message.ref)
            case _ if message is _LOOK:
                self._look()
            case _:
                super().handle_info(message)

    async def handle_cast(self, message: Fenced) -> None:
        """Hear that another node has claimed, before the catalog says so."""
        if self._own is not None and self._own[0].epoch == message.epoch:
            await self._end_own()

    # ---- asking ---------------------------------------------------------------------------------

    def _answered(self, number: int, answer: bytes | PoeError | None) -> None:
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        if isinstance(answer, PoeError):
            answer = NOT_HERE
        if answer is not None and answer != NOT_HERE and asked.claim == self._claim:
            self._heard_s = self.monotonic_s()
        self.reply(asked.caller, DOUBT if answer is None else answer)

    def _pinged(self, claim: Claim, answer: bytes | PoeError | None) -> None:
        if claim == self._claim and answer == HERE:
            self._heard_s = self.monotonic_s()

    def _look_later(self) -> None:
        self._asked_s = self.monotonic_s()
        if not self._is_looking:
            self._is_looking = True
            self._heard_s = self.monotonic_s()
            self.send_after(PING_S, _LOOK)

    def _look(self) -> None:
        """Find out whether who coordinates is there, as long as somebody waits for it."""
        self._is_looking = False
        claim = self._claim
        silent_s = self.monotonic_s() - self._heard_s
        is_asked = self._asked or self.monotonic_s() - self._asked_s < SUSPECT_S
        if claim is None or claim.node == self._parts.me or not is_asked:
            return
        if silent_s >= SUSPECT_S:
            self._try_to_claim()
        told = partial(_post_ping, self._slot, claim)
        self._parts.engine.ask(claim.node, Question(_PING, "").encode(), PING_ANSWER_S, told)
        self._is_looking = True
        self.send_after(PING_S, _LOOK)

    # ---- claiming -------------------------------------------------------------------------------

    def _try_to_claim(self) -> None:
        """Try to coordinate, in place of who is known to have done so last."""
        now_s = self.monotonic_s()
        if self._trying is not None or self._own is not None or now_s < self._not_before_s:
            return
        self._not_before_s = now_s + CLAIM_PAUSE_S
        self._trying = Claim(self._parts.me, os.urandom(NONCE_BYTES), 0)
        known = 0 if self._claim is None else self._claim.revision
        told = partial(_post_claimed, self._slot, self._trying)
        self._parts.engine.put_catalog(CLAIM_KEY, self._trying.encode(), known, told)

    def _claimed(self, claimed: _Claimed) -> None:
        """Take what came of a try; where nobody knows it, the catalog will say."""
        if isinstance(claimed.outcome, PoeError):
            if self._trying is not None and self._trying.nonce == claimed.claim.nonce:
                self._trying = None
            return
        self._parts.claims.hear(claimed.claim._replace(revision=claimed.outcome))

    async def _hear(self) -> None:
        """Take the newest claim: that of this node's own, or another one."""
        claim, before = self._parts.claims.newest, self._claim
        if claim is None or claim == before:
            return
        self._claim, self._heard_s = claim, self.monotonic_s()
        trying, self._trying = self._trying, None
        for number, asked in list(self._asked.items()):
            if asked.claim != claim:
                del self._asked[number]
                self.reply(asked.caller, DOUBT)
        if self._own is not None:
            await self._end_own()
        elif trying is not None and claim.nonce == trying.nonce:
            await self._begin(claim, before)

    async def _begin(self, claim: Claim, before: Claim | None) -> None:
        """Coordinate, under a claim that nobody has had before."""
        fence = Fence(claim.revision)
        # A claim of this node that this life has not coordinated under says nothing of who did so.
        last, self._last = self._last, fence
        fence.is_alone = before is None or (
            last is not None and last.epoch == before.revision and last.is_alone
        )
        floors = GroupFloors(self._parts.groups.routes)
        groups = self._parts.groups._replace(floors=floors, fence=fence)
        try:
            ref = await start_dynamic_child(
                self, COORDINATION_SUP, *coordination(groups, self._parts.me)
            )
        except PoeError as error:
            logger.error("this node cannot coordinate groups: %s", error)
            return
        assert ref is not None
        self.monitor(ref)
        self._own = fence, ref
        self._table.here = Coordination(fence, floors)
        logger.info("this node coordinates the groups of replicated topics, claim %d", fence.epoch)
        self._note("groups_coordinated", f"claim {fence.epoch}")

    async def _end_own(self) -> None:
        """Coordinate no more: whoever waits for something to be written is told first."""
        assert self._own is not None
        fence, ref = self._own
        self._ended(ref)
        self.cast(FENCED_WRITER, End())
        await terminate_child(self, COORDINATION_SUP, ref)
        logger.info("this node coordinates groups no more, claim %d is over", fence.epoch)

    def _ended(self, ref: ActorRef) -> None:
        """Take that what runs for a claim of this node ends, or has ended."""
        if self._own is None or ref != self._own[1]:
            return
        fence, _ = self._own
        self._table.here, self._own = None, None
        fence.is_over = True
        self._note("groups_handed_over", f"claim {fence.epoch}")

    def _note(self, kind: str, reason: str) -> None:
        events = self._parts.groups.routes.events
        events.add(kind, child="groups of replicated topics", reason=reason, ref=str(self.ref))

    # ---- other nodes ----------------------------------------------------------------------------

    @property
    def _is_stuck(self) -> bool:
        """Whether another node had better coordinate, which then claims."""
        return self._own is not None and self._own[0].is_stuck(self.monotonic_s())

    async def _take_question(self, asked: PeerQuestion) -> None:
        """Answer another node, by an actor of its own where it is of a group."""
        try:
            question = Question.decode(asked.payload)
        except RemoteProtocolError as error:
            asked.answer(ErrorReply.from_error(error).encode())
            return
        if self._table.here is None or self._is_stuck:
            if self._claim is not None and self._claim.node == self._parts.me:
                self._try_to_claim()
            asked.answer(NOT_HERE)
        elif question.op == _PING:
            asked.answer(HERE)
        else:
            answer = await start_dynamic_child(self, ANSWERS_SUP, self._parts, question, asked)
            assert answer is not None


class _Answer(GenServer):
    """Has one question of another node answered."""

    def init(self, parts: LogGroupParts, question: Question, asked: PeerQuestion) -> None:
        self._parts, self._question, self._asked = parts, question, asked
        self._handler = RequestHandler(cast("GenServer", proxy(self)), parts.groups.routes)
        self.cast(self.ref, _LOOK)

    async def handle_cast(self, message: object) -> Stop:
        """Answer it."""
        del message
        here = self._parts.table.here
        answer = NOT_HERE
        if here is not None:
            answer = await here.answer(self._handler, self._question)
        self._asked.answer(answer)
        return Stop("normal")


def log_groups_spec(parts: LogGroupParts, name: str) -> ChildSpec:
    """Return the spec of the supervisor of this node's part.

    What it runs ends together: who begins anew claims anew.
    """
    coordinations = ChildSpec(
        id="coordination", actor=Supervisor, restart=Restart.TEMPORARY, kind=ChildKind.SUPERVISOR
    )
    answers = ChildSpec(id="answer", actor=_Answer, restart=Restart.TEMPORARY)
    children = [
        dynamic_supervisor(COORDINATION_SUP, coordinations),
        dynamic_supervisor(ANSWERS_SUP, answers),
        ChildSpec(id=name, actor=LogGroups, args=(parts,), name=name),
    ]
    flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ALL, intensity=5, period_s=10)
    return supervisor_spec(LOG_GROUPS_SUP, flags, children)


def _post_answer(slot: Mailslot, number: int, answer: bytes | PoeError | None) -> None:
    slot.post(_Answered(number, answer))


def _post_ping(slot: Mailslot, claim: Claim, answer: bytes | PoeError | None) -> None:
    slot.post(_Pinged(claim, answer))


def _post_claimed(slot: Mailslot, claim: Claim, outcome: int | PoeError) -> None:
    slot.post(_Claimed(claim, outcome))
