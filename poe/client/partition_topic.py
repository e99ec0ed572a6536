"""Partitions on Poe, where a topic is one log: those of `t` are the topics `t-0` to `t-(n-1)`."""


def partition_topic(topic: bytes, partition: int, partitions: int) -> bytes:
    """Return the topic that holds a partition: the topic itself where it has only one."""
    return topic if partitions == 1 else b"%b-%d" % (topic, partition)
