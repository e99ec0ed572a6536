"""A group of consumers: two members share the partitions of a topic, and one goes on alone."""

from typing import Any

from poe.client import Consumer
from poe.testing import broker

OPTIONS: dict[str, Any] = {"group": "billing", "follow": True, "commit_interval_s": 0.05}


def receive(consumers: list[Consumer], count: int) -> list[bytes]:
    """Return the values of so many messages, whoever of the members gets them."""
    values: list[bytes] = []
    while len(values) < count:
        for consumer in consumers:
            values += [received.value or b"" for received in consumer.receive(timeout_s=0.01)]
    return values


with broker() as server:  # yours has a url such as poe://localhost:5555
    node = server.node
    node.create_topic("orders", partitions=2)
    with Consumer(server.url, "orders", **OPTIONS) as first:
        with Consumer(server.url, "orders", **OPTIONS) as second:
            owners: set[bytes] = set()
            while len(owners) < 2:  # until the first one has given up a partition
                first.receive(timeout_s=0.01)
                units = node.control("group", group="billing")["units"]
                owners = {unit["owner"] for unit in units}
            for number in range(10):
                node.put(f"orders-{number % 2}", b"order %d" % number)
            print(f"two members get {len(set(receive([first, second], 10)))} orders, each once")
        # What the second one had is the first one's now.
        node.put_many("orders-0", [b"order 10", b"order 12"])
        node.put("orders-1", b"order 11")
        print("one member goes on with:", *sorted(receive([first], 3)))

    with Consumer(server.url, "orders", group="billing") as consumer:
        print("left for who comes next:", [received.value for received in consumer])
    with Consumer(server.url, "orders", group="audit") as consumer:
        print("another group has all of them:", len(list(consumer)))
