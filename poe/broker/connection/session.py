"""Who the peer of one connection is, and what it was found to be allowed.

Each request passes `admits` first, which costs a look into a set; what it does not know, `check`
decides. What was found holds for one policy: after a reload all is decided anew.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, cast
from weakref import proxy

from poe.actors import ActorRef, GenServer, Stop, Timer
from poe.broker.access.access import Access
from poe.broker.access.authentication import Authentication, Channel, refuse
from poe.broker.access.identity import Identity
from poe.broker.access.meter import Meter
from poe.broker.access.permission import Need, check
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.needs import AUDITED, TopicsOf, needs_of
from poe.errors import (
    AuthenticationExpired,
    AuthenticationFailed,
    AuthenticationRequired,
    PoeError,
    RemoteProtocolError,
)
from poe.protocol import (
    ControlRequest,
    LeaseRequest,
    PointerRequest,
    RangeRequest,
    Request,
)
from poe.protocol.frames import TYPE_SIZE
from poe.protocol.maps import take_text
from poe.protocol.put import PUTS

AUTH: Final = "auth"
"""The control operation that a connection carries out itself."""
STRANGER_FRAME_MAX: Final = 4096 + TYPE_SIZE
"""Bytes of a frame before it is known who the peer is. There are two of these at most: no mechanism
has more steps, and one that fails ends the connection."""

_READS: Final = (PointerRequest, RangeRequest)
# Made once: `PointerRequest | RangeRequest` would be made anew for each request.

_FOUND_MAX: Final = 4096
"""Topics that are remembered; then all are forgotten."""
_NAME_BYTES_MAX: Final = 255
"""Of a name that is remembered: no topic has a longer one, but a request may be all name."""


class SessionAlarm(Enum):
    """What the timers of a session tell its connection."""

    STRANGE = "the time to prove who the peer is is over"
    EXPIRED = "the time of what has proved it may be over"
    PUNISHED = "who has not proved it has waited for long enough to be told"


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """Cast to a connection whose peer is not to be served any more."""


class ServesNothing(NamedTuple):
    """Cast to the gatekeeper, in answer to that."""

    connection: ActorRef


class Session:
    """What one connection may do; the connection alone calls it, but for `end`.

    Life: a stranger's, who may do nothing; once `authenticate` has found out who the peer is, its
    peer's; for nobody again when it has ended, or its time is over.
    """

    __slots__ = (
        "_access",
        "_actor",
        "_authentication",
        "_channel",
        "_expiry_timer",
        "_leasable",
        "_policy",
        "_readable",
        "_topics_of",
        "_writable",
        "identity",
        "is_over",
        "meter",
        "ref",
    )

    def __init__(self, access: Access, topics_of: TopicsOf, actor: GenServer) -> None:
        self.ref = actor.ref
        """The connection."""
        # It is a part of the connection, and ends with it.
        self._actor: GenServer = cast("GenServer", proxy(actor))
        self._expiry_timer: Timer | None = None
        self._access = access
        self._topics_of = topics_of
        self._channel = Channel("", is_local=False)
        self._authentication = Authentication(access, self._channel)
        self.identity: Identity | None = None
        self.meter: Meter | None = None
        """What measures its peer; None where nothing limits it."""
        self.is_over = False
        """Whether the peer is to be served no more."""
        self._policy = access.policy
        self._readable: set[bytes] = set()
        self._writable: set[bytes] = set()
        self._leasable: dict[str, object] = {}
        """By group the topics that it had when it was found allowed."""

    @property
    def is_stranger(self) -> bool:
        """Whether nobody knows who the peer is."""
        return self.identity is None

    @property
    def is_served(self) -> bool:
        """Whether somebody is known, and did not do what ends the connection."""
        return self.identity is not None and not self.is_over

    # ---- life -----------------------------------------------------------------------------------

    def arrived(self, channel: Channel) -> None:
        """Begin to count the time that the peer may take to prove who it is."""
        self._channel = channel
        self._authentication = Authentication(self._access, channel)
        self._actor.send_after(self._access.options.auth_timeout, SessionAlarm.STRANGE)

    def authenticate(self, arguments: Arguments) -> dict[str, Any]:
        """Take a step of finding out who the peer is, or of proving it anew; return the answer.

        Raises:
            AuthenticationFailed: it has not proved it, or is another one; to be told when the alarm
                PUNISHED comes.
            Overloaded: it has too many connections.
            RemoteProtocolError: an argument is missing or wrong.
        """
        mechanism = take_text(arguments, "mechanism", AUTH)
        data = arguments.get("data") or b""
        if not isinstance(data, bytes):
            msg = f"argument data is of {type(data).__name__}; send bytes"
            raise RemoteProtocolError(msg)
        now_s = self._access.now_s()
        try:
            step = self._authentication.take(mechanism, data, now_s)
            if step.identity is None:
                return {"data": step.data, "principal": None, "expires_s": None}
            self._enter(step.identity)
        except AuthenticationFailed as error:
            self.is_over = True
            penalty_s = self._access.failed(self._channel, mechanism, error)
            self._actor.send_after(penalty_s, SessionAlarm.PUNISHED)
            raise
        left_s = step.identity.left_s(now_s)
        return {
            "data": step.data,
            "principal": step.identity.principal,
            "expires_s": None if left_s == math.inf else left_s,
        }

    def _enter(self, identity: Identity) -> None:
        """Know from now on who the peer is."""
        if self.is_over:
            refuse("it was hung up on")
        if self.identity is None:
            self.meter = self._access.enter(self, identity, self._channel)
        elif self.identity.principal != identity.principal:
            refuse("another principal on the same connection")
        self.go_on(identity)

    def go_on(self, identity: Identity) -> None:
        """Know who the peer is by another proof, or until another time: be told when that comes."""
        self.identity = identity
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()  # else each proof would leave one until the end of its time
            self._expiry_timer = None
        left_s = identity.left_s(self._access.now_s())
        if left_s < math.inf:
            self._expiry_timer = self._actor.send_after(left_s, SessionAlarm.EXPIRED)

    def ending(self, alarm: SessionAlarm) -> PoeError | Stop | None:
        """Return what the peer is told at the end of the connection; `Stop`: nothing, None: no end.

        Answers an alarm.
        """
        match alarm:
            case SessionAlarm.STRANGE:
                return Stop("normal") if self.is_stranger and not self.is_over else None
            case SessionAlarm.PUNISHED:
                return AuthenticationFailed()
            case SessionAlarm.EXPIRED if self.has_expired():
                return AuthenticationExpired()
            case SessionAlarm.EXPIRED:
                if self.identity is not None:
                    self.go_on(self.identity)
        return None

    def has_expired(self) -> bool:
        """Return whether the time of what has proved who the peer is is over."""
        return self.identity is not None and self.identity.is_expired(self._access.now_s())

    def end(self) -> None:
        """Serve the peer no more: what it has proved holds no more."""
        self.is_over = True

    def leave(self) -> None:
        """Count the peer no more: the connection is closed."""
        if self.identity is not None:
            self._access.leave(self, self.identity)
            if self.has_expired():
                self._access.counters.expired_count += 1

    # ---- requests -------------------------------------------------------------------------------

    def admits(self, request: Request) -> bool:
        """Return whether a request is known to be allowed; what is not, `check` decides."""
        if self._policy is not self._access.policy or not self._is_valid():
            return False
        if isinstance(request, _READS):
            return request.topic in self._readable
        if isinstance(request, PUTS):
            return request.topic in self._writable
        if isinstance(request, LeaseRequest):
            topics = self._leasable.get(request.group)
            return topics is not None and topics is self._topics_of(request.group)
        return False

    def check(self, request: Request) -> None:
        """Refuse a request that is not allowed; nothing was looked up for it.

        Raises:
            AuthenticationRequired: nobody knows who the peer is.
            AuthenticationExpired: what it has proved holds no more.
            NotAuthorized: no grant allows it.
            PoeError: an argument is missing or wrong, or of no group.
        """
        self._check_valid()
        assert self.identity is not None
        if self._policy is not self._access.policy:
            self._forget()
        needs = list(needs_of(request, self._topics_of))
        check(self, needs)
        if isinstance(request, ControlRequest) and request.op in AUDITED:
            for need in needs:
                self._access.admitted(self.identity.principal, request.op, need)
        self._remember(request)

    def owed_s(self) -> float:
        """Return how long the peer has to wait, by the quota of this moment, which may be another.

        Who is served no more waits for nothing: it is to hear of that.
        """
        if self.identity is None or not self._is_valid():
            return 0.0
        self.meter = self._access.meter(self.identity.principal)
        return 0.0 if self.meter is None else self.meter.owed_s()

    def throttled(self, seconds: float) -> None:
        """Count what the peer is to wait."""
        if self.meter is not None:
            self.meter.throttled(seconds)

    def wrote(self, size_bytes: int) -> None:
        """Count what is put for the peer in another way than by a put request."""
        if self.meter is not None:
            self.meter.wrote(size_bytes)

    def may(self, need: Need) -> bool:
        """Return whether a need is met, by the grants of this moment."""
        identity = self.identity
        if identity is None or not self._is_valid():
            return False
        return self._access.policy.may(identity.principal, *need)

    def refusal(self, need: Need) -> PoeError | None:
        """Return the error for who may not; of whom nothing holds any more, that and no grant."""
        if self.identity is None or not self._is_valid():
            return AuthenticationExpired()
        if self.may(need):
            return None
        self._access.denied(self.identity.principal, need)
        return need.refusal

    def _is_valid(self) -> bool:
        """Return whether who the peer is is known, and holds."""
        identity = self.identity
        if identity is None or self.is_over:
            return False
        return identity.expires_s is None or not identity.is_expired(self._access.now_s())

    def _check_valid(self) -> None:
        if self.identity is None:
            raise AuthenticationRequired
        if not self._is_valid():
            raise AuthenticationExpired

    def _remember(self, request: Request) -> None:
        if isinstance(request, LeaseRequest):
            topics = self._topics_of(request.group)
            if topics:  # else there is no such group
                self._leasable[request.group] = topics
        elif isinstance(request, ControlRequest) or len(request.topic) > _NAME_BYTES_MAX:
            return
        elif isinstance(request, PUTS):
            self._writable.add(request.topic)
        else:
            self._readable.add(request.topic)
        for found in (self._readable, self._writable, self._leasable):
            if len(found) > _FOUND_MAX:
                found.clear()

    def _forget(self) -> None:
        """Decide all anew, by other grants and quotas."""
        assert self.identity is not None
        self._policy = self._access.policy
        self.meter = self._access.meter(self.identity.principal)
        for found in (self._readable, self._writable, self._leasable):
            found.clear()
