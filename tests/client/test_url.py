import pytest

from poe.client.local_server import LocalServer
from poe.client.url import parse_url, servers_of
from poe.errors import OptionError
from poe.security.credentials import Token
from poe.security.entry import Entry
from poe.security.tls import Tls
from poe.security.token import make_token


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("poe://localhost:1234", ("poe", [("localhost", 1234)])),
        ("poe://localhost", ("poe", [("localhost", 5555)])),
        ("poes://localhost,b:1", ("poe", [("localhost", 5556), ("b", 1)])),
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
     "poe://a:0", "poe://a:65536", "poe://a:" + "9" * 5000, "poe://a:x", "poe://a:-1", "poe://::1",
     "poe://a/topic", "poe://a b", None, b"poe://a"],
)  # fmt: skip
def test_what_is_no_url_is_an_error_that_shows_one(url):
    with pytest.raises(OptionError, match="use poe://host:port, poes://host:port or kafka"):
        parse_url(url)


def test_the_scheme_says_whether_there_is_tls():
    tls = Tls(ca="ca.pem")
    (plain,) = parse_url("poe://a").servers
    (safe,) = parse_url("poes://a").servers
    (told,) = parse_url("poes://a", Entry(tls)).servers
    assert plain.entry.tls is None
    assert (safe.entry.tls, told.entry.tls) == (Tls(), tls)


def test_tls_is_not_for_a_url_without_it():
    with pytest.raises(OptionError, match="poes://"):
        parse_url("poe://a", Entry(Tls()))


def test_kafka_and_the_node_of_this_process_take_no_entry():
    credentials = Token(make_token("t")[0])
    with pytest.raises(OptionError, match="option kafka"):
        parse_url("kafka://a", Entry(credentials=credentials))
    with pytest.raises(OptionError, match="node of this process"):
        servers_of(LocalServer(nobody), Entry(credentials=credentials))


def nobody(*_):
    """A node that serves nobody."""


@pytest.mark.parametrize("scheme", ["poe", "poes", "kafka", "http"])
def test_a_secret_in_a_url_is_refused_and_not_shown(scheme):
    with pytest.raises(OptionError, match=r"credentials=") as caught:
        parse_url(f"{scheme}://user:canary@a:1")
    assert "canary" not in f"{caught.value} {caught.value!r} {caught.value.value}"
