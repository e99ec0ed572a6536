"""Web pages, and names that were made to lead here, get nothing from a gateway; byte for byte."""

import pytest

from poe.errors import OptionError, RequestRefused
from poe.gateway.http import Gateway, GatewayOptions, routes
from poe.gateway.http.guard import Guard
from poe.gateway.http.openapi import document
from tests.gateway.http.front import Front, reply, stored, whole_reply
from tests.gateway.http.test_limits import UPGRADE

ROUTES = [
    (method.upper(), path.replace("{topic}", "guarded"))
    for path, methods in document(GatewayOptions())["paths"].items()
    for method in methods
]
PATHS = [
    *ROUTES,
    *(("GET", path) for path in ("/nothing/here", "/", "/topics/t/", "//x")),
    *(("HEAD", "/topics"), ("PUT", "/sync/t"), ("OPTIONS", "/sync/t"), ("DELETE", "/healthz")),
]
APP = "https://app.example"

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def open_front(node):
    """A gateway that has a name, and whose pages two origins have."""
    options = ("--allowed-hosts", "gateway.example, 192.0.2.7", "--allowed-hosts", "Other.Example.")
    with Front(node, *options, "--allowed-origins", f"{APP},http://[::1]:3000") as front:
        yield front


def ask(front, method, path, *lines, version="1.1", body=b"x"):
    """Status, headers and body of what a request with these headers gets."""
    head = [f"{method} {path} HTTP/{version}", *lines, f"Content-Length: {len(body)}"]
    with front.connect() as connection:
        connection.sendall(
            "\r\n".join([*head, "Connection: close", "", ""]).encode("latin-1") + body
        )
        content = whole_reply(connection)
    head, _, body = content.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    return int(status.split()[1]), headers, body


def status(front, *request, **options):
    return ask(front, *request, **options)[0]


@slow
@pytest.mark.parametrize("request_line", PATHS, ids=" ".join)
@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        (["Host: evil.example"], 421),
        (["Host: evil.example:8000", "Sec-Fetch-Site: same-origin"], 421),
        (["Host: localhost.evil.example"], 421),
        ([], 400),
        (["Host: localhost", "Host: evil.example"], 400),
        (["Host: localhost", "Origin: https://evil.example"], 403),
        (["Host: localhost", "Origin: null"], 403),
        (["Host: localhost", "Sec-Fetch-Site: cross-site"], 403),
        (["Host: localhost", "Sec-Fetch-Site: same-site"], 403),
    ],
)
def test_no_path_answers_a_web_page(front, node, request_line, lines, refusal):
    method, path = request_line
    told, headers, body = ask(front, method, path, *lines, "Content-Type: text/plain")
    assert told == refusal
    assert not [name for name in headers if name.startswith("access-control-")]
    if method != "HEAD":
        assert body.startswith(b'{"error":{"code":902,"name":"RequestRefused","message":"')
    assert stored(node, "guarded") == []


@slow
@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:8000", "localhost.", "localhost:", "127.0.0.1", "127.9.8.7:1",
     "[::1]", "[::1]:8000", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", " localhost "],
)  # fmt: skip
def test_loopback_has_many_names(front, host):
    assert status(front, "GET", "/healthz", f"Host:{host}") == 200


@slow
@pytest.mark.parametrize(
    "host",
    ["127.example.com", "localhost.example.com", "127.0.0.1.nip.io", "foo.localhost", "0.0.0.0",
     "[::]", "[::1234]", "192.0.2.7", "gateway.example", "128.0.0.1", "2130706433", "localhost..",
     "[::ffff:192.0.2.7]", "127.0.0.01"],
)  # fmt: skip
def test_what_only_looks_like_loopback_is_refused(front, host):
    assert status(front, "GET", "/topics", f"Host: {host}") == 421


@slow
@pytest.mark.parametrize(
    "host",
    ["", ":8000", ".", "localhost:x", "localhost:99999", "localhost:-1", "localhost/x", "[::1",
     "::1", "[::1]x", "[1.2.3.4]", "[:::]", "a b", "user@localhost", "localhost,evil.example",
     "http://localhost", "localhost\x0b", "loc\xe4lhost", "[::1%25lo]"],
)  # fmt: skip
def test_what_is_no_host_is_a_wrong_request(front, host):
    assert status(front, "GET", "/topics", f"Host: {host}") == 400


@slow
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_without_a_host_is_refused(front, version):
    assert status(front, "GET", "/healthz", version=version) == 400


@slow
@pytest.mark.parametrize(
    ("url", "host", "expected"),
    [
        ("http://localhost/healthz", "localhost", 200),
        ("http://evil.example/topics", "localhost", 400),
        ("http://evil.example/topics", "evil.example", 421),
        ("http://localhost/topics", "evil.example", 400),
        ("http://user@localhost/topics", "localhost", 400),
        ("https://evil.example?x", "localhost", 400),
        ("http://", "localhost", 400),
    ],
)
def test_a_host_in_the_request_line_counts_as_well(front, url, host, expected):
    assert status(front, "GET", url, f"Host: {host}") == expected


