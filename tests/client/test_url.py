import pytest

from poe.client.url import parse_url
from poe.errors import OptionError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("poe://localhost:1234", ("poe", [("localhost", 1234)])),
        ("poe://localhost", ("poe", [("localhost", 5555)])),
        ("kafka://a:1,b/", ("kafka", [("a", 1), ("b", 9092)])),
        ("kafka://10.0.0.1:1, b-2.x:65535", ("kafka", [("10.0.0.1", 1), ("b-2.x", 65535)])),
        ("poe://[::1]:7,[fe80::1]", ("poe", [("::1", 7), ("fe80::1", 5555)])),
    ],
)  # fmt: skip
def test_a_url_names_the_scheme_and_addresses(url, expected):
    scheme, servers = parse_url(url)
    assert (scheme, [(each.host, each.port) for each in servers]) == expected


@pytest.mark.parametrize(
    "url",
    ["", "localhost:5555", "http://localhost", "poe:/localhost", "poe://", "poe://:5555", "poe://a,",
     "poe://a:0", "poe://a:65536", "poe://a:x", "poe://a:-1", "poe://::1", "poe://user@a",
     "poe://a/topic", "poe://a b", None, b"poe://a"],
)  # fmt: skip
def test_what_is_no_url_is_an_error_that_shows_one(url):
    with pytest.raises(OptionError, match="use poe://host:port or kafka://host:port"):
        parse_url(url)
