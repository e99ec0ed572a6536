"""Copies of messages under way to other nodes: whom to ask, whom instead, and when to give up.

A node that is asked and does not hold the messages is replaced by the next one: at once when it
says so or is down, after `PATIENCE_US` when it says nothing. It is asked again when nobody else is
left, since what it was sent may be lost; to hold what it holds already costs it nothing.

One more node is asked earlier when the one that was asked is called slow, and with few bytes when
it takes some times as long as it did of late: it may be frozen, which is known for sure only later.
Whoever answers first counts, and what the other one holds then is a copy more. Where nobody else is
left, so a moment of slowness does not make a put one of too few copies.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from poe.cluster.batch import Batch
from poe.cluster.frames import Outcome
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.effects import PutState

FULL_US: Final = 1_000_000
"""How long a node that had no room is not asked."""
PATIENCE_US: Final = 300_000
"""How long a node may say nothing before another one is asked."""
HEDGE_TIMES: Final = 2
HEDGE_MIN_US: Final = 3_000
"""A node that takes so many times as long as the longest of late, and so long, is not waited for
alone."""
HEDGE_BYTES_MAX: Final = 16 * 1024
"""What is larger waits for it: under much load to send more makes nobody quicker."""
_FADING = 8
"""A wait that was long counts less and less: by so much of it with each that is not."""
DRAW_US: Final = 1_000_000
"""How long the same nodes are asked first, so that what each of them holds stays in few ranges."""
SLOWER_US: Final = 10_000
SLOWER_TIMES: Final = 4
"""A node that takes so long, and so many times as long as another one did, is asked last."""
SLOWER_FIRST_US: Final = 1_000_000
SLOWER_MAX_US: Final = 30_000_000
"""For how long, then; twice as long each time that it is so again."""


class _Slower(NamedTuple):
    """A node that took much longer than others."""

    until_us: int
    for_us: int


class Candidates:
    """The nodes that may be asked to hold messages, in the order in which they are asked.

    Those of other zones come first; else they are shuffled, anew each second or when one comes,
    goes, is slow or full. Who took much longer than others comes behind them for a while: a link
    that is full to the brim answers, and in time, but a small put waits there for large ones.
    """

    def __init__(self, zone: str, dice: random.Random) -> None:
        self._zone = zone
        self._dice = dice
        self._zones: dict[NodeRef, str] = {}
        self._slow: set[NodeRef] = set()
        self._out_until_us: dict[NodeRef, int] = {}
        self._took_us: dict[NodeRef, int] = {}
        """How long each took when it last held messages."""
        self._longest_us: dict[NodeRef, int] = {}
        """... and the longest that it took of late."""
        self._slower: dict[NodeRef, _Slower] = {}
        self._drawn: list[NodeRef] = []
        self._until_us = 0

    def add(self, node: NodeRef, zone: str) -> None:
        """Count a node in."""
        self._zones[node] = zone
        self._until_us = 0

    def remove(self, node: NodeRef) -> None:
        """Count a node out."""
        self._zones.pop(node, None)
        self._slow.discard(node)
        self._out_until_us.pop(node, None)
        self._took_us.pop(node, None)
        self._longest_us.pop(node, None)
        self._slower.pop(node, None)
        self._until_us = 0

    def set_slow(self, node: NodeRef, *, is_slow: bool) -> None:
        """Ask a node last, or as the others again."""
        (self._slow.add if is_slow else self._slow.discard)(node)
        self._until_us = 0

    def is_slow(self, node: NodeRef) -> bool:
        """Return whether a node was said to be slow."""
        return node in self._slow

    def slow(self, now_us: int) -> list[NodeRef]:
        """Return the nodes that were said to be slow, for what has to be somewhere all the same.

        Without those that have no room, or cannot be believed: their answer would help nobody.
        """
        there = self._slow & self._zones.keys()
        return sorted(each for each in there if self._out_until_us.get(each, 0) <= now_us)

    def leave_out(self, node: NodeRef, until_us: int) -> None:
        """Ask a node no more until a time, for it has no room, or cannot be believed."""
        self._out_until_us[node] = max(until_us, self._out_until_us.get(node, 0))
        self._until_us = 0

    def took(self, node: NodeRef, wait_us: int, now_us: int) -> None:
        """Note how long a node took to hold what it was asked to."""
        self._took_us[node] = wait_us
        longest_us = self._longest_us.get(node, 0)
        self._longest_us[node] = max(wait_us, longest_us - (longest_us - wait_us) // _FADING)
        if wait_us < SLOWER_US:
            self._slower.pop(node, None)
            return
        others = self._zones.keys() - self._slow - {node}
        # One that was never asked is worth a try.
        least_us = min((self._took_us.get(each, 0) for each in others), default=wait_us)
        if wait_us >= SLOWER_TIMES * least_us:
            self._ask_last(node, now_us)

    def hedge_us(self, node: NodeRef) -> int:
        """Return how long a node is waited for alone, that is to hold few bytes.

        One of another zone as long as any: what a zone is for is worth more than milliseconds.
        """
        if self._zones.get(node) != self._zone:
            return PATIENCE_US
        usual_us = HEDGE_TIMES * self._longest_us.get(node, 0)
        return min(max(HEDGE_MIN_US, usual_us), PATIENCE_US)

    def is_late(self, node: NodeRef, now_us: int) -> None:
        """Note that a node does not answer in the time that is usual for it."""
        self._ask_last(node, now_us)

    def _ask_last(self, node: NodeRef, now_us: int) -> None:
        before = self._slower.get(node)
        if before is not None and now_us < before.until_us:
            return  # it was asked before that was known
        for_us = SLOWER_FIRST_US if before is None else min(2 * before.for_us, SLOWER_MAX_US)
        self._slower[node] = _Slower(now_us + for_us, for_us)
        self._until_us = 0

    def draw(self, now_us: int) -> Sequence[NodeRef]:
        """Return the nodes to ask, the first ones first."""
        if now_us >= self._until_us:
            self._until_us = now_us + DRAW_US
            able = [each for each in sorted(self._zones) if each not in self._slow]
            drawn = [each for each in able if self._out_until_us.get(each, 0) <= now_us]
            self._dice.shuffle(drawn)
            slower = {node for node, each in self._slower.items() if now_us < each.until_us}
            drawn.sort(key=slower.__contains__)
            self._drawn = _by_zones(drawn, self._zones, self._zone)
        return self._drawn


class Spread:
    """Messages that are to be on so many nodes by a deadline.

    Always: no node is in two of `made`, `asked` and `refused`.
    """

    def __init__(
        self,
        stream: StreamId,
        batch: Batch,
        wanted: int,
        deadline_us: int,
        when_over: "Callable[[Spread, int], None]",
    ) -> None:
        self.when_over = when_over
        self.stream = stream
        self.batch = batch
        self.wanted = wanted
        self.deadline_us = deadline_us
        self.made: set[NodeRef] = set()
        self.asked: dict[NodeRef, int] = {}
        """Since when each has said nothing, that was asked."""
        self.refused: dict[NodeRef, Outcome | None] = {}
        """What each said that does not hold them; None: it is gone."""
        self._again: set[NodeRef] = set()
        """Nodes that were asked more than once: one answer of theirs says nothing of the other."""
        self._passed: set[NodeRef] = set()
        """Who was called slow, or has said nothing for so long that one more was asked; what they
        say counts all the same."""
        self._look_us = deadline_us
        self.is_copy = False
        """Whether the messages were somewhere before: none is dropped to make room for them."""
        self.spares_slow = False
        """Whether nodes that are slow are not asked where there are no others either."""

    @property
    def key(self) -> tuple[StreamId, int]:
        """Return what tells it from others."""
        return self.stream, self.batch.last

    def heard(self, node: NodeRef, outcome: Outcome | None) -> None:
        """Take what a node says of the messages; None: it will say nothing."""
        self.asked.pop(node, None)
        if outcome == "held":
            self.refused.pop(node, None)
            self.made.add(node)
        elif node not in self.made:
            self.refused[node] = outcome

    def pass_by(self, node: NodeRef) -> None:
        """Have others asked besides a node that was called slow."""
        self._passed.add(node)

    def gone(self, node: NodeRef) -> bool:
        """Note that a node is not there any more; return whether that changes anything."""
        if node not in self.made and node not in self.asked:
            return False
        self.made.discard(node)
        self.heard(node, None)
        return True

    def next_nodes(self, candidates: Candidates, now_us: int) -> list[NodeRef]:
        """Return whom to ask now, and take note that they are asked."""
        missing = self.wanted - len(self.made)
        if missing <= 0 or now_us >= self.deadline_us:
            return []
        self._look_us = self.deadline_us
        late, passed_count = [], 0
        for node, since_us in self.asked.items():
            if since_us + PATIENCE_US <= now_us:
                late.append(node)
            elif self._is_passed(node, since_us, candidates, now_us):
                passed_count += 1
            else:
                missing -= 1
        if missing <= 0:
            return []
        met = self.made | self.asked.keys() | self.refused.keys()
        chosen = [each for each in candidates.draw(now_us) if each not in met][:missing]
        if not self.spares_slow:
            # It is no quicker than who is passed by, who may answer yet.
            room = max(missing - len(chosen) - passed_count, 0)
            chosen += [each for each in candidates.slow(now_us) if each not in met][:room]
        again = late[: missing - len(chosen)]
        self._again.update(again)
        chosen += again
        for node in chosen:
            self.asked[node] = now_us
            self._look_at(now_us + self._wait_us(node, candidates))
        return chosen

    def _is_passed(self, node: NodeRef, since_us: int, candidates: Candidates, now_us: int) -> bool:
        """Return whether one more node is asked, and this one is still waited for."""
        if node in self._passed:
            self._look_at(since_us + PATIENCE_US)
            return True
        due_us = since_us + self._wait_us(node, candidates)
        if due_us > now_us:
            self._look_at(due_us)
            return False
        candidates.is_late(node, now_us)
        self._passed.add(node)
        return True

    def _wait_us(self, node: NodeRef, candidates: Candidates) -> int:
        """Return how long a node is waited for alone; one is passed for that at most."""
        is_hedged = not self._passed and self.batch.size_bytes <= HEDGE_BYTES_MAX
        return candidates.hedge_us(node) if is_hedged else PATIENCE_US

    def _look_at(self, due_us: int) -> None:
        self._look_us = min(self._look_us, due_us)

    @property
    def is_made(self) -> bool:
        """Return whether there are as many copies as are wanted."""
        return len(self.made) >= self.wanted

    def is_over(self, now_us: int) -> bool:
        """Return whether it is to be answered: made, too late, or nobody is left to ask."""
        return self.is_made or now_us >= self.deadline_us or not self.asked

    def state(self) -> PutState:
        """Return what has become of it by now."""
        if self.is_made:
            return "ok"
        if self.made:
            return "under"
        # Who said nothing may hold them all the same, and who has said something once of two times.
        is_sure = not (self.asked or self._again) and set(self.refused.values()) <= {"full"}
        return "busy" if is_sure else "none"

    def next_deadline_us(self) -> int:
        """Return when to look at it again."""
        return self._look_us


def _by_zones(drawn: list[NodeRef], zones: Mapping[NodeRef, str], own: str) -> list[NodeRef]:
    """Return nodes with one of each zone first, this node's own last."""
    seen = {own: 1}
    ranked = []
    for node in drawn:
        zone = zones[node]
        rank = seen.get(zone, 0) if zone else 0
        seen[zone] = rank + 1
        ranked.append((rank, node))
    return [node for _, node in sorted(ranked, key=lambda each: each[0])]
