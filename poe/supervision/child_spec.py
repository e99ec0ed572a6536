"""Child specs and supervisor flags: what a user writes down, turned into checked values.

A supervisor is data: which children, in which order, and what to do when one of them ends. All of
it is checked on construction, where the traceback still names the author; the rules that need flags
and children together are in `check_children` and `check_combination`. Nothing here starts or sends.
Specs hold an actor class and arguments instead of a start function, so that they can be pickled for
system bases with one process per actor.
"""

import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeGuard

from poe.actors import ActorRef, GenServer
from poe.errors import InvalidChildSpec
from poe.errors.short_text import short_repr
from poe.supervision.backoff import Backoff
from poe.supervision.child_key import is_hashable, key_of


class Restart(StrEnum):
    """When a child that ended by itself is started again."""

    PERMANENT = "permanent"
    """Always, also after an orderly end."""
    TRANSIENT = "transient"
    """After a crash; an orderly end (normal, shutdown) leaves the spec without an actor."""
    TEMPORARY = "temporary"
    """Never; its spec is forgotten when it ends."""


class Strategy(StrEnum):
    """Which children are restarted together with the one that crashed."""

    ONE_FOR_ONE = "one_for_one"
    """None."""
    REST_FOR_ONE = "rest_for_one"
    """Those that were started after it."""
    ONE_FOR_ALL = "one_for_all"
    """All."""
    SIMPLE_ONE_FOR_ONE = "simple_one_for_one"
    """None; all children are instances of one template and are started on demand."""


class AutoShutdown(StrEnum):
    """Whether the end of significant children ends their supervisor."""

    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    ALL_SIGNIFICANT = "all_significant"


class ChildKind(StrEnum):
    """What a child is; decides the default of `shutdown_s` and how it is counted."""

    WORKER = "worker"
    SUPERVISOR = "supervisor"


BRUTAL_KILL: Final = "brutal_kill"
"""Shutdown: kill at once, without a chance to clean up."""
INFINITY: Final = "infinity"
"""Shutdown: wait for as long as the child takes."""
WORKER_SHUTDOWN_S: Final = 5.0

_RESTARTS: Final = "Restart.PERMANENT, Restart.TRANSIENT or Restart.TEMPORARY"
_KINDS: Final = "ChildKind.WORKER or ChildKind.SUPERVISOR"
_STRATEGIES: Final = (
    "Strategy.ONE_FOR_ONE, Strategy.REST_FOR_ONE, Strategy.ONE_FOR_ALL or "
    "Strategy.SIMPLE_ONE_FOR_ONE"
)
_AUTO_SHUTDOWNS: Final = (
    "AutoShutdown.NEVER, AutoShutdown.ANY_SIGNIFICANT or AutoShutdown.ALL_SIGNIFICANT"
)

_START_KEYWORDS = frozenset({"name", "start_timeout_s"})
"""What `start_link` takes for itself; a spec has fields for them."""
NOT_FOR_INIT: Final = "without 'name' and 'start_timeout_s'"

Shutdown = float | Literal["brutal_kill", "infinity"]


@dataclass(frozen=True, slots=True)
class Started:
    """What a start function may return: the child, and something to tell who asked for it."""

    ref: ActorRef
    info: object
    """Part of the answer of `start_child` and `restart_child`; dropped at other starts."""


