"""520 to 549: what becomes of messages that a producer has taken."""

from poe.errors.actors import ActorDead, CallTimeout
from poe.errors.log import PutUnconfirmed
from poe.errors.producer import DeliveryError
from poe.errors.protocol import ConnectionClosed
from poe.errors.root import shown

NEVER_SENT = "they were not stored"
MAYBE_STORED = "they may be stored"

OUTCOME_UNKNOWN = (ConnectionClosed, CallTimeout, ActorDead, PutUnconfirmed)
"""Errors of a call that leave open whether it was done."""


class BufferFull(DeliveryError):
    """The buffer of a producer has no room; nothing of the call was taken."""

    code = 520
    retriable = True

    def __init__(self, option: str, limit: int) -> None:
        self.option = option
        self.limit = limit
        super().__init__(
            f"the producer holds as much as {option} allows ({limit}); put again later, or use "
            "on_full='block'"
        )


class BrokerDown(DeliveryError):
    """No broker could be reached in time; nothing was sent, and nothing will be."""

    code = 521
    retriable = True

    def __init__(self, topic: bytes, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(
            f"no broker takes topic {shown(topic)} ({reason}); the messages are withdrawn: send "
            "them again later, or have produce_async keep them until the broker is back"
        )


class Dropped(DeliveryError):
    """The messages fell out of the buffer of a downtime; `fate` tells if they may be stored."""

    code = 522

    def __init__(
        self,
        topic: bytes,
        side: str,
        way_out: str = "raise downtime_count, or use spool_dir",
        fate: str = NEVER_SENT,
    ) -> None:
        self.topic = topic
        self.side = side
        self.fate = fate
        super().__init__(
            f"messages of topic {shown(topic)} were the {side} in a full downtime buffer and are "
            f"dropped: {fate}; {way_out}"
        )


class ProducerClosed(DeliveryError):
    """The producer is closed, or was copied by a fork; the messages were not delivered."""

    code = 523

    def __init__(self, why: str = "the producer is closed") -> None:
        self.why = why
        super().__init__(f"{why}; make another one")


class SpoolDamaged(DeliveryError):
    """The messages waited on disk and cannot be read any more; `fate` tells if they are stored."""

    code = 526

    def __init__(self, topic: bytes, path: str, fate: str = NEVER_SENT) -> None:
        self.topic = topic
        self.path = path
        self.fate = fate
        super().__init__(
            f"messages of topic {shown(topic)} are damaged in spool_dir {path} and are lost: "
            f"{fate}; look at the disk, and send them again"
        )


class WouldBlock(DeliveryError):
    """A callback was about to wait for what only the thread that it runs in can bring about."""

    code = 525

    def __init__(self, call: str) -> None:
        self.call = call
        super().__init__(
            f"{call} would wait for ever in a callback, which runs in the thread that receives "
            "answers; use produce_async there, or another thread"
        )


class DeliveryTimeout(DeliveryError):
    """The messages were not acknowledged in time and are given up."""

    code = 524

    def __init__(self, topic: bytes, timeout_s: float, fate: str, reason: str) -> None:
        self.topic = topic
        self.timeout_s = timeout_s
        self.fate = fate
        self.reason = reason
        super().__init__(
            f"messages of topic {shown(topic)} were not acknowledged within {timeout_s} s and are "
            f"given up: {fate} ({reason}); raise the time-out, or look at the broker"
        )
