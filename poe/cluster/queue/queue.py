"""A best-effort queue as one node sees it: what is put, who holds it, what is handed out.

All decisions of a queue are made here, and nothing else: calls, frames of peers and the time come
in, effects go out. Whoever runs it sends, writes and answers. Frames may be lost, come twice, or
late; each may say what is untrue, and then costs nobody but its sender.

Times are microseconds; they are expected never to go back, and pointers are made of them.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from poe.broker.groups.deadlines import earlier
from poe.broker.groups.ranges import RangeSet
from poe.cluster.batch import Batch
from poe.cluster.frames import (
    Difference,
    Digest,
    Held,
    News,
    Outcome,
    QueueFrame,
    Store,
    Stored,
)
from poe.cluster.identity import NodeRef, Peer, StreamId
from poe.cluster.queue.copies import Copies, size_bytes
from poe.cluster.queue.effects import Answer, Effect, Event, PutDone, PutResult, Tell
from poe.cluster.queue.holders import Holders
from poe.cluster.queue.share import Share
from poe.cluster.queue.spread import Candidates, Spread
from poe.cluster.queue_record import GroupRecord, QueueRecord, winner
from poe.cluster.ranges import add_range, remove_range
from poe.errors import OptionError, TooFewNodes, UnknownGroup

NEWS_US: Final = 50_000
"""How long a node keeps to itself what it holds, so that it tells of much at once."""

MakeShare = Callable[[GroupRecord, NodeRef, Copies, int], Share]
"""Makes a node's part in a group: of its record, whose, of which messages, and when."""


