"""A best-effort queue as one node sees it: what is put, who holds it, what is handed out.

All decisions of a queue are made here, and nothing else: calls, frames of peers and the time come
in, effects go out. Whoever runs it sends, writes and answers. Frames may be lost, come twice, or
late; each may say what is untrue, and then costs nobody but its sender.

Times are microseconds; they are expected never to go back, and pointers are made of them.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from poe.broker.groups.deadlines import earliest
from poe.broker.groups.ranges import Bounds
from poe.cluster.batch import PUT_BYTES_MAX, Batch
from poe.cluster.directory import Directory
from poe.cluster.frames import (
    Difference,
    Digest,
    Known,
    News,
    Outcome,
    Paused,
    Proof,
    Prove,
    QueueFrame,
    ShareFrame,
    Store,
    Stored,
    parts_of,
)
from poe.cluster.identity import NodeRef, Peer, StreamId
from poe.cluster.queue.audit import Audit
from poe.cluster.queue.copies import Copies, size_bytes
from poe.cluster.queue.effects import (
    Answer,
    Effect,
    Event,
    HandingOver,
    PutDone,
    PutResult,
    Tell,
)
from poe.cluster.queue.gaps import Gaps
from poe.cluster.queue.gossip import Gossip
from poe.cluster.queue.group_share import GroupShare, IsGone
from poe.cluster.queue.hand_over import HandOver
from poe.cluster.queue.holders import HEARSAY_NODES_MAX, Holders
from poe.cluster.queue.knowledge import NOBODY, STREAMS_MAX
from poe.cluster.queue.ledger import define
from poe.cluster.queue.log import Dropped, Entry, Kept
from poe.cluster.queue.log_writer import LogWriter
from poe.cluster.queue.ownership import owned, rank
from poe.cluster.queue.recovery import Recovery
from poe.cluster.queue.report import ROWS_MAX, Repeated
from poe.cluster.queue.restoring import LOOK_US, Missing
from poe.cluster.queue.spread import FULL_US, Candidates, Spread
from poe.cluster.queue.spreads import Spreads
from poe.cluster.queue.streams_over import StreamsOver
from poe.cluster.queue.trust import Judgement, Trust
from poe.cluster.queue_record import GroupRecord, QueueRecord, winner
from poe.cluster.ranges import covered, intersect, minus, union
from poe.errors import (
    GroupFull,
    GroupMismatch,
    InvalidMessage,
    OptionError,
    PoeError,
    PutTooLarge,
    TooFewNodes,
    UnknownGroup,
)
from poe.protocol.leases import Lease
from poe.record import POINTER_MAX
from poe.storage import Messages

COLLECT_US: Final = 100_000
RESTORE_GO_ON_US: Final = 10_000
RESTORE_COUNT_MAX: Final = 16
"""Batches that are copied anew at a time."""
RESTORE_DEADLINE_US: Final = 5_000_000
GROUPS_MAX: Final = 1024
LIVES_NAMED_MAX: Final = 16
"""Of those before a restart, the last ones: each counts as having had all that was there."""
NEW_US: Final = 60_000_000
"""How long a node forgets no stream: it may not have heard yet of all nodes of the cluster."""


class BestEffortQueue:
    """One queue on one node.

    Life cycle: `recover` for each message of its log, if it has one, then `recovered`; then the
    rest. Owned by one thread at a time. `take_effects` after each call, and call `tick` at
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
        is_gone: IsGone = lambda _token: False,
    ) -> None:
        self.record = record
        self.me = me
        self.copies = Copies() if copies is None else copies
        self.copies.is_logged = record.persist
        self._is_gone = is_gone
        self._stream = StreamId(me.id, me.epoch)
        self._gaps = Gaps(self._stream)
        self._candidates = Candidates(zone, dice)
        self._peers: dict[NodeRef, Peer] = {}
        self._holders = Holders()
        self._gossip = Gossip(record.name, life_us, self.copies, self._holders, dice)
        self._over = StreamsOver(me)
        self._is_new_until_us = life_us + NEW_US
        audit = Audit(record.name, self.copies, dice)
        self._trust = Trust(audit, self.copies, self._holders, self._candidates, self._gossip)
        self._spreads = Spreads(me, self._candidates, self._holders, self._ask_to_hold)
        self._shares: dict[str, GroupShare] = {}
        self._groups = Directory[GroupRecord](count_max=GROUPS_MAX, let_go=self.copies.forget_group)
        self._are_groups_same = True
        """Whether they are as when they were taken last."""
        self._effects: list[Effect] = []
        self._counts: Counter[str] = Counter()

        self._unreckoned: dict[StreamId, None] = {}
        """Of which streams it is to be reckoned anew what is handed out here, in their order."""
        self._done: set[StreamId] = set()
        """Of which streams something is done since the last collection."""
        self._collect_due_us: int | None = None
        self._missing = Missing()
        self._restore_due_us: int | None = None
        self._copying_count = 0
        """Batches that are being copied anew."""
        self._is_leaving = False
        """Whether nothing is held here any more that is not yet."""
        self._hand_over = HandOver()

        self._log = LogWriter(self._emit, is_there=record.persist)
        self._recovery = Recovery(self.copies)
        for group in list(self.copies.groups.values()):
            group.knowledge.begin_again()
            self._agree(group.record, life_us)
        self._begin(life_us)

    # --- Recovery ------------------------------------------------------------------------------

    def recover(self, message: bytes, now_us: int) -> None:
        """Take a message of the log of an earlier life; one that is damaged is counted and told."""
        entry = self._log.read(message)
        match entry:
            case Kept() | Dropped():
                self._recovery.take(entry)
            case Known() | GroupRecord() | Paused():
                self._recall(entry, now_us)

    def _recall(self, entry: Known | GroupRecord | Paused, now_us: int) -> None:
        """Know again what was written of groups, as far as there is room for it.

        Of the rest messages come again; with an error here none ever would.
        """
        try:
            match entry:
                case Known():
                    self._learn(entry, now_us)
                case GroupRecord():
                    self._agree(entry, now_us)
                case Paused():
                    self._hear_share(self.me, entry, now_us)
        except GroupFull as error:
            self._effects.append(Event("not restored", str(error)))

    def recovered(self, now_us: int) -> None:
        """Begin; what was read is handed out when others had the time to say what of it is done."""
        if self._recovery.has_unlogged:
            # Nothing that was read of a group would count without it.
            for record in self._told_groups():
                self._log.write(record)
            for each in self._pauses():
                self._log.write(each)
        for entry in self._recovery.unlogged():
            match entry:
                case Kept(stream, batch):
                    self._write_held(stream, batch, [(batch.after, batch.last)], _unasked)
                case Dropped():
                    self._log.write(entry)
        self._recovery.end(self._log.lives(), now_us)
        # Any of them may have been lent what is held here, and be gone since.
        for node in self._log.nodes_there():
            for share in self._shares.values():
                share.peer_down(node, now_us)
            self._log.note_gone(node)
        self._begin(now_us)

    def _begin(self, now_us: int) -> None:
        for stream in self.copies.streams():
            for bounds in self.copies.held(stream):
                self._gossip.note_held(stream, *bounds, now_us)
            self._unreckoned[stream] = None
            self._finished(stream, now_us)

    def join_record(self, record: QueueRecord) -> None:
        """Note how the queue was made, or was elsewhere: what was made last holds."""
        if record != self.record:
            # Whether there is a log was settled when the queue was started.
            self.record = winner(self.record, record)._replace(persist=self.record.persist)

    # --- Nodes ---------------------------------------------------------------------------------

    def know_members(self, nodes: Sequence[bytes]) -> None:
        """Say the ids of all nodes of the cluster, whether they are there or not."""
        self._over.members.update(nodes)

    def peer_up(self, peer: Peer, now_us: int) -> None:
        """Count a node as one that is there."""
        for ref in [ref for ref in self._peers if ref.id == peer.ref.id and ref != peer.ref]:
            self._lose(ref, now_us)
        self._peers[peer.ref] = peer
        self._log.note_there(peer.ref)
        self._candidates.add(peer.ref, peer.zone)
        self._over.see(peer.ref)
        self._holders.forget(peer.ref.id, before_epoch=peer.ref.epoch)
        for share in self._shares.values():
            share.peer_up(peer, now_us)
        self._reckon()
        self._tell_digest(peer.ref, is_answer=False)
        self._gossip.note_hearsay(now_us)  # of this node, too, and it was not there to be asked
        if self._restore_due_us is None:
            self._restore_due_us = now_us + LOOK_US
        self._trust.begin(now_us)
        self._settle(now_us)

    def peer_down(self, ref: NodeRef, now_us: int) -> None:
        """Count a node as gone; what it was asked is asked of another one."""
        if ref in self._peers:
            self._lose(ref, now_us)
            # Who was asked to hold what, the others may know better than the one that is gone.
            for node in self._peers:
                self._ask_all(node, now_us)
        self._settle(now_us)

    def peer_pace(self, node: NodeRef, now_us: int, *, is_slow: bool) -> None:
        """Ask a node that is slow last; or as the others again, where it is so no more."""
        self._candidates.set_slow(node, is_slow=is_slow)
        if is_slow:
            self._spreads.pass_by(node, now_us)

    def forget(self, node: bytes, now_us: int) -> None:
        """Count a node as none of the cluster any more."""
        for ref in [ref for ref in self._peers if ref.id == node]:
            self._lose(ref, now_us)
        self._holders.forget(node)
        self._over.forget_node(node)
        self._reckon()
        self._settle(now_us)

    def _lose(self, ref: NodeRef, now_us: int) -> None:
        del self._peers[ref]
        self._candidates.remove(ref)
        self._gossip.forget(ref)
        self._trust.forget(ref)
        self._spreads.lose(ref, now_us)
        for share in self._shares.values():
            share.peer_down(ref, now_us)
        self._log.note_gone(ref)
        self._reckon()

    # --- Put -----------------------------------------------------------------------------------

    def put(
        self,
        messages: Messages,
        token: object,
        now_us: int,
        *,
        copies: int | None = None,
        deadline_us: int,
    ) -> None:
        """Store messages on so many nodes; `PutDone` says on how many, at the deadline or before.

        Raises:
            TooFewNodes: fewer are there, this one counted; nothing is stored.
            InvalidMessage: one is empty, or there is none.
            PutTooLarge: they are too many bytes.
            OptionError: a number of copies that cannot be.
        """
        wanted = self.record.copies if copies is None else copies
        if wanted < 1:
            raise OptionError("copies", wanted, "1 or more")
        if wanted > 1 + len(self._peers):
            raise TooFewNodes(wanted, 1 + len(self._peers))
        after, first = self.copies.place(self._stream, now_us)
        try:
            batch = Batch.encode(messages, self._gaps.behind_refused(after), first)
        except InvalidMessage as error:
            if not error.size_bytes:
                raise
            raise PutTooLarge(error.size_bytes, PUT_BYTES_MAX) from None
        if batch.size_bytes > PUT_BYTES_MAX:
            raise PutTooLarge(batch.size_bytes, PUT_BYTES_MAX)
        self.copies.take_place(self._stream, batch.last)
        done = partial(self._put_done, token)
        self._spread(Spread(self._stream, batch, wanted, deadline_us, done), now_us)
        self._settle(now_us)

    def hold(
        self, stream: StreamId, batch: Batch, token: object, now_us: int, *, deadline_us: int
    ) -> None:
        """Store messages that have their ids already, as `put` does; those that were there stay.

        Raises:
            TooFewNodes: as `put`.
        """
        wanted = self.record.copies
        if wanted > 1 + len(self._peers):
            raise TooFewNodes(wanted, 1 + len(self._peers))
        for name, share in self._shares.items():
            if share.is_once:
                detail = f"{name!r:.80} gets no dead letters: they are handed out at least once"
                self._effects.append(Event("letters kept back", detail))
        spread = Spread(stream, batch, wanted, deadline_us, partial(self._put_done, token))
        if self._is_done(stream, batch.after, batch.last):

            def written(error: PoeError | None, now_us: int) -> None:
                if error is None:
                    spread.made.add(self.me)
                self._put_done(token, spread, now_us)

            self._log.when_written(written, now_us)
        else:
            self._spread(spread, now_us)
        self._settle(now_us)

    def hand_over(self, token: HandingOver, now_us: int, *, deadline_us: int) -> int:
        """Have another node hold what none of them does, since this one is about to go.

        Return of how many batches; `PutDone` says of each what has become of it. What is put from
        now on others hold.
        """
        self._is_leaving = True
        trusted = self._trust.trusted(self._peers)
        for stream in self.copies.streams() if trusted else ():
            others = [self._holders.held_by(node, stream) for node in trusted]
            undone = minus(list(self.copies.held(stream)), self._done_of(stream))
            for bounds in minus(undone, covered(others, 1)):
                for batch in self.copies.batches(stream, *bounds):
                    done = partial(self._handed_over, token)
                    spread = Spread(stream, batch, 2, deadline_us, done)
                    spread.is_copy = True
                    spread.made.add(self.me)
                    self._hand_over.add(spread)
        count = len(self._hand_over)
        self._settle(now_us)
        return count

    def _go_on_handing_over(self, now_us: int) -> None:
        while (spread := self._hand_over.take_next()) is not None:
            if spread in self._spreads:  # they are about to be on other nodes
                spread.when_over(spread, now_us)
            else:
                self._spreads.begin(spread, now_us)

    def _handed_over(self, token: HandingOver, spread: Spread, _now_us: int) -> None:
        self._hand_over.finished(spread)
        self._counts[f"handed over {spread.state()}"] += 1
        self._tell_done(token, spread)

    def _put_done(self, token: object, spread: Spread, _now_us: int) -> None:
        """Say what has become of messages that were put."""
        state, batch = spread.state(), spread.batch
        if state == "busy" and spread.stream == self._stream:
            self._gaps.refused(batch.after, batch.last)
        self._counts[f"put {state}"] += 1
        self._tell_done(token, spread)

    def _tell_done(self, token: object, spread: Spread) -> None:
        result = PutResult(
            spread.state(),
            len(spread.made),
            spread.wanted,
            spread.stream,
            spread.batch.first,
            spread.batch.last,
        )
        self._effects.append(PutDone(token, result))

    def buried(self, group: str, number: int, now_us: int) -> None:
        """Note that the dead letters of a `Bury` are held."""
        share = self._shares.get(group)
        if share is not None:
            share.buried(number, now_us)
            self._settle(now_us)

    # --- Groups --------------------------------------------------------------------------------

    def make_group(self, record: GroupRecord, now_us: int) -> GroupRecord:
        """Have a group, from what is held now on; or none, where the record says it is deleted.

        Return the record as it holds: what is made is younger than what was deleted, though the
        clock of the node that did so is ahead.

        Raises:
            PoeError: its options are wrong.
            GroupFull: there are too many groups.
        """
        known = self._groups.get(record.name)
        if known is not None and known.deleted_us and not record.deleted_us:
            created_us = max(record.created_us, known.deleted_us + 1)
            record = record._replace(created_us=created_us)
        if self._agree(record, now_us):
            for each in self._groups.as_told([record]):
                self._gossip.note_group(each, now_us)
            self._log.write(record)
        self._settle(now_us)
        return self._groups.get(record.name) or record

    def serve(self, group: str, request: object, token: object, now_us: int) -> None:
        """Take what a client asks of a group, a `LeaseRequest` or `GroupRequest`; `Answer` it."""
        share = self._shares.get(group)
        if share is None:
            self._effects.append(Answer(token, UnknownGroup(group)))
        else:
            share.serve(request, token, now_us)
            self._settle(now_us)

    def cancel(self, token: object, now_us: int) -> None:
        """Answer somebody no more, who is gone."""
        for share in self._shares.values():
            share.cancel(token)
        self._settle(now_us)

    def release_waiting(self, now_us: int) -> None:
        """Answer all who wait for messages: the node is about to stop."""
        for share in self._shares.values():
            share.release_waiting()
        self._settle(now_us)

    def undelivered(self, group: str, lease: Lease, now_us: int) -> None:
        """Have somebody else get messages whose member was not told of them, and never will be."""
        share = self._shares.get(group)
        if share is not None:
            share.undelivered(lease, now_us)
            self._settle(now_us)

    def groups(self) -> list[GroupRecord]:
        """Return the groups that there are."""
        return self._groups.there()

    def take_groups(self) -> list[GroupRecord] | None:
        """Return the groups that there are; None: as the last time."""
        is_same, self._are_groups_same = self._are_groups_same, True
        return None if is_same else self.groups()

    def _agree(self, record: GroupRecord, now_us: int) -> bool:
        """Join the record of a group; return whether that was new."""
        known = self._groups.get(record.name)
        if known is not None and winner(known, record) == known:
            return False
        self._check_group(record)
        if not self._groups.join([record]):
            if record.deleted_us:
                return False  # it would be forgotten at once
            raise GroupFull(record.name, "groups of a queue", GROUPS_MAX)
        if record.deleted_us:
            share = self._shares.pop(record.name, None)
            if share is not None:  # nobody waits for what there is no more
                share.release_waiting()
                self._take_from(share, now_us)
            self.copies.agree(record, self.me)
        else:
            share = self._shares.get(record.name)
            if share is None or share.record.options != record.options:
                self._begin_share(record, share, now_us)
        self._are_groups_same = False
        for stream in self.copies.streams():
            self._finished(stream, now_us)
        return True

    def _told_groups(self) -> list[GroupRecord]:
        """Return all groups as they are told."""
        return self._groups.as_told(self._groups.records())

    def _begin_share(self, record: GroupRecord, before: GroupShare | None, now_us: int) -> None:
        """Begin to hand out for a group; or anew, where its options were others.

        Then members have to join once more; what is known of the group stays.
        """
        known = self.copies.groups.get(record.name)
        is_new = known is None or bool(known.record.deleted_us)
        if before is not None:
            before.release_waiting()
            self._take_from(before, now_us)
        share = GroupShare(
            record, self.me, self.copies, now_us, self._may_have_handed_out, self._is_gone
        )
        self._shares[record.name] = share
        last, _ = self.copies.place(self._stream, now_us)
        if last:
            share.skip(self._stream, self.copies.held(self._stream).without(0, last))
        for peer in self._peers.values():
            share.peer_up(peer, now_us)
        if is_new:  # others may have had it, and handed out what they hold
            # Each of the latter may have handed out all that was there: of a node one is enough.
            there = {ref.id: ref for ref in self._recovery.lives if ref not in self._peers}
            lives = [*self._holders.nodes(), *[*there.values()][-LIVES_NAMED_MAX:]]
            gone = list(dict.fromkeys(ref for ref in lives if ref not in self._peers))
            for ref in [*gone, NOBODY] if self._recovery.is_crash else gone:
                share.peer_down(ref, now_us)
        self._reckon()

    def _may_have_handed_out(self, node: NodeRef, stream: StreamId) -> list[Bounds]:
        """Return what of a stream a node may have handed out."""
        may_have = self._holders.may_have_handed_out(node, stream)
        return union(may_have, self._recovery.survived(stream))

    def _check_group(self, record: GroupRecord) -> None:
        """See whether there may be a group, or may have been.

        Raises:
            PoeError: there may not.
        """
        define(record)
        if record.queue != self.record.name:
            raise GroupMismatch(record.name, "topics", [record.queue], [self.record.name])

    def _learn(self, known: Known, now_us: int) -> None:
        share = self._shares.get(known.group)
        if share is not None and not self._over.is_forgotten(known.stream):
            if known.stream == self._stream and known.done:
                # Whoever says it, what this node has not put yet is done nowhere.
                past = max(self.copies.place(known.stream, 0)[0], now_us - 1)
                known = known._replace(done=tuple(intersect(known.done, [(0, past)])))
            share.learn(known, now_us)
            self._finished(known.stream, now_us)

    # --- Frames --------------------------------------------------------------------------------

    def hear(self, node: NodeRef, frame: QueueFrame, now_us: int) -> None:
        """Take what a peer has sent."""
        match frame:
            case Store():
                self._hear_store(node, frame, now_us)
            case Stored():
                self._hear_stored(node, frame, now_us)
            case News():
                self._hear_news(node, frame, now_us)
            case Digest():
                self._hear_digest(node, frame, now_us)
            case Difference():
                answers = self._gossip.answer(frame, self._shares)
                self._effects.extend([Tell(node, each) for each in answers])
            case Prove():
                # What was dropped since it was told of is told before that it cannot be proved.
                self._gossip.hurry(now_us)
                self._effects.extend(self._gossip.news(self._peers, now_us))
                self._effects.append(Tell(node, self._trust.answer(frame)))
            case Proof():
                self._heed(self._trust.hear(node, frame, now_us, is_done=self._is_done))
            case _:
                self._hear_share(node, frame, now_us)
        self._settle(now_us)

    def _heed(self, judgement: Judgement) -> None:
        """Carry out what follows of what nodes can prove, or not."""
        self._effects += judgement.effects
        for stream in judgement.streams:
            self._unreckoned[stream] = None

    def _hear_share(self, node: NodeRef, frame: ShareFrame, now_us: int) -> None:
        """Take what a node's part in a group has sent; what cannot be is counted and told."""
        share = self._shares.get(frame.group)
        if share is None:
            return  # it is heard of later, and so is what was said, which is said again
        ended = self._groups.ended(frame.group)
        if ended is not None and isinstance(frame, Paused) and frame.since_us <= ended.deleted_us:
            return  # it was said of the one that had its name before
        try:
            share.hear(node, frame, now_us)
        except PoeError as error:
            self._refuse(node, str(error))

    def _refuse(self, node: NodeRef, why: str) -> None:
        """Count and tell that a node has sent what cannot be."""
        self._counts["frames refused"] += 1
        self._effects.append(Event("frame refused", f"{node}: {why}"))

    def _hear_store(self, node: NodeRef, frame: Store, now_us: int) -> None:
        self.join_record(frame.record)
        stream, batch = frame.stream, frame.batch
        bounds = batch.after, batch.last
        if stream == self._stream and batch.last >= self.copies.place(stream, 0)[1]:
            self._refuse(node, "it sends what only this node can put")
            return

        def answer(outcome: Outcome, now_us: int) -> None:
            del now_us
            told = Stored(self.record.name, stream, *bounds, outcome)
            self._effects.append(Tell(node, told))

        def hold(outcome: Outcome, now_us: int) -> None:
            answer(outcome, now_us)
            if outcome == "held":
                if is_first:
                    self._arrived(stream, bounds, now_us)
                if any(share.done(stream).within(*bounds) for share in self._shares.values()):
                    self._finished(stream, now_us)

        if self._is_done(stream, *bounds):
            # It may be done only as soon as that is written.
            self._log.when_written(
                lambda error, now_us: answer("failed" if error else "held", now_us), now_us
            )
        elif self.copies.held(stream).holds(*bounds):
            if self._expect(frame, now_us):
                self._unreckoned[stream] = None
            # It may have come before and not be written yet, or never be.
            self._log.when_written(
                lambda _, now_us: answer(
                    "held" if self.copies.held(stream).holds(*bounds) else "failed", now_us
                ),
                now_us,
            )
        else:
            self._expect(frame, now_us)
            is_first = self._is_first(frame.holders, stream)
            self._hold(stream, batch, now_us, hold, may_drop=not frame.is_copy)

    def _expect(self, frame: Store, now_us: int) -> bool:
        """Believe that messages are where they were sent; return whether that is new of a node."""
        self._gossip.note_hearsay(now_us)
        bounds = frame.batch.after, frame.batch.last
        new = [
            self._expect_at(node, frame.stream, bounds) for node in frame.holders if node != self.me
        ]
        return any(new)

    def _expect_at(self, node: NodeRef, stream: StreamId, bounds: Bounds) -> bool:
        if self._holders.has_room_for(node):
            return self._holders.expect(node, stream, *bounds)
        if not self._counts["holders not believed"]:
            detail = f"{node} and others: more than {HEARSAY_NODES_MAX} that said nothing are named"
            self._effects.append(Event("holders not believed", detail))
        self._counts["holders not believed"] += 1
        return False

    def _is_first(self, holders: Sequence[NodeRef], stream: StreamId) -> bool:
        """Return whether none of the nodes is to hand out what it holds before this one."""
        mine = self._rank(self.me, stream)
        return all(self._rank(node, stream) >= mine for node in holders if node in self._peers)

    def _hear_stored(self, node: NodeRef, frame: Stored, now_us: int) -> None:
        stream, after, last, outcome = frame[1:]
        self._holders.note_answered(node, stream, after, last)
        if outcome == "held" and not self._is_done(stream, after, last):
            self._gossip.note_hearsay(now_us)
            if self._holders.expect(node, stream, after, last):
                self._see_holder(node, stream)
        elif outcome == "full":
            self._candidates.leave_out(node, now_us + FULL_US)
        # What a life has said that is over does not count: a later one of the node knows nothing.
        if node in self._peers:
            self._spreads.heard(node, frame, now_us)

    def _hear_news(self, node: NodeRef, frame: News, now_us: int) -> None:
        self._agree_all(frame.groups, now_us)
        for known in frame.known:
            try:
                self._learn(known, now_us)
            except GroupFull as error:
                self._refuse(node, str(error))
                break
        state, streams = self._holders.take(node, frame, self._undone)
        if state == "missed":
            self._ask_all(node, now_us)
        for stream in streams:
            self._see_holder(node, stream)

    def _hear_digest(self, node: NodeRef, frame: Digest, now_us: int) -> None:
        self._agree_all(frame.groups, now_us)
        if not frame.is_answer:
            self._tell_digest(node, is_answer=True)
        asked = self._gossip.difference(node, frame, self._shares, now_us)
        if asked is not None:
            self._effects.append(Tell(node, asked))
        mine = self._gossip.digest(self._shares, (), {}, is_answer=True)
        # Who holds more than is known here may know the same, and is not done.
        if self._holders.is_current(node, frame.life_us, frame.version):
            differing = self._over.hear(node.id, frame, mine)
            self._holders.note_agreed(node, (frame.life_us, frame.version), differing)
        if now_us < self._is_new_until_us:
            return
        held = {*self.copies.streams(), *self._holders.streams()}
        for stream in self._over.settle(held, self._is_idle_on):
            self.copies.forget(stream)
            self._holders.forget_stream(stream)
            for share in self._shares.values():
                share.forget(stream)
        for share in self._shares.values():
            share.let_go(self._over.members, now_us)

    def _agree_all(self, records: Sequence[GroupRecord], now_us: int) -> None:
        """Join what another node says of groups; what cannot be is counted and told."""
        for record in records:
            try:
                if self._agree(record, now_us):
                    self._log.write(record)
            except PoeError as error:
                self._counts["group refused"] += 1
                self._effects.append(Event("group refused", f"{record.name!r:.80}: {error}"))

    # --- Log -----------------------------------------------------------------------------------

    def written(self, number: int, now_us: int) -> None:
        """Note that a message of the log is written."""
        self._log.written(number, now_us)
        self._settle(now_us)

    def write_failed(self, number: int, error: PoeError, now_us: int) -> None:
        """Note that a message of the log cannot be written: nothing is taken for a while."""
        self._log.write_failed(number, error, now_us)
        self._settle(now_us)

    def _entries(self) -> Iterator[Entry]:
        """Yield all that is to be read again after a restart, each as it is when it is taken.

        All may change between two of them: what was dropped meanwhile is not held by the last.
        """
        yield from self._told_groups()
        yield from self._pauses()
        for name, each in list(self._shares.items()):
            for stream in list(each.knowledge.streams()):
                share = self._shares.get(name)
                if share is not None and not self._over.is_forgotten(stream):
                    yield from parts_of(share.knowledge.known(stream))
                    # It was written before what is to stay.
                    yield from parts_of(share.knowledge.unwritten(stream))
        for stream in self.copies.streams():
            after = 0
            while batch := next(self.copies.batches(stream, after, POINTER_MAX), None):
                yield Kept(stream, batch)
                after = batch.last

    # --- Time ----------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Do what time has brought."""
        self._spreads.tick(now_us)
        if self._collect_due_us is not None and self._collect_due_us <= now_us:
            self._collect(now_us)
        # The log does not know yet what is done by that, so that it is for the next collection.
        for share in self._shares.values():
            share.expire(now_us)
        self._recovery.tick(now_us)
        if self._restore_due_us is not None and self._restore_due_us <= now_us:
            self._restore(now_us)
        if self._trust.due_us is not None and self._trust.due_us <= now_us:
            self._heed(self._trust.ask(self._peers, self._done_of, now_us))
        node = self._gossip.take_turn(self._peers, now_us)
        if node is not None:
            self._tell_digest(node, is_answer=False)
        self._effects.extend(self._gossip.check_hearsay(self._peers, now_us))
        self._settle(now_us)

    def excuse(self, now_us: int) -> None:
        """Count who takes from it as heard of: nobody could be heard."""
        for share in self._shares.values():
            share.excuse(now_us)

    def next_deadline_us(self) -> int | None:
        """Return when to call `tick` next; None: not before something else was called."""
        return earliest(
            *self._spreads.deadlines(),
            *[share.next_deadline_us() for share in self._shares.values()],
            self._gossip.next_deadline_us(), self._collect_due_us, self._restore_due_us,
            self._trust.due_us, self._recovery.silent_until_us,
        )  # fmt: skip

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """Return what is to be done, in order; the same frame to several nodes in a row."""
        effects, self._effects = self._effects, []
        return effects

    # --- To look at ----------------------------------------------------------------------------

    def report(self) -> list[dict[str, Any]]:
        """Return what came to clients of each group more than once, or may have: the first ones."""
        rows = ((name, each) for name in sorted(self._shares) for each in self.repeated(name))
        return [{"group": name, **each.as_map()} for name, each in islice(rows, ROWS_MAX)]

    def repeated(self, group: str) -> Iterator[Repeated]:
        """Yield what came to clients of a group more than once, or may have."""
        return self._shares[group].report()

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
            "streams": self.copies.stream_count,
            "puts_under_way": len(self._spreads),
            "has_missing_copies": bool(self._missing),
            "groups": {name: share.describe() for name, share in self._shares.items()},
            "counts": self.counters(),
        }

    def holders(self) -> dict[StreamId, dict[NodeRef, list[Bounds]]]:
        """Return which nodes hold what of each stream, this one too, as far as it is known here."""
        told: dict[StreamId, dict[NodeRef, list[Bounds]]] = {}
        for stream in sorted({*self.copies.streams(), *self._holders.streams()}):
            there = {**self._holders.all_of(stream), self.me: self.copies.held(stream)}
            told[stream] = {node: list(ranges) for node, ranges in there.items() if ranges}
        return told

    def known(self, group: str) -> dict[StreamId, Known]:
        """Return all that is known here of each stream in a group; nothing where there is none."""
        share = self._shares.get(group)
        if share is None:
            return {}
        return {each: share.knowledge.known(each) for each in share.knowledge.streams()}

    def counters(self) -> dict[str, int]:
        """Return what was counted."""
        return dict(self._counts + self._log.counters() + self._trust.counters())

    def _spread(self, spread: Spread, now_us: int) -> None:
        """Begin to have messages on several nodes: here first."""
        stream, batch = spread.stream, spread.batch
        self._counts["put"] += batch.messages_count

        def hold(outcome: Outcome, now_us: int) -> None:
            spread.heard(self.me, outcome)
            if outcome == "held" and stream == self._stream:
                self._arrived(stream, (batch.after, batch.last), now_us)
            elif outcome == "held":
                self._unreckoned[stream] = None
            self._spreads.go_on(spread, now_us)

        spread.asked[self.me] = spread.deadline_us
        self._hold(stream, batch, now_us, hold)
        self._spreads.begin(spread, now_us)  # letters come again, whoever had them held until now

    # --- Copies --------------------------------------------------------------------------------

    def _ask_to_hold(self, nodes: list[NodeRef], spread: Spread) -> None:
        holders = (*spread.made, *spread.asked)
        store = Store(
            self.record.name, self.record, spread.stream, spread.batch, holders, spread.is_copy
        )
        self._effects.extend([Tell(node, store) for node in nodes])

    def _hold(
        self,
        stream: StreamId,
        batch: Batch,
        now_us: int,
        answer: Callable[[Outcome, int], None],
        *,
        may_drop: bool = True,
    ) -> None:
        """Hold messages, and say what became of that: when they are written, if they have to be."""
        is_closed = self._is_leaving or self._log.is_closed(now_us)
        if is_closed or not self._make_room(stream, batch, now_us, may_drop=may_drop):
            self._counts["full"] += 1
            answer("full", now_us)
            return
        new = self.copies.add(stream, batch)
        for bounds in new:
            self._gossip.note_held(stream, *bounds, now_us)
        if not self._log.is_there:
            answer("held", now_us)
            return
        self._write_held(stream, batch, new, answer)

    def _write_held(
        self,
        stream: StreamId,
        batch: Batch,
        new: Sequence[Bounds],
        answer: Callable[[Outcome, int], None],
    ) -> None:
        """Have messages written that are held; if that fails, what is new is held no more."""

        def written(error: PoeError | None, now_us: int) -> None:
            if error is not None:
                for bounds in new:
                    self._drop(stream, *bounds, now_us)
            answer("held" if error is None else "failed", now_us)

        self._log.write(Kept(stream, batch), written)

    def _make_room(self, stream: StreamId, batch: Batch, now_us: int, *, may_drop: bool) -> bool:
        """Return whether there is room for messages, once the oldest are dropped if they may be."""
        record, size = self.record, size_bytes(batch)
        if size > record.bytes_max or batch.messages_count > record.messages_max:
            return False
        if not self.copies.held(stream) and self.copies.stream_count >= STREAMS_MAX:
            return False
        while (
            self.copies.bytes_count + size > record.bytes_max
            or self.copies.messages_count + batch.messages_count > record.messages_max
        ):
            oldest = self.copies.oldest()
            if oldest is None or record.on_full == "busy" or not may_drop:
                return False
            its, old = oldest
            bounds = old.after, old.last
            self._drop(its, *bounds, now_us)
            if its == self._stream:
                self._gaps.let_go(*bounds)
            self._log.write(Dropped(its, (bounds,)))
            self._counts["dropped"] += old.messages_count
            told = f"{old.messages_count} messages of {its}, to make room"
            self._effects.append(Event("dropped", told))
        return True

    def _drop(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Hold a range no more."""
        for bounds in self.copies.drop(stream, after, last):
            self._gossip.note_dropped(stream, *bounds, now_us)
            for share in self._shares.values():
                share.disown(stream, *bounds)

    def _is_done(self, stream: StreamId, after: int, last: int) -> bool:
        """Return whether all of a range is done, or was and is forgotten."""
        done = [share.done(stream) for share in self._shares.values()]
        is_done = bool(done) and all(ranges.holds(after, last) for ranges in done)
        return is_done or self._over.is_forgotten(stream)

    def _is_idle_on(self, stream: StreamId) -> bool:
        """Return whether this node is not at work on a stream."""
        return not any(each.is_at_work_on(stream) for each in self._shares.values())

    def _finished(self, stream: StreamId, now_us: int) -> None:
        """Note that something of a stream may be done in all groups."""
        self._done.add(stream)
        self._collect_due_us = self._collect_due_us or now_us + COLLECT_US

    def _collect(self, now_us: int) -> None:
        """Drop what is done in all groups.

        That it is done others hear when it is written. Who heard before that it is held here no
        more would hand it out.
        """
        self._collect_due_us = None
        streams, self._done = self._done, set()
        done = {
            stream: ranges
            for stream in streams
            if (ranges := intersect(self._done_of(stream), self.copies.held(stream)))
        }
        if done:
            self._log.when_written(lambda _, now_us: self._drop_done(done, now_us), now_us)
        if self._gaps.is_due(now_us):
            self._pass_over(now_us)

    def _drop_done(self, was_done: Mapping[StreamId, list[Bounds]], now_us: int) -> None:
        for stream, ranges in was_done.items():
            # There may be one more group meanwhile, and some of it be held no more.
            done = covered((ranges, self._done_of(stream), self.copies.held(stream)), 3)
            for bounds in done:
                self._drop(stream, *bounds, now_us)
            if done:
                self._log.write(Dropped(stream, tuple(done)))

    def _pass_over(self, now_us: int) -> None:
        """Count as done what was put here, and nobody has held for a while."""
        stream, nodes = self._stream, self._holders.nodes()
        held = [list(self.copies.held(stream)), self._spreads.of(stream)]
        held += [self._holders.may_be_held_by(node, stream) for node in nodes]
        for bounds in self._gaps.nowhere(union(*held), now_us):
            left = union(*[each.pass_over(stream, *bounds) for each in self._shares.values()])
            for part in minus([bounds], left):
                self._gaps.passed_over(part)

    def _done_of(self, stream: StreamId) -> list[Bounds]:
        """Return what of a stream is done in all groups; nothing where there is none."""
        done = [share.done(stream) for share in self._shares.values()]
        return covered(done, len(done)) if done else []

    def _undone(self, stream: StreamId, ranges: Collection[Bounds]) -> list[Bounds]:
        """Return what of some ranges is not done in all groups."""
        done = [
            [part for bounds in ranges for part in share.done(stream).within(*bounds)]
            for share in self._shares.values()
        ]
        return minus(ranges, covered(done, len(done))) if done else list(ranges)

    def _restore(self, now_us: int) -> None:
        """Copy anew what this node hands out, and has been on too few nodes for a while."""
        self._restore_due_us = now_us + LOOK_US if self._peers else None
        trusted = self._trust.trusted(self._peers)
        wanted = min(self.record.copies, 1 + len(trusted))
        streams = self.copies.streams()
        for stream in streams:
            others = [self._holders.held_by(node, stream) for node in trusted]
            enough = covered(others, wanted - 1) if wanted > 1 else self.copies.held(stream)
            missing = minus(minus(self._owned(stream), enough), self._done_of(stream))
            self._missing.see(stream, missing, now_us)
        self._missing.retain(streams)
        left = RESTORE_COUNT_MAX - self._copying_count
        for stream, bounds in self._missing.due(now_us):
            for batch in self.copies.batches(stream, *bounds):
                if left <= 0:
                    return
                # Where nobody can be asked just now, one is over at once, and counts all the same.
                left -= self._copy_again(stream, batch, now_us)

    def _copy_again(self, stream: StreamId, batch: Batch, now_us: int) -> bool:
        """Have a batch on as many nodes as it ought to be; return whether that was begun."""
        until_us = now_us + RESTORE_DEADLINE_US
        spread = Spread(stream, batch, self.record.copies, until_us, self._copied_again)
        if spread in self._spreads:
            return False
        spread.is_copy = True
        spread.spares_slow = True  # there is a later, and one that comes and goes is given no more
        spread.made.add(self.me)
        for node in self._trust.trusted(self._peers):
            if self._holders.held_by(node, stream).holds(batch.after, batch.last):
                spread.made.add(node)
        self._copying_count += 1
        self._spreads.begin(spread, now_us)
        return True

    def _copied_again(self, spread: Spread, now_us: int) -> None:
        self._copying_count -= 1
        self._counts[f"copied again {spread.state()}"] += spread.batch.messages_count
        if spread.state() == "ok":
            self._restore_due_us = now_us + RESTORE_GO_ON_US

    # --- Who hands out what --------------------------------------------------------------------

    def _owned(self, stream: StreamId) -> list[Bounds]:
        """Return what of a stream this node is to hand out."""
        held = {**self._holders.all_of(stream), self.me: self.copies.held(stream)}
        return owned(self.me, self.record.name, stream, held, self._trust.trusted(self._peers))

    def _rank(self, node: NodeRef, stream: StreamId) -> tuple[bool, int, NodeRef]:
        return rank(node, self.record.name, stream)

    def _arrived(self, stream: StreamId, bounds: Bounds, now_us: int) -> None:
        """Have a range handed out here that has just come, and nobody else is to hand out.

        It is not to overtake what was there before.
        """
        if self._recovery.holds_back(stream):
            self._unreckoned[stream] = None
            return
        for share in self._shares.values():
            share.arrived(stream, *bounds, now_us)

    def _see_holder(self, node: NodeRef, stream: StreamId) -> None:
        """Note that a node holds something else of a stream than before."""
        if self._holders.held_by(node, stream):
            self._over.note_held(stream)
        is_before = self._rank(node, stream) < self._rank(self.me, stream)
        if is_before and node in self._peers and self.copies.held(stream):
            self._unreckoned[stream] = None

    def _reckon(self) -> None:
        """Have it reckoned anew what is handed out here, of all streams."""
        for stream in self.copies.streams():
            self._unreckoned[stream] = None

    def _settle(self, now_us: int) -> None:
        """Have groups know what has changed, and others what groups have done."""
        self._go_on_handing_over(now_us)
        if self._shares:
            if self._unreckoned and self._recovery.silent_until_us is None:
                disowned, self._unreckoned = self._unreckoned, {}
                for stream in disowned:
                    ranges, is_over = self._owned(stream), self._over.is_over(stream)
                    for share in self._shares.values():
                        share.set_owned(stream, ranges, now_us)
                        if is_over:
                            share.end(stream, self.copies.held(stream))
                    if is_over:
                        self._finished(stream, now_us)
            for share in self._shares.values():
                if share.has_changed:
                    self._take_from(share, now_us)
        self._log.compact(self.copies.bytes_count, self._entries, now_us)
        self._effects.extend(self._gossip.news(self._peers, now_us))

    def _take_from(self, share: GroupShare, now_us: int) -> None:
        """Take what a share has done: what is to outlive the process is written before answers."""
        taken, effects = share.knowledge.take_news(), share.take_effects()
        news = [part for each in taken for part in parts_of(each)]
        heard = [part for each in share.knowledge.take_told() for part in parts_of(each)]
        entries: list[Entry] = [*news, *heard]
        if share.knowledge.take_pause_news():
            entries.append(share.paused)
        is_written = bool(entries) and self._log.is_there
        for known in news:
            self._finished(known.stream, now_us)
        if not is_written:
            self._gossip.note_known(news, now_us)
            self._effects.extend(effects)
            return

        def written(error: PoeError | None, now_us: int) -> None:
            # With other options since, another one hands out; it is no other group.
            latest = self._shares.get(share.record.name, share)
            its = latest if latest.knowledge is share.knowledge else share
            told = its.written(news, now_us, is_failed=error is not None)
            if error is not None:
                share.knowledge.note_unwritten(heard)
            self._gossip.note_known(told, now_us)
            for known in told:  # some is done by that
                self._finished(known.stream, now_us)
            for each in effects:
                if error is not None and isinstance(each, Answer):
                    self._effects.append(Answer(each.token, error))
                else:
                    self._effects.append(each)

        self._log.write_all(entries, written)

    def _tell_digest(self, node: NodeRef, *, is_answer: bool) -> None:
        digest = self._gossip.digest(
            self._shares, self._told_groups(), self._over.forgotten, is_answer=is_answer
        )
        self._effects.append(Tell(node, digest))
        self._effects.extend([Tell(node, each) for each in self._pauses()])

    def _pauses(self) -> list[Paused]:
        """Return which groups are paused, and which were."""
        return [share.paused for share in self._shares.values() if share.paused.since_us]

    def _ask_all(self, node: NodeRef, now_us: int) -> None:
        """Ask a node what it holds."""
        asked = self._gossip.ask_all(node, now_us)
        if asked is not None:
            self._effects.append(Tell(node, asked))


def _unasked(outcome: Outcome, now_us: int) -> None:
    """Tell nobody what became of messages that nobody has sent."""
    del outcome, now_us
