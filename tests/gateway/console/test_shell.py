"""The console's door: who gets in, what other sites may not, what is live."""

import asyncio
import json
import re
from types import SimpleNamespace

import httpx
import pytest

from poe.gateway.console.application import Console
from poe.gateway.console.live import Stream
from poe.gateway.console.sessions import IDLE_S
from poe.gateway.http.guard import Guard
from poe.gateway.http.inflow import Inflow
from poe.gateway.http.options import GatewayOptions
from poe.node import Node
from tests.gateway.console.conftest import Shown
from tests.waiting import wait_until


def test_the_page_holds_nothing_and_needs_no_session(console):
    for path in ("", "/", "/topics", "/login"):
        reply = httpx.get(f"{console.base}/console{path}")
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("path", ["/console", "/console/api/session", "/console/static/kit.js"])
def test_every_answer_has_the_strict_policy(console, path):
    headers = httpx.get(console.base + path).headers
    assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("path", ["overview", "topics", "stream?view=overview", "history"])
def test_who_is_not_logged_in_sees_nothing(console, path):
    with console.client() as stranger:
        stranger.cookies.set("poe-console-1", "x")
        reply = stranger.get(path)
        assert reply.status_code == 401
        assert "log in first" in reply.json()["error"]["message"]


def test_who_is_not_logged_in_is_not_told_where_the_node_is(console):
    with console.client() as stranger:
        told = stranger.get("session").json()
        assert told == {"login": "token", "level": "none", "user": None}
    assert console.http.get("session").json()["server"].startswith("poe://127.0.0.1:")


def test_a_token_is_good_for_one_browser_and_the_next_is_printed(console):
    used = console.token
    with console.client() as first, console.client() as second:
        console.log_in(first)
        assert first.get("session").json()["level"] == "destroy"
        reply = second.post("login", json={"token": used})
        assert reply.status_code == 401
        assert second.get("session").json()["level"] == "none"
        assert console.token != used


def test_the_cookie_is_for_this_browser_and_no_script(console):
    with console.client() as client:
        reply = client.post("login", json={"token": console.token})
        console.read_token()
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Path=/console" in cookie


def test_a_browser_keeps_the_cookie_for_as_long_as_its_session_is_used(console):
    with console.client() as client:
        reply = client.post("login", json={"token": console.token})
        console.read_token()
        (age_s,) = re.findall("Max-Age=([0-9]+)", reply.headers["set-cookie"])
    assert int(age_s) > 100 * IDLE_S


def test_whoever_logs_out_is_out(console):
    with console.client() as client:
        console.log_in(client)
        secret = dict(client.cookies)
        assert client.post("logout", json={}).status_code == 200
        assert client.get("overview", headers={"cookie": _cookies(secret)}).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_pages_of_other_sites_may_not(console, topic, headers, status):
    for method, path in (("GET", "overview"), ("POST", "topics")):
        content = {"json": {"name": topic}} if method == "POST" else {}
        reply = console.http.request(method, path, headers=headers, **content)
        assert reply.status_code == status
    assert console.http.get(f"topics/{topic}").status_code == 404


def test_its_own_page_may(console, topic):
    headers = {"origin": console.base, "sec-fetch-site": "same-origin"}
    reply = console.http.post("topics", json={"name": topic}, headers=headers)
    assert reply.status_code == 200
    assert console.http.get(f"topics/{topic}").json()["id"] == topic


def test_another_site_may_lead_to_a_page_but_not_post_to_one(console):
    headers = {"sec-fetch-site": "cross-site", "origin": "http://evil.example"}
    assert httpx.get(f"{console.base}/console/topics", headers=headers).status_code == 200
    assert httpx.post(f"{console.base}/console/topics", headers=headers).status_code == 403


def test_a_body_that_a_form_could_send_is_refused(console, topic):
    reply = console.http.post(
        "topics", content=json.dumps({"name": topic}), headers={"content-type": "text/plain"}
    )
    assert reply.status_code == 415


@pytest.mark.slow
def test_what_only_looks_changes_nothing(node, topic):
    with Shown(node, "--read-only") as console:
        assert console.http.get("topics").status_code == 200
        reply = console.http.post("topics", json={"name": topic})
        assert reply.status_code == 403
        assert "console_level=operate" in reply.json()["error"]["message"]


@pytest.mark.slow
def test_deleting_is_off_unless_it_was_allowed(node, topic):
    node.put(topic, b"x")
    with Shown(node) as console:
        reply = console.http.request("DELETE", f"topics/{topic}", json={"name": topic})
        assert reply.status_code == 403
        assert "--destructive" in reply.json()["error"]["message"]
    assert topic.encode() in node.topics()


@pytest.mark.slow
def test_what_strangers_send_takes_no_room_of_others(node):
    with Shown(node) as console, console.client() as stranger:
        reply = stranger.post("login", json={"token": "x" * 20_000})
        assert reply.status_code == 413
        assert "send at most 16384" in reply.text


@pytest.mark.slow
def test_many_wrong_logins_have_to_wait(node):
    with Shown(node) as console, console.client() as stranger:
        statuses = [stranger.post("login", json={"token": "x"}).status_code for _ in range(11)]
        assert statuses == [401] * 10 + [429]


@pytest.mark.slow
def test_wrong_logins_are_told_to_be_somebodys_and_drive_nothing_out(node):
    with Shown(node) as console, console.client() as stranger:
        assert stranger.post("login", json={"token": "x"}).status_code == 401
        told = b"somebody at 127.0.0.1 has failed to log in\n"
        console.read_until(told, pipe=console.process.stderr)
        rows = console.http.get("deeds").json()["rows"]
        assert [each["action"] for each in rows] == ["logs in"]


