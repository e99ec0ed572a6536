"""Who is logged in at the console: one-time tokens, sessions, and how often one may try.

Pure: clock and randomness are given. Secrets are known by their digests, so that neither a look-up
nor a dump of memory tells them, and comparing takes no longer for one that is nearly right.
"""

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from poe.broker.access.strangers import network_of
from poe.errors import RequestRefused
from poe.security.entry import Entry

SESSIONS_MAX: Final = 100
"""Sessions at a time; a new one takes the place of the one that was idle the longest."""
IDLE_S: Final = 12 * 3600.0
FAILURES_MAX: Final = 10
"""Wrong logins of one address (of IPv6: of one /64) in FAILURES_S; then it waits."""
FAILURES_S: Final = 60.0
TRIES_MAX: Final = 8
"""Logins under way. A broker answers a wrong one late, and so long it takes one of the few places
that the broker has for the gateway's address: half of them, so that the gateway itself gets in."""
TRIES_PER_ADDRESS_MAX: Final = 2
"""Likewise, of one address: it keeps nobody else out."""
_ADDRESSES_MAX: Final = 1024
_SECRET_BYTES: Final = 24


class Session:
    """One browser that is logged in.

    Attributes:
        user: by name; None for who has shown the one-time token.
        entry: how the session gets in at the node.
        seen_s: when it was last used.
        on_end: called when the session ends, once each.
    """

    def __init__(self, user: str | None, entry: Entry, now_s: float) -> None:
        self.user = user
        self.entry = entry
        self.seen_s = now_s
        self.on_end: set[Callable[[], object]] = set()


class Sessions:
    """All sessions of a console.

    Invariants: sessions <= SESSIONS_MAX; a one-time token opens one session at most; logins under
    way <= TRIES_MAX, of one address <= TRIES_PER_ADDRESS_MAX.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        new_secret: Callable[[], str] = lambda: secrets.token_urlsafe(_SECRET_BYTES),
    ) -> None:
        self._clock = clock
        self._new_secret = new_secret
        self._by_digest: OrderedDict[bytes, Session] = OrderedDict()
        self._token: bytes | None = None
        self._failures: OrderedDict[Hashable, list[float]] = OrderedDict()
        self._tries: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return len(self._by_digest)

    def new_token(self) -> str:
        """Return a token that opens one session; the one before it is of no use any more."""
        token = self._new_secret()
        self._token = _digest(token)
        return token

    def redeem(self, token: str) -> bool:
        """Return whether this is the token; then it is used up."""
        is_it = self._token is not None and secrets.compare_digest(_digest(token), self._token)
        if is_it:
            self._token = None
        return is_it

    def open(self, user: str | None, entry: Entry) -> tuple[str, Session]:
        """Begin a session; return it, and the secret that its browser keeps."""
        self._expire()
        while len(self._by_digest) >= SESSIONS_MAX:
            _end(self._by_digest.popitem(last=False)[1])
        secret, session = self._new_secret(), Session(user, entry, self._clock())
        self._by_digest[_digest(secret)] = session
        return secret, session

    def find(self, secret: str) -> Session | None:
        """Return whose secret this is, and that it was used now; None: nobody's."""
        self._expire()
        digest = _digest(secret)
        session = self._by_digest.get(digest)
        if session is not None:
            session.seen_s = self._clock()
            self._by_digest.move_to_end(digest)
        return session

    def end(self, secret: str) -> None:
        """End a session, if there is one."""
        session = self._by_digest.pop(_digest(secret), None)
        if session is not None:
            _end(session)

    def end_of(self, entry: Entry) -> None:
        """End the sessions of an identity that the node lets in no more."""
        for digest, session in tuple(self._by_digest.items()):
            if session.entry == entry:
                del self._by_digest[digest]
                _end(session)

    def end_all(self) -> None:
        """End every session."""
        while self._by_digest:
            _end(self._by_digest.popitem()[1])

    def entries(self) -> set[Entry]:
        """Return how sessions get in at the node, each way once."""
        return {each.entry for each in self._by_digest.values()}

    @contextmanager
    def trying(self, address: str) -> Iterator[None]:
        """Let an address try to log in; a refusal that is raised meanwhile is its failure.

        Raises:
            RequestRefused: 429, it has failed too often, or tries too often at once; 503, too many
                others try.
        """
        network = _network(address)
        self._check_may_try(address, network)
        self._tries[network] += 1
        try:
            yield
        except RequestRefused:
            self._note_failure(network)
            raise
        finally:
            self._tries[network] -= 1
            self._tries = +self._tries

    def _check_may_try(self, address: str, network: Hashable) -> None:
        failed = self._lately_failed(network)
        if len(failed) >= FAILURES_MAX:
            wait_s = int(failed[0] + FAILURES_S - self._clock()) + 1
            why = f"{len(failed)} logins from {address} have failed; try again in {wait_s} s"
            raise RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, why)
        if self._tries[network] >= TRIES_PER_ADDRESS_MAX:
            why = f"{self._tries[network]} logins from {address} are under way; try again later"
            raise RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, why)
        if self._tries.total() >= TRIES_MAX:
            why = f"{TRIES_MAX} logins are under way; try again later"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why)

    def _note_failure(self, network: Hashable) -> None:
        failed = [*self._lately_failed(network), self._clock()]
        self._failures[network] = failed[-FAILURES_MAX:]
        self._failures.move_to_end(network)
        while len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def _lately_failed(self, network: Hashable) -> list[float]:
        since_s = self._clock() - FAILURES_S
        return [each for each in self._failures.get(network, ()) if each > since_s]

    def _expire(self) -> None:
        since_s = self._clock() - IDLE_S
        while self._by_digest and next(iter(self._by_digest.values())).seen_s < since_s:
            _end(self._by_digest.popitem(last=False)[1])


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _network(address: str) -> Hashable:
    """Return what counts as one address; what is none is one by itself."""
    try:
        return network_of(address)
    except ValueError:
        return address


def _end(session: Session) -> None:
    for each in tuple(session.on_end):
        each()
