"""What a producer counts arrives where it was asked for, and costs no message when that fails."""

import logging
import socket
import subprocess
import sys

import pytest

from poe.client import Producer
from poe.client.metrics.metrics import COUNTERS, Labels, Metrics, sinks_of
from poe.client.metrics.statsd import StatsdSink, metric_name
from poe.errors import InvalidMessage, OptionError, Overloaded
from poe.testing.broker import broker
from tests.client.simulated import QueueWorld


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


class Broken:
    """A sink that fails, as one of a user may."""

    def add(self, labels, counts):
        raise KeyError(labels)

    def set(self, labels, gauge, value):
        raise KeyError(labels)

    def observe(self, labels, histogram, value):
        raise KeyError(labels)

    def close(self):
        raise KeyError


@pytest.fixture
def statsd():
    """The receiving end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        yield receiver


def url_of(receiver):
    return f"statsd://127.0.0.1:{receiver.getsockname()[1]}"


def lines_of(receiver):
    return receiver.recv(4096).decode().split("\n")


def tell_of_everything(metrics):
    """A short life of a producer."""
    counts = {"messages_sent": 10, "bytes_sent": 1000, "batches_sent": 1}
    metrics.add(b"orders", 3, "7", counts)
    metrics.add(b"orders", 3, "7", {"messages_retried": 10})
    metrics.add(b"orders", 3, "7", {"messages_delivered": 10})
    metrics.delivered(b"orders", 3, "7", 0.25)
    metrics.add(b"orders", 3, "", {"messages_failed": 2})
    metrics.add(b"orders", 3, "", {"messages_dropped": 4})
    metrics.set("messages_buffered", 5)
    metrics.set("messages_spooled", 6)
    metrics.set("workers", 2, b"orders")
    metrics.close()


def test_totals_are_kept_without_any_sink():
    world = QueueWorld()
    assert world.observer.totals == dict.fromkeys(COUNTERS, 0)
    link = world.connect()
    world.queue.add([b"a", b"bc"], is_due=True)
    link.refuse(Overloaded("in_flight_max", 1))
    link.answer()
    world.time.advance(1.0)
    link.run()
    world.queue.add([b"d"], is_due=True)
    link.refuse(InvalidMessage(1, 0))
    link.answer()
    world.observer.dropped(b"t", 0, 4)
    assert world.observer.totals == {
        "messages_sent": 5,
        "bytes_sent": 7,
        "batches_sent": 3,
        "messages_retried": 2,
        "messages_delivered": 2,
        "messages_failed": 1,
        "messages_dropped": 4,
    }


def test_a_sink_that_fails_is_logged_once_a_second_and_stops_nothing(caplog, statsd):
    clock = Clock()
    metrics = Metrics("poe", [Broken(), *sinks_of([url_of(statsd)])], clock)
    with caplog.at_level(logging.ERROR, "poe.client.producer.contained"):
        tell_of_everything(metrics)
        clock.now_s += 1
        metrics.set("workers", 1, b"orders")
    assert [record.getMessage() for record in caplog.records] == [
        "metrics raised (1 have so far)",
        "metrics raised (11 have so far)",
    ]
    assert lines_of(statsd)[0] == "poe.orders.messages_sent.broker7.3:10|c|@1.0"


def test_statsd_gets_counters_gauges_and_times_by_datagram(statsd):
    tell_of_everything(Metrics("poe", sinks_of([url_of(statsd) + "/ekaf"])))
    assert [lines_of(statsd) for _ in range(9)] == [
        [
            "ekaf.orders.messages_sent.broker7.3:10|c|@1.0",
            "ekaf.orders.bytes_sent.broker7.3:1000|c|@1.0",
            "ekaf.orders.batches_sent.broker7.3:1|c|@1.0",
        ],
        ["ekaf.orders.messages_retried.broker7.3:10|c|@1.0"],
        ["ekaf.orders.messages_delivered.broker7.3:10|c|@1.0"],
        ["ekaf.orders.delivery.broker7.3:250.000|ms"],
        ["ekaf.orders.messages_failed.3:2|c|@1.0"],
        ["ekaf.orders.messages_dropped.3:4|c|@1.0"],
        ["ekaf.messages_buffered:5|g|@1.0"],
        ["ekaf.messages_spooled:6|g|@1.0"],
        ["ekaf.orders.workers:2|g|@1.0"],
    ]


def test_a_name_for_statsd_has_no_character_that_means_something_there():
    labels = Labels("poe", "a.b:c|d@e/ä", "0", "host:9092")
    assert metric_name(labels, "flush") == "a_b_c_d_e__.flush.brokerhost_9092.0"


def test_statsd_without_a_listener_costs_nothing():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    sink = StatsdSink("127.0.0.1", port)
    for count in range(3):
        sink.set(Labels("poe"), "workers", count)
    sink.close()
    sink.set(Labels("poe"), "workers", 0)


def test_statsd_takes_the_address_of_a_name_where_somebody_listens(statsd, monkeypatch):
    places = [
        (socket.AF_INET6, "::1"),
        (socket.AF_INET, "127.0.0.2"),
        (socket.AF_INET, "127.0.0.1"),
    ]

    def addresses(_host, port, **_options):
        return [(family, socket.SOCK_DGRAM, 17, "", (ip, port)) for family, ip in places]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    sink = StatsdSink("localhost", statsd.getsockname()[1])
    for count in range(5):  # the first to each address is how the next one learns of the refusal
        sink.set(Labels("poe"), "workers", count)
    sink.close()
    assert lines_of(statsd)[0].startswith("poe.workers:")


def test_prometheus_has_every_metric_by_topic_partition_and_broker():
    client = pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")
    from poe.client.metrics import prometheus  # noqa: PLC0415 - needs the extra

    registry = client.CollectorRegistry()
    tell_of_everything(Metrics("first", [prometheus.sink_of(registry)]))
    tell_of_everything(Metrics("second", [prometheus.sink_of(registry)]))

    def value(name, **labels):
        none = dict.fromkeys(Labels._fields, "")
        return registry.get_sample_value(f"poe_producer_{name}", {**none, **labels})

    whole = {"client_id": "first", "topic": "orders", "partition": "3", "broker": "7"}
    assert value("messages_sent_total", **whole) == 10
    assert value("bytes_sent_total", **whole) == 1000
    assert value("batches_sent_total", **whole) == 1
    assert value("messages_retried_total", **whole) == 10
    assert value("messages_delivered_total", **whole) == 10
    assert value("delivery_seconds_bucket", **whole, le="0.1") == 0
    assert value("delivery_seconds_bucket", **whole, le="0.25") == 1
    assert value("messages_failed_total", **{**whole, "broker": ""}) == 2
    assert value("messages_dropped_total", **{**whole, "broker": ""}) == 4
    assert value("messages_buffered", client_id="second") == 5
    assert value("messages_spooled", client_id="second") == 6
    assert value("workers", client_id="second", topic="orders") == 2


def test_opentelemetry_has_every_metric_by_topic_partition_and_broker():
    sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="the SDK is not installed")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: PLC0415 - as above

    from poe.client.metrics.opentelemetry import OpenTelemetrySink  # noqa: PLC0415 - needs the extra

    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    tell_of_everything(Metrics("poe", [OpenTelemetrySink(provider)]))
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name.removeprefix("poe.producer."): metric.data.data_points[0]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    provider.shutdown()
    values = {
        name: getattr(point, "value", None) or getattr(point, "sum", None)
        for name, point in points.items()
    }
    assert values == {
        "messaging.client.sent.messages": 10,
        "bytes_sent": 1000,
        "batches_sent": 1,
        "messages_retried": 10,
        "messages_delivered": 10,
        "messaging.client.operation.duration": 0.25,
        "messages_failed": 2,
        "messages_dropped": 4,
        "messages_buffered": 5,
        "messages_spooled": 6,
        "workers": 2,
    }
    whole = {
        "messaging.system": "poe",
        "messaging.operation.name": "send",
        "messaging.client.id": "poe",
    }
    assert points["messaging.client.sent.messages"].attributes == {
        **whole,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "server.address": "7",
    }
    assert points["messages_buffered"].attributes == whole


@pytest.mark.parametrize(
    "asked", ["statsd", "statsd://", "statsd://:8125", "statsd://h:x", "statsd://h:99999",
              "datadog", "Prometheus", "", 7, None, object()],
)  # fmt: skip
def test_metrics_that_nobody_takes_are_an_error_that_says_what_there_is(asked):
    with pytest.raises(OptionError) as caught:
        sinks_of([asked])
    assert caught.value.key == "metrics"
    assert "statsd://" in caught.value.allowed


def test_an_unknown_statsd_host_is_told_at_once(monkeypatch):
    def nobody(*arguments, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(OptionError, match="Name or service not known"):
        sinks_of(["statsd://nowhere.invalid:8125"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"),
    [("prometheus", "prometheus_client"), ("opentelemetry", "opentelemetry")],
)
def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(name, package):
    code = f"""
import sys
sys.modules[{package!r}] = None  # as if it were not installed
from poe.client.metrics.metrics import sinks_of
sinks_of([{name!r}])
"""
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    said = run.stderr.splitlines()[-1]
    assert f"'{name}'; use it after `pip install '.[metrics]'`" in said
    assert package in said


@pytest.mark.slow
def test_a_producer_that_is_closed_has_no_workers():
    client = pytest.importorskip("prometheus_client")

    def workers():
        labels = {"client_id": "closed", "topic": "orders", "partition": "", "broker": ""}
        return client.REGISTRY.get_sample_value("poe_producer_workers", labels)

    with broker() as server:
        producer = Producer(server.url, metrics=["prometheus"], client_id="closed")
        producer.produce_sync("orders", b"a")
        assert workers() == 1
        producer.close()
        assert workers() == 0
        assert producer.info("orders").workers == ()