StartFunction = Callable[..., Awaitable[ActorRef | Started | None]]
"""What `ChildSpec.start` may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """How to start, restart and stop one child.

    Raises:
        InvalidChildSpec: on construction, naming the field, its value and what is allowed.

    Source: OTP `supervisor:child_spec()`, with class and arguments for `start` and without
    `modules` (there is no hot upgrade here).
    """

    id: Hashable
    """Unique among its siblings; names the child in logs, requests and restarts."""

    actor: type[GenServer]
    """Started with `args` and `kwargs`, linked to the supervisor."""

    args: tuple[Any, ...] = ()

    kwargs: Mapping[str, Any] = field(default_factory=dict)

    restart: Restart = Restart.PERMANENT

    significant: bool = False
    """Its end may end the supervisor, as the flag `auto_shutdown` says; never with PERMANENT."""

    shutdown_s: Shutdown | None = None
    """Seconds between the exit request and the kill, `"brutal_kill"` or `"infinity"`; None becomes
    5.0 for a worker and `"infinity"` for a supervisor, whose own children need their time."""

    kind: ChildKind = ChildKind.WORKER

    name: str | None = None
    """Name under which the actor is registered; None for no name."""

    start: StartFunction = GenServer.start_link
    """Runs in the supervisor as `start(supervisor, actor, *args, name=name, **kwargs)`, with
    `start_timeout_s` too where there is one, and returns the linked child, `Started`, or None (do
    not run, and do not fail either). The child has failed to start with whatever else it returns
    or raises."""

    start_timeout_s: float | None = None
    """Seconds that `init` may take; then the child is killed and has failed to start, with reason
    `"timeout"`. None: no limit, as in OTP. An `init` that never awaits cannot be interrupted."""

    backoff: Backoff | None = None
    """How long it waits before it is restarted; None: as the supervisor's flags say."""

    key: Hashable = field(init=False, repr=False, compare=False)
    """Stands for `id` in tables, where it is compared with others."""

    def __post_init__(self) -> None:
        """Check the fields in OTP's order: the first one that is wrong is reported."""
        self._check("id", is_hashable(self.id), "a hashable value")
        self._check("actor", _is_actor_class(self.actor), "a subclass of GenServer")
        self._check("args", isinstance(self.args, tuple), "a tuple")
        self._check("kwargs", is_keywords(self.kwargs), f"a mapping with str keys, {NOT_FOR_INIT}")
        self._check("restart", isinstance(self.restart, Restart), _RESTARTS)
        self._check("significant", isinstance(self.significant, bool), "True or False")
        self._check(
            "significant",
            not (self.significant and self.restart is Restart.PERMANENT),
            "False with restart PERMANENT, or TRANSIENT or TEMPORARY with it",
            combined_with="restart",
        )
        self._check("kind", isinstance(self.kind, ChildKind), _KINDS)
        self._check(
            "shutdown_s",
            self.shutdown_s is None or _is_shutdown(self.shutdown_s),
            "0 or more seconds, 'brutal_kill' or 'infinity'",
        )
        # Not of a subclass, such as an enum: nobody can be registered under such a name.
        is_valid_name = self.name is None or (type(self.name) is str and is_name(self.name))
        self._check("name", is_valid_name, "a str that is not empty, or None")
        self._check("start", callable(self.start), "a function")
        limit = self.start_timeout_s
        is_limit = limit is None or (_is_number(limit) and limit > 0)
        self._check("start_timeout_s", is_limit, "more than 0 seconds, or None")
        is_backoff = self.backoff is None or isinstance(self.backoff, Backoff)
        self._check("backoff", is_backoff, "a Backoff or None")
        # A frozen dataclass leaves no other way to fill in a default that depends on a sibling.
        object.__setattr__(self, "kwargs", dict(self.kwargs))
        object.__setattr__(self, "key", key_of(self.id))
        if self.shutdown_s is None:
            default = INFINITY if self.kind is ChildKind.SUPERVISOR else WORKER_SHUTDOWN_S
            object.__setattr__(self, "shutdown_s", default)

    def _check(self, key: str, is_valid: bool, allowed: str, combined_with: str = "") -> None:  # noqa: FBT001 - private, three columns
        if not is_valid:
            value = getattr(self, key)
            msg = f"child {short_repr(self.id)}: {key} is {short_repr(value)}; use {allowed}"
            if combined_with:
                other = getattr(self, combined_with)
                raise InvalidChildSpec(msg, (combined_with, key), (other, value))
            raise InvalidChildSpec(msg, key, value)

    @property
    def grace_s(self) -> float | None:
        """Seconds that the child has between the exit request and the kill; None: no limit."""
        if self.shutdown_s == BRUTAL_KILL:
            return 0.0
        return self.shutdown_s if isinstance(self.shutdown_s, float | int) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorFlags:
    """What a supervisor does when a child ends, and how often before it gives up.

    It gives up at the restart that makes more than `intensity` within `period_s`; one budget covers
    all its children.

    Raises:
        InvalidChildSpec: on construction, naming the flag, its value and what is allowed.

    Source: OTP `supervisor:sup_flags()`.
    """

    strategy: Strategy = Strategy.ONE_FOR_ONE

    intensity: int = 1
    """Restarts that are survived within `period_s`; 0 or more."""

    period_s: int = 5
    """Whole seconds, 1 or more."""

    auto_shutdown: AutoShutdown = AutoShutdown.NEVER

    backoff: Backoff | None = None
    """How long children wait before they are restarted; None: not at all, as in OTP."""

    max_children: int | None = None
    """Dynamic children that may exist at once, those that wait for a restart included; one more is
    refused. None: no limit. With SIMPLE_ONE_FOR_ONE only."""

    def __post_init__(self) -> None:
        """Check the flags in OTP's order."""
        self._check("strategy", isinstance(self.strategy, Strategy), _STRATEGIES)
        self._check("intensity", is_int(self.intensity, 0), "an integer, 0 or more")
        self._check("period_s", is_int(self.period_s, 1), "whole seconds, 1 or more")
        is_auto = isinstance(self.auto_shutdown, AutoShutdown)
        self._check("auto_shutdown", is_auto, _AUTO_SHUTDOWNS)
        is_backoff = self.backoff is None or isinstance(self.backoff, Backoff)
        self._check("backoff", is_backoff, "a Backoff or None")
        is_dynamic = self.strategy is Strategy.SIMPLE_ONE_FOR_ONE
        self._check(
            "max_children",
            self.max_children is None or (is_dynamic and is_int(self.max_children, 0)),
            "None, or with simple_one_for_one an integer, 0 or more",
        )

    def _check(self, key: str, is_valid: bool, allowed: str) -> None:  # noqa: FBT001 - private, three columns
        if not is_valid:
            value = getattr(self, key)
            msg = f"supervisor flag {key} is {short_repr(value)}; use {allowed}"
            raise InvalidChildSpec(msg, key, value)


