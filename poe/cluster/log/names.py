"""What streams and subjects of a cluster are called in its engine, which others may use as well."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from xxhash import xxh32_hexdigest

_CLUSTER_MAX: Final = 32
"""Longer names of clusters are cut, and told from each other by a sum: names of streams have 255
characters at most."""


@dataclass(frozen=True)
class Names:
    """The names of one cluster."""

    cluster: str

    @cached_property
    def prefix(self) -> str:
        """What stands for the cluster: a word without dots."""
        word = self.cluster.replace(".", "~")
        if len(word) <= _CLUSTER_MAX:
            return word
        return f"{word[: _CLUSTER_MAX - 9]}-{xxh32_hexdigest(self.cluster.encode())}"

    @cached_property
    def catalog(self) -> str:
        """The stream of the catalog, which no topic's can be called."""
        return f"{self.prefix}=~catalog"

    @cached_property
    def catalog_subject(self) -> str:
        """What subjects of keys begin with."""
        return f"poe.{self.prefix}.catalog."

    def stream(self, stream: str) -> str:
        """Return what the engine calls a stream."""
        return f"{self.prefix}={stream}"

    def subject(self, stream: str) -> str:
        """Return the subject of a stream, to which its entries are published."""
        return f"poe.{self.prefix}.stream.{stream}"

    def node(self, node: str) -> str:
        """Return the subject on which a node is asked; its name may have any characters."""
        return f"poe.{self.prefix}.node.{node.encode().hex()}"

    @property
    def all_nodes(self) -> str:
        """The subject on which each node says what it is called."""
        return f"poe.{self.prefix}.nodes"