@slow
def test_a_request_that_asks_for_another_protocol_is_looked_at_too(front, node, topic):
    upgrade = UPGRADE.decode().removesuffix("\r\n").split("\r\n")
    for lines, expected in (
        (["Host: evil.example"], 421),
        (["Host: localhost", "Origin: https://evil.example"], 403),
        (["Host: localhost", "Host: localhost"], 400),
        (["Host: localhost"], 200),
    ):
        with front.connect() as connection:
            head = "\r\n".join([f"POST /sync/{topic} HTTP/1.1", *lines, *upgrade, ""])
            connection.sendall(head.encode() + b"Content-Length: 4\r\n\r\ngood")
            assert int(reply(connection)[0].split()[1]) == expected
    websocket = "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AA=="
    assert status(front, "GET", "/topics", "Host: evil.example", *websocket, body=b"") == 421
    assert stored(node, topic) == [b"good"]


@slow
def test_followers_are_looked_at_before_the_stream_begins(front, node, topic):
    node.put(topic, b"secret")
    for line in ("Origin: https://evil.example", "Sec-Fetch-Site: cross-site"):
        lines = ("Host: localhost", "Accept: text/event-stream", line)
        told, headers, body = ask(front, "GET", f"/topics/{topic}?pointer=oldest", *lines)
        assert (told, headers["content-type"]) == (403, "application/json")
        assert b"secret" not in body


@slow
def test_clients_that_are_no_browser_notice_nothing(front, node, topic):
    assert front.http.post(f"/sync/{topic}", content=b"x").status_code == 200
    headers = {"Sec-Fetch-Site": "none"}  # the user has typed the address
    assert front.http.get(f"/topics/{topic}", headers=headers).status_code == 200
    assert "vary" not in front.http.get("/healthz").headers


@slow
@pytest.mark.parametrize(
    "host", ["gateway.example", "GATEWAY.example:443", "other.example", "192.0.2.7:80", "localhost"]
)
def test_hosts_that_were_given_are_ours_with_any_port(open_front, host):
    assert status(open_front, "GET", "/healthz", f"Host: {host}") == 200
    assert status(open_front, "GET", "/healthz", f"Host: x.{host}") == 421


@slow
@pytest.mark.parametrize("origin", [APP, "http://[::1]:3000"])
def test_a_page_of_an_allowed_origin_may_write_and_read(open_front, node, topic, origin):
    lines = ("Host: localhost", f"Origin: {origin}", "Sec-Fetch-Site: cross-site")
    told, headers, _ = ask(open_front, "POST", f"/sync/{topic}", *lines)
    assert told == 200
    assert headers["access-control-allow-origin"] == origin
    assert headers["vary"] == "Origin"
    assert "Poe-Next" in headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in headers
    told, headers, _ = ask(open_front, "GET", "/nothing", *lines)
    assert (told, headers["access-control-allow-origin"]) == (404, origin), "errors can be read"
    assert stored(node, topic) == [b"x"]


