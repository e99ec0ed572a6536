"""Turns `host` of an option into the one address that is listened on, and listens there.

Whether others can reach an address is asked of the address itself, never of the text: the name
`localhost.example.com` leads wherever its owner likes. What was looked up is kept, and bound as it
is: a second look-up might lead elsewhere.
"""

import errno
import socket
from dataclasses import dataclass, field
from typing import Any, Self

from poe.errors import NoDescriptors, OptionError, PoeError, PortInUse
from poe.security.loopback import is_loopback
from poe.storage.failure import as_storage_error

_BACKLOG = 1024
_HOST_ERRORS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address of this machine, as a number."""

    family: socket.AddressFamily
    text: str
    """Such as 127.0.0.1 or ::1."""
    scope_id: int = 0
    """Of an IPv6 address that is valid on one network interface only: which."""

    is_public: bool = field(default=False, compare=False)
    """Whether others can reach it, or another one that the same host leads to."""

    prefix: str = field(default="", compare=False)
    """What the names of its options begin with, as errors tell them."""

    @classmethod
    def of(cls, host: str, *, is_public: bool, prefix: str = "") -> Self:
        """Look up where a host leads; of several addresses an IPv4 one is taken before others.

        Args:
            host: a name or an address.
            is_public: whether others than this machine may reach it.
            prefix: what the name of the option begins with, before `host`.

        Raises:
            OptionError: it leads nowhere, or one of its addresses can be reached by others and is
                not to be.
        """
        allowed = "an address of this machine"
        if not is_public:
            allowed = "a loopback address such as 127.0.0.1, or set insecure as well"
        option = f"{prefix}host"
        if not isinstance(host, str):
            raise OptionError(option, host, allowed)
        try:
            found = _look_up(host)
        except (OSError, ValueError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or error
            raise OptionError(option, host, f"{allowed} ({reason})") from error
        public = [each[1] for each in found if not is_loopback(each[1])]
        if public and not is_public:
            where = "" if public[0] == host else f" (it leads to {public[0]})"
            raise OptionError(option, host, allowed + where)
        first = min(found, key=lambda each: each[0] is not socket.AF_INET)
        return cls(*first, is_public=bool(public), prefix=prefix)

    def bind(self, port: int) -> socket.socket:
        """Return a socket that is bound here; 0 takes any free port.

        Raises:
            PortInUse: somebody else has the port.
            OptionError: host or port are none that this process can have.
            NoDescriptors: it can have no more files at all.
        """
        bound = None
        try:
            bound = socket.socket(self.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            is_old = self.family is socket.AF_INET
            bound.bind((self.text, port) if is_old else (self.text, port, 0, self.scope_id))
        except OSError as error:
            if bound is not None:
                bound.close()
            raise self._refusal(port, error) from error
        return bound

    def listen(self, port: int) -> socket.socket:
        """Return a socket that clients can connect to, and that does not block.

        Raises:
            PortInUse, OptionError: as for `bind`.
        """
        listening = self.bind(port)
        try:
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except OSError as error:
            listening.close()
            raise self._refusal(port, error) from error
        return listening

    def _refusal(self, port: int, error: OSError) -> PoeError:
        """Return the error that names what is wrong with the address: its host or its port."""
        reason = error.strerror or str(error)
        if error.errno in _HOST_ERRORS:
            return OptionError(
                f"{self.prefix}host", self.text, f"an address of this machine ({reason})"
            )
        if error.errno == errno.EACCES:
            return OptionError(
                f"{self.prefix}port", port, f"1024 or more, or 0 for any free one ({reason})"
            )
        failure = as_storage_error(error, f"a socket for {self.text}:{port}")
        return failure if isinstance(failure, NoDescriptors) else PortInUse(self.text, port, reason)


def _look_up(host: str) -> list[tuple[socket.AddressFamily, str, int]]:
    """Return family, address and scope of all that a host leads to.

    Raises:
        OSError, ValueError: there is nothing.
    """
    # The system would take the part before it for the whole.
    if "\0" in host:
        msg = "a name has no zero byte"
        raise ValueError(msg)
    found: list[tuple[socket.AddressFamily, str, int]] = []
    for family, _, _, _, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        if family in {socket.AF_INET, socket.AF_INET6}:
            numbers: tuple[Any, ...] = place
            text = str(numbers[0]).partition("%")[0]
            found.append((family, text, numbers[3] if family is socket.AF_INET6 else 0))
    if not found:
        msg = "it has no IP address"
        raise ValueError(msg)
    return found
