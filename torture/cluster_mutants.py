"""Ways to break queues across nodes on purpose; otherwise as `mutants.py`."""

from collections.abc import Callable
from typing import Any, Literal, get_args

from poe.broker.groups.failures import NONE_YET
from poe.broker.groups.state import GroupState
from poe.cluster.frames import Known
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.effects import PutState
from poe.cluster.queue.knowledge import Knowledge, StreamKnowledge
from poe.cluster.queue.ledger import Ledger
from poe.cluster.queue.lending import Lending, member_id
from poe.cluster.queue.queue import BestEffortQueue
from poe.cluster.queue.spread import Candidates, Spread
from poe.cluster.ranges import covered

ClusterMutant = Literal[
    "cluster-answer-early",
    "cluster-hand-out-done",
    "cluster-keep-done",
    "cluster-no-grants",
    "cluster-once-later",
    "cluster-give-for-good",
    "cluster-no-restore",
    "cluster-drop-early",
    "cluster-old-life",
    "cluster-no-digest",
    "cluster-busy-lies",
    "cluster-no-watermark",
    "cluster-no-pause",
]


def _answer_early(patch: Any) -> None:
    """Count a copy when it is asked for."""
    next_nodes = Spread.next_nodes

    def ask(self: Any, candidates: Candidates, now_us: int) -> list[NodeRef]:
        nodes = next_nodes(self, candidates, now_us)
        for node in nodes:
            self.heard(node, "held")
        return nodes

    patch(Spread, "next_nodes", ask)


def _hand_out_done(patch: Any) -> None:
    """Take over all that a node that is gone held, whatever is done of it."""

    def own(self: Any, stream: StreamId, after: int, last: int, now_us: int) -> None:
        owned = self.owned.setdefault(stream, type(self.knowledge.get(stream).done)())
        owned.join(after, last)
        self.shared.offer(self.unit(stream), after, last, NONE_YET, now_us)

    patch(Ledger, "own", own)


def _keep_done(patch: Any) -> None:
    """Tell others what was handed out, but not what is done."""
    as_known = StreamKnowledge.as_known

    def leave_out(self: Any, group: str, stream: StreamId) -> Known:
        return as_known(self, group, stream)._replace(done=())

    patch(StreamKnowledge, "as_known", leave_out)


def _no_grants(patch: Any) -> None:
    """Keep no record of what is handed out."""
    patch(Knowledge, "grant", lambda *_: [])


def _once_later(patch: Any) -> None:
    """Have what is handed out once at most be done when it is acknowledged."""
    patch(Ledger, "is_once", property(lambda _: False))


def _give_for_good(patch: Any) -> None:
    """Leave with a node that dies what it was given."""

    def drop(self: Any, node: NodeRef, _now_us: int) -> None:
        ledger = self._ledger
        for unit, after, last in list(ledger.shared.held_by(member_id(node))):
            ledger.knowledge.finish(ledger.stream(unit), after, last)
            ledger.shared.learn_done(unit, after, last)

    patch(Lending, "drop", drop)


def _no_restore(patch: Any) -> None:
    """Copy nothing anew."""
    patch(BestEffortQueue, "_copy_again", lambda *_: False)


def _drop_early(patch: Any) -> None:
    """Drop what one group has done, though others have not."""

    def done_of(self: Any, stream: StreamId) -> list[tuple[int, int]]:
        return covered([share.done(stream) for share in self._shares.values()], 1)

    patch(BestEffortQueue, "_done_of", done_of)


def _old_life(patch: Any) -> None:
    """Count copies of a life of a node that is over."""

    def gone(self: Any, node: NodeRef) -> bool:
        if node not in self.asked:
            return False
        self.heard(node, None)
        return True

    patch(Spread, "gone", gone)


def _no_digest(patch: Any) -> None:
    """Never compare what nodes know."""
    patch(BestEffortQueue, "_tell_digest", lambda *_, is_answer: None)


def _busy_lies(patch: Any) -> None:
    """Say that nothing is stored where a node that was asked has said nothing."""

    def state(self: Any) -> PutState:
        if self.is_made:
            return "ok"
        if self.made:
            return "under"
        return "busy" if "full" in self.refused.values() else "none"

    patch(Spread, "state", state)


def _no_watermark(patch: Any) -> None:
    """Take whatever comes."""
    patch(BestEffortQueue, "_make_room", lambda *_, may_drop: True)


def _no_pause(patch: Any) -> None:
    """Hand out for a group that is paused, as is known."""
    patch(GroupState, "pause", lambda *_: None)


CLUSTER_MUTANTS: dict[str, Callable[[Any], None]] = {
    "cluster-answer-early": _answer_early,
    "cluster-hand-out-done": _hand_out_done,
    "cluster-keep-done": _keep_done,
    "cluster-no-grants": _no_grants,
    "cluster-once-later": _once_later,
    "cluster-give-for-good": _give_for_good,
    "cluster-no-restore": _no_restore,
    "cluster-drop-early": _drop_early,
    "cluster-old-life": _old_life,
    "cluster-no-digest": _no_digest,
    "cluster-busy-lies": _busy_lies,
    "cluster-no-watermark": _no_watermark,
    "cluster-no-pause": _no_pause,
}
assert set(CLUSTER_MUTANTS) == set(get_args(ClusterMutant))
