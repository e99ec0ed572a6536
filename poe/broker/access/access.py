"""What a node knows of who may do what at the moment, and who is connected because of it.

It changes as a whole, by a reload: whoever works by it looks at `policy` each time, and finds
another one. It decides nothing itself, opens no file and knows no socket.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from poe.actors import ActorRef
from poe.broker.access.audit_trail import AuditTrail
from poe.broker.access.authentication import MECHANISMS, Channel, bearer
from poe.broker.access.failure_delays import FailureDelays
from poe.broker.access.identity import Identity
from poe.broker.access.meter import Meter
from poe.broker.access.options import SecurityOptions
from poe.broker.access.permission import Need
from poe.broker.access.secrets import Secrets
from poe.errors import AuthenticationFailed, Overloaded
from poe.security.audit import audit
from poe.security.policy import Policy
from poe.security.security import Security
from poe.security.users import Quota, Users
from poe.storage import Clock
from poe.supervision.event_ring import EventRing

_NO_QUOTA: Final = Quota()


class Entrant(Protocol):
    """A connection whose peer has proved who it is."""

    identity: Identity | None
    ref: ActorRef
    """The connection's actor."""

    def go_on(self, identity: Identity) -> None:
        """Go by what its proof is worth now."""
        ...

    def end(self) -> None:
        """Serve it no more."""
        ...


@dataclass(slots=True)
class Counters:
    """What has happened since the start."""

    authenticated_count: int = 0
    authentication_failed_count: int = 0
    denied_count: int = 0
    expired_count: int = 0
    revoked_count: int = 0


GATEKEEPER: Final = "gatekeeper"
"""Name of the actor that owns it."""
NO_USERS: Final = "this node has no users (option users): whoever can connect may do everything"
NOTHING_TO_RELOAD: Final = "there is nothing to reload"
ACCESS_OPERATIONS: Final = ("reload", "authorize", "security")
"""The control operations that it carries out."""

_TELL_FAILED_S: Final = 10.0
"""Between two events of failed logins, each of which counts those since the last one."""


class Access:
    """Users, grants and quotas of one node; used in the event loop's thread only.

    Always:

        a session is in `sessions` from when its peer is known until it ends
        sessions of a principal <= its quota `connections`
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it goes by
        self,
        security: Security,
        clock: Clock,
        wall: Clock,
        options: SecurityOptions,
        secrets: Secrets,
        events: EventRing,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._events = events
        self._told_failed = (0.0, 0)
        """When the ring was told of failed logins, and of how many by then."""
        self.options: Final = options
        self.users: Users = security.users
        self.policy: Policy = security.policy
        self.secrets: Final = secrets
        self._delays = FailureDelays()
        self.counters = Counters()
        self._trail = AuditTrail()
        self._sessions: dict[str, set[Entrant]] = {}
        self._meters: dict[str, Meter] = {}

    def now_s(self) -> float:
        """Return the seconds since the epoch, by which credentials end: what the machine says now.

        The node's own clock does not follow one that is set, nor a machine that was suspended.
        """
        return self._wall.now_us() / 1e6

    def _steady_s(self) -> float:
        """Return seconds that never go back, of a clock that does not jump."""
        return self._clock.now_us() / 1e6

    # ---- who is there ---------------------------------------------------------------------------

    def enter(self, session: Entrant, identity: Identity, channel: Channel) -> Meter | None:
        """Count a session; return what measures its principal, None where nothing limits it.

        Raises:
            Overloaded: the principal has too many connections.
        """
        principal = identity.principal
        user = self.users.find(principal)
        limit = None if user is None else user.quota.connections
        held = self._sessions.get(principal, set())
        who = {
            "peer": channel.address,
            "principal": principal,
            "mechanism": identity.mechanism,
            "credential": identity.proof.id,
        }
        if limit is not None and len(held) >= limit:
            refusal = Overloaded("connections", limit)
            audit("turned away", **who, reason=str(refusal))
            raise refusal
        self._sessions.setdefault(principal, set()).add(session)
        self.counters.authenticated_count += 1
        audit("authenticated", **who)
        return self.meter(principal)

    def leave(self, session: Entrant, identity: Identity) -> None:
        """Forget a session that has ended."""
        held = self._sessions.get(identity.principal, set())
        held.discard(session)
        if not held:
            self._sessions.pop(identity.principal, None)

    def meter(self, principal: str) -> Meter | None:
        """Return what measures a principal; None where nothing limits it."""
        user = self.users.find(principal)
        if user is None or user.quota == _NO_QUOTA:
            self._meters.pop(principal, None)
            return None
        meter = self._meters.get(principal)
        if meter is None or meter.quota != user.quota:
            meter = self._meters[principal] = Meter(principal, user.quota, self._steady_s)
        return meter

    def sessions(self) -> Iterator[Entrant]:
        """Yield all sessions."""
        for held in list(self._sessions.values()):
            yield from list(held)

    def failed(self, channel: Channel, mechanism: str, error: AuthenticationFailed) -> float:
        """Note that a peer has not proved who it is; return the seconds that its answer waits."""
        self.counters.authentication_failed_count += 1
        # What is given as one may be anything, a secret in the wrong place as well.
        known = mechanism if mechanism in MECHANISMS else "another"
        audit("authentication failed", peer=channel.address, mechanism=known, reason=error.reason)
        now_s = self._steady_s()
        told_s, told_count = self._told_failed
        if now_s - told_s >= _TELL_FAILED_S:
            # Strangers must not be able to drive out what else has happened.
            count = self.counters.authentication_failed_count
            self._told_failed = now_s, count
            self._events.add(
                "login_refused",
                supervisor=GATEKEEPER,
                child=known,
                reason=error.reason,
                who=channel.address,
                count=count - told_count,
            )
        return self._delays.failed(channel.address, now_s)

    def denied(self, principal: str, need: Need) -> None:
        """Note that a request was refused."""
        self.counters.denied_count += 1
        self._trail.denied(principal, need, self._steady_s())

    def admitted(self, principal: str, op: str, need: Need) -> None:
        """Note that somebody may do what others may want to know of."""
        audit("admitted", principal=principal, op=op, kind=need.kind, name=need.name)

    # ---- who asks on behalf of others -----------------------------------------------------------

    def bearer(self, token: str) -> Identity:
        """Return whose token this is.

        Raises:
            AuthenticationFailed: it is nobody's.
        """
        return bearer(self.users, token, self.now_s())

    def debit(self, principal: str, requests: int, read_bytes: int, write_bytes: int) -> float:
        """Count what was used elsewhere; return the seconds until nothing is owed."""
        meter = self.meter(principal)
        if meter is None:
            return 0.0
        meter.asked(requests)
        meter.read(read_bytes)
        meter.wrote(write_bytes)
        return meter.owed_s()

    # ---- reload ---------------------------------------------------------------------------------

    def replace(self, security: Security) -> list[Entrant]:
        """Go by other files from now on; end and return the sessions whose proof holds no more."""
        self.users, self.policy = security.users, security.policy
        gone = []
        for session in self.sessions():
            renewed = session.identity and session.identity.renewed(self.users)
            if renewed is None:
                gone.append(session)
                session.end()
            elif renewed != session.identity:
                session.go_on(renewed)
        self.counters.revoked_count += len(gone)
        return gone

    def as_map(self) -> dict[str, Any]:
        """Return what an administrator may want to know."""
        return {
            **asdict(self.counters),
            "sessions": {name: len(held) for name, held in sorted(self._sessions.items())},
            "throttled_s": {name: each.throttled_s for name, each in sorted(self._meters.items())},
        }
