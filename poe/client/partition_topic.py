"""The partitions of a topic on Poe, as clients name them where no server does."""


def partition_topics(topic: bytes, count: int) -> tuple[bytes, ...]:
    """Return `t-0` to `t-(n-1)`, the topics that hold so many partitions of `t`; `t` for one."""
    return (topic,) if count == 1 else tuple(b"%b-%d" % (topic, number) for number in range(count))
