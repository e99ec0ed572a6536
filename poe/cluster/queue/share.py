"""What a queue asks of a node's part in one of its groups.

The seam between messages and groups: the queue knows who holds what, and tells the share what this
node is to hand out; the share hands out, and knows what is done.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from poe.broker.groups.ranges import Bounds
from poe.cluster.frames import Known, QueueFrame
from poe.cluster.identity import NodeRef, Peer, StreamId
from poe.cluster.queue.effects import Effect


class Share(Protocol):
    """A node's part in one group of a queue."""

    def set_owned(self, stream: StreamId, ranges: Sequence[Bounds], why: str, now_us: int) -> None:
        """Say all that this node is to hand out of a stream now, and why that has changed."""
        ...

    def arrived(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Say that a range is to be handed out besides, which has just come."""
        ...

    def serve(self, request: object, token: object, now_us: int) -> None:
        """Take a `LeaseRequest` or `GroupRequest`; its `Answer` is an effect, now or later."""
        ...

    def cancel(self, token: object, now_us: int) -> None:
        """Forget who asked; it is gone."""
        ...

    def hear(self, node: NodeRef, frame: QueueFrame, now_us: int) -> None:
        """Take what another node's share of the group has sent."""
        ...

    def peer_up(self, peer: Peer, now_us: int) -> None:
        """Take note that a node is there."""
        ...

    def peer_down(self, ref: NodeRef, now_us: int) -> None:
        """Take note that a node is not there."""
        ...

    def learn(self, known: Known, now_us: int) -> None:
        """Join what another node knows of a stream."""
        ...

    def known(self, stream: StreamId) -> Known:
        """Return all that is known of a stream, the same for what is the same."""
        ...

    def streams(self) -> Iterable[StreamId]:
        """Return the streams of which something is known."""
        ...

    def done(self, stream: StreamId) -> Iterable[Bounds]:
        """Return what is done of a stream."""
        ...

    def take_news(self) -> Sequence[Known]:
        """Return what this node has done, granted and so on since the last time."""
        ...

    def forget(self, stream: StreamId) -> None:
        """Drop all that is known of a stream, which is over and done everywhere."""
        ...

    def take_effects(self) -> Sequence[Effect]:
        """Return what is to be done by whoever runs the queue."""
        ...

    def expire(self, now_us: int) -> None:
        """Do what time has brought."""
        ...

    def next_deadline_us(self) -> int | None:
        """Return when to call `expire` next."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what is to be told of the group, as msgpack can hold it."""
        ...

    def counters(self) -> dict[str, int]:
        """Return what was counted."""
        ...
