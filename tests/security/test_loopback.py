"""Which addresses are this machine's own."""

import pytest

from poe.security.loopback import is_loopback


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.255.255.255", True),
        ("::1", True),
        ("::1%1", True),
        ("::127.0.0.1", False),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_an_address_is_this_machines_own_however_it_is_written(address, is_own):
    assert is_loopback(address) is is_own


def test_a_name_is_no_address():
    with pytest.raises(ValueError, match="localhost"):
        is_loopback("localhost")
