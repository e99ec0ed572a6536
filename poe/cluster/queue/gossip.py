"""What a node tells the others of a queue, when, and what it asks them.

What changes is told to all nodes that are there: what is done and was handed out at once, or as
soon as `KNOWN_US` have passed since the last time; what is held later, and much at once. A short
digest goes to each node that comes up, and every `DIGEST_US` to another one of them, in an order by
lot: who knows other things asks for them, in both directions. So a change that was lost is made up
for, and a node that was away learns what it missed.
"""

import random
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from poe.broker.groups.deadlines import earliest
from poe.broker.groups.ranges import RangeSet
from poe.cluster.frames import (
    WHOLE,
    Difference,
    Digest,
    Held,
    Known,
    News,
    Summary,
    in_frames,
)
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.effects import Tell
from poe.cluster.queue.group_share import GroupShare
from poe.cluster.queue.holders import Holders
from poe.cluster.queue_record import GroupRecord

KNOWN_US: Final = 2_000
HELD_US: Final = 50_000
DIGEST_US: Final = 10_000_000
ASK_AGAIN_US: Final = 1_000_000
"""How long a node that was asked for all that it holds is not asked again; and how long it is
believed what others say of it."""
ANSWER_FRAMES_MAX: Final = 4
"""Of what is known, to one question; more would crowd out what else waits for the peer."""
RANGES_MAX: Final = 100_000
"""Of one frame; a node that holds more ranges tells of the first ones alone."""


