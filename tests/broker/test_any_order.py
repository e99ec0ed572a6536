"""The node keeps its promise in any order that its actors' messages may be delivered in."""

import random

import pytest

from poe.errors import ActorDead, TopicUnavailable
from tests.broker.nodes import SimulatedNode, read_by_next

pytestmark = pytest.mark.usefixtures("quiet")

TOPICS = (b"a", b"b")
SEEDS = range(4)
"""More orders are tried by the scenarios `sim` and `actors` of torture."""


@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_was_acknowledged_is_there_in_order_whatever_is_killed(tmp_path, seed):
    chance = random.Random(seed)
    sim = SimulatedNode(tmp_path, seed, count_limit=5, worker_timeout=0.3)
    acknowledged: dict[bytes, list[bytes]] = {topic: [] for topic in TOPICS}
    for number in range(60):
        topic, message = chance.choice(TOPICS), b"%d" % number
        try:
            sim.node.put(topic, message)
            acknowledged[topic].append(message)
        except (ActorDead, TopicUnavailable):
            pass  # neither acknowledged nor known to be lost
        match chance.randrange(8):
            case 0:
                sim.kill("topic_registry")
            case 1:
                sim.system.exit(chance.choice(sim.servers()), "kill")
            case 2 | 3:
                sim.advance(chance.choice((0.1, 0.5, 1.0)))
    for topic, messages in acknowledged.items():
        stored = [message for _, message in read_by_next(sim.node, topic)]
        assert [each for each in stored if each in set(messages)] == messages
        assert len(stored) == len(set(stored))
    sim.stop()
