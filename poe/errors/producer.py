"""5xx: what a producer cannot take, send or deliver.

Codes: 500 to 519 what a caller's data or functions do wrong, from 520 on what becomes of messages.
"""

from poe.errors.root import PoeError, shown


class DeliveryError(PoeError):
    """Messages that are not delivered, or not known to be."""

    code = 500


class InvalidPayload(DeliveryError):
    """What was given to a producer is no payload; nothing of it was sent."""

    code = 501


class InvalidEnvelope(DeliveryError):
    """A stored message is no envelope of key, value and headers."""

    code = 502

    def __init__(self, problem: str, pointer: int | None = None) -> None:
        self.problem = problem
        self.pointer = pointer
        place = "" if pointer is None else f"with pointer {pointer} "
        super().__init__(
            f"message {place}is no envelope ({problem}); read topics of plain messages with "
            "envelope=False"
        )


class PickerFailed(DeliveryError):
    """The picker of a topic raised, or named a partition that there is not; nothing was sent."""

    code = 503

    def __init__(self, topic: bytes, problem: str) -> None:
        self.topic = topic
        self.problem = problem
        super().__init__(
            f"picker of topic {shown(topic)} {problem}; return one of the partitions it is given"
        )


class MassageFailed(DeliveryError):
    """The `massage` of a topic raised, or returned no messages; its batch was not sent."""

    code = 504

    def __init__(self, topic: bytes, problem: str) -> None:
        self.topic = topic
        self.problem = problem
        super().__init__(
            f"massage of topic {shown(topic)} {problem}; return the list of messages to send"
        )