@slow
@pytest.mark.parametrize(
    "origins",
    [["https://evil.example"], ["null"], [""], [f"{APP}.evil.example"], [f"{APP}:8443"],
     ["http://app.example"], [APP, "null"], [APP, "https://evil.example"], [f"{APP}/"], ["*"]],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_pages_of_other_origins_are_still_refused(open_front, topic, method, origins):
    lines = ["Host: localhost", *(f"Origin: {each}" for each in origins)]
    asked = "Access-Control-Request-Method: POST"
    told, headers, _ = ask(open_front, method, f"/sync/{topic}", *lines, asked)
    assert told == 403
    assert headers["vary"] == "Origin", "no cache gives this to another page"
    assert not [name for name in headers if name.startswith("access-control-")]


@slow
def test_an_allowed_origin_does_not_make_up_for_a_foreign_host(open_front):
    assert status(open_front, "GET", "/topics", "Host: evil.example", f"Origin: {APP}") == 421


@slow
def test_a_browser_is_told_what_an_allowed_page_may_send(open_front, node, topic):
    lines = ("Host: localhost", f"Origin: {APP}", "Access-Control-Request-Method: POST")
    told, headers, body = ask(
        open_front, "OPTIONS", f"/sync/{topic}", *lines,
        "Access-Control-Request-Headers: content-type, poe-key,poe-header-trace, b\xe4d",
        "Access-Control-Request-Private-Network: true",
    )  # fmt: skip
    assert (told, body) == (204, b"")
    assert headers["access-control-allow-origin"] == APP
    methods = {"HEAD"}.union(*(row.needs for row in routes.ROUTES))
    assert headers["access-control-allow-methods"] == ", ".join(sorted(methods))
    assert headers["access-control-allow-headers"] == "content-type, poe-key, poe-header-trace"
    assert headers["access-control-allow-private-network"] == "true"
    assert headers["access-control-max-age"] == "600"
    assert headers["vary"] == "Origin"
    assert stored(node, topic) == []


@slow
def test_options_that_ask_for_nothing_are_answered_as_before(front, open_front):
    for each in (front, open_front):
        told, headers, _ = ask(each, "OPTIONS", "/sync/t", "Host: localhost")
        assert (told, headers["allow"]) == (405, "POST")
        assert "access-control-allow-methods" not in headers


@slow
def test_what_was_refused_is_counted(front):
    assert status(front, "GET", "/topics", "Host: evil.example") == 421
    counted = 'poe_gateway_requests_total{method="GET",route="other",status="421"}'
    assert counted in front.http.get("/metrics").text


@slow
def test_on_all_interfaces_the_address_that_was_connected_to_is_a_host(node):
    """A number is safe: a page of another site never has it as its host."""
    with Front(node, "--host", "0.0.0.0", "--insecure") as front:
        with front.connect() as connection:
            own = connection.getsockname()[0]
        assert status(front, "GET", "/healthz", f"Host: {own}:{front.port}") == 200
        for host in ("0.0.0.0", "192.0.2.7", "evil.example"):
            assert status(front, "GET", "/topics", f"Host: {host}") == 421


async def served(options, host, server):
    """The status that the application gives, as ASGI servers call it."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/healthz", "raw_path": b"/healthz",
             "query_string": b"", "headers": [(b"host", host)], "server": server}  # fmt: skip

    async def receive():
        raise AssertionError

    await Gateway(options)(scope, receive, send)
    return sent[0]["status"]


@pytest.mark.parametrize(
    ("host", "server", "expected"),
    [
        (b"192.0.2.1:8000", ("192.0.2.1", 8000), 200),
        (b"192.0.2.2", ("192.0.2.1", 8000), 421),
        (b"192.0.2.1", ("::ffff:192.0.2.1", 8000), 200),
        (b"[fe80::1]", ("fe80::1%eth0", 8000), 200),
        (b"[2001:db8::1]", ("2001:db8:0::1", 8000), 200),
        (b"[2001:db8::2]", ("2001:db8::1", 8000), 421),
        (b"gateway.test", ("192.0.2.1", 8000), 200),
        (b"evil.test", ("evil.test", 8000), 421),
        (b"localhost", None, 200),
        (b"192.0.2.1", None, 421),
        (b"localhost", ("/run/gateway.sock", None), 200),
        (b"192.0.2.1", ("/run/gateway.sock", None), 421),
    ],
)
async def test_the_name_and_the_address_that_it_listens_on_are_hosts(host, server, expected):
    options = GatewayOptions(host="Gateway.test", insecure=True)
    assert await served(options, host, server) == expected


@pytest.mark.parametrize(
    ("given", "kept"),
    [("Gateway.Example.", "gateway.example"), ("[2001:DB8::0:1]", "2001:db8::1"),
     ("2001:db8::1", "2001:db8::1"), ("192.0.2.7", "192.0.2.7"), ("my_host", "my_host")],
)  # fmt: skip
def test_hosts_are_kept_as_they_are_compared(given, kept):
    assert GatewayOptions(allowed_hosts=(given,)).allowed_hosts == (kept,)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("HTTPS://App.Example:443", "https://app.example"), ("http://a:080", "http://a"),
     ("http://[0::1]:3000", "http://[::1]:3000"), ("http://a:443", "http://a:443")],
)  # fmt: skip
def test_origins_are_kept_as_browsers_write_them(given, kept):
    assert GatewayOptions(allowed_origins=(given,)).allowed_origins == (kept,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("allowed_hosts", [each]) for each in
          ("*", "", ".", "a:80", "http://a", "a/b", "*.example", "[::1]:80", 7, None, b"a")),
        *(("allowed_origins", [each]) for each in
          ("*", "", "null", "a", "a:80", "https://", "https://a/", "https://a/b", "ftp://a",
           "https://a:99999", "https://*.a", "file://", "https://u@a", "https://[x]", 7, None)),
        ("allowed_hosts", "a"), ("allowed_origins", "https://a"), ("allowed_hosts", None),
        ("allowed_hosts", {"a": "b"}),
    ],
)  # fmt: skip
def test_an_entry_that_could_match_nothing_or_everything_is_refused(name, value):
    with pytest.raises(OptionError) as refused:
        GatewayOptions(**{name: value})
    assert refused.value.key == name


def own_page(scheme, origin):
    """What a page of the console asks that a browser has by a proxy, which speaks TLS to it."""
    headers = [
        (b"host", b"console.example"),
        (b"origin", origin),
        (b"sec-fetch-site", b"same-origin"),
    ]
    return {"method": "POST", "scheme": scheme, "server": ("10.0.0.1", 80), "headers": headers}


@pytest.mark.slow
def test_a_console_behind_a_proxy_for_tls_needs_its_origin_allowed_and_says_so():
    hosts, origin = ("console.example",), "https://console.example"
    asked = own_page("http", origin.encode())
    Guard("127.0.0.1", hosts, (origin,)).admit_own(asked, is_page=False)
    with pytest.raises(RequestRefused, match=r"may not use the console \(option allowed_origins\)"):
        Guard("127.0.0.1", hosts, ()).admit_own(asked, is_page=False)
    Guard("127.0.0.1", hosts, ()).admit_own(own_page("https", origin.encode()), is_page=False)