def test_a_stream_begins_with_the_whole_state(console, topic):
    console.node.put(topic, b"x")
    # Counts are those of the last look, of which there is one a second.
    wait_until(lambda: first_state(console)["totals"]["messages_in"] >= 1, 20)


def first_state(console):
    """What a stream of the overview begins with."""
    with console.http.stream("GET", "stream", params={"view": "overview"}) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.iter_lines()
        assert next(lines).startswith("retry: ")
        event = next(each for each in lines if each.startswith("event: "))
        state = json.loads(next(lines).removeprefix("data: "))
    assert event == "event: overview"
    return state


async def test_a_stream_on_which_nothing_happens_tells_pages_that_it_is_there(monkeypatch):
    monkeypatch.setattr("poe.gateway.console.live.HEARTBEAT_S", 0.0)
    events = Stream({}).events()
    assert (await anext(events)).startswith(b"retry: ")
    assert await anext(events) == b"event: beat\ndata: {}\n\n"


async def test_who_looks_at_what_is_live_is_not_logged_out(monkeypatch):
    now = SimpleNamespace(s=1000.0)
    clock = SimpleNamespace(monotonic=lambda: now.s)
    monkeypatch.setattr("poe.gateway.console.application.time", clock)
    monkeypatch.setattr("poe.gateway.console.live.HEARTBEAT_S", 0.01)
    options = GatewayOptions(broker="poe://127.0.0.1:1", console=True)
    console = Console(options, Guard("127.0.0.1", (), ()), Inflow(options))
    invited: list[str] = []
    console.invite(invited.append)

    async def served(scope, receive, send):
        scope["path"] = scope["raw_path"].decode()
        await console(scope, receive, send)

    transport = httpx.ASGITransport(served)
    url = "http://localhost/console/api/"
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        token = invited[0].partition("#")[2]
        assert (await client.post("login", json={"token": token})).status_code == 200
        parts: asyncio.Queue[object] = asyncio.Queue(1)
        scope = {
            "type": "http",
            "method": "GET",
            "scheme": "http",
            "path": "/console/api/stream",
            "query_string": b"view=tree",
            "headers": [(b"host", b"localhost"), (b"cookie", _cookie_of(client))],
            "server": ("localhost", None),
        }

        async def nothing_more():
            await asyncio.Event().wait()

        looking = asyncio.create_task(console(scope, nothing_more, parts.put))
        for _ in range(3):
            now.s += IDLE_S - 1
            for _ in range(4):  # of those that come, the last ones are later than that
                await parts.get()
        assert (await client.get("session")).json()["level"] == "operate"
        looking.cancel()
        await asyncio.wait([looking])
        await console.stop()


def _cookie_of(client):
    return "; ".join(f"{name}={value}" for name, value in client.cookies.items()).encode()


@pytest.mark.parametrize("query", ["", "view=nothing", "view=overview%0a", "view=overview&" * 21])
def test_views_that_there_are_not_are_refused(console, query):
    reply = console.http.get(f"stream?{query}")
    assert reply.status_code == 400


@pytest.mark.slow
def test_a_stream_tells_that_the_node_is_away_and_goes_on_when_it_is_back(tmp_path):
    with Node(dir=tmp_path, port=0) as node:
        assert node.address is not None
        port = node.address[1]
        shown = Shown(node)
    with shown as console, console.http.stream("GET", "stream?view=overview") as reply:
        states = (
            json.loads(each.removeprefix("data: "))
            for each in reply.iter_lines()
            if each.startswith("data: ")
        )
        assert next(each for each in states if "error" in each)["error"]["name"] == "ConnectFailed"
        with Node(dir=tmp_path, port=port) as node:
            node.put("orders", b"x")
            back = next(each for each in states if "error" not in each)
            assert back["totals"]["messages_in"] >= 0


def test_topics_are_paged_sorted_and_filtered_by_the_server(console, topic):
    for number in range(5):
        console.node.put(f"{topic}_{number}", b"x")
    found = console.http.get(
        "topics", params={"filter": topic.upper(), "order": "desc", "offset": 1, "limit": 2}
    ).json()
    assert found["total"] == 5
    assert [each["name"] for each in found["rows"]] == [f"{topic}_3", f"{topic}_2"]
    assert found["rows"][0]["messages"] == 1


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "limit=x", "order=up", "sort=size", "limit=1&limit=2"]
)
def test_a_wrong_parameter_is_told(console, query):
    reply = console.http.get(f"topics?{query}")
    assert reply.status_code == 400
    assert re.search("parameter '?(limit|order|sort)", reply.json()["error"]["message"])


def test_names_are_text_for_people_and_ids_that_lead_back(console):
    name = b"<img src=x>/\x00\xff"
    console.node.put(name, b"x")
    row = console.http.get("topics", params={"filter": "<img"}).json()["rows"][0]
    found = console.http.get(f"topics/{row['id']}").json()
    assert found["id"] == row["id"] == "%3Cimg%20src%3Dx%3E%2F%00%FF"
    assert found["messages"] == 1


def test_a_topic_is_deleted_only_by_its_typed_name(console, topic):
    console.node.put(topic, b"x")
    path = f"topics/{topic}"
    assert console.http.request("DELETE", path, json={"name": "other"}).status_code == 400
    assert console.http.request("DELETE", path, json={"name": topic}).status_code == 200
    assert console.http.get(path).status_code == 404


def test_a_file_that_there_is_not_is_told_and_none_above_is_reached(console):
    for name in ("nothing.js", "%2e%2e/application.py", "..%2fapplication.py"):
        assert httpx.get(f"{console.base}/console/static/{name}").status_code == 404


def _cookies(given):
    return "; ".join(f"{name}={value}" for name, value in given.items())
