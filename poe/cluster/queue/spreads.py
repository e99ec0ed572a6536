"""All messages that a node has under way to others: who is asked, who answers, and what is over."""

from collections.abc import Callable, Iterator

from poe.broker.groups.ranges import Bounds
from poe.cluster.frames import Stored
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.holders import Holders
from poe.cluster.queue.spread import Candidates, Spread

Ask = Callable[[list[NodeRef], Spread], None]
"""Sends the messages of a spread to nodes, which are to hold them."""


class Spreads:
    """The spreads of a queue, one for each stream and last pointer; owned by the queue.

    Always: each that has begun is finished once, and is not among them when it is.
    """

    def __init__(self, me: NodeRef, candidates: Candidates, holders: Holders, ask: Ask) -> None:
        self._me = me
        self._candidates = candidates
        self._holders = holders
        self._ask = ask
        self._under_way: dict[tuple[StreamId, int], Spread] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def __contains__(self, spread: Spread) -> bool:
        """Return whether the same messages are under way, by this spread or another one."""
        return spread.key in self._under_way

    def of(self, stream: StreamId) -> list[Bounds]:
        """Return what of a stream is under way."""
        batches = [each.batch for each in self._under_way.values() if each.stream == stream]
        return [(batch.after, batch.last) for batch in batches]

    def begin(self, spread: Spread, now_us: int) -> None:
        """Ask nodes to hold messages; a spread of the same ones under way is finished first."""
        before = self._under_way.pop(spread.key, None)
        if before is not None:
            self._finish(before, now_us)
        self._under_way[spread.key] = spread
        self.go_on(spread, now_us)

    def go_on(self, spread: Spread, now_us: int) -> None:
        """Have further nodes asked as far as needed, and finish what is over."""
        if self._under_way.get(spread.key) is not spread:
            return
        nodes = spread.next_nodes(self._candidates, now_us)
        if nodes:
            self._ask(nodes, spread)
        if spread.is_over(now_us):
            del self._under_way[spread.key]
            self._finish(spread, now_us)

    def heard(self, node: NodeRef, frame: Stored, now_us: int) -> None:
        """Take the answer of a node that is there: a life that is over counts for nothing."""
        spread = self._under_way.get((frame.stream, frame.last))
        if spread is None:
            return
        if frame.outcome == "held" and node in spread.asked:
            self._candidates.took(node, now_us - spread.asked[node], now_us)
        spread.heard(node, frame.outcome)
        self.go_on(spread, now_us)

    def pass_by(self, node: NodeRef, now_us: int) -> None:
        """Have others asked besides a node that was called slow."""
        for spread in [each for each in self._under_way.values() if node in each.asked]:
            spread.pass_by(node)
            self.go_on(spread, now_us)

    def lose(self, node: NodeRef, now_us: int) -> None:
        """Have others asked instead of a node that is gone, with what it holds."""
        for spread in list(self._under_way.values()):
            if node in spread.asked:
                self._note_unanswered(node, spread)
            if spread.gone(node):
                self.go_on(spread, now_us)

    def tick(self, now_us: int) -> None:
        """Do what time has brought."""
        for spread in list(self._under_way.values()):
            self.go_on(spread, now_us)

    def deadlines(self) -> Iterator[int]:
        """Yield when to look at each of them again."""
        return (each.next_deadline_us() for each in self._under_way.values())

    def _finish(self, spread: Spread, now_us: int) -> None:
        for node in spread.asked:
            self._note_unanswered(node, spread)
        spread.when_over(spread, now_us)

    def _note_unanswered(self, node: NodeRef, spread: Spread) -> None:
        """Note that a node may hold messages, for it was asked to and has not answered."""
        if node != self._me:
            batch = spread.batch
            self._holders.note_unanswered(node, spread.stream, batch.after, batch.last)
