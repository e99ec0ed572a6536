"""Which addresses are this machine's own: what goes there meets no network."""

import ipaddress


def is_loopback(address: str) -> bool:
    """Return whether this machine alone can reach an address, which is given as a number.

    Raises:
        ValueError: it is no address.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    # An IPv4 address that is written as one of IPv6; Python looks into it from 3.13 on only.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
