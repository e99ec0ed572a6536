"""What can be asked of a supervisor: requests, what they return, and functions that ask.

Inside an actor: `ref = await start_child(self, supervisor, spec)`. From an application thread: `ref
= call_supervisor(system, supervisor, StartChild(spec))`. Either way a refusal or a failed start is
*raised* at the caller as a `SupervisionError` (OTP returns `{error, Why}`; in Python an ignored
error value would be an unnoticed one), and the supervisor lives on. No request has a time limit, as
in OTP: a child's start or clean-up may take any time, and an answer given up on would leave the
caller unsure. A child must not ask its own supervisor from `init` or `terminate`: both would wait
for each other.

Source: OTP supervisor.erl, start_child/2, terminate_child/2, restart_child/2, delete_child/2,
which_children/1, count_children/1, get_childspec/2; return values by `spec/otp.md` §1.9 and §1.10.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, cast

from poe.actors import ActorRef, Error, GenServer
from poe.errors import ChildRequestRefused, InvalidChildSpec
from poe.errors.short_text import short_repr
from poe.supervision.child_key import is_hashable
from poe.supervision.child_spec import NOT_FOR_INIT, ChildKind, ChildSpec, is_keywords
from poe.supervision.strategy import Slot

ReplyT = TypeVar("ReplyT")


class Refusal(StrEnum):
    """Why a request is refused: `ChildRequestRefused.why`."""

    ALREADY_STARTED = "already_started"
    ALREADY_PRESENT = "already_present"
    RUNNING = "running"
    RESTARTING = "restarting"
    NOT_FOUND = "not_found"
    SIMPLE_ONE_FOR_ONE = "simple_one_for_one"
    NOT_SIMPLE_ONE_FOR_ONE = "not_simple_one_for_one"
    MAX_CHILDREN = "max_children"


_WAYS_OUT = {
    Refusal.ALREADY_STARTED: "use the running one, or terminate and delete it first",
    Refusal.ALREADY_PRESENT: "restart it, or delete it first",
    Refusal.RUNNING: "terminate it first",
    Refusal.RESTARTING: "wait for the restart, or terminate it first",
    Refusal.NOT_FOUND: "ask which_children for those that exist",
    Refusal.SIMPLE_ONE_FOR_ONE: "use start_dynamic_child, and terminate_child with a ref",
    Refusal.NOT_SIMPLE_ONE_FOR_ONE: "use start_child with a ChildSpec",
    Refusal.MAX_CHILDREN: "terminate another one first, or raise max_children",
}


def refuse(child_id: Hashable, why: Refusal, ref: ActorRef | None = None) -> Error:
    """Return the answer that raises `ChildRequestRefused` at the caller."""
    return Error(ChildRequestRefused(child_id, why, _WAYS_OUT[why], ref))


class SupervisorRequest(Generic[ReplyT]):
    """Any request that a supervisor answers with a `ReplyT`.

    Raises:
        InvalidChildSpec: on construction: no supervisor could take what it holds.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        """Refuse at the caller what would raise in the supervisor."""
        self.check()

    def check(self) -> None:
        """Refuse what would raise in the supervisor, which checks again."""


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One line of `which_children`."""

    id: Hashable
    """None for a child of a simple_one_for_one supervisor."""
    ref: Slot
    """The actor, None (not running) or `RESTARTING`."""
    kind: ChildKind
    restarts: int = 0
    """How often it was started again, alone or with its group."""
    last_reason: str = ""
    """Why it last ended or did not start, shortened as in a report; empty before the first time."""


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """The answer of `count_children`; for simple_one_for_one `specs` is always 1."""

    specs: int
    active: int
    """Children whose actor is alive."""
    supervisors: int
    """Children of this kind in any state; so is `workers`."""
    workers: int


@dataclass(frozen=True, slots=True)
class StartChild(SupervisorRequest["ActorRef | None"]):
    """Add a child as the last in start order, and start it.

    Raises:
        InvalidChildSpec: on construction: it is no `ChildSpec`.
    """

    spec: ChildSpec

    def check(self) -> None:
        """Refuse what would raise in the supervisor."""
        if not isinstance(self.spec, ChildSpec):
            msg = f"StartChild: spec is {short_repr(self.spec)}; use ChildSpec(id=..., actor=...)"
            raise InvalidChildSpec(msg, "spec", self.spec)


@dataclass(frozen=True, slots=True)
class StartDynamicChild(SupervisorRequest["ActorRef | None"]):
    """Start one more instance of a simple_one_for_one template.

    Raises:
        InvalidChildSpec: on construction: the arguments cannot start an actor.
    """

    args: tuple[Any, ...] = ()
    """Appended to the template's."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Override the template's."""

    def check(self) -> None:
        """Refuse what would raise in the supervisor."""
        if not isinstance(self.args, tuple):
            shown = short_repr(self.args)
            msg = f"start_dynamic_child: args is {shown}; use a tuple, such as (value,)"
            raise InvalidChildSpec(msg, "args", self.args)
        if self.kwargs and not is_keywords(self.kwargs):
            shown = short_repr(self.kwargs)
            msg = f"start_dynamic_child: kwargs is {shown}; use str keys, {NOT_FOR_INIT}"
            raise InvalidChildSpec(msg)


@dataclass(frozen=True, slots=True)
class TerminateChild(SupervisorRequest[None]):
    """Stop a child: by id, or by ref where the strategy is simple_one_for_one."""

    child: Hashable

    def check(self) -> None:
        """Refuse what would raise in the supervisor."""
        _check_id(self, "child", self.child)


@dataclass(frozen=True, slots=True)
class RestartChild(SupervisorRequest["ActorRef | None"]):
    """Start a child that has a spec but no actor."""

    id: Hashable

    def check(self) -> None:
        """Refuse what would raise in the supervisor."""
        _check_id(self, "id", self.id)


@dataclass(frozen=True, slots=True)
class DeleteChild(SupervisorRequest[None]):
    """Forget a child that has a spec but no actor."""

    id: Hashable

    def check(self) -> None:
        """Refuse what would raise in the supervisor."""
        _check_id(self, "id", self.id)


@dataclass(frozen=True, slots=True)
class WhichChildren(SupervisorRequest[list[ChildInfo]]):
    """List the children in reverse start order."""


@dataclass(frozen=True, slots=True)
class CountChildren(SupervisorRequest[ChildCounts]):
    """Count the children."""


@dataclass(frozen=True, slots=True)
class GetChildSpec(SupervisorRequest[ChildSpec]):
    """Return the spec of a child: by id, or by ref where the strategy is simple_one_for_one."""

    child: Hashable

    def check(self) -> None:
        """Refuse what would raise in the supervisor."""
        _check_id(self, "child", self.child)


def _check_id(request: SupervisorRequest[Any], key: str, value: object) -> None:
    if not is_hashable(value):
        msg = f"{type(request).__name__}: {key} is {short_repr(value)}; use a hashable value"
        raise InvalidChildSpec(msg, key, value)


class CallingSystem(Protocol):
    """What an application thread uses to call actors, such as `LoopSystem`."""

    def call(self, ref: Any, request: object, timeout_s: float | None) -> Any:  # noqa: ANN401
        """Send a request and wait for its reply."""


def call_supervisor(
    system: CallingSystem, supervisor: ActorRef | str, request: SupervisorRequest[ReplyT]
) -> ReplyT:
    """Ask a supervisor from an application thread; blocks.

    Raises:
        SupervisionError: as the function of the same name raises.
        ActorDead: the supervisor is not there.
    """
    return cast(ReplyT, system.call(supervisor, request, timeout_s=None))


async def _call(
    actor: GenServer, supervisor: ActorRef | str, request: SupervisorRequest[ReplyT]
) -> ReplyT:
    # The actor may have a method or an attribute `call` of its own.
    return cast(ReplyT, await GenServer.call(actor, supervisor, request, timeout_s=None))


async def start_child(
    actor: GenServer, supervisor: ActorRef | str, spec: ChildSpec
) -> ActorRef | None:
    """Add a child as the last in start order and start it; None when its `init` returned IGNORE.

    The answer is `Started` where the spec has a start function that told something besides.

    Raises:
        ChildRequestRefused: ALREADY_STARTED (with `ref`), ALREADY_PRESENT or SIMPLE_ONE_FOR_ONE.
        ChildStartFailed: it did not start; nothing was kept.
        InvalidChildSpec: it is significant, and the supervisor's `auto_shutdown` is NEVER.
    """
    return await _call(actor, supervisor, StartChild(spec))


async def start_dynamic_child(
    actor: GenServer,
    supervisor: ActorRef | str,
    *args: Any,  # noqa: ANN401 - the template's actor knows their types
    **kwargs: Any,  # noqa: ANN401
) -> ActorRef | None:
    """Start an instance of a simple_one_for_one template; None when its `init` returned IGNORE.

    Raises:
        ChildRequestRefused: NOT_SIMPLE_ONE_FOR_ONE, or MAX_CHILDREN: there are as many already.
        ChildStartFailed: it did not start; nothing was kept.
        InvalidChildSpec: the keywords cannot start an actor.
    """
    return await _call(actor, supervisor, StartDynamicChild(args, kwargs))


async def terminate_child(actor: GenServer, supervisor: ActorRef | str, child: Hashable) -> None:
    """Stop a child, wait until it is gone, and cancel its pending restart; its spec is kept.

    A temporary child is forgotten. `child` is an id; for simple_one_for_one it is a ref.

    Raises:
        ChildRequestRefused: NOT_FOUND or SIMPLE_ONE_FOR_ONE (an id where a ref is needed).
    """
    await _call(actor, supervisor, TerminateChild(child))


async def restart_child(
    actor: GenServer, supervisor: ActorRef | str, child_id: Hashable
) -> ActorRef | None:
    """Start a child that is not running, in its old place; None when its `init` returned IGNORE.

    Raises:
        ChildRequestRefused: RUNNING, RESTARTING, NOT_FOUND or SIMPLE_ONE_FOR_ONE.
        ChildStartFailed: it did not start; it stays as it was.
    """
    return await _call(actor, supervisor, RestartChild(child_id))


async def delete_child(actor: GenServer, supervisor: ActorRef | str, child_id: Hashable) -> None:
    """Forget a child that is not running.

    Raises:
        ChildRequestRefused: RUNNING, RESTARTING, NOT_FOUND or SIMPLE_ONE_FOR_ONE.
    """
    await _call(actor, supervisor, DeleteChild(child_id))


async def which_children(actor: GenServer, supervisor: ActorRef | str) -> list[ChildInfo]:
    """Return the children in reverse start order; for simple_one_for_one in no order."""
    return await _call(actor, supervisor, WhichChildren())


async def count_children(actor: GenServer, supervisor: ActorRef | str) -> ChildCounts:
    """Return how many children there are, by state and kind."""
    return await _call(actor, supervisor, CountChildren())


async def get_child_spec(
    actor: GenServer, supervisor: ActorRef | str, child: Hashable
) -> ChildSpec:
    """Return the spec of a child, by id or (simple_one_for_one) by ref.

    Arguments of a temporary child that was added by `start_child` are not kept: they are empty.

    Raises:
        ChildRequestRefused: NOT_FOUND.
    """
    return await _call(actor, supervisor, GetChildSpec(child))
