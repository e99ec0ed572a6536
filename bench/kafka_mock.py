"""Runs librdkafka's mock of a Kafka broker until its input ends; prints `ready on HOST:PORT`."""

import sys

from confluent_kafka import Producer


def main() -> None:
    """Serve; the mock lives as long as the client that has made it."""
    client = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(client.list_topics(timeout=10).brokers.values()))
    print(f"ready on {broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