def split_configuration(configuration: Any) -> tuple[SupervisorFlags, Sequence[ChildSpec]]:  # noqa: ANN401 - to be checked
    """Return the flags and specs that a supervisor is started with, or that it made itself.

    Raises:
        InvalidChildSpec: it is something else.
    """
    match configuration:
        case (SupervisorFlags() as flags, [*specs]):
            for spec in specs:
                if not isinstance(spec, ChildSpec):
                    msg = f"{short_repr(spec)} is no child spec; use ChildSpec(id=..., actor=...)"
                    raise InvalidChildSpec(msg)
            return flags, specs
    msg = (
        f"a supervisor is configured with {short_repr(configuration)}; use (flags, [specs]): "
        "SupervisorFlags(...) and a list of ChildSpec(...)"
    )
    raise InvalidChildSpec(msg)


def check_children(flags: SupervisorFlags, specs: Sequence[ChildSpec]) -> None:
    """Check a whole list of children against the flags of their supervisor.

    Raises:
        InvalidChildSpec: an id appears twice, simple_one_for_one has not exactly one template, a
            template has a name, or a spec is significant under auto_shutdown NEVER.
    """
    seen: set[Hashable] = set()
    for spec in specs:
        check_combination(spec, flags.auto_shutdown)
        if spec.key in seen:
            msg = f"child {short_repr(spec.id)} appears twice; give each child an id of its own"
            raise InvalidChildSpec(msg, "id", spec.id)
        seen.add(spec.key)
    if flags.strategy is Strategy.SIMPLE_ONE_FOR_ONE:
        if len(specs) != 1:
            msg = f"simple_one_for_one has {len(specs)} child specs; use exactly 1, the template"
            raise InvalidChildSpec(msg)
        if specs[0].name is not None:
            template = short_repr(specs[0].id)
            msg = f"template {template}: name is {specs[0].name!r}; its children need None"
            raise InvalidChildSpec(msg)


def check_combination(spec: ChildSpec, auto_shutdown: AutoShutdown) -> None:
    """Check one child against the current `auto_shutdown` of its supervisor.

    Raises:
        InvalidChildSpec: the child is significant, and its supervisor never shuts down by itself.
    """
    if spec.significant and auto_shutdown is AutoShutdown.NEVER:
        msg = (
            f"child {short_repr(spec.id)}: significant is True, but auto_shutdown is NEVER; "
            "use False, or auto_shutdown ANY_SIGNIFICANT or ALL_SIGNIFICANT"
        )
        raise InvalidChildSpec(msg, ("auto_shutdown", "significant"), (auto_shutdown, True))


def is_keywords(kwargs: object) -> bool:
    """Return whether an actor can be started with these keywords; some say how it is started."""
    return isinstance(kwargs, Mapping) and all(
        isinstance(key, str) and key not in _START_KEYWORDS for key in kwargs
    )


def _is_actor_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, GenServer)


def is_name(value: object) -> bool:
    """Return whether an actor can be registered under a value."""
    return isinstance(value, str) and value != ""


def is_int(value: object, minimum: int) -> bool:
    """Return whether a value is an integer of at least `minimum`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


def _is_shutdown(value: object) -> bool:
    return (_is_number(value) and value >= 0) or value in (BRUTAL_KILL, INFINITY)
