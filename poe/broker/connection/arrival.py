"""The arrival of a client: what it does before it is served, and how long it may take for that.

A client that arrives has one of the few places for strangers. Nothing is said to who does not get
through its handshake: what could be said would be plaintext on a port that speaks TLS.
"""

import logging
import ssl
from enum import Enum

from poe.actors import GenServer, Stop
from poe.broker.access.authentication import Channel
from poe.broker.access.tls_holder import Shown, TlsHolder
from poe.broker.connection.peer import TlsPeer
from poe.security.binding import endpoint_binding
from poe.security.server_tls import ServerContext
from poe.security.tls import ALPN

logger = logging.getLogger("poe.broker")


class ArrivalAlarm(Enum):
    """What the timer tells; it arrives in `handle_info`."""

    LATE = "the time to arrive is over"


class HandshakeStep(Enum):
    """What a handshake waits for."""

    RECEIVE = "bytes of the client"
    SEND = "room for our bytes"
    DONE = "nothing"


class Arrival:
    """One client that is not let in yet. Its connection owns it.

    Life: `shake_hands` until `step` is DONE, then `end`; or `end` at any time, for good.
    """

    __slots__ = (
        "_actor_ref",
        "_address",
        "_context",
        "_holder",
        "_peer",
        "_timer",
        "step",
        "timeout_s",
    )

    def __init__(
        self,
        actor: GenServer,
        peer: TlsPeer,
        holder: TlsHolder,
        context: ServerContext,
        timeout_s: float,
    ) -> None:
        """Begin to count the time; `context` is what the client is shaken hands with."""
        self._actor_ref = actor.ref
        self._address = peer.address
        self._peer = peer
        self._holder = holder
        self._context = context
        self._timer = actor.send_after(timeout_s, ArrivalAlarm.LATE)
        self.timeout_s = timeout_s
        self.step = HandshakeStep.RECEIVE

    def shake_hands(self) -> None:
        """Go on with the handshake, as far as what has come allows.

        Raises:
            OSError: the client is gone, or is none of ours.
        """
        try:
            self._peer.shake_hands()
        except ssl.SSLWantReadError:
            self.step = HandshakeStep.RECEIVE
        except ssl.SSLWantWriteError:
            self.step = HandshakeStep.SEND
        else:
            if self._peer.protocol != ALPN:
                msg = f"it speaks {self._peer.protocol or 'nothing that it named'}, not {ALPN}"
                raise ConnectionAbortedError(msg)
            shown = self._peer.certificate
            if shown is not None and self._holder.has_lost(self._context, shown):
                msg = "its certificate is trusted no more, since it has begun"
                raise ConnectionAbortedError(msg)
            # Before it is counted: of a certificate that nobody can read this fails.
            expires_s = self._peer.expires_s if shown is not None else None
            self._holder.shaken_count += 1
            self.step = HandshakeStep.DONE
            if shown is not None:
                self._holder.shown[self._peer] = Shown(self._actor_ref, shown, expires_s)

    @property
    def channel(self) -> Channel:
        """How the client is connected, once that is done."""
        peer = self._peer
        binding = endpoint_binding(self._context.certificate)
        return Channel.of(peer.client).encrypted(binding, peer.names, peer.expires_s)

    def refuse(self, why: str) -> Stop:
        """End the connection that has not become one; its peer is told nothing."""
        self._holder.failed_count += 1
        logger.info("no TLS with %s: %s", self._address, why)
        return Stop("normal")

    def end(self) -> None:
        """Count the time no more; twice is harmless."""
        self._timer.cancel()
