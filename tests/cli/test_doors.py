"""What a server says of what is open."""

from pathlib import Path

import pytest

from poe.broker import SecurityOptions
from poe.cli.doors import doors

PLAIN, TLS = ("127.0.0.1", 5555), ("::", 5556)
NOBODY = "anybody who can reach it, for there are no users"
USERS = "whoever proves to be a user of u.toml"


@pytest.mark.parametrize(
    ("users", "client_ca", "plain", "tls"),
    [
        (None, None, NOBODY, NOBODY),
        ("u.toml", None, USERS, USERS),
        (None, "ca.pem", NOBODY, "whoever has a certificate of ca.pem"),
        ("u.toml", "ca.pem", USERS, f"{USERS}, for which a certificate of ca.pem may do"),
    ],
)
def test_each_port_is_told_with_who_gets_in(users, client_ca, plain, tls):
    paths = [None if each is None else Path(each) for each in (users, client_ca)]
    certificate = Path("node.pem")
    options = SecurityOptions(
        users=paths[0], tls_port=0, tls_certificate=certificate, tls_client_ca=paths[1]
    )
    assert list(doors(PLAIN, TLS, None, options)) == [
        f"open: 127.0.0.1:5555, in plaintext, to {plain}",
        f"open: [::]:5556, by TLS 1.3 or newer, to {tls}",
    ]
    assert len(list(doors(None, TLS, None, options))) == 1
    assert len(list(doors(PLAIN, None, None, options))) == 1


def test_the_port_of_thespian_is_told_with_what_it_means():
    [told] = doors(None, None, 1900, SecurityOptions())
    assert "127.0.0.1:1900" in told
    assert "can run code as this server's user" in told
