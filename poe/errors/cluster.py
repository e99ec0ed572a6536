"""650 to 669: what nodes of a cluster refuse each other and their clients."""

from poe.errors.root import PoeError, shown
from poe.errors.short_text import short_repr


class ClusterError(PoeError):
    """A cluster, or a queue of it, cannot do what was asked."""

    code = 650


class NotInCluster(ClusterError):
    """What was asked is a cluster's, and this node is in none."""

    code = 651

    def __init__(self) -> None:
        super().__init__("this node is in no cluster; start it with `--cluster NAME`")


class ForeignCluster(ClusterError):
    """A node, or a folder, belongs to another cluster."""

    code = 652

    def __init__(self, cluster: str, other: str) -> None:
        self.cluster = cluster
        self.other = other
        super().__init__(
            f"this is cluster {short_repr(cluster)}, and not {short_repr(other)}; give that name, "
            "or seeds of the right cluster"
        )


class IncompatibleProtocol(ClusterError):
    """Two nodes have no version of the protocol between nodes in common."""

    code = 653

    def __init__(self, version: int, version_min: int, other: int) -> None:
        self.version = version
        self.version_min = version_min
        self.other = other
        super().__init__(
            f"a node speaks version {other} of the protocol of clusters, and this one "
            f"{version_min} to {version}; update the older of the two"
        )


class IdentityConflict(ClusterError):
    """Two nodes that live have the same id: a folder was copied."""

    code = 654

    def __init__(self, node: str, other: str) -> None:
        self.node = node
        self.other = other
        super().__init__(
            f"node {node} runs twice, the other one as {short_repr(other)}: a folder was copied; "
            "stop one of them, and remove node.identity and node.members from the copy"
        )


class NodeForgotten(ClusterError):
    """The cluster has forgotten a node, and what it still holds is not to come back."""

    code = 655

    def __init__(self, node: str) -> None:
        self.node = node
        super().__init__(
            f"node {node} was forgotten by its cluster; stop it, and remove node.identity and "
            "node.members from its folder to let it join as a new one"
        )


class CorruptIdentity(ClusterError):
    """A file that tells which node of a cluster a folder is, is damaged."""

    code = 656

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(
            f"{path} cannot be used ({why}); remove it, and forget the node that it was by "
            "`poe cluster forget` at another one"
        )


class UnknownNode(ClusterError):
    """No member of the cluster has this id or name."""

    code = 657

    def __init__(self, node: str) -> None:
        self.node = node
        super().__init__(
            f"no member of the cluster is {short_repr(node)}, or more than one; "
            "`poe cluster members` tells their ids and names"
        )


class NodeAlive(ClusterError):
    """A member that lives cannot be forgotten."""

    code = 658

    def __init__(self, node: str) -> None:
        self.node = node
        super().__init__(f"node {short_repr(node)} lives; stop it before it is forgotten")


class TooFewNodes(ClusterError):
    """A put wants more copies than there are nodes that live; nothing is stored."""

    code = 659
    retriable = True

    def __init__(self, wanted: int, live: int) -> None:
        self.wanted = wanted
        self.live = live
        super().__init__(
            f"{wanted} copies were asked for, and {live} nodes live; nothing is stored: retry when "
            "there are more, or ask for fewer copies"
        )


class UnderCopies(ClusterError):
    """Messages are stored, on fewer nodes than was asked for: who puts them again doubles them."""

    code = 660

    def __init__(self, wanted: int, made: int) -> None:
        self.wanted = wanted
        self.made = made
        super().__init__(
            f"the messages are stored on {made} of {wanted} nodes, and will be copied to more as "
            "soon as there are some; a retry with the same id makes no doubles"
        )


class QueueBusy(ClusterError):
    """A queue is at its watermark on all nodes that could take a message; nothing is stored."""

    code = 661
    retriable = True

    def __init__(self, queue: bytes, limit: str, maximum: int) -> None:
        self.queue = queue
        self.limit = limit
        self.maximum = maximum
        super().__init__(
            f"queue {shown(queue)} is full: {limit} of {maximum} is reached; retry when consumers "
            "have done some, or raise it"
        )


class QueueMismatch(ClusterError):
    """A caller takes a queue for something that it is not."""

    code = 662

    def __init__(self, queue: bytes, what: str, asked: object, has: object) -> None:
        self.queue = queue
        self.what = what
        self.asked = asked
        self.has = has
        super().__init__(
            f"{what} of queue {shown(queue)} is {short_repr(has)}, and {short_repr(asked)} was "
            "asked for; leave it out, or ask for what the queue has"
        )


class UnknownQueue(ClusterError):
    """No node has put anything onto a queue of this name."""

    code = 663

    def __init__(self, queue: bytes) -> None:
        self.queue = queue
        super().__init__(
            f"queue {shown(queue)} is not known here; its first put makes it, and "
            "`poe queue list` tells which there are"
        )


class NotATopic(ClusterError):
    """What has pointers to read from was asked of a queue, which hands its messages out."""

    code = 666

    def __init__(self, queue: bytes) -> None:
        self.queue = queue
        super().__init__(
            f"{shown(queue)} is a queue of the cluster, which hands its messages out and is not "
            "read: take them by `poe.queue` or `poe work`, look at them by `poe queue dump`, "
            "delete it by `poe queue delete`"
        )


class PutTooLarge(ClusterError):
    """A put onto a queue has more bytes than can have copies at once; nothing is stored."""

    code = 667

    def __init__(self, size_bytes: int, maximum: int) -> None:
        self.size_bytes = size_bytes
        self.maximum = maximum
        super().__init__(
            f"a put of {size_bytes} bytes onto a queue is refused; send at most {maximum} at once, "
            "of which each message takes up to 15 for its place"
        )


class NotAQueue(ClusterError):
    """What queues across nodes have was asked of a name that is a topic of this node."""

    code = 668

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        super().__init__(
            f"{shown(topic)} is a topic of this node, and no queue of the cluster: ask another "
            "node, take another name, or leave out how many copies there are to be"
        )


class QueueExists(ClusterError):
    """A queue was to be made, and there is one of that name."""

    code = 669

    def __init__(self, queue: bytes) -> None:
        self.queue = queue
        super().__init__(
            f"queue {shown(queue)} exists already; put onto it as it is, which `poe queue list` "
            "tells, or delete it first"
        )


class ClusterMissing(ClusterError):
    """What connects nodes is not installed."""

    code = 664

    def __init__(self) -> None:
        super().__init__(
            "a cluster needs eclipse-zenoh; install the extra poe-queue[cluster]: "
            "pip install '.[cluster]' in a checkout"
        )


class FabricFailed(ClusterError):
    """A node cannot open, or has lost, its connections to other nodes."""

    code = 665

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the connections between nodes cannot be opened: {why}")
