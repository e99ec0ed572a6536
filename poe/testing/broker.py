"""A broker in this process, for tests of programs that produce or consume: with failures on order.

    from poe.testing import broker

    def test_an_order_is_announced():
        with broker() as orders:
            announce(order, url=orders.url)
            assert [each.value for each in orders.collected("orders")] == [b"..."]

For Poe it is a real node behind a proxy on loopback; for Kafka, librdkafka's mock of a cluster.
Other processes can use it, too.
"""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self, overload

import poe
from poe.client.consumer.consumer import Consumer
from poe.client.consumer.loop_thread import LoopThread
from poe.client.consumer.source import Received
from poe.errors import OptionError, PoeError, UnknownTopic
from poe.testing.frame_proxy import FrameProxy

_LATENCY_MAX_S = 86400
_COUNT_MAX = 10_000


class FailingBroker(ABC):
    """Runs from construction to `close`, or to the end of a `with`; any thread may call it.

    Each method returns when its effect is there. After `close` all others raise `RuntimeError`, and
    for a wrong argument `OptionError`.
    """

    url: str
    """For a `Producer` or a `Consumer`; the same after `stop` and `start`."""

    def __init__(self) -> None:
        self._parts = ExitStack()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it for good, and forget all messages."""
        self._is_closed = True
        self._parts.close()

    @abstractmethod
    def stop(self) -> None:
        """Reset all connections and take no new ones, as if it had died; what it has, it keeps."""

    @abstractmethod
    def start(self) -> None:
        """Take connections again, at the same address; for one that was stopped."""

    @abstractmethod
    def cut(self) -> None:
        """Reset all connections; new ones are taken."""

    @abstractmethod
    def set_latency(self, latency_s: float) -> None:
        """Let each request from now on take so much longer; 0 is as fast as it can."""

    @abstractmethod
    def collected(self, topic: bytes | str, **options: Any) -> list[Received]:  # noqa: ANN401 - checked by `ConsumerOptions`
        """Return all messages that a topic has, those of a partition in order.

        Args:
            topic: its name; one that nobody has put onto has none.
            options: of a `Consumer`, such as `partitions` and `envelope`.
        """

    def _check_open(self) -> None:
        if self._is_closed:
            error = _ended("it was closed")
            raise error


class PoeBroker(FailingBroker):
    """A node of Poe, in a temporary folder, behind a proxy; `options` are the node's."""

    node: poe.Node
    """The node itself, which goes on while the broker is stopped: `broker.node.put("t", b"m")`."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - checked by `Config.load`
        super().__init__()
        with ExitStack() as parts:
            folder = parts.enter_context(
                TemporaryDirectory(prefix="poe-", ignore_cleanup_errors=True)
            )
            self.node = parts.enter_context(poe.Node({"dir": folder, "port": 0, **options}))
            assert self.node.address is not None
            self._proxy = FrameProxy(*self.node.address)
            self._thread = LoopThread("proxy of a test broker", self._proxy.stop, _ended)
            parts.callback(self._thread.close)
            self.start()
            self.url = f"poe://127.0.0.1:{self._proxy.port}"
            self._parts = parts.pop_all()

    def stop(self) -> None:
        """Reset all connections and refuse new ones; what is stored, stays."""
        self._thread.run(self._proxy.stop())

    def start(self) -> None:
        """Take connections again, at the same port."""
        self._thread.run(self._proxy.start())

    def cut(self) -> None:
        """Reset all connections; new ones are taken."""
        self._thread.run(self._proxy.cut())

    def set_latency(self, latency_s: float) -> None:
        """Pass each request on so much later; those of a connection wait side by side."""
        self._check_open()
        _check_latency(latency_s)
        self._proxy.latency_s = latency_s

    def fail(self, error: PoeError, count: int = 1) -> None:
        """Answer the next `count` puts with an error, such as `Overloaded`; they are not stored."""
        self._check_open()
        if not isinstance(error, PoeError):
            raise OptionError("error", error, 'a PoeError, such as Overloaded("puts_max", 7)')
        _check_whole("count", count, 0)
        self._proxy.failures.extend([error] * count)

    def lose_replies(self, count: int = 1) -> None:
        """Store the next `count` puts, but reset the connection in place of the answer."""
        self._check_open()
        _check_whole("count", count, 0)
        self._proxy.lost_count += count

    def collected(self, topic: bytes | str, **options: Any) -> list[Received]:  # noqa: ANN401 - see above
        """Return all messages of a topic, as of any broker; also while it is stopped."""
        self._check_open()
        assert self.node.address is not None
        host, port = self.node.address
        with Consumer(f"poe://{host}:{port}", topic, **options) as consumer:
            return list(consumer)


class KafkaBroker(FailingBroker):
    """A cluster that librdkafka plays; needs the extra `poe-queue[kafka]`.

    It keeps the newest 5 MB of each partition. A topic that is not made before has four.
    """

    def __init__(self, brokers: int = 1) -> None:
        super().__init__()
        _check_whole("brokers", brokers, 1)
        # Loaded here, since whoever tests against Poe need not have it.
        from poe.testing.kafka_cluster import KafkaCluster  # noqa: PLC0415

        self.cluster = self._parts.enter_context(KafkaCluster(brokers))
        self.url = self.cluster.url
        self._is_stopped = False

    def stop(self) -> None:
        """Reset all connections and take no new ones; what is stored, stays."""
        self._check_open()
        self._is_stopped = True
        self.cluster.down()

    def start(self) -> None:
        """Take connections again, at the same ports."""
        self._check_open()
        self.cluster.up()
        self._is_stopped = False

    def cut(self) -> None:
        """Reset all connections; new ones are taken, unless it is stopped."""
        self._check_open()
        self.cluster.down()
        if not self._is_stopped:
            self.cluster.up()

    def set_latency(self, latency_s: float) -> None:
        """Let all brokers wait so long before each answer."""
        self._check_open()
        _check_latency(latency_s)
        self.cluster.set_latency(latency_s)

    def fail(self, kafka_code: int, count: int = 1) -> None:
        """Answer the next `count` requests that carry messages with one of Kafka's error codes.

        For example 7 (timed out) is tried again, and 10 (too large) is not.
        """
        self._check_open()
        _check_whole("kafka_code", kafka_code, -_COUNT_MAX)
        _check_whole("count", count, 0)
        self.cluster.fail(*[kafka_code] * count)

    def collected(self, topic: bytes | str, **options: Any) -> list[Received]:  # noqa: ANN401 - see above
        """Return all messages of a topic, as of any broker; not while it is stopped."""
        self._check_open()
        if self._is_stopped:
            error = _ended("it is stopped, and a stopped Kafka shows nothing; start it first")
            raise error
        try:
            with Consumer(self.url, topic, **options) as consumer:
                return list(consumer)
        except UnknownTopic:
            return []


def _ended(reason: str) -> RuntimeError:
    return RuntimeError(f"the test broker cannot do that: {reason}")


def _check_latency(latency_s: object) -> None:
    if type(latency_s) not in {int, float} or not 0 <= latency_s <= _LATENCY_MAX_S:  # type: ignore[operator]  # a number
        raise OptionError("latency_s", latency_s, f"seconds, 0 to {_LATENCY_MAX_S}")


def _check_whole(name: str, value: object, low: int) -> None:
    if type(value) is not int or not low <= value <= _COUNT_MAX:
        raise OptionError(name, value, f"a whole number from {low} to {_COUNT_MAX}")


@overload
def broker(transport: Literal["poe"] = "poe", /, **options: Any) -> PoeBroker: ...  # noqa: ANN401 - as PoeBroker
@overload
def broker(transport: Literal["kafka"], /, *, brokers: int = 1) -> KafkaBroker: ...
def broker(transport: str = "poe", /, **options: Any) -> PoeBroker | KafkaBroker:
    """Start a broker for a test; it ends with `close`, or with a `with` block.

    Args:
        transport: "poe" or "kafka".
        options: for Poe, options of the node; for Kafka, `brokers`, how many the cluster has.

    Raises:
        OptionError: a transport that there is not, or an option of the node.
    """
    if transport not in {"poe", "kafka"}:
        raise OptionError("transport", transport, "poe or kafka")
    return PoeBroker(**options) if transport == "poe" else KafkaBroker(**options)
