"""The actor that owns a node's fabric: what it hears goes to members and queues, and theirs to it.

A session that carries nothing any more is noticed by an ask to this node itself. It is opened anew
once; when that does not help, the actor ends, and its supervisors decide.

So it is when a node speaks again and again that is not seen, or is seen and does not answer, or is
sought and found by another session and not seen by this one. After a freeze for as long as peers
wait, zenoh may take a new connection for a part of the old one, of which the other side has
forgotten what it was told, and never tell it again (its issue 2806).
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple

from poe.actors import Call, Exit, GenServer, LoopAddress, Mailslot, Stop, Work
from poe.broker.requests.queue_messages import QUEUES
from poe.cluster.actor_messages import (
    FABRIC,
    MEMBERS,
    CloseFabric,
    FabricMetrics,
    FramesHeard,
    PaceSeen,
    SeekNodes,
    TellNodes,
)
from poe.cluster.fabric.envelope import FRAME_MAX_BYTES, decode_envelope, encode_envelope
from poe.cluster.fabric.interface import (
    Asked,
    Fabric,
    FabricEvent,
    Overlooked,
    PeerDown,
    PeerUp,
    Published,
    Refused,
)
from poe.cluster.identity import NodeRef, Peer
from poe.cluster.peer_sender import Owe, PeerSender, SenderMetrics, Silence, Tell
from poe.errors import (
    ActorError,
    ChildRequestRefused,
    FabricFailed,
    MailboxFull,
    PoeError,
)
from poe.supervision import (
    ChildSpec,
    Restart,
    dynamic_supervisor,
    start_dynamic_child,
    terminate_child,
)

logger = logging.getLogger("poe.cluster")

PEER_SENDER_SUP: Final = "peer_sender_sup"
LOOK_S: Final = 2.0
"""Seconds between two asks of the node to itself."""
STUCK_AFTER_S: Final = 2.0
"""Until such an ask without answer means that the session is stuck."""
REOPEN_MAX_S: Final = 10.0
"""What closing and opening it anew may take."""
WHOLE_AFTER: Final = 30
"""Asks in a row that are answered, after which a session may be opened anew once more."""
SPLIT_LOOKS: Final = 3
"""Looks at which a node is there by half, after which the session is to blame."""
UNSEEN_MAX: Final = 1000
"""Nodes that are heard and not seen, of which that is remembered."""
COMPLAINTS_MAX: Final = 1000
"""Nodes of which is remembered that they have sent nonsense; more are counted alone."""
MAIL_MAX_BYTES: Final = 64 << 20
"""What peers have sent that may wait for this actor; more is dropped, counted, and told."""
_ENVELOPE_BYTES: Final = 1024
"""What an envelope takes besides what is in it: many empty ones fill the memory, too."""

_LOOK: Final = "look"
_TOO_LATE: Final = "too late"
_NOTHING: Final = encode_envelope(())


class FabricParts(NamedTuple):
    """What the actor is made of."""

    fabric: Fabric
    me: Peer


class Mailroom:
    """How much of what peers have sent may still wait; any thread may ask."""

    def __init__(self, bytes_max: int = MAIL_MAX_BYTES) -> None:
        self._lock = Lock()
        self._free_bytes = bytes_max

    def admit(self, payload: bytes) -> bool:
        """Return whether there is room, and take it."""
        size = len(payload) + _ENVELOPE_BYTES
        with self._lock:
            if size > self._free_bytes:
                return False
            self._free_bytes -= size
            return True

    def release(self, payload: bytes) -> None:
        """Give back what one has taken, once it does not wait any more."""
        with self._lock:
            self._free_bytes += len(payload) + _ENVELOPE_BYTES


class _Session(Enum):
    """What became of the one by which peers are reached."""

    OPEN = "open"
    REOPENING = "reopening"
    CLOSED = "closed"


class _Looked(NamedTuple):
    """What came of an ask of this node to itself."""

    answer: bytes | None


def fabric_specs(parts: FabricParts) -> list[ChildSpec]:
    """Return what runs a fabric: a supervisor of those who send to a peer, then the owner."""
    sender = ChildSpec(
        id="peer_sender",
        actor=PeerSender,
        args=(parts.fabric,),
        restart=Restart.TEMPORARY,
    )
    return [
        dynamic_supervisor(PEER_SENDER_SUP, sender),
        ChildSpec(id=FABRIC, actor=FabricActor, args=(parts,), name=FABRIC),
    ]


class FabricActor(GenServer):
    """Owns a fabric, and starts an actor for each peer; registered as `FABRIC`."""

    trap_exits = True

    def init(self, parts: FabricParts) -> None:
        """Join.

        Raises:
            PoeError: the fabric cannot be opened.
        """
        self._fabric, self._me = parts
        self._slot = Mailslot(self)
        self._room = Mailroom()
        self._dropped_before = 0
        self._session = _Session.OPEN
        self._may_reopen = True
        self._answered_in_a_row = 0
        self._peers: dict[NodeRef, Peer] = {}
        self._senders: dict[NodeRef, LoopAddress] = {}
        self._silent: set[NodeRef] = set()
        self._complained: set[NodeRef] = set()
        self._unseen: set[NodeRef] = set()
        """Who was heard, or found, since the last look, and is not seen."""
        self._splits: Counter[NodeRef] = Counter()
        """At how many looks a node was there by half."""
        self._counts = dict.fromkeys(
            ("envelopes", "envelopes_malformed", "envelopes_dropped", "frames_unsent", "reopened"),
            0,
        )
        self._fabric.open(self._me, self._hear)
        self.send_after(LOOK_S, _LOOK)

    def describe_role(self) -> str:
        """Return how many peers there are."""
        return f"{len(self._peers)} peers, {self._session.value}"

    def terminate(self, reason: Any) -> None:  # noqa: ANN401 - as `GenServer`
        """Leave: peers miss this node at once, and the process can end."""
        del reason
        self._fabric.close()

    def _hear(self, event: FabricEvent) -> None:
        """Take what any thread brings."""
        if not isinstance(event, Asked | Published) or self._room.admit(event.payload):
            self._slot.post(event)
        else:
            self._counts["envelopes_dropped"] += 1

    async def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Answer counts: of the fabric, and the sums of those of all senders."""
        if not isinstance(request, FabricMetrics):
            return super().handle_call(request, caller)
        counts = Counter(self._fabric.metrics() | self._counts)
        for sender in list(self._senders.values()):
            with contextlib.suppress(ActorError):  # its peer has just gone
                counts.update(await self.call(sender, SenderMetrics()))
        return dict(counts)

    def handle_cast(self, message: Any) -> Any:  # noqa: ANN401 - as `GenServer`
        """Send what other actors have for peers."""
        match message:
            case TellNodes(nodes, frame) if len(frame) > FRAME_MAX_BYTES:
                self._counts["frames_unsent"] += len(nodes)
                logger.error("a frame of %d bytes is too large for any node", len(frame))
            case TellNodes(nodes, frame):
                for node in nodes:
                    sender = self._senders.get(node)
                    if sender is None:
                        self._counts["frames_unsent"] += 1
                    else:
                        self.cast(sender, Tell(frame))
            case Silence(ref, is_silent):
                self._note_silence(ref, is_silent=is_silent)
            case SeekNodes(locators):
                self._fabric.seek(locators)
            case CloseFabric():
                self._session = _Session.CLOSED
                self._fabric.close()
                return self._lose_all("this node has left")
            case _:
                return super().handle_cast(message)
        return None

    def handle_info(self, message: Any) -> Any:  # noqa: ANN401 - as `GenServer`
        """Take what the fabric has heard, and what became of senders and of the session."""
        if isinstance(message, FabricEvent):
            return self._take_event(message)
        if isinstance(message, Exit):
            return self._replace(message.ref, message.reason)
        if isinstance(message, _Looked):
            return self._judge(message.answer)
        if isinstance(message, Work):
            return self._end_reopening(message)
        if message == _LOOK:
            return self._look()
        return self._stop_reopening() if message == _TOO_LATE else super().handle_info(message)

    def _stop_reopening(self) -> Stop | None:
        if self._session is not _Session.REOPENING:
            return None
        return Stop(FabricFailed("a session that was stuck cannot be closed either"))

    def _take_event(self, event: FabricEvent) -> Any:  # noqa: ANN401 - as `handle_info`
        match event:
            case Asked(sender, payload, answer):
                self._room.release(payload)
                self._take_ask(sender, payload, answer)
            case Published(sender, payload):
                self._room.release(payload)
                self._take_frames(sender, payload)
            case PeerUp(peer):
                return self._find(peer)
            case PeerDown(ref, why):
                return self._lose(ref, why)
            case Refused():
                self.cast(MEMBERS, event)  # which tells of it
            case Overlooked(ref):
                self._note_overlooked(ref)
        return None

    # ---- what peers send ------------------------------------------------------------------------

    def _take_ask(self, sender: NodeRef, payload: bytes, answer: Callable[[bytes], None]) -> None:
        if sender == self._me.ref:
            answer(_NOTHING)
            return
        self._take_frames(sender, payload)
        actor = self._senders.get(sender)
        if actor is None:
            answer(_NOTHING)
        else:
            self.cast(actor, Owe(answer))

    def _take_frames(self, sender: NodeRef, payload: bytes) -> None:
        self._counts["envelopes"] += 1
        if sender not in self._peers and len(self._unseen) < UNSEEN_MAX:
            self._unseen.add(sender)
        try:
            frames = decode_envelope(payload)
            if frames:
                self.cast(QUEUES, FramesHeard(sender, frames))
        except MailboxFull:
            self._counts["envelopes_dropped"] += 1
        except PoeError as error:
            self._counts["envelopes_malformed"] += 1
            if sender not in self._complained and len(self._complained) < COMPLAINTS_MAX:
                self._complained.add(sender)
                logger.error("node %s: %s", sender, error)

    # ---- who is there ---------------------------------------------------------------------------

    async def _find(self, peer: Peer) -> None:
        if peer.ref in self._peers or self._session is _Session.CLOSED:
            return
        self._peers[peer.ref] = peer
        self._unseen.discard(peer.ref)
        del self._splits[peer.ref]
        await self._start_sender(peer)
        logger.info("node %s (%s) at %s is there", peer.name, peer.ref, peer.locator)
        self.cast(MEMBERS, PeerUp(peer))

    async def _start_sender(self, peer: Peer) -> None:
        sender = await start_dynamic_child(self, PEER_SENDER_SUP, self.ref, peer)
        assert sender is not None
        self._senders[peer.ref] = sender

    async def _lose(self, ref: NodeRef, why: str) -> None:
        peer = self._peers.pop(ref, None)
        if peer is None:
            return
        sender = self._senders.pop(ref, None)
        self._complained.discard(ref)
        if ref in self._silent:
            self._silent.discard(ref)
        else:
            logger.warning("node %s (%s) is gone: %s", peer.name, ref, why)
            self.cast(MEMBERS, PeerDown(ref, why))
        if sender is not None:
            with contextlib.suppress(ChildRequestRefused, ActorError):  # it has just ended
                await terminate_child(self, PEER_SENDER_SUP, sender)

    async def _lose_all(self, why: str) -> None:
        for ref in list(self._peers):
            await self._lose(ref, why)

    async def _replace(self, sender: LoopAddress | None, reason: Any) -> None:  # noqa: ANN401
        """Start another sender in place of one that has crashed; what waited there is lost."""
        for ref, address in list(self._senders.items()):
            if address == sender:
                logger.error("the sender to node %s has ended: %r", ref, reason)
                del self._senders[ref]
                await self._start_sender(self._peers[ref])
                # The other one knows nothing of what the last one said, and so never takes it back.
                self._note_silence(ref, is_silent=False)
                self.cast(MEMBERS, PaceSeen(ref, is_slow=False))

    def _note_silence(self, ref: NodeRef, *, is_silent: bool) -> None:
        """Count a peer as gone that answers nothing, although the network says that it is there."""
        peer = self._peers.get(ref)
        if peer is None or is_silent == (ref in self._silent):
            return
        if is_silent:
            self._silent.add(ref)
            logger.warning("node %s (%s) is gone: it does not answer", peer.name, ref)
            self.cast(MEMBERS, PeerDown(ref, "it does not answer"))
        else:
            self._silent.discard(ref)
            del self._splits[ref]
            logger.info("node %s (%s) answers again", peer.name, ref)
            self.cast(MEMBERS, PeerUp(peer))

    # ---- whether anything passes ----------------------------------------------------------------

    def _look(self) -> Any:  # noqa: ANN401 - as `handle_info`
        self.send_after(LOOK_S, _LOOK)
        dropped = self._counts["envelopes_dropped"]
        if dropped > self._dropped_before:
            count = dropped - self._dropped_before
            logger.warning("%d envelopes of other nodes were dropped: too much waits here", count)
            self._dropped_before = dropped
        if self._session is not _Session.OPEN:
            return None
        looked = partial(_post, self._slot)
        self._fabric.ask(self._me.ref, _NOTHING, STUCK_AFTER_S, looked)
        return self._look_for_splits()

    def _look_for_splits(self) -> Any:  # noqa: ANN401 - as `handle_info`
        split, self._unseen = self._silent | self._unseen, set()
        if len(self._splits) < UNSEEN_MAX:
            self._splits.update(split)
        found = next((each for each in split if self._splits[each] >= SPLIT_LOOKS), None)
        if found is None or not self._may_reopen:
            return None
        return self._reopen(f"node {found} is there, and is not seen, or does not answer")

    def _note_overlooked(self, ref: NodeRef) -> None:
        """Count a node that is there, and is not seen: as two looks, since it is seldom sought."""
        if ref not in self._peers and len(self._splits) < UNSEEN_MAX:
            self._splits[ref] += 1
            self._unseen.add(ref)

    def _judge(self, answer: bytes | None) -> Any:  # noqa: ANN401 - as `handle_info`
        if self._session is not _Session.OPEN:
            return None
        if answer is not None:
            self._answered_in_a_row += 1
            self._may_reopen = self._may_reopen or self._answered_in_a_row >= WHOLE_AFTER
            return None
        if not self._may_reopen:
            return Stop(FabricFailed("nothing passes, although the session was opened anew"))
        return self._reopen("nothing passes")

    async def _reopen(self, why: str) -> None:
        logger.error("the session with other nodes is opened anew: %s", why)
        self._counts["reopened"] += 1
        self._session = _Session.REOPENING
        self._may_reopen, self._answered_in_a_row = False, 0
        self._splits.clear()
        self.send_after(REOPEN_MAX_S, _TOO_LATE)
        await self._lose_all("the session is opened anew")
        # In a thread: a session that is stuck may never be closed.
        Work(self, partial(_reopen, self._fabric, self._me, self._hear))

    def _end_reopening(self, work: Work) -> Any:  # noqa: ANN401 - as `handle_info`
        if work.error is not None:
            return Stop(work.error)
        if self._session is _Session.REOPENING:
            self._session = _Session.OPEN
        return None


def _reopen(fabric: Fabric, me: Peer, hear: Callable[[FabricEvent], None]) -> None:
    fabric.close()
    fabric.open(me, hear)


def _post(slot: Mailslot, answer: bytes | None) -> None:
    slot.post(_Looked(answer))
