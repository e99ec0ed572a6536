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
_LOG_PORT_ABOVE: Final = 1_000
"""Unless it is given, a node's `log_port` is as much above its `cluster_port`."""
_LOG_URL: Final = re.compile(r"(nats|tls)://" + _SEED.pattern)
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

    log_engine: str | None = None
    """What the node's replicated topics run on: `nats`, a `nats-server` that the node starts and
    ends, or the urls of servers of your own, nats://host:port or tls://host:port with commas
    between; None: the node has none."""

    log_port: Annotated[int | None, Range(1, 65535)] = None
    """Port on which the node's `nats-server` listens for those of other nodes; None: 1000 above
    cluster_port."""

    log_seeds: tuple[str, ...] = ()
    """Where the `nats-server` of other nodes listen, host:port each; by default those of `seeds`,
    each 1000 above the port that is given there."""

    log_bytes_max: Annotated[int, Range(1 << 26, unit="bytes")] = 1 << 30
    """How much of a partition of a replicated topic the engine remembers, for nodes that were away;
    one that was away for longer fetches the rest from another node. Several of the largest puts
    have to have room: one that it forgets before any node has it can be had from nobody."""

    log_credentials: Path | None = None
    """File with what the servers of `log_engine` want to see: user:password, a token, or a file of
    credentials as `nsc` makes it."""

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
        self._check_log()

    def _check_log(self) -> None:
        """Refuse what cannot be an engine of the replicated log, and options that nobody reads."""
        engine = self.log_engine
        is_child = engine == "nats"
        if not (engine is None or is_child or all(map(_is_log_url, self.log_urls))):
            allowed = "nats, or nats://host:port or tls://host:port with commas between, or none"
            if "@" in engine:
                allowed += "; who asks stands in the file of log_credentials"
                scheme, hidden = engine.partition("://")[0], engine.rpartition("@")[2]
                engine = f"{scheme}://(hidden)@{hidden}"
            raise OptionError("log_engine", engine, allowed)
        unread = [] if is_child else ["log_port", "log_seeds"]
        unread += [] if self.log_urls else ["log_credentials"]
        for key in unread:
            if getattr(self, key):
                needed = "urls of servers of your own" if key == "log_credentials" else "nats"
                raise OptionError("log_engine", engine or "none", f"{needed}, or no {key}")
        for seed in self.log_seeds:
            if not _is_seed(seed):
                raise OptionError("log_seeds", seed, "host:port of a nats-server of another node")
        if is_child:
            self._check_log_ports()

    def _check_log_ports(self) -> None:
        """Refuse places that are none, where they follow from others."""
        if not _is_seed(self.log_locator):
            allowed = f"one, as {_LOG_PORT_ABOVE} above cluster_port there is none"
            raise OptionError("log_port", "none", allowed)
        if self.log_locator == self.locator:
            raise OptionError("log_port", self.log_port, "another one than cluster_port")
        if self.seeds and not self.log_routes:
            allowed = f"given, as {_LOG_PORT_ABOVE} above the ports of the seeds there is none"
            raise OptionError("log_seeds", "()", allowed)

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
    def log_locator(self) -> str:
        """Where the `nats-server` of other nodes find that of this one: host:port."""
        host = self.locator.rpartition(":")[0]
        return f"{host}:{self.log_port or self.cluster_port + _LOG_PORT_ABOVE}"

    @property
    def log_routes(self) -> tuple[str, ...]:
        """Where those of other nodes are to begin with."""
        seeds = (each.rpartition(":") for each in self.seeds)
        derived = (f"{host}:{int(port) + _LOG_PORT_ABOVE}" for host, _, port in seeds)
        return self.log_seeds or tuple(filter(_is_seed, derived))

    @property
    def log_urls(self) -> tuple[str, ...]:
        """Where servers of the user's own are; none where the node starts one."""
        if self.log_engine is None or self.log_engine == "nats":
            return ()
        return tuple(each.strip() for each in self.log_engine.split(","))

    @property
    def name(self) -> str:
        """What the node is called."""
        return self.node_name or self.locator

    def check_reach(self, *, insecure: bool) -> None:
        """Refuse to speak in plaintext where others can hear it, unless that is meant.

        Raises:
            OptionError: it is so.
        """
        if self.cluster is None or insecure:
            return
        for url in self.log_urls:
            if url.startswith("nats:") and _is_public(url.partition("://")[2]):
                raise OptionError("log_engine", url, "a tls:// url, or set insecure")
        if self.cluster_certificate is not None:
            return
        allowed = "a loopback address such as 127.0.0.1, or set cluster_certificate, or insecure"
        if self.address.is_public:
            raise OptionError("cluster_host", self.cluster_host, allowed)
        for seed in (*self.seeds, *self.log_seeds):
            if _is_public(seed):
                raise OptionError("seeds" if seed in self.seeds else "log_seeds", seed, allowed)


def _is_public(seed: str) -> bool:
    """Return whether others than programs of this machine may hear what is said there."""
    host = seed.rpartition(":")[0].strip("[]")
    # A seed that cannot be looked up now may be there later, and lead anywhere.
    try:
        return ListenAddress.of(host, is_public=True).is_public
    except OptionError:
        return True


def _is_log_url(text: str) -> bool:
    """Return whether a text is the url of a server of NATS; a secret is no part of it."""
    found = _LOG_URL.fullmatch(text)
    return found is not None and _is_seed(text.partition("://")[2])


def _is_seed(text: str) -> bool:
    """Return whether a text is host:port."""
    found = _SEED.fullmatch(text)
    return found is not None and 1 <= int(found[2]) <= _PORT_MAX
