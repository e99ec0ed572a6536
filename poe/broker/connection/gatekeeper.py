"""The gatekeeper: the actor that owns who may do what, and changes it while the node runs.

A reload is done or not done: everything is read and checked beside the event loop, and then takes
the place of what was, at once. Who is connected stays so, unless what has proved who they are
would do so no more; those are hung up on.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

from poe.actors import KILL, NO_REPLY, ActorRef, Call, Error, GenServer, Work
from poe.broker.access.access import ACCESS_OPERATIONS, NO_USERS, Access
from poe.broker.access.files import AccessFiles, Read
from poe.broker.access.secrets import Secrets
from poe.broker.appendix.message import ReleaseWaiting
from poe.broker.connection.session import ServesNothing, SessionEnded
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.groups import GROUPS
from poe.errors import PoeError, RemoteProtocolError, SecurityError, SecurityFileError
from poe.protocol.maps import take_text
from poe.security.audit import audit
from poe.security.security import Security
from poe.security.users import Users
from poe.storage import Clock
from poe.supervision.event_ring import EventRing

logger = logging.getLogger("poe.broker")

_PATIENCE_S: Final = 1.9
"""How long a connection that is busy may go on before it is cut. One that waits for news looks
within 2 s whether it still may, and then is told why it ends; so most are not cut."""
_TTL_S: Final = 5.0
"""How long somebody may go by what was said of a token."""
_EXPIRY_S: Final = 10.0
"""How often, at least, it is looked which certificates have expired."""
_LOOK = object()
_EXPIRY = object()


class GatekeeperParts(NamedTuple):
    """What the gatekeeper works with."""

    access: Access | None
    """None: whoever connects may do everything."""

    files: AccessFiles
    wall: Clock
    """Tells the time by which certificates end."""

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - what it works with
        cls,
        files: AccessFiles,
        security: Security | None,
        folder: Path,
        clock: Clock,
        wall: Clock,
        events: EventRing,
    ) -> Self:
        """Begin with what the files hold; the secrets of the node are in its folder.

        Raises:
            SecurityFileError: they cannot be written.
        """
        access = None
        if security is not None:
            access = Access(security, clock, wall, files.options, Secrets.make(folder), events)
        return cls(access, files, wall)


class _Overdue(NamedTuple):
    """To itself: those who were hung up on must have gone."""

    refs: tuple[ActorRef, ...]


class Gatekeeper(GenServer):
    """Owns the access of a node; a call is a pair of one of `ACCESS_OPERATIONS` and arguments."""

    pinned_to_loop: ClassVar[bool] = True

    def init(self, parts: GatekeeperParts) -> None:
        """Go by what was read at the start."""
        self._access = parts.access
        self._files = parts.files
        self._interval_s = parts.files.options.reload_interval
        self._wall = parts.wall
        self._ending: set[ActorRef] = set()
        """Connections that have not said that they serve nothing any more."""
        self._reading: Work | None = None
        """What a thread reads just now."""
        self._asked: list[Call] = []
        """Who has asked for that, and waits for what comes of it."""
        self._waiting: list[Call] = []
        """Who has asked since: what was read before that is not enough for them."""
        self.reload_count = 0
        self.reload_failed_count = 0
        self._look_later()
        self._watch_expiry()

    def handle_call(self, request: tuple[str, Arguments], caller: Call) -> Any:  # noqa: ANN401
        """Carry out one operation; what is wrong with it goes to who asked."""
        op, arguments = request
        assert op in ACCESS_OPERATIONS
        if op == "reload":
            self._waiting.append(caller)
            self._read(self._files.read)
            return NO_REPLY
        try:
            return self._authorize(arguments) if op == "authorize" else self._told()
        except PoeError as error:
            return Error(error)

    def handle_cast(self, message: ServesNothing) -> None:
        """Hear that a connection has stopped to serve; it may still say goodbye."""
        self._ending.discard(message.connection)

    def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Look whether files have changed or certificates expired; cut those who should be gone."""
        if isinstance(message, _Overdue):
            for ref in self._ending.intersection(message.refs):
                self.exit(ref, KILL)
            self._ending.difference_update(message.refs)
        elif message is _LOOK:
            self._look_later()
            self._read(self._files.read_changed)
        elif message is _EXPIRY:
            self._watch_expiry()
        elif isinstance(message, Work):
            self._end_reading(message)
        else:
            super().handle_info(message)

    def _look_later(self) -> None:
        if self._interval_s:
            self.send_after(self._interval_s, _LOOK)

    def _watch_expiry(self) -> None:
        """Look what has expired, now and from now on, also where nobody looks at the files."""
        if self._files.tls is None:
            return
        self.send_after(min(self._interval_s or _EXPIRY_S, _EXPIRY_S), _EXPIRY)
        self._warn_of_expiry()
        self._end_expired()

    def _warn_of_expiry(self) -> None:
        tls = self._files.tls
        if tls is not None and (sentence := tls.warning(self._wall.now_us() / 1e6)):
            logger.warning("%s", sentence)

    def _end_expired(self) -> None:
        """Without users a certificate is all that lets a client in, and nobody else looks."""
        if self._access is None and self._files.tls is not None:
            self._hang_up(self._files.tls.expired(self._wall.now_us() / 1e6))

    # ---- reload ---------------------------------------------------------------------------------

    def _read(self, read: Callable[[], Read | None]) -> None:
        """Have a thread read the files, unless one does; who asks for other things does not wait.

        However long that takes: a disk may not answer, and all that a gateway does asks here.
        """
        if self._reading is None:
            self._asked, self._waiting = self._waiting, []
            self._reading = Work(self, read)

    def _end_reading(self, work: Work) -> None:
        """Take what was read; tell who has asked, and read again for who has done so since.

        What is wrong is told; nothing is tried again before the files change once more, unless they
        cannot be read for the moment.
        """
        self._reading = None
        asked, self._asked = self._asked, []
        if isinstance(error := work.error, SecurityFileError):
            self.reload_failed_count += 1
            logger.error("nothing was reloaded, all goes on as before: %s", error)
            audit("reload failed", reason=str(error))
            for caller in asked:
                self.reply_error(caller, error)
        elif work.error is not None:
            raise work.error
        elif work.result is not None:
            told = self._go_by(work.result)
            for caller in asked:
                self.reply(caller, told)
        if self._waiting:
            self._read(self._files.read)

    def _go_by(self, found: Read) -> dict[str, Any]:
        """Go by what the files hold now; return what is others than before."""
        told: dict[str, Any] = {}
        gone: list[ActorRef] = []
        if self._files.tls is not None and found.context is not None:
            gone += self._files.tls.swap(found.context)
            self._warn_of_expiry()
        if self._access is not None and found.security is not None:
            told = _difference(self._access.users, found.security.users)
            gone += [each.ref for each in self._access.replace(found.security)]
        self.reload_count += 1
        self._hang_up(gone)
        # A member that waits to be told something new is told now, and asks again.
        self.cast(GROUPS, ReleaseWaiting())
        told["ended_count"] = len(set(gone))
        audit("reload", **told)
        logger.info("users, grants and certificates are reloaded: %s", told)
        return told

    def _hang_up(self, refs: list[ActorRef]) -> None:
        for ref in refs:
            self.cast(ref, SessionEnded())
        self._ending.update(refs)
        if refs:
            self.send_after(_PATIENCE_S, _Overdue(tuple(refs)))

    def _told(self) -> dict[str, Any]:
        """Return what who administers the node may want to know."""
        tls = self._files.tls
        return {
            "reload_count": self.reload_count,
            "reload_failed_count": self.reload_failed_count,
            **({} if tls is None else tls.as_map()),
            **({} if self._access is None else self._access.as_map()),
        }

    # ---- questions ------------------------------------------------------------------------------

    def _authorize(self, arguments: Arguments) -> dict[str, Any]:
        """Return what the owner of a token may do, for who asks on their behalf.

        Raises:
            AuthenticationFailed: it is nobody's token.
            RemoteProtocolError: an argument is missing or wrong.
        """
        access = self._access
        if access is None:
            raise SecurityError(NO_USERS)
        token, names = arguments.get("token"), arguments.get("names")
        if not isinstance(token, bytes) or not isinstance(names, list):
            msg = "authorize needs a token, as bytes, and an array of names"
            raise RemoteProtocolError(msg)
        identity = access.bearer(token.decode("ascii", "replace"))
        operation = take_text(arguments, "operation", "authorize")
        kind = take_text(arguments, "kind", "authorize")
        principal, policy = identity.principal, access.policy
        allowed = [
            isinstance(each, bytes) and policy.may(principal, operation, kind, each)
            for each in names
        ]
        used = [
            arg.whole(arguments, name, arg.U64_MAX) if name in arguments else 0
            for name in ("requests", "read_bytes", "write_bytes")
        ]
        return {
            "principal": principal,
            "allowed": allowed,
            "ttl_s": min(_TTL_S, identity.left_s(access.now_s())),
            "delay_s": access.debit(principal, *used),
        }


def _difference(old: Users, new: Users) -> dict[str, list[str]]:
    """Return the names of the users that have come, gone, or are others than before."""
    before, after = set(old.names()), set(new.names())
    changed = [name for name in before & after if old.find(name) != new.find(name)]
    return {
        "users_added": sorted(after - before),
        "users_removed": sorted(before - after),
        "users_changed": sorted(changed),
    }
