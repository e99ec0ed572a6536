"""The seam between a producer and the brokers it speaks to: one implementation for each protocol.

Everything about order, numbers, downtime and retries is on the producer's side of it. A transport
finds brokers and connects; a link carries batches and says what became of each.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias

from poe.client.url import parse_url
from poe.errors import KafkaMissing, PoeError
from poe.protocol import PutId

if TYPE_CHECKING:
    from poe.client.producer.delivery import Outcome
    from poe.client.producer.payload import Messages
    from poe.client.producer.producer_options import ProducerOptions


class Broker(NamedTuple):
    """A server that partitions have their leader on."""

    id: int
    host: str
    port: int


class Partition(NamedTuple):
    """A partition of a topic."""

    id: int
    leader: int | None
    """Id of the broker that takes its messages; None while there is none."""


class TopicMetadata(NamedTuple):
    """Which partitions a topic has, and where."""

    topic: bytes
    brokers: tuple[Broker, ...]
    partitions: tuple[Partition, ...]
    refusal: PoeError | None = None
    """Why a server of Poe refuses the name; None: it does not, or has not answered."""
    envelope: bool = False
    """Of Poe: whether messages are stored with their keys and headers, so that values may be empty
    or None."""


class OutgoingBatch(NamedTuple):
    """The messages of one request."""

    topic: bytes
    partition: int
    messages: "Messages"
    """In order: all `bytes`, or all `Message`."""
    put_id: PutId | None
    """Stored once, however often it is sent; None where the transport numbers by itself."""
    size: int
    """Bytes of the messages."""


class LastPointer(int):
    """The pointer of a batch's last message, where those of the others are not one less each.

    Kafka's library may send a batch as several requests, and others put in between.
    """

    all: "list[int]"
    """The pointers of all its messages."""

    def __new__(cls, pointers: "list[int]") -> Self:
        """Keep them."""
        last = super().__new__(cls, pointers[-1])
        last.all = pointers
        return last


class PartlyStored(LastPointer):
    """The pointers of a batch of which some messages were refused, each for itself.

    The calls that share a batch have nothing to do with each other: one that is refused must not
    fail those whose messages are stored, which would be put again.
    """

    refused: "Mapping[int, Any]"
    """Why, by the places of these messages; their pointers are 0."""
    _told: "Callable[[list[Any], int], PoeError]"

    @classmethod
    def of(
        cls,
        pointers: "list[int]",
        refused: "Mapping[int, Any]",
        told: "Callable[[list[Any], int], PoeError]",
    ) -> Self:
        """Keep them; `told` makes one error of those among so many messages."""
        answer = cls(pointers)
        answer.refused = refused
        answer._told = told
        return answer

    @property
    def error(self) -> PoeError:
        """What whoever has all of the messages is told."""
        return self._told(list(self.refused.values()), len(self.all))

    def error_in(self, start: int, end: int) -> PoeError | None:
        """Return what a call with these messages is told; None: they are stored."""
        errors = [self.refused[place] for place in range(start, end) if place in self.refused]
        return self._told(errors, end - start) if errors else None


Done: TypeAlias = Callable[[int | PoeError], bool]
"""Told the pointer (offset) of the batch's last message, or what went wrong with it; or both, of a
batch that is `PartlyStored`.

False: nobody waits for that any more, since the connection was given up.
"""


class Link(Protocol):
    """One connection to one broker."""

    is_served: bool
    """Whether the broker has done what it was asked for: some take a connection to refuse it."""

    def send(self, batch: OutgoingBatch, done: Done) -> None:
        """Send a batch, or keep it to be sent as soon as the broker takes it; never blocks.

        Called by any thread, for batches of one partition by one at a time. `done` is called later
        in the loop's thread, never within `send`: once for each batch, and for batches of one
        partition in the order of their sends. After a `retriable` error, `ConnectionClosed`,
        `CallTimeout` or `ActorDead` the batch is sent again, with the same number.
        """
        ...

    def assist(self, outcome: "Outcome", timeout_s: float) -> None:
        """Help to receive until `outcome` is settled; called by any thread but the loop's.

        It may return at once, as where somebody else receives.
        """
        ...

    def close(self) -> None:
        """Close the connection; called in the loop's thread. `done` is called for what is open."""
        ...


class Transport(Protocol):
    """The brokers of one producer; all methods are called in the loop's thread."""

    numbers_puts: bool
    """Whether batches need a `PutId`: without one a broker could store a repeated batch twice."""

    times_out_requests: bool
    """Whether it deals by itself with a broker that does not answer within `request_timeout_s`."""

    takes_empty: bool
    """Whether values may be empty or None without an envelope."""

    async def metadata(self, topic: bytes) -> TopicMetadata:
        """Ask for the partitions of a topic, which is created where the broker does so.

        Raises:
            PoeError: nobody answers, or the topic is refused.
        """
        ...

    async def connect(self, topic: bytes, broker: Broker, on_lost: Callable[[str], None]) -> Link:
        """Connect to a broker, for batches of one topic.

        `on_lost(reason)` is called once if the connection ends by itself.

        Raises:
            PoeError: it cannot be reached.
        """
        ...

    def close(self) -> None:
        """Give up whatever is not a link; called when the loop has ended, or never ran."""
        ...


def transport_of(url: str, options: "ProducerOptions") -> Transport:
    """Return the transport that a url names; see `parse_url`.

    Raises:
        OptionError: it is no such url.
        KafkaMissing: confluent-kafka is not installed.
        ConfigError: a setting in option `kafka` is not acceptable.
    """
    scheme, servers = parse_url(url, options.entry)
    module, name = _CLASSES[scheme]
    # Imported when asked for: the one of Kafka loads librdkafka.
    try:
        transport: Any = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise KafkaMissing from error
    return transport(servers, options)  # type: ignore[no-any-return]  # of either class


_CLASSES = {
    "poe": ("poe.client.producer.poe_transport", "PoeTransport"),
    "kafka": ("poe.client.producer.kafka_transport", "KafkaTransport"),
}
