"""55x: what a consumer cannot read."""

from poe.errors.root import PoeError, shown


class ConsumerError(PoeError):
    """Messages that cannot be read as was asked for."""

    code = 550


class ConsumerClosed(ConsumerError):
    """The consumer was closed, perhaps by another thread or task while this one waited."""

    code = 551

    def __init__(self, reason: str = "it was closed") -> None:
        self.reason = reason
        super().__init__(
            f"consumer cannot read: {reason}; make a new one, with start=position() of this one to "
            "go on where it was"
        )


class MessagesLost(ConsumerError):
    """Messages were deleted before they were read: by retention, `trim` or `delete`.

    On Poe nobody knows any more whether there were any: a pointer from before the first message of
    a topic looks like one whose successors are gone. They had pointers from `pointer_low` to
    `pointer_high`; None where all that was there is gone. Behind `pointer_high` reading goes on.
    """

    code = 552

    def __init__(
        self, topic: bytes, partition: int, pointer_low: int, pointer_high: int | None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.pointer_low = pointer_low
        self.pointer_high = pointer_high
        what = f"with pointers from {pointer_low} "
        what += "on" if pointer_high is None else f"to {pointer_high}"
        super().__init__(
            f"topic {shown(topic)}, partition {partition}, holds nothing {what}; if there was "
            'something, it was deleted before it was read. Read what is left: start="oldest", or '
            'on_lost="skip"; keep messages longer: max_age'
        )
