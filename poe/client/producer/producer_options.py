"""The options of a producer: those of each topic, and those of the whole.

An option of `TopicOptions` is given to a `Producer` as one value, or as a value for each topic with
`"*"` for the others: `linger_s={"orders": 0.0, "*": 0.05}`. Without `"*"` they have the default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from ssl import SSLContext
from typing import Annotated, Any, Literal, Self

from poe.client.producer.callbacks import Callback, Callbacks, Massage, check_function
from poe.errors import LocalProtocolError, OptionError, UnknownOption
from poe.option import Range, check_options
from poe.protocol import IN_FLIGHT_MAX, topic_bytes
from poe.protocol.put import BATCH_COUNT_MAX
from poe.security.credentials import Credentials
from poe.security.entry import Entry
from poe.security.tls import Tls

OTHERS = b"*"
"""Stands for the topics that are not named."""

Strategy = Literal["random", "sticky_round_robin", "strict_round_robin", "custom"]
OnFull = Literal["block", "raise"]
Drop = Literal["oldest", "newest"]
Picker = Callable[[bytes, bytes | None, Sequence[int]], int]
"""`picker(topic, key, partitions)` returns one of the partitions; the key is None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """How a producer treats one topic.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    partitions: Annotated[int | None, Range(1)] = None
    """Of a topic whose server does not know: how many topics, `t-0` to `t-(n-1)`, are its
    partitions; 1, as None, is `t` itself."""

    envelope: bool | None = None
    """Of such a topic on Poe: store messages with their key and headers, as msgpack; else those are
    dropped."""

    strategy: Strategy = "random"
    """Which partition a call goes to: any (`random`), the same for `sticky_count` messages
    (`sticky_round_robin`), the next (`strict_round_robin`), or what the key's hash says
    (`custom`)."""

    sticky_count: Annotated[int, Range(1, unit="messages")] = 1000
    """Messages in a row to one partition, with `sticky_round_robin`, and without a key."""

    picker: Picker | None = None
    """Decides on the partition instead of the strategy."""

    batch_count: Annotated[int, Range(1, BATCH_COUNT_MAX, unit="messages")] = 1000
    """Messages at which a batch leaves (ekaf: `max_buffer_size`, 100)."""

    batch_bytes: Annotated[int, Range(1, unit="bytes")] = 1 << 20
    """Bytes at which a batch leaves."""

    linger_s: Annotated[float, Range(unit="seconds")] = 0.005
    """Seconds after which a batch leaves however small it is, of the calls named `batched` (ekaf:
    `buffer_ttl`, 5 s); the others send at once."""

    on_full: OnFull = "block"
    """What a call does when the buffer is full: `block`, for `block_timeout_s` at most, or `raise`
    `BufferFull`."""

    block_timeout_s: Annotated[float, Range(unit="seconds")] = 60.0
    """Seconds that a call waits for room in the buffer before it raises `BufferFull`."""

    in_flight: Annotated[int, Range(1, IN_FLIGHT_MAX, unit="requests")] = 8
    """Requests that a worker sends before the first is answered."""

    workers: Annotated[int, Range(1)] = 1
    """Workers, each with one connection, that a topic starts with; with `ordered` no more than it
    has partitions."""

    workers_max: Annotated[int, Range(1)] = 1
    """Workers that a backlog may lead to; never fewer than `workers`."""

    worker_idle_s: Annotated[float, Range(unit="seconds")] = 60.0
    """Seconds without work after which a worker ends that a backlog has led to."""

    ordered: bool = True
    """Keep the order of a partition's messages, also where some have to be sent again."""

    request_timeout_s: Annotated[float, Range(is_above=True, unit="seconds")] = 30.0
    """Seconds without an answer after which a connection is given up, and its requests are sent
    again."""

    delivery_timeout_s: Annotated[float | None, Range(is_above=True, unit="seconds")] = 300.0
    """Seconds after which messages that could not be delivered are given up; None: never."""

    downtime_count: Annotated[int | None, Range(unit="messages")] = None
    """Messages kept while no broker can be reached; None: as many as the buffer takes (ekaf:
    `max_downtime_buffer_size`)."""

    downtime_drop: Drop = "oldest"
    """Which messages go when there are more than that: the `oldest`, or the `newest`."""

    massage: Massage | None = None
    """`massage(topic, messages)` returns the messages to send in place of a batch."""

    metadata_refresh_s: Annotated[float, Range(is_above=True, unit="seconds")] = 60.0
    """Seconds after which partitions and brokers are asked for again; while one has no leader,
    after `reconnect_max_s`, if that is less."""

    def __post_init__(self) -> None:
        """Reject what cannot be worked with."""
        check_options(self, none="None")
        if self.picker is not None:
            check_function("picker", self.picker, 3)
        if self.massage is not None:
            check_function("massage", self.massage, 2)
        object.__setattr__(self, "workers_max", max(self.workers, self.workers_max))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer works, and, in `topics`, what it was told of its topics.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    client_id: str = "poe"
    """Names the producer to Kafka, and in metrics."""

    buffer_count: Annotated[int, Range(1, unit="messages")] = 100_000
    """Messages that wait in memory, sent and not answered ones among them."""

    buffer_bytes: Annotated[int, Range(1, unit="bytes")] = 64 << 20
    """Bytes of them."""

    spool_dir: Path | None = None
    """Folder that keeps the messages of a downtime, across restarts too; None: memory does."""

    spool_bytes: Annotated[int, Range(1, unit="bytes")] = 1 << 30
    """Bytes in that folder at which messages are dropped, as `downtime_drop` says."""

    spool_fsync: bool = False
    """Make the spool survive a power cut as well, at the cost of a sync for each batch."""

    reconnect_min_s: Annotated[float, Range(is_above=True, unit="seconds")] = 0.1
    """Seconds to the second attempt to connect; each further wait is twice as long."""

    reconnect_max_s: Annotated[float, Range(is_above=True, unit="seconds")] = 5.0
    """The longest wait between two attempts."""

    close_timeout_s: Annotated[float, Range(unit="seconds")] = 10.0
    """Seconds in which `close` delivers what waits."""

    callbacks: Mapping[str, Callback] = field(default_factory=dict)
    """Functions by event; see `poe.client.producer.callbacks`."""

    metrics: Sequence[Any] = ()
    """Where metrics go: "statsd://host:port", "prometheus", "opentelemetry", or a `Sink`."""

    kafka: Mapping[str, Any] = field(default_factory=dict)
    """Settings of librdkafka, passed on as they are: TLS, SASL, compression."""

    tls: Tls | SSLContext | None = None
    """On Poe, with `poes://`: what to demand of TLS, and to show of oneself; None: a certificate
    of the server that the system trusts."""

    credentials: Credentials | None = None
    """On Poe: how to log in; None: not at all."""

    topics: Mapping[str, Mapping[bytes, Any]] = field(default_factory=dict)
    """What was given for `TopicOptions`: by name, then by topic or `OTHERS`."""

    @classmethod
    def load(cls, arguments: Mapping[str, Any]) -> Self:
        """Compose the options from the arguments of a `Producer`.

        Raises:
            UnknownOption: the name of one; it lists those there are.
            OptionError: a value that is not allowed.
        """
        of_topics = {each.name for each in fields(TopicOptions)}
        of_producer = {each.name for each in fields(cls)} - {"topics"}
        for name in arguments.keys() - of_topics - of_producer:
            raise UnknownOption(name, "one of " + ", ".join(sorted(of_topics | of_producer)))
        return cls(
            **{name: each for name, each in arguments.items() if name in of_producer},
            topics={
                name: _by_topic(name, each) for name, each in arguments.items() if name in of_topics
            },
        )

    def __post_init__(self) -> None:
        """Reject what cannot be worked with, for any topic."""
        check_options(self, none="None")
        if self.reconnect_max_s < self.reconnect_min_s:
            allowed = f"{self.reconnect_min_s} or more, as reconnect_min_s"
            raise OptionError("reconnect_max_s", self.reconnect_max_s, allowed)
        _check_type(self, "client_id", str, "text of length 1 or more")
        _check_type(self, "callbacks", Mapping, "a dictionary of events to functions")
        _check_type(self, "kafka", Mapping, "a dictionary of librdkafka's settings")
        _check_type(self, "metrics", (list, tuple), 'a list, as in ["prometheus"]')
        if self.spool_dir is not None:
            _check_type(self, "spool_dir", (str, Path), "the path of a folder, or None")
            object.__setattr__(self, "spool_dir", Path(self.spool_dir))
        Callbacks(self.callbacks)
        self._check_topics()

    @property
    def entry(self) -> Entry:
        """How to get in at the servers."""
        return Entry(self.tls, self.credentials)

    def of(self, topic: bytes) -> TopicOptions:
        """Return the options of one topic; keep them, they are checked anew each time."""
        given = {}
        for name, values in self.topics.items():
            if topic in values:
                given[name] = values[topic]
            elif OTHERS in values:
                given[name] = values[OTHERS]
        return TopicOptions(**given)

    def _check_topics(self) -> None:
        self.of(OTHERS)
        for topic in sorted(set().union(*self.topics.values())):
            try:
                self.of(topic)
            except OptionError as error:
                key = f"{error.key}[{topic.decode(errors='replace')!r}]"
                raise OptionError(key, error.value, error.allowed) from error
        drops = self.topics.get("downtime_drop", {})
        if self.spool_dir is not None and drops.keys() - {OTHERS}:
            allowed = "one value for all topics, since with spool_dir they share a folder"
            raise OptionError("downtime_drop", dict(drops), allowed)


def _by_topic(name: str, value: object) -> dict[bytes, Any]:
    """Return the values of an option by topic.

    Raises:
        OptionError: one is given for what can be no topic.
    """
    if not isinstance(value, Mapping):
        return {OTHERS: value}
    try:
        return {topic_bytes(topic): each for topic, each in value.items()}
    except LocalProtocolError as error:
        raise OptionError(name, dict(value), f"names of topics as keys ({error})") from error


def _check_type(options: object, key: str, kind: type | tuple[type, ...], allowed: str) -> None:
    value = getattr(options, key)
    # Path("") would be the current folder, where a variable was empty by mistake.
    if not isinstance(value, kind) or value == "":
        raise OptionError(key, value, allowed)
