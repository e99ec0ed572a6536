"""What is asked of the replicated log; the actors that answer are those of `poe.cluster.log`.

A node without an engine for it has none of them: `RoutingTable.replicas` is None.

To the registry of replicated topics, by its name `LOGS`:

    CreateLog, AlterLog, DeleteLog      answer as the topic registry does, once a majority agrees
    DescribeLogs, MoveLog, ForgetLogNode

To the replica of a partition, whose address is in `RoutingTable.replicas`:

    Put                                 as to an appendix server
    TrimLog, VerifyLog, DescribeReplica
                                        which may take their time, and so are nothing for `LOGS`

Errors are `PoeError`s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from poe.topic_properties import TopicProperties

LOGS: Final = "logs"
"""Name of the actor that knows all replicated topics."""


class CreateLog(NamedTuple):
    """Make a replicated topic; answers its description.

    Raises:
        TopicExists: there is one of that name, here or at another node.
        TooFewNodes: it is not made.
        NoQuorum: nobody agreed in time; it may be made later all the same.
    """

    topic: bytes
    properties: TopicProperties


class AlterLog(NamedTuple):
    """Change properties of a replicated topic, by name; answers its description.

    Raises:
        UnknownTopic: there is none.
        CatalogChangedMeanwhile: it is as it was.
        NoQuorum: nobody agreed in time; it may be done later all the same.
    """

    topic: bytes
    changes: Mapping[str, Any]


class DeleteLog(NamedTuple):
    """Delete a replicated topic at all nodes; answers None.

    Raises:
        UnknownTopic, NoQuorum, CatalogChangedMeanwhile: as `AlterLog`.
    """

    topic: bytes


class TrimLog(NamedTuple):
    """Delete at all nodes segments with nothing behind a pointer; answers how many went here.

    Raises:
        NoQuorum, PutUnconfirmed: as of a put.
    """

    pointer: int


class DescribeLogs(NamedTuple):
    """Answers a map: how the engine is, and each partition here."""

    has_streams: bool = True
    """Whether the engine is asked for the stream of each, as long as that takes little time."""


@dataclass(frozen=True, slots=True)
class DescribeReplica:
    """Asked of a replica: answers a map of how it is, at once unless it is at something else."""


@dataclass(frozen=True, slots=True)
class VerifyLog:
    """Compare the copy with those of other nodes.

    A replica answers whom to ask the same for that, which answers a row for each node.
    """


class MoveLog(NamedTuple):
    """Have a node lead some partitions of a replicated topic; answers None.

    Raises:
        UnknownTopic: this node has no copy of one.
        UnknownNode: the node has no replica of one, or is not reached.
        NoQuorum: it does not lead one in time; it may later all the same.
    """

    topics: Sequence[bytes]
    node: str
    """Id of its folder, in hexadecimal digits."""


class ForgetLogNode(NamedTuple):
    """Take a node that will not come back out of the engine; other nodes get what it had.

    Answers None; of one that the engine does not know, too, as where the servers are an operator's.

    Raises:
        NoQuorum: nobody agreed in time; it may be done later all the same.
    """

    node: str
    """Id of its folder, in hexadecimal digits."""
