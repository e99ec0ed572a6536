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


class QueueClosed(ConsumerError):
    """The work queue was closed, perhaps by another thread or task while this one waited."""

    code = 553

    def __init__(self, reason: str = "it was closed") -> None:
        self.reason = reason
        super().__init__(f"queue hands nothing out: {reason}; make a new one")


class MessagesLost(ConsumerError):
    """Messages were deleted before they were read: by retention, `trim` or `delete`.

    They had pointers from `pointer_low` to `pointer_high`, None where the whole topic is gone.
    Behind `pointer_high` reading goes on. What an older version has deleted, or a store that was
    damaged, is not known: then `is_certain` is False, and perhaps there were none.
    """

    code = 552

    def __init__(
        self,
        topic: bytes,
        partition: int,
        pointer_low: int,
        pointer_high: int | None,
        *,
        is_certain: bool = True,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.pointer_low = pointer_low
        self.pointer_high = pointer_high
        self.is_certain = is_certain
        what = f"with pointers from {pointer_low} "
        what += "on" if pointer_high is None else f"to {pointer_high}"
        what += "; there was something, and" if is_certain else "; if there was something,"
        super().__init__(
            f"topic {shown(topic)}, partition {partition}, holds nothing {what} it was deleted "
            'before it was read. Read what is left: start="oldest", or on_lost="skip"; keep '
            "messages longer: max_age"
        )
