"""The options that make a node one of a cluster."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from poe.broker.access.listen_address import ListenAddress
from poe.errors import OptionError
from poe.option import Range, check_options

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SEED: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s/\[\]]+):([0-9]{1,5})")
_HOST: Final = re.compile(r"[A-Za-z0-9:][A-Za-z0-9:._-]{0,254}")
_PORT_MAX: Final = 65535
_TEXT_MAX: Final = 255
_SEEDS_MAX: Final = 32
"""Nodes that are tried besides the seeds that were given."""


@dataclass(frozen=True, kw_only=True)  # no slots: it keeps what was looked up
class ClusterOptions:
    """Which cluster a node is in, where it finds the others, and where they find it.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    cluster: str | None = None
    """Name of the cluster; None: the node is in none, and nothing of all this is loaded."""

    seeds: tuple[str, ...] = ()
    """Nodes of the cluster to begin with, host:port each; these tell of the others."""

    cluster_host: str = "127.0.0.1"
    """Address to listen on for other nodes; others than loopback need `cluster_certificate`."""

    cluster_port: Annotated[int, Range(1, 65535)] = 5557
    """Port to listen on for other nodes."""

    node_name: str | None = None
    """Name of the node, for people; by default cluster_host:cluster_port."""

    zone: str | None = None
    """What fails together with this node, such as a rack: copies go to other zones first."""

    copies: Annotated[int, Range(1, 64, unit="nodes")] = 2
    """On how many nodes each message of a queue is, where its first put does not say."""

    cluster_mode: Literal["peer", "router"] = "peer"
    """`router` passes on what nodes have for each other that cannot see each other."""

    cluster_certificate: Path | None = None
    """PEM file: the node's certificate, for TLS between nodes."""

    cluster_key: Path | None = None
    """PEM file: the key of the certificate."""

    cluster_ca: Path | None = None
    """PEM file: authorities, of one of which each node of the cluster has its certificate."""

    cluster_nodes: tuple[str, ...] = ()
    """The `cluster_host` of every node, which its certificate has as common name: so none of them
    can speak as another. Without it all certificates of the authority are one."""

    def __post_init__(self) -> None:
        """Reject what is none, and what is not complete."""
        check_options(self)
        if self.cluster is not None and not _NAME.fullmatch(self.cluster):
            allowed = "1 to 63 of A-Z, a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
            raise OptionError("cluster", self.cluster, allowed)
        for seed in self.seeds:
            if not _is_seed(seed):
                raise OptionError("seeds", seed, "host:port of a node, such as 10.0.0.1:5557")
        for key in ("node_name", "zone"):
            text = getattr(self, key)
            if text is not None and not (1 <= len(text) <= _TEXT_MAX and text.isprintable()):
                raise OptionError(key, text, f"1 to {_TEXT_MAX} printable characters")
        files = ("cluster_certificate", "cluster_key", "cluster_ca")
        missing = [key for key in files if getattr(self, key) is None]
        if 0 < len(missing) < len(files):
            allowed = "the path of a PEM file: " + " and ".join(
                key for key in files if key not in missing
            )
            raise OptionError(missing[0], "none", allowed + " is given")
        if self.cluster is None:
            self._check_alone()
        if self.cluster_nodes:
            self._check_nodes()

    def _check_nodes(self) -> None:
        """Refuse names that could not be held to."""
        for name in self.cluster_nodes:
            if not _HOST.fullmatch(name):
                raise OptionError("cluster_nodes", name, "the cluster_host of a node")
        if self.cluster_host not in self.cluster_nodes:
            allowed = f"names of nodes, among them this one's cluster_host, {self.cluster_host!r}"
            raise OptionError("cluster_nodes", self.cluster_nodes, allowed)
        if self.cluster_certificate is None:
            raise OptionError("cluster_certificate", "none", "one, where cluster_nodes is given")
        if self.cluster_mode == "router":
            allowed = "peer, where cluster_nodes is given: a router speaks in the name of others"
            raise OptionError("cluster_mode", self.cluster_mode, allowed)

    def _check_alone(self) -> None:
        """Refuse what means nothing to a node that is in no cluster."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default:
                allowed = f"the name of the cluster that {each.name} is for, or no {each.name}"
                raise OptionError("cluster", "none", allowed)

    def with_known(self, locators: Iterable[str]) -> Self:
        """Return the same with nodes to begin with that were there once, after the seeds.

        So a node finds the others again where its seeds are gone for good.
        """
        known = (each for each in dict.fromkeys(locators) if _is_seed(each))
        new = (each for each in known if each not in self.seeds and each != self.locator)
        return replace(self, seeds=(*self.seeds, *islice(new, _SEEDS_MAX)))

    @cached_property
    def address(self) -> ListenAddress:
        """Where `cluster_host` leads.

        Raises:
            OptionError: nowhere.
        """
        return ListenAddress.of(self.cluster_host, is_public=True, prefix="cluster_")

    @property
    def locator(self) -> str:
        """Where other nodes find this one: host:port."""
        host = f"[{self.cluster_host}]" if ":" in self.cluster_host else self.cluster_host
        return f"{host}:{self.cluster_port}"

    @property
    def name(self) -> str:
        """What the node is called."""
        return self.node_name or self.locator

    def check_reach(self, *, insecure: bool) -> None:
        """Refuse to speak in plaintext where others can hear it, unless that is meant.

        Raises:
            OptionError: it is so.
        """
        if self.cluster is None or self.cluster_certificate is not None or insecure:
            return
        allowed = "a loopback address such as 127.0.0.1, or set cluster_certificate, or insecure"
        if self.address.is_public:
            raise OptionError("cluster_host", self.cluster_host, allowed)
        for seed in self.seeds:
            host = seed.rpartition(":")[0].strip("[]")
            # A seed that cannot be looked up now may be there later, and lead anywhere.
            try:
                is_public = ListenAddress.of(host, is_public=True).is_public
            except OptionError:
                is_public = True
            if is_public:
                raise OptionError("seeds", seed, allowed)


def _is_seed(text: str) -> bool:
    """Return whether a text is host:port."""
    found = _SEED.fullmatch(text)
    return found is not None and 1 <= int(found[2]) <= _PORT_MAX
