"""The worker: the actor that owns one connection to a broker."""

from typing import Any, ClassVar, NamedTuple

from poe.actors import ActorRef, AsyncWork, Exit, GenServer, Reason, Stop
from poe.actors.server_cell import cell_of_actor
from poe.client.producer.topic_info import WorkerState
from poe.client.producer.transport import Broker, Link, Transport
from poe.client.producer.worker_record import WorkerRecord
from poe.errors import PoeError


class Connected(NamedTuple):
    """To the topic's actor: a worker has its connection."""

    record: WorkerRecord
    time_us: int
    """How long it took."""


class _Lost(NamedTuple):
    reason: str


class Worker(GenServer):
    """Connects once, and ends with the connection; its topic starts another one.

    Its states are those of `WorkerState`. Messages do not come through it: queues send over
    its link, from whatever thread has something to send.
    """

    trap_exits = True
    pinned_to_loop: ClassVar[bool] = True

    def init(
        self,
        transport: Transport,
        topic: bytes,
        broker: Broker,
        record: WorkerRecord,
        owner: ActorRef,
    ) -> None:
        """Begin to connect."""
        self._record = record
        self._owner = owner
        self._begun_s = self.monotonic_s()
        tell = cell_of_actor(self).cast_from_outside
        self._connecting = AsyncWork(
            self, transport.connect(topic, broker, lambda reason: tell(_Lost(reason)))
        )

    def handle_info(self, message: Any) -> Stop | None:  # noqa: ANN401
        """Take the connection, or why there is none."""
        if isinstance(message, AsyncWork):
            return self._take(message)
        if isinstance(message, Exit):
            return Stop(message.reason)
        super().handle_info(message)
        return None

    def handle_cast(self, message: Any) -> Stop:  # noqa: ANN401
        """End with the connection."""
        assert isinstance(message, _Lost)
        return Stop(("shutdown", message.reason))

    def _take(self, connecting: AsyncWork) -> Stop | None:
        if connecting.error is not None:
            if isinstance(connecting.error, PoeError):
                return Stop(("shutdown", connecting.error))
            raise connecting.error
        link: Link = connecting.result
        self._record.link = link
        self._record.state = WorkerState.READY
        self._record.connected_s = self.monotonic_s()
        time_us = int((self._record.connected_s - self._begun_s) * 1e6)
        self.cast(self._owner, Connected(self._record, time_us))
        return None

    def describe_role(self) -> str:
        """Return the state."""
        return self._record.state

    def terminate(self, reason: Reason) -> None:
        """Close the connection."""
        del reason
        self._connecting.cancel()
        link: Link | None = self._connecting.result  # maybe not taken yet
        if link is not None:
            link.close()
