"""Accepts clients by TLS; those whose handshake is done are handed on, others end by themselves.

Half a handshake costs tens of KiB, and nobody knows whose it is. So their number is bounded, and of
too many the oldest goes: a client that means it is through within milliseconds, and one that does
not keeps nobody out. Nothing is ever said in plaintext here.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Hashable

from prometheus_client import Counter as Metric

from poe.broker.access.strangers import network_of
from poe.broker.log_limit import ONCE_A_MINUTE, LogLimit

_log = logging.getLogger("poe.gateway.tls")
_log.addFilter(LogLimit())
_HANDSHAKES = Metric(
    "poe_gateway_handshakes", "TLS handshakes by what became of them.", ["outcome"]
)

SHAKING_MAX = 256
"""Handshakes under way."""
SHAKING_PER_NETWORK_MAX = 64
"""Likewise, of one address; of IPv6 of one /64."""
HANDSHAKE_TIMEOUT_S = 5.0
_FULL_WAIT_S = 0.1
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class TlsListener:
    """Accepts from one listening socket, from `start` to `close`; belongs to one event loop.

    Invariants: handshakes under way <= SHAKING_MAX, of one network <= SHAKING_PER_NETWORK_MAX.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: Callable[[], ssl.SSLContext],
        protocol: Callable[[], asyncio.Protocol],
        goodbye_timeout_s: float,
    ) -> None:
        """Accept nobody yet.

        Args:
            listening: does not block; it is closed by its owner.
            context: returns the context for one more connection.
            protocol: makes what serves it.
            goodbye_timeout_s: for a client to take what is left for it at the end of its
                connection, and to say that it has seen that.
        """
        self._listening = listening
        self._context = context
        self._protocol = protocol
        self._goodbye_timeout_s = goodbye_timeout_s
        self._shaking: dict[asyncio.Task[None], Hashable] = {}
        self._of_network: Counter[Hashable] = Counter()
        self._is_closed = False

    def start(self) -> None:
        """Accept clients from now on."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept nobody any more, and let go whose handshake is not done."""
        self._is_closed = True
        self._loop.remove_reader(self._listening)
        for task in self._shaking:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nobody is in a handshake."""
        await asyncio.gather(*self._shaking, return_exceptions=True)

    def _accept(self) -> None:
        """Accept one client: however many come at once, others get their turns between them."""
        try:
            accepted, address = self._listening.accept()
        except OSError as error:
            if error.errno in _FULL:
                _log.error("no more clients: %s", error.strerror, extra=ONCE_A_MINUTE)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_FULL_WAIT_S, self._resume)
            return
        accepted.setblocking(False)
        self._make_room(network := network_of(address[0]))
        task = self._loop.create_task(self._shake_hands(accepted))
        self._shaking[task] = network
        self._of_network[network] += 1
        task.add_done_callback(self._forget)

    def _resume(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listening, self._accept)

    def _make_room(self, network: Hashable) -> None:
        """End the oldest handshake where there are too many."""
        if self._of_network[network] >= SHAKING_PER_NETWORK_MAX:
            oldest = next(task for task, each in self._shaking.items() if each == network)
        elif len(self._shaking) >= SHAKING_MAX:
            oldest = next(iter(self._shaking))
        else:
            return
        _HANDSHAKES.labels("given up").inc()
        oldest.cancel()
        self._forget(oldest)

    def _forget(self, task: asyncio.Task[None]) -> None:
        network = self._shaking.pop(task, None)
        if network is not None:
            self._of_network[network] -= 1
            if not self._of_network[network]:
                del self._of_network[network]

    async def _shake_hands(self, accepted: socket.socket) -> None:
        # Else the second half of a handshake waits for the client's kernel, 40 ms.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self._loop.connect_accepted_socket(
                self._protocol,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=self._goodbye_timeout_s,
            )
        except OSError as error:
            _HANDSHAKES.labels("failed").inc()
            _log.debug("a handshake came to nothing: %s", error)
        else:
            _HANDSHAKES.labels("done").inc()
