"""Which queues there are across nodes, and which groups take from them: read without a message.

Beside the topics of `RoutingTable`, which are this node's own. The registry of queues alone writes
it; connections and the embedded API read it, from any thread.
"""

from poe.actors import ActorRef


class QueueTable:
    """Queues by name, and groups by theirs.

    Always: each group takes from one queue. A tuple of `topics` is the same object as long as its
    group is the same, by which a connection knows that what it has found allowed still is.
    """

    __slots__ = ("_deleted", "_groups", "_refs")

    def __init__(self) -> None:
        self._refs: dict[bytes, ActorRef] = {}
        self._groups: dict[str, tuple[bytes, ...]] = {}
        self._deleted: set[str] = set()

    # ---- for readers ----------------------------------------------------------------------------

    def __contains__(self, queue: bytes) -> bool:
        return queue in self._refs

    def actor(self, queue: bytes) -> ActorRef | None:
        """Return the actor of a queue; None where there is no such queue."""
        return self._refs.get(queue)

    def actor_of_group(self, group: str) -> ActorRef | None:
        """Return the actor of the queue that a group takes from; None where it takes from none."""
        topics = self._groups.get(group)
        return None if topics is None else self._refs.get(topics[0])

    def topics(self, group: str) -> tuple[bytes, ...]:
        """Return the queue that a group takes from, alone; nothing where it takes from none."""
        return self._groups.get(group, ())

    def is_deleted(self, group: str) -> bool:
        """Return whether a group is known to be deleted; else it may be heard of any moment."""
        return group in self._deleted

    def names(self) -> list[bytes]:
        """Return the queues, sorted."""
        return sorted(self._refs)

    # ---- for the registry of queues -------------------------------------------------------------

    def add(self, queue: bytes, ref: ActorRef) -> None:
        """Take a queue in, or the actor that follows one that has ended."""
        self._refs[queue] = ref

    def add_group(self, group: str, queue: bytes) -> None:
        """Take a group in; one that is there and takes from the same queue stays as it is."""
        self._deleted.discard(group)
        if self._groups.get(group) != (queue,):
            self._groups[group] = (queue,)

    def remove_group(self, group: str) -> None:
        """Take a group out that is deleted; the registry of groups does so with its own, too."""
        self._groups.pop(group, None)
        self._deleted.add(group)

    def clear(self) -> None:
        """Take all out: they are there, but not for this node."""
        self._refs.clear()
        self._groups.clear()

    def remove(self, queue: bytes) -> None:
        """Take a queue out, with all groups that take from it."""
        self._refs.pop(queue, None)
        for group in [name for name, topics in self._groups.items() if topics == (queue,)]:
            self.remove_group(group)
