"""A mapping: rules route orders to topics, and a second run goes on where the first has ended."""

import json
import time

from poe.client import Consumer
from poe.mapping import Action, Drop, Mapping, Message, P, To
from poe.mapping.runner import Runner
from poe.mapping.station import RunOptions
from poe.testing import broker

mapping = Mapping("orders", source={"topics": ["orders"]}, decode="json", otherwise="dead")
mapping.rule("large", body={"amount": P > 100}, to="orders.large")
mapping.rule("by country", body={"country": P.exists}, to="orders.{body.country}")


@mapping.rule(body={"greeting": P.exists}, pure=True)
def greeting(message: Message) -> Action:
    if message.body["greeting"] == "nobody":
        return Drop("there is nobody")
    return To("greetings", message.with_body({"hello": message.body["greeting"]}))


def put(*bodies: object) -> None:
    server.node.put_many("orders", [json.dumps(each).encode() for each in bodies])


def run_until(topic: str, count: int) -> list[bytes | None]:
    """Run the mapping until so many messages are on a topic, and return them."""
    with Runner(mapping.rule_set(), server.url, RunOptions(), lambda: None):
        while True:
            if topic.encode() in server.node.topics():
                with Consumer(server.url, topic) as consumer:
                    found = [each.value for each in consumer]
                if len(found) >= count:
                    return found
            time.sleep(0.05)


with broker() as server:  # yours has a url such as poe://localhost:5555
    put(
        {"amount": 500}, {"amount": 5, "country": "DE"}, {"greeting": "Ann"}, {"greeting": "nobody"}
    )
    print("greetings:", run_until("greetings", 1))
    put({"amount": 700}, {"strange": True})
    print("dead letters:", len(run_until("orders.dead", 1)))
    print("large:", run_until("orders.large", 2))
    print("DE:", run_until("orders.DE", 1))
