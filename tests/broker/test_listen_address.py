"""Which hosts are loopback, of the node and of the gateway, and what is bound then."""

import socket
from dataclasses import replace

import pytest

from poe.broker import ListenerOptions, bind_port
from poe.broker.access.listen_address import ListenAddress
from poe.errors import OptionError, PortInUse
from poe.gateway.http import GatewayOptions
from poe.node import Node

IPV4, IPV6 = socket.AF_INET, socket.AF_INET6
DOORS = pytest.mark.parametrize("door", [ListenerOptions, GatewayOptions])


@pytest.fixture
def names(monkeypatch):
    """A resolver that knows these names, and counts how often it was asked for each."""
    known: dict[str, list[list[str]]] = {}
    asked: list[str] = []
    system = socket.getaddrinfo

    def look_up(host, port, *arguments, **options):
        asked.append(host)
        if host not in known:
            return system(host, port, *arguments, **options)
        addresses = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        found = []
        for each in addresses:
            family = IPV6 if ":" in each else IPV4
            place = (each, 0, 0, 0) if family is IPV6 else (each, 0)
            found.append((family, socket.SOCK_STREAM, 6, "", place))
        return found

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known, asked


@DOORS
@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.3.2.1", "127.3.2.1"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("localhost", "127.0.0.1"),
        # The system reads these as numbers, and it is the number that is bound.
        ("127.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    ],
)
def test_loopback_is_allowed_however_it_is_written(door, host, address):
    assert door(host=host).address.text == address


@DOORS
@pytest.mark.parametrize(
    "host",
    [
        "localhost.example.com",
        "127.example.com",
        "127.0.0.1.example.com",
        "::1234",
        "::1:2",
        "::",
        "0.0.0.0",
        "0",
        "",
        " ",
        "127.0.0.1 ",
        "127.0.0.1:80",
        "127.0.0.1\0.example.com",
        "[::1]",
        "*",
        "a..b",
        "::ffff:0.0.0.0",
        "::ffff:192.0.2.1",
        "fe80::1",
        "::1%nosuch",
        "128.0.0.1",
        "126.255.255.255",
        "3221226222",
        None,
        2130706433,
        b"127.0.0.1",
    ],
)
def test_what_is_none_or_not_loopback_is_refused(door, host):
    with pytest.raises(OptionError, match="loopback address") as refused:
        door(host=host)
    assert (refused.value.key, refused.value.value) == ("host", host)


@DOORS
def test_a_name_is_what_it_leads_to(door, names):
    names[0]["localhost.example.com"] = [["192.0.2.1"]]
    names[0]["127.example.com"] = [["127.0.0.1", "::1"]]
    with pytest.raises(OptionError, match=r"leads to 192\.0\.2\.1"):
        door(host="localhost.example.com")
    assert door(host="127.example.com").address == ListenAddress(IPV4, "127.0.0.1")


@DOORS
@pytest.mark.parametrize("addresses", [["127.0.0.1", "192.0.2.1"], ["::1", "2001:db8::1"]])
def test_one_address_that_others_can_reach_is_enough_to_refuse_a_name(door, names, addresses):
    for each in (addresses, addresses[::-1]):
        names[0]["both.example"] = [each]
        with pytest.raises(OptionError, match="leads to"):
            door(host="both.example")


def test_of_several_addresses_the_one_of_ipv4_is_bound(names):
    names[0]["both.example"] = [["::1", "127.0.0.1"]]
    assert ListenerOptions(host="both.example").address == ListenAddress(IPV4, "127.0.0.1")


def test_what_was_looked_up_is_bound_and_nobody_is_asked_again(names, tmp_path):
    """An answer that changes between the check and the binding opens nothing."""
    names[0]["changes.example"] = [["127.0.0.1"], ["0.0.0.0"]]
    with Node(dir=tmp_path, host="changes.example", port=0) as node:
        bound = bind_port(node.config.listener)
    assert bound.listening is not None
    assert bound.listening.getsockname()[0] == "127.0.0.1"
    bound.close()
    assert names[1].count("changes.example") == 1
    # Whoever makes other options of them asks anew, and is refused.
    with pytest.raises(OptionError, match=r"leads to 0\.0\.0\.0"):
        replace(node.config.listener, port=1)


def test_the_gateway_binds_what_was_looked_up(names):
    names[0]["changes.example"] = [["127.0.0.1"], ["0.0.0.0"]]
    options = GatewayOptions(host="changes.example", port=0)
    with options.address.listen(options.port) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


@DOORS
def test_with_insecure_any_address_of_this_machine_is_bound(door):
    options = door(host="0.0.0.0", port=0, insecure=True)
    with options.address.listen(0) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


@DOORS
@pytest.mark.parametrize("host", ["192.0.2.1", "nosuch.invalid", "a..b", ""])
def test_with_insecure_an_address_of_others_is_told_when_it_is_bound(door, host):
    options = door(host=host, port=0, insecure=True)
    with pytest.raises(OptionError, match="an address of this machine"):
        options.address.listen(0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_is_taken_is_told_for_either_family(host):
    address = ListenAddress.of(host, is_public=False)
    try:
        first = address.listen(0)
    except OptionError:
        pytest.skip("no such family here")
    with first, pytest.raises(PortInUse):
        address.listen(first.getsockname()[1])