class BestEffortQueue:
    """One queue on one node.

    Owned by one thread at a time. `take_effects` after each call, and call `tick` at
    `next_deadline_us`.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - which queue, whose side of it, and what outlives it
        self,
        record: QueueRecord,
        me: NodeRef,
        zone: str,
        life_us: int,
        dice: random.Random,
        copies: Copies | None = None,
        make_share: MakeShare | None = None,
    ) -> None:
        self.record = record
        self.me = me
        self.copies = Copies() if copies is None else copies
        self._life_us = life_us
        self._dice = dice
        self._make_share = make_share
        self._stream = StreamId(me.id, me.epoch)
        self._candidates = Candidates(zone, dice)
        self._peers: dict[NodeRef, Peer] = {}
        self._holders = Holders()
        self._spreads: dict[tuple[StreamId, int], Spread] = {}
        self._collected: dict[StreamId, RangeSet] = {}
        """What was done in all groups, and dropped."""
        self._shares: dict[str, Share] = {}
        self._groups: dict[str, GroupRecord] = {}
        self._effects: list[Effect] = []
        self._counts: Counter[str] = Counter()

        self._version = 0
        self._added: dict[StreamId, RangeSet] = {}
        self._dropped: dict[StreamId, RangeSet] = {}
        self._news_due_us: int | None = None
        for stream in self.copies.streams():
            for bounds in self.copies.held(stream):
                self._note_held(stream, *bounds, life_us)

    # --- Nodes ---------------------------------------------------------------------------------

    def peer_up(self, peer: Peer, now_us: int) -> None:
        """Count a node as one that is there."""
        for ref in [ref for ref in self._peers if ref.id == peer.ref.id and ref != peer.ref]:
            self.peer_down(ref, now_us)
        self._peers[peer.ref] = peer
        self._candidates.add(peer.ref, peer.zone)
        for share in self._shares.values():
            share.peer_up(peer, now_us)

    def peer_down(self, ref: NodeRef, now_us: int) -> None:
        """Count a node as gone; what it was asked is asked of another one."""
        if self._peers.pop(ref, None) is None:
            return
        self._candidates.remove(ref)
        self._replace(ref, now_us)
        for share in self._shares.values():
            share.peer_down(ref, now_us)

    def peer_pace(self, node: NodeRef, now_us: int, *, is_slow: bool) -> None:
        """Give no new messages to a node that is slow; or again, where it is so no more."""
        self._candidates.set_slow(node, is_slow=is_slow)
        if is_slow:
            self._replace(node, now_us)

    # --- Put -----------------------------------------------------------------------------------

    def put(
        self,
        messages: Sequence[bytes],
        token: object,
        now_us: int,
        *,
        copies: int | None = None,
        deadline_us: int,
    ) -> None:
        """Store messages on so many nodes; `PutDone` says on how many, at the deadline or before.

        Raises:
            TooFewNodes: fewer are there, this one counted; nothing is stored.
            InvalidMessage: one is empty or too large, or there is none.
            OptionError: a number of copies that cannot be.
        """
        wanted = self.record.copies if copies is None else copies
        if wanted < 1:
            raise OptionError("copies", wanted, "1 or more")
        if wanted > 1 + len(self._peers):
            raise TooFewNodes(wanted, 1 + len(self._peers))
        batch = Batch.encode(messages, *self.copies.place(self._stream, now_us))
        self.copies.take_place(self._stream, batch.last)
        spread = Spread(token, self._stream, batch, wanted, deadline_us)
        self._spreads[self._stream, batch.last] = spread
        self._counts["put"] += batch.messages_count
        if self._make_room(batch, now_us):
            self._hold(self._stream, batch, now_us)
            spread.heard(self.me, "held")
        else:
            spread.heard(self.me, "full")
        self._ask(spread, now_us)

    # --- Groups --------------------------------------------------------------------------------

    def make_group(self, record: GroupRecord, now_us: int) -> None:
        """Have a group, from what is held now on; one that is there stays."""
        if record.name not in self._shares and self._make_share is not None:
            self._groups[record.name] = record
            self._shares[record.name] = self._make_share(record, self.me, self.copies, now_us)

    def serve(self, group: str, request: object, token: object, now_us: int) -> None:
        """Take what a client asks of a group, a `LeaseRequest` or `GroupRequest`; `Answer` it."""
        share = self._shares.get(group)
        if share is None:
            self._effects.append(Answer(token, UnknownGroup(group)))
        else:
            share.serve(request, token, now_us)

    def cancel(self, token: object, now_us: int) -> None:
        """Answer somebody no more, who is gone."""
        for share in self._shares.values():
            share.cancel(token, now_us)

    # --- Frames --------------------------------------------------------------------------------

    def hear(self, node: NodeRef, frame: QueueFrame, now_us: int) -> None:
        """Take what a peer has sent."""
        match frame:
            case Store():
                self._hear_store(node, frame, now_us)
            case Stored():
                self._hear_stored(node, frame, now_us)
            case News():
                self._hear_news(node, frame)
            case Digest() | Difference():
                pass

    def _hear_store(self, node: NodeRef, frame: Store, now_us: int) -> None:
        self.record = winner(self.record, frame.record)
        stream, batch = frame.stream, frame.batch
        for holder in frame.holders:
            if holder != self.me:
                self._holders.expect(holder, stream, batch.after, batch.last)
        is_here = self.copies.held(stream).holds(batch.after, batch.last)
        outcome: Outcome = "held"
        if not is_here:
            if self._make_room(batch, now_us):
                self._hold(stream, batch, now_us)
            else:
                outcome = "full"
        answer = Stored(self.record.name, stream, batch.after, batch.last, outcome)
        self._effects.append(Tell(node, answer))

    def _hear_stored(self, node: NodeRef, frame: Stored, now_us: int) -> None:
        stream, after, last, outcome = frame[1:]
        if outcome == "held":
            self._holders.expect(node, stream, after, last)
        elif outcome == "full":
            self._candidates.set_full(node, now_us)
        spread = self._spreads.get((stream, last))
        if spread is not None:
            spread.heard(node, outcome)
            self._ask(spread, now_us)

    def _hear_news(self, node: NodeRef, frame: News) -> None:
        self._holders.take(node, frame)

    # --- Time ----------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Do what time has brought."""
        for spread in list(self._spreads.values()):
            self._ask(spread, now_us)
        if self._news_due_us is not None and self._news_due_us <= now_us:
            self._tell_held()
        for share in self._shares.values():
            share.expire(now_us)

    def next_deadline_us(self) -> int | None:
        """Return when to call `tick` next; None: not before something else was called."""
        due_us = min((each.next_deadline_us() for each in self._spreads.values()), default=None)
        for share in self._shares.values():
            due_us = earlier(due_us, share.next_deadline_us())
        return earlier(due_us, self._news_due_us)

    def take_effects(self) -> list[Effect]:
        """Return what is to be done, in order; the same frame to several nodes in a row."""
        for share in self._shares.values():
            self._effects.extend(share.take_effects())
        effects, self._effects = self._effects, []
        return effects

    # --- To look at ----------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return what is to be told of the queue, as msgpack can hold it."""
        return {
            "queue": self.record.name,
            "copies": self.record.copies,
            "persist": self.record.persist,
            "on_full": self.record.on_full,
            "messages": self.copies.messages_count,
            "bytes": self.copies.bytes_count,
            "bytes_max": self.record.bytes_max,
            "messages_max": self.record.messages_max,
            "streams": len(self.copies.streams()),
            "under_way": len(self._spreads),
            "groups": {name: share.describe() for name, share in self._shares.items()},
            "counts": dict(self._counts),
        }

    def counters(self) -> dict[str, int]:
        """Return what was counted."""
        return dict(self._counts)

    # --- Inside --------------------------------------------------------------------------------

    def _ask(self, spread: Spread, now_us: int) -> None:
        """Ask further nodes to hold messages as far as needed, and answer what is over."""
        nodes = spread.next_nodes(self._candidates.draw(now_us), now_us)
        if nodes:
            holders = (*spread.made, *spread.asked)
            store = Store(
                self.record.name, self.record, spread.stream, spread.batch, holders, is_copy=False
            )
            self._effects.extend([Tell(node, store) for node in nodes])
        if spread.is_over(now_us):
            self._finish(spread)

    def _finish(self, spread: Spread) -> None:
        del self._spreads[spread.stream, spread.batch.last]
        state = spread.state()
        self._counts[f"put {state}"] += 1
        batch = spread.batch
        result = PutResult(
            state, len(spread.made), spread.wanted, spread.stream, batch.first, batch.last
        )
        self._effects.append(PutDone(spread.token, result))

    def _replace(self, node: NodeRef, now_us: int) -> None:
        """Ask others instead of a node that will not answer."""
        for spread in [each for each in self._spreads.values() if node in each.asked]:
            spread.heard(node, None)
            self._ask(spread, now_us)

    def _make_room(self, batch: Batch, now_us: int) -> bool:
        """Return whether there is room for messages, once the oldest are dropped if they may be."""
        record = self.record
        size = size_bytes(batch)
        if size > record.bytes_max or batch.messages_count > record.messages_max:
            return False
        while (
            self.copies.bytes_count + size > record.bytes_max
            or self.copies.messages_count + batch.messages_count > record.messages_max
        ):
            oldest = self.copies.oldest()
            if record.on_full == "busy" or oldest is None:
                self._counts["full"] += 1
                return False
            stream, old = oldest
            self._drop(stream, old.after, old.last, now_us)
            self._counts["dropped"] += old.messages_count
            self._effects.append(
                Event("dropped", f"{old.messages_count} messages of {stream}, for room")
            )
        return True

    def _hold(self, stream: StreamId, batch: Batch, now_us: int) -> None:
        for bounds in self.copies.add(stream, batch):
            self._note_held(stream, *bounds, now_us)

    def _drop(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Hold a range no more."""
        for bounds in self.copies.drop(stream, after, last):
            # Whoever is told takes away first, and adds then.
            if stream in self._added:
                remove_range(self._added[stream], *bounds)
            add_range(self._dropped.setdefault(stream, RangeSet()), *bounds)
            self._news_due_us = self._news_due_us or now_us + NEWS_US

    def _note_held(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        add_range(self._added.setdefault(stream, RangeSet()), after, last)
        self._news_due_us = self._news_due_us or now_us + NEWS_US

    def _tell_held(self) -> None:
        """Tell all nodes what is held here since the last time, and what not any more."""
        streams = self._added.keys() | self._dropped.keys()
        held = tuple(
            Held(stream, tuple(self._added.get(stream, ())), tuple(self._dropped.get(stream, ())))
            for stream in sorted(streams)
        )
        news = News(self.record.name, self._life_us, self._version, self._version + 1, held, (), ())
        self._version += 1
        self._added, self._dropped, self._news_due_us = {}, {}, None
        self._effects.extend([Tell(node, news) for node in self._peers])
