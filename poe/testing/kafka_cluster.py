"""A Kafka cluster in this process, for tests: librdkafka's mock of one, with failures on order.

It speaks Kafka's protocol on loopback to any client, of other processes too. It keeps the newest
5 MB of each partition in memory, and makes a topic on first use, with four partitions. It needs
confluent-kafka, the extra `poe-queue[kafka]`; librdkafka calls the C functions behind it
experimental.
"""

import ctypes
import time
from typing import Self

from confluent_kafka import cimpl

_PRODUCE = 0
"""Kafka's number of the request that carries messages."""

_VERSIONS_MAX = {_PRODUCE: 9, 1: 11}
"""Of requests that carry messages and that fetch them: in answers to newer ones librdkafka names
the leader of a partition, and crashes where there is none."""

_PAUSE_S = 0.002
"""Before each change: what comes just behind the one before may lie there for a second."""

_ALL = -1
_RD_KAFKA_PRODUCER = 0
_ERROR_SIZE = 512

# The C symbols of the very library that confluent-kafka uses: looked up in its extension module, a
# name is found in what that is linked with.
_lib = ctypes.CDLL(cimpl.__file__)
for _name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
    getattr(_lib, _name).restype = ctypes.c_void_p
_lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
_lib.rd_kafka_err2str.restype = ctypes.c_char_p


class KafkaCluster:
    """Brokers 1 to `brokers`; they run until `close`, or to the end of a `with`.

    Its methods return when their effect is there. Any thread may call them.

    Unlike Kafka itself, it does not look at the numbers of an idempotent producer: what is under
    way when a broker goes down is there twice if its answer was lost. Where a request fails with
    others behind it, or its partition moves, a message may count as delivered that is not there.
    """

    def __init__(self, brokers: int = 1) -> None:
        """Start that many brokers.

        Raises:
            RuntimeError: librdkafka cannot; it says why.
        """
        error = ctypes.create_string_buffer(_ERROR_SIZE)
        configuration = ctypes.c_void_p(_lib.rd_kafka_conf_new())
        _lib.rd_kafka_conf_set(configuration, b"log_level", b"3", error, _ERROR_SIZE)
        handle = _lib.rd_kafka_new(_RD_KAFKA_PRODUCER, configuration, error, _ERROR_SIZE)
        if not handle:
            raise RuntimeError(error.value.decode())
        self._handle = ctypes.c_void_p(handle)
        self._cluster = ctypes.c_void_p(_lib.rd_kafka_mock_cluster_new(self._handle, brokers))
        if not self._cluster.value:
            _lib.rd_kafka_destroy(self._handle)
            msg = f"librdkafka cannot make a cluster of {brokers} brokers"
            raise RuntimeError(msg)
        for request, version in _VERSIONS_MAX.items():
            self._do("set_apiversion", *map(ctypes.c_int16, (request, 0, version)))
        self.addresses: str = _lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        """`host:port` of each broker, with commas between."""

    @property
    def url(self) -> str:
        """For a `Producer` or a `Consumer`."""
        return f"kafka://{self.addresses}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all brokers; what they held is gone. A second call does nothing."""
        if self._handle.value:
            time.sleep(_PAUSE_S)
            _lib.rd_kafka_mock_cluster_destroy(self._cluster)
            _lib.rd_kafka_destroy(self._handle)
            self._handle = ctypes.c_void_p()

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Make a topic.

        Raises:
            RuntimeError: it is there already.
        """
        self._do("topic_create", topic.encode(), partitions, 1)

    def down(self, broker: int = _ALL) -> None:
        """End all connections of a broker, or of all, and take no new ones; keep its messages."""
        self._do("broker_set_down", broker)

    def up(self, broker: int = _ALL) -> None:
        """Let a broker that was down, or all of them, go on at the same port."""
        self._do("broker_set_up", broker)

    def set_latency(self, latency_s: float, broker: int = _ALL) -> None:
        """Let a broker, or all of them, wait so long before each answer; 0 for no longer."""
        self._do("broker_set_rtt", broker, round(latency_s * 1000))

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        """Move a partition to another broker; with -1 it has no leader for now."""
        self._do("partition_set_leader", topic.encode(), partition, broker)

    def trim(self, topic: str, partition: int, offset: int) -> None:
        """Delete the messages of a partition before this offset."""
        self._do("partition_delete_records", topic.encode(), partition, ctypes.c_int64(offset))

    def fail(self, *codes: int, request: int = _PRODUCE) -> None:
        """Let the next requests fail, one with each of Kafka's error codes, in order.

        Args:
            codes: 6 is "not the leader", 7 "timed out", 10 "too large"; 0 lets one pass, and -195
                ends the connection without an answer.
            request: Kafka's number of the kind of request; 0 carries messages.
        """
        self._check_open()
        array = (ctypes.c_int * len(codes))(*codes)
        _lib.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(codes)), array
        )

    def _check_open(self) -> None:
        if not self._handle.value:
            msg = "the cluster was closed"
            raise RuntimeError(msg)

    def _do(self, name: str, *arguments: object) -> None:
        self._check_open()  # librdkafka would follow a pointer to nowhere
        time.sleep(_PAUSE_S)
        error = getattr(_lib, f"rd_kafka_mock_{name}")(self._cluster, *arguments)
        if error:
            msg = f"{name}{arguments}: {_lib.rd_kafka_err2str(error).decode()}"
            raise RuntimeError(msg)