class Gossip:
    """What one node has to tell the others of a queue, and has asked them."""

    def __init__(
        self, queue: bytes, life_us: int, copies: Copies, holders: Holders, dice: random.Random
    ) -> None:
        self._queue = queue
        self._life_us = life_us
        self._copies = copies
        self._holders = holders
        self._dice = dice
        self._version = 0
        self._added: dict[StreamId, RangeSet] = {}
        self._dropped: dict[StreamId, RangeSet] = {}
        self._held_due_us: int | None = None
        self._known: list[Known] = []
        self._groups: list[GroupRecord] = []
        self._known_due_us: int | None = None
        self._known_told_us = 0
        self._digest_due_us: int | None = None
        self._turns: list[NodeRef] = []
        """Who gets a digest next, the last one first."""
        self._asked_us: dict[NodeRef, int] = {}
        self._hearsay_due_us: int | None = None

    def note_held(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Note that a range is held here now."""
        added = self._added.get(stream)
        if added is None:
            added = self._added[stream] = RangeSet()
        added.join(after, last)
        self._held_due_us = self._held_due_us or now_us + HELD_US

    def note_dropped(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Note that a range is held here no more."""
        # Whoever is told takes away first, and adds then.
        if stream in self._added:
            self._added[stream].cut(after, last)
        self._dropped.setdefault(stream, RangeSet()).join(after, last)
        self._held_due_us = self._held_due_us or now_us + HELD_US

    def hurry(self, now_us: int) -> None:
        """Have it told at once what is held, and what is not any more."""
        if self._held_due_us is not None:
            self._held_due_us = now_us

    def note_known(self, known: Iterable[Known], now_us: int) -> None:
        """Have it told what of a group has changed here."""
        self._known.extend(known)
        if self._known and self._known_due_us is None:
            self._known_due_us = max(now_us, self._known_told_us + KNOWN_US)

    def note_group(self, record: GroupRecord, now_us: int) -> None:
        """Have it told that there is a group, or none any more."""
        self._groups.append(record)
        self._known_due_us = now_us

    def news(self, peers: Collection[NodeRef], now_us: int) -> list[Tell]:
        """Return what is to be told to all by now."""
        is_held_due = self._held_due_us is not None and self._held_due_us <= now_us
        is_known_due = self._known_due_us is not None and self._known_due_us <= now_us
        if not (is_held_due or is_known_due):
            return []
        known: list[Known] = []
        groups: list[GroupRecord] = []
        if is_known_due:
            known, self._known = self._known, known
            groups, self._groups = self._groups, groups
            self._known_due_us, self._known_told_us = None, now_us
        held = self._take_held() if is_held_due else ()
        all_news = []
        for each in in_frames(known):
            # Numbered, so that who has missed one knows it, and asks.
            since, self._version = self._version, self._version + 1
            all_news.append(self._news(since, held, each, groups))
            held, groups = (), []
        return [Tell(node, news) for news in all_news for node in peers]

    def digest(
        self,
        shares: Mapping[str, GroupShare],
        groups: Iterable[GroupRecord],
        over: Mapping[bytes, int],
        *,
        is_answer: bool,
    ) -> Digest:
        """Return what is known here, in short."""
        known = tuple(
            Summary(name, stream, share.knowledge.digest(stream))
            for name, share in sorted(shares.items())
            for stream in sorted(share.knowledge.streams())
        )
        return Digest(
            self._queue, self._life_us, self._version, known, tuple(groups),
            tuple(sorted(over.items())), is_answer,
        )  # fmt: skip

    def take_turn(self, peers: Collection[NodeRef], now_us: int) -> NodeRef | None:
        """Return whom to send a digest, where it is time for one; None: it is not."""
        if not peers:
            self._digest_due_us = None
            return None
        if self._digest_due_us is None:
            self._digest_due_us = now_us + self._dice.randrange(DIGEST_US)
        if self._digest_due_us > now_us:
            return None
        self._digest_due_us = now_us + DIGEST_US
        while True:
            if not self._turns:
                self._turns = sorted(peers)
                self._dice.shuffle(self._turns)
            node = self._turns.pop()
            if node in peers:
                return node

    def difference(
        self, node: NodeRef, digest: Digest, shares: Mapping[str, GroupShare], now_us: int
    ) -> Difference | None:
        """Return what to ask a node for that has told what it knows; None: nothing."""
        is_held_asked = self._may_ask(node, digest.life_us, digest.version, now_us)
        known = tuple(
            (group, stream)
            for group, stream, there in digest.known
            if (share := shares.get(group)) is not None and share.knowledge.digest(stream) != there
        )
        if not (is_held_asked or known):
            return None
        return Difference(self._queue, is_held_asked, known)

    def ask_all(self, node: NodeRef, now_us: int) -> Difference | None:
        """Return what to ask a node of whose changes some were missed; None: it was just asked."""
        if now_us < self._asked_us.get(node, 0):
            return None
        self._asked_us[node] = now_us + ASK_AGAIN_US
        return Difference(self._queue, is_held_asked=True, known=())

    def note_hearsay(self, now_us: int) -> None:
        """Note that something was said of a node by another one."""
        self._hearsay_due_us = self._hearsay_due_us or now_us + ASK_AGAIN_US

    def check_hearsay(self, peers: Collection[NodeRef], now_us: int) -> list[Tell]:
        """Return what to ask nodes of which others have said more than they did themselves."""
        if self._hearsay_due_us is None or now_us < self._hearsay_due_us:
            return []
        asked = {node: self.ask_all(node, now_us) for node in self._holders.late(peers)}
        is_left = self._holders.has_hearsay(peers)
        self._hearsay_due_us = now_us + ASK_AGAIN_US if is_left else None
        return [Tell(node, each) for node, each in asked.items() if each is not None]

    def answer(self, asked: Difference, shares: Mapping[str, GroupShare]) -> list[News]:
        """Return what was asked for; of much a part by lot, for the rest is asked for again."""
        known = (
            shares[group].knowledge.known(stream)
            for group, stream in dict.fromkeys(asked.known)
            if group in shares
        )
        frames = in_frames(known)
        if len(frames) > ANSWER_FRAMES_MAX:
            frames = self._dice.sample(frames, ANSWER_FRAMES_MAX)
        since = WHOLE if asked.is_held_asked else self._version
        held = self._all_held() if asked.is_held_asked else ()
        first, *rest = frames
        return [
            self._news(since, held, first),
            *[self._news(self._version, (), each) for each in rest],
        ]

    def _news(
        self,
        since: int,
        held: tuple[Held, ...],
        known: tuple[Known, ...],
        groups: Iterable[GroupRecord] = (),
    ) -> News:
        version = self._version
        return News(self._queue, self._life_us, since, version, held, known, tuple(groups))

    def forget(self, node: NodeRef) -> None:
        """Note that a node is gone: what it was asked it does not answer."""
        self._asked_us.pop(node, None)

    def next_deadline_us(self) -> int | None:
        """Return when there is something to tell."""
        return earliest(
            self._held_due_us, self._known_due_us, self._digest_due_us, self._hearsay_due_us
        )

    def _may_ask(self, node: NodeRef, life_us: int, version: int, now_us: int) -> bool:
        if self._holders.is_current(node, life_us, version):
            return False
        return self.ask_all(node, now_us) is not None

    def _take_held(self) -> tuple[Held, ...]:
        held = tuple(
            Held(stream, tuple(self._added.get(stream, ())), tuple(self._dropped.get(stream, ())))
            for stream in sorted(self._added.keys() | self._dropped.keys())
        )
        self._added, self._dropped, self._held_due_us = {}, {}, None
        return held

    def _all_held(self) -> tuple[Held, ...]:
        left, held = RANGES_MAX, []
        for stream in self._copies.streams():
            ranges = tuple(self._copies.held(stream))[:left]
            left -= len(ranges)
            held.append(Held(stream, ranges, ()))
        return tuple(held)
