"""What is known of a worker, for its queues, for people and for callbacks."""

from dataclasses import dataclass, field

from poe.client.producer.partition_queue import PartitionQueue
from poe.client.producer.topic_info import WorkerInfo, WorkerState
from poe.client.producer.transport import Link


@dataclass(eq=False)
class WorkerRecord:
    """What is known of a worker; the topic's actor keeps it up to date."""

    id: int
    broker: str
    queues: list[PartitionQueue] = field(default_factory=list)
    state: WorkerState = WorkerState.CONNECTING
    link: Link | None = None
    connected_s: float = 0.0
    """When it got its link, in monotonic time."""
    is_served: bool = False
    """Whether it was seen that its broker serves it; not only that it takes connections."""

    def info(self, topic: bytes) -> WorkerInfo:
        """Return it for people."""
        return WorkerInfo(
            topic,
            self.id,
            self.state,
            self.broker,
            tuple(queue.partition for queue in self.queues),
            sum(queue.buffered()[0] for queue in self.queues),
            sum(queue.in_flight_count() for queue in self.queues),
        )
