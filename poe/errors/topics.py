"""46x and 47x: what a node refuses of topics and their properties."""

from poe.errors.broker import BrokerError
from poe.errors.root import shown


class ReservedTopic(BrokerError):
    """The topic is the node's own: clients may read it, and do nothing else."""

    code = 468

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        super().__init__(
            f"topic {shown(topic)} is the node's own, as all whose names begin with 'poe.'; "
            "use another name"
        )


class TopicExists(BrokerError):
    """A topic that was to be made is there already, or one of its partitions is."""

    code = 470

    def __init__(self, topic: bytes, node: str = "") -> None:
        self.topic = topic
        self.node = node
        where = f" on node {node}, and there alone; delete it there," if node else ""
        way_out = where or "; alter, adopt or delete it,"
        super().__init__(f"topic {shown(topic)} exists already{way_out} or use another name")


class PropertyMismatch(BrokerError):
    """A caller takes a topic for something that it is not."""

    code = 471

    def __init__(self, topic: bytes, name: str, asked: object, has: object) -> None:
        self.topic = topic
        self.name = name
        self.asked = asked
        self.has = has
        super().__init__(
            f"{name} of topic {shown(topic)} is {has!r}, and {asked!r} was asked for; leave it "
            "out, or ask for what the topic has"
        )


class PropertyFixed(BrokerError):
    """A property cannot become what was asked for; nothing was changed."""

    code = 472

    def __init__(self, topic: bytes, name: str, value: object, asked: object) -> None:
        self.topic = topic
        self.name = name
        self.value = value
        self.asked = asked
        super().__init__(
            f"{name} of topic {shown(topic)} is {value!r} and cannot become {asked!r}; partitions "
            "can only be added, and an envelope stays: make another topic, and copy"
        )
