"""Hosts with a cable each to a switch, which can be pulled, blocked one way, or made slow.

A second switch, to which the test itself is connected, is never touched: clients reach each host
whatever the hosts can do among themselves.
"""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from poe.actors import work
from tests.cluster.namespace import Namespace, reason_for_none

_NOBODY = "02:00:00:00:00:fe"
"""An address of Ethernet that no host has: what is sent to it is lost, silently."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with two cables."""

    number: int
    """From 1."""
    namespace: Namespace

    @property
    def address(self) -> str:
        """Where other hosts find it."""
        return f"10.77.0.{self.number}"

    @property
    def client_address(self) -> str:
        """Where the test finds it."""
        return f"10.78.0.{self.number}"


class Network:
    """Some hosts, and what is wrong with the cables between them."""

    def __init__(self, count: int) -> None:
        self.hub = Namespace()
        self.hosts = [Host(number, Namespace()) for number in range(1, count + 1)]
        self.hub.ip(
            *(f"link add name {switch} type bridge" for switch in ("peers", "clients")),
            *(f"link set {switch} up" for switch in ("peers", "clients")),
            "address add 10.78.0.254/24 dev clients",
        )
        for host in self.hosts:
            self._connect(host)

    def _connect(self, host: Host) -> None:
        addresses = {"peers": host.address, "clients": host.client_address}
        self.hub.ip(
            *(
                f"link add name {_port(host, switch)} type veth"
                f" peer name {switch} netns {host.namespace.path}"
                for switch in addresses
            ),
            *(f"link set {_port(host, switch)} master {switch} up" for switch in addresses),
        )
        for switch, address in addresses.items():
            host.namespace.ip(
                f"address add {address}/24 dev {switch}",
                f"link set {switch} up",
            )

    def cut_off(self, host: Host) -> None:
        """Pull a host's cable: nobody reaches it, it reaches nobody, and neither is told."""
        self.hub.ip(f"link set {_port(host, 'peers')} nomaster")

    def connect(self, host: Host) -> None:
        """Put it back in."""
        self.hub.ip(f"link set {_port(host, 'peers')} master peers")

    def cut_between(self, one: Host, other: Host) -> None:
        """Let nothing pass between two hosts, both of which all others still reach."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def connect_between(self, one: Host, other: Host) -> None:
        """Undo it."""
        self.connect_one_way(one, other)
        self.connect_one_way(other, one)

    def cut_one_way(self, sender: Host, receiver: Host) -> None:
        """Lose all that goes from one host to another; the way back is good."""
        sender.namespace.ip(
            f"neighbour replace {receiver.address} lladdr {_NOBODY} dev peers nud permanent"
        )

    def connect_one_way(self, sender: Host, receiver: Host) -> None:
        """Undo it."""
        sender.namespace.ip(f"neighbour delete {receiver.address} dev peers")

    def slow_down(self, host: Host, rate: str) -> None:
        """Let a host send and receive so much only, such as `10mbit`; more waits, then is lost."""
        bucket = ("tbf", "rate", rate, "burst", "16kb", "latency", "400ms")
        host.namespace.run("tc", "qdisc", "replace", "dev", "peers", "root", *bucket)
        self.hub.run("tc", "qdisc", "replace", "dev", _port(host, "peers"), "root", *bucket)

    def speed_up(self, host: Host) -> None:
        """Undo it."""
        host.namespace.run("tc", "qdisc", "delete", "dev", "peers", "root")
        self.hub.run("tc", "qdisc", "delete", "dev", _port(host, "peers"), "root")

    def close(self) -> None:
        """Let go of all hosts."""
        for namespace in (self.hub, *(host.namespace for host in self.hosts)):
            namespace.close()


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """Make so many hosts, and have the calling thread beside them; skip the test where that fails.

    What the thread starts in the block is there as well; it is to end within.
    """
    reason = reason_for_no_network()
    if reason is not None:
        pytest.skip(reason)
    with contextlib.closing(Network(count)) as made, made.hub.entered(), _threads_of_its_own():
        yield made


@contextlib.contextmanager
def _threads_of_its_own() -> Iterator[None]:
    """Let works of actors within have none of the threads of those before and after the block.

    They never end, and each stays in the network in which it was started.
    """
    shares = work._shares  # noqa: SLF001 - it has no need of that elsewhere
    before, shares._threads = shares._threads, work.Threads("poe-work", work.THREADS_MAX)  # noqa: SLF001
    try:
        yield
    finally:
        shares._threads = before  # noqa: SLF001


def reason_for_no_network() -> str | None:
    """Tell why there can be no hosts; None when there can."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else reason_for_none()


def _port(host: Host, switch: str) -> str:
    return f"{switch}{host.number}"
