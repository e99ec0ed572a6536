"""680 to 699: what the replicated log refuses."""

from poe.errors.cluster import ClusterError
from poe.errors.root import shown
from poe.errors.short_text import short_repr


class NoQuorum(ClusterError):
    """No majority of the nodes of a replicated topic is there for a node.

    Nothing is stored, and it may be tried again. What is no put and `is_in_doubt` may be done later
    all the same, as the sentence says then: whoever tries that again may find it done. Where a part
    is `done` already, the sentence begins with it.
    """

    code = 680
    retriable = True

    def __init__(
        self, what: str, why: str = "", *, is_in_doubt: bool = False, done: str = ""
    ) -> None:
        """Say what cannot be agreed on; with a `why`, that it is this node which takes no puts."""
        self.what = what
        self.why = why
        self.is_in_doubt = is_in_doubt
        self.done = done
        sentence = (
            f"no majority of nodes agrees on {what} just now; nothing is stored: retry when more "
            "of them are back, which `poe cluster status` tells"
        )
        if is_in_doubt:
            sentence = (
                f"no majority of nodes agrees on {what} just now; what was asked may be done later "
                "all the same: before it is tried again, look with `poe topic describe`, or "
                "`poe cluster logs`, when more of them are back, which `poe cluster status` tells"
            )
        if done:
            sentence = (
                f"{done}; but no majority of nodes agrees on {what} just now: ask for the same "
                "again when more of them are back, which `poe cluster status` tells"
            )
        if why:
            sentence = (
                f"{what} takes no puts at this node: {why}; nothing is stored: retry later, or at "
                "another node; `poe cluster logs` tells how they are"
            )
        super().__init__(sentence)


class NoLogEngine(ClusterError):
    """A node has no engine of the replicated log."""

    code = 681

    def __init__(self) -> None:
        super().__init__(
            "replicated topics need a cluster of three nodes or more, each of which is started "
            "with `--cluster NAME --log-engine nats`; leave out `replicas` for a topic of this "
            "node alone"
        )


class LogEngineMissing(ClusterError):
    """What the replicated log runs on is not installed."""

    code = 682

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the replicated log needs {what}; install the extra poe-queue[log]: pip install "
            "'.[log]' in a checkout, or name an engine of your own: `--log-engine nats://host:4222`"
        )


class LogEngineUnfit(ClusterError):
    """The engine that was found is not one that promises can be kept with."""

    code = 683

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy
        super().__init__(f"the engine of the replicated log cannot be used: {why}; {remedy}")


class UnknownStream(ClusterError):
    """The engine has no stream of a replicated topic."""

    code = 684

    def __init__(self, stream: str) -> None:
        self.stream = stream
        super().__init__(
            f"the engine of the replicated log has no stream {short_repr(stream)}; its topic was "
            "deleted, or somebody has removed it behind the nodes' back"
        )


class CatalogChangedMeanwhile(ClusterError):
    """Two nodes have changed the same topic at once."""

    code = 685
    retriable = True

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"{short_repr(key)} was changed by another node at the same moment; look at it, then "
            "try again"
        )


class CopyIsBehind(ClusterError):
    """A node's copy of a replicated topic does not go as far yet as it is known to go."""

    code = 686
    retriable = True

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        super().__init__(
            f"the copy of replicated topic {shown(topic)} on this node is behind, or being fetched "
            "from another one; retry in a moment, or read at another node"
        )


class PutUnconfirmed(ClusterError):
    """Nobody could tell in time whether a put is stored, onto a replicated topic or a queue."""

    code = 688

    def __init__(self, topic: str, waited_s: float) -> None:
        self.topic = topic
        self.waited_s = waited_s
        super().__init__(
            f"a put onto {topic} was not confirmed in {waited_s} s; it may be stored: put again "
            "only what has an id, which is then stored once, or may be there twice"
        )


class CopyNotFetched(ClusterError):
    """A node's copy of a replicated topic lacks messages, and no other node has given them."""

    code = 689
    retriable = True

    def __init__(self, topic: bytes, why: str) -> None:
        self.topic = topic
        self.why = why
        super().__init__(
            f"the copy of replicated topic {shown(topic)} is not whole, and is not fetched: {why}; "
            "it is tried again"
        )


class NotReplicated(ClusterError):
    """Several nodes were named, to go on at the next one, and a topic is one of a node alone."""

    code = 690

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        super().__init__(
            f"topic {shown(topic)} is one of a node alone, and several are named: the others have "
            "none of it, or another one; name that node alone in the url, or make it by `poe topic "
            "create … --replicas 3` before a message is put onto it"
        )


class NodeIsBehind(ClusterError):
    """A node has yet to get, or to hear, what is known to be there of a replicated topic."""

    code = 691
    retriable = True

    def __init__(self, server: str, lacks: str) -> None:
        self.server = server
        self.lacks = lacks
        super().__init__(
            f"{server} has not got {lacks} yet; name all nodes in the url, and the next one is "
            "asked; `poe cluster logs` tells which copies lag"
        )


class CopyNotReached(ClusterError):
    """A node is to lead a replicated topic, and its copy is not reached, or there is none."""

    code = 692
    retriable = True

    def __init__(self, topic: bytes, node: str) -> None:
        self.topic = topic
        self.node = node
        super().__init__(
            f"node {short_repr(node)} cannot lead replicated topic {shown(topic)}: its engine is "
            "not reached, or keeps none of it; start that node, or name another one: "
            "`poe cluster logs` tells which are reached"
        )
