"""4xx: what a node refuses."""

from poe.errors.root import PoeError, shown

_PATTERN_SHOWN_MAX = 200


class BrokerError(PoeError):
    """The node cannot serve the request."""

    code = 400


class UnknownTopic(BrokerError):
    """Nothing was ever put onto the topic, or all of it has expired."""

    code = 401

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        super().__init__(f"topic {shown(topic)} is not known; put a message onto it first")


class Overloaded(BrokerError):
    """A named limit is reached; the request was not done."""

    code = 403
    retriable = True

    def __init__(self, limit: str, value: int) -> None:
        self.limit = limit
        self.value = value
        super().__init__(f"limit {limit} of {value} is reached; retry later or raise it")


class TopicUnavailable(BrokerError):
    """The topic is being repaired or rotated, and that takes too long; the request was not done."""

    code = 407
    retriable = True

    def __init__(self, topic: bytes, waited_s: float) -> None:
        self.topic = topic
        self.waited_s = waited_s
        super().__init__(
            f"no appendix server has answered for topic {shown(topic)} for {waited_s} s; "
            "retry later"
        )


class TopicNotCreated(BrokerError):
    """A put onto a topic that does not exist, on a node where puts make none, or of a mapping."""

    code = 408

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        super().__init__(
            f"topic {shown(topic)} does not exist; make it with the control request create, "
            "or, for puts of others than mappings, set auto_create"
        )


class RangeGone(BrokerError):
    """Records that were to be copied are not there, or not all of them; nothing was copied."""

    code = 409

    def __init__(self, topic: bytes, pointer: int, last: int) -> None:
        self.topic = topic
        self.pointer = pointer
        self.last = last
        super().__init__(
            f"topic {shown(topic)} does not hold all that was put behind pointer {pointer} up to "
            f"{last}; copy the whole of a put before it is trimmed, or put it again"
        )


class InvalidPattern(BrokerError):
    """A regular expression that is none, or that this node cannot search by."""

    code = 410

    def __init__(self, pattern: str, reason: str) -> None:
        self.pattern = pattern[:_PATTERN_SHOWN_MAX]
        self.reason = reason
        super().__init__(f"cannot search by regular expression {self.pattern!r}: {reason}")


class NodeNotRunning(BrokerError):
    """A node was used before it was started, after it was stopped, or in a fork of its process."""

    code = 404

    def __init__(self) -> None:
        super().__init__("no node is running in this process; call poe.start() first")


class PortInUse(BrokerError):
    """The listener's address is taken."""

    code = 405

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        super().__init__(
            f"cannot listen on {host}:{port} ({reason}); use another port, or 0 for any"
        )


class NodeRunning(BrokerError):
    """`poe.start` was used twice."""

    code = 406

    def __init__(self) -> None:
        super().__init__("a node runs already; call poe.stop() first, or use poe.Node for another")
