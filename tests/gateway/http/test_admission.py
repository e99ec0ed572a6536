"""Who gets in by a bearer token. The judge is a policy; the routes only tell that they ran."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from poe.broker.access.permission import Need
from poe.errors import RequestRefused
from poe.gateway.http.admission import Admission, Denied
from poe.gateway.http.bearers import Bearers
from poe.gateway.http.inquiry import Ruling
from poe.gateway.http.openapi import document
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.reply import denied_reply, error_reply
from poe.gateway.http.routes import OPEN_PATHS, ROUTES
from poe.protocol import ControlRequest
from poe.security.audit import LOGGER
from poe.security.policy import Grant, Policy
from poe.security.token import make_token

TOKEN, FOREIGN = make_token("alice")[0], make_token("nobody")[0]
GRANTS = [
    Grant(principals=("alice",), operations=("read", "write"), topics=(b"orders", b"a/b")),
    Grant(principals=("alice",), operations=("read",), groups=(b"workers",)),
]


class Judge:
    """A policy, and one token."""

    def __init__(self):
        self.policy = Policy(GRANTS)
        self.tokens = {TOKEN: "alice"}
        self.asked_count = 0
        self.used = []
        self.delay_s = 0.0
        self.ttl_s = 5.0

    async def ask(self, token, question, usage):
        self.asked_count += 1
        self.used.append(usage)
        principal = self.tokens.get(token)
        if principal is None:
            return None
        allowed = [
            self.policy.may(principal, question.operation, question.kind, name)
            for name in question.names
        ]
        return Ruling(principal, allowed, self.ttl_s, self.delay_s)


class Rooms:
    """An application with an admission, and an endpoint for each row of the table of routes."""

    def __init__(self, judge):
        self.admission = Admission(None if judge is None else Bearers(judge), OPEN_PATHS)
        self.requests = []
        self.application = Starlette(
            routes=[
                Route(
                    row.path, self.admission.guarded(self.run, row.needs), methods=list(row.needs)
                )
                for row in ROUTES
            ],
            exception_handlers={
                Denied: lambda _, denied: denied_reply(denied),
                RequestRefused: lambda _, error: error_reply(error, 0),
            },
        )

    async def run(self, request):
        self.requests.append(request)
        return Response(await request.body(), 200)

    async def __call__(self, scope, receive, send):
        scope["path"] = scope["raw_path"].decode("latin-1")
        application: ASGIApp = self.application
        try:
            self.admission.enter(scope)
        except Denied as denied:
            application = denied_reply(denied)
        except RequestRefused as error:
            application = error_reply(error, 0)
        await application(scope, *self.admission.metered(scope, receive, send))


@asynccontextmanager
async def client_of(rooms, token=TOKEN):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(rooms)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as client:
        yield client


@pytest.fixture
def judge():
    return Judge()


@pytest.fixture
def rooms(judge):
    return Rooms(judge)


REQUESTS = [
    (method, row.path.format(topic="orders", group="workers", member="a" * 32))
    for row in ROUTES
    for method in row.needs
]


def test_the_document_tells_of_the_same_requests_as_the_table():
    described = {
        (method.upper(), path)
        for path, methods in document(GatewayOptions())["paths"].items()
        for method in methods
    }
    assert described == {(method, row.path) for row in ROUTES for method in row.needs}


@pytest.mark.parametrize(("method", "path"), REQUESTS)
async def test_without_a_token_nothing_runs_but_what_is_open(rooms, judge, method, path):
    async with client_of(rooms, None) as client:
        reply = await client.request(method, path)
    if path == "/healthz":
        assert reply.status_code == 200
        return
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == 'Bearer realm="poe"'
    assert reply.json()["error"] == {
        "code": 312,
        "name": "AuthenticationFailed",
        "message": "authentication failed",
        "retriable": False,
    }
    assert (rooms.requests, judge.asked_count) == ([], 0)


@pytest.mark.parametrize(("method", "path"), REQUESTS)
async def test_a_foreign_token_is_answered_as_a_missing_one(rooms, method, path):
    async with client_of(rooms, FOREIGN) as foreign, client_of(rooms, None) as nobody:
        replies = [await each.request(method, path) for each in (foreign, nobody)]
    assert replies[0].status_code == replies[1].status_code
    assert replies[0].content == replies[1].content
    assert dict(replies[0].headers) == dict(replies[1].headers)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/sync/orders", 200),
        ("POST", "/async/orders", 200),
        ("POST", "/batch/sync/orders-3", 200),
        ("POST", "/batch/async/a%2Fb", 200),
        ("GET", "/topics/orders", 200),
        ("HEAD", "/topics/orders", 200),
        ("GET", "/topics/orders/properties", 200),
        ("GET", "/topics", 200),
        ("GET", "/groups", 200),
        ("GET", "/groups/workers/lag", 200),
        ("POST", f"/groups/workers/members/{'a' * 32}/lease", 200),
        ("GET", "/readyz", 200),
        ("GET", "/openapi.json", 200),
        ("POST", "/sync/secret", 403),
        ("POST", "/sync/orders2", 403),
        ("POST", "/sync/Orders", 403),
        ("POST", "/sync/orders%00", 403),
        ("POST", "/sync/poe.groups", 403),
        ("GET", "/topics/secret", 403),
        ("PUT", "/topics/orders/properties", 403),
        ("PATCH", "/topics/orders/properties", 403),
        ("GET", "/groups/others", 403),
        ("PUT", "/groups/workers", 403),
        ("DELETE", "/groups/workers", 403),
        ("POST", "/groups/workers/pause", 403),
        ("POST", "/groups/workers/reset", 403),
        ("GET", "/metrics", 403),
        ("GET", "/disco", 403),
    ],
)
async def test_a_client_may_what_its_grants_say(rooms, method, path, status):
    async with client_of(rooms) as client:
        reply = await client.request(method, path)
    assert reply.status_code == status
    assert len(rooms.requests) == (status == 200)
    if status == 403:
        assert reply.json()["error"]["name"] == "NotAuthorized"


async def test_whoever_may_describe_all_topics_may_see_the_counts(rooms, judge):
    judge.policy = Policy([Grant(principals=("alice",), operations=("describe",), prefixes=(b"",))])
    async with client_of(rooms) as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/disco")).status_code == 200


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN} ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer x {TOKEN}",
        f"Bearer {TOKEN},Bearer {TOKEN}",
        "Bearer " + "a" * 60_000,
        "Bearer poe_a_b_c",
    ],
    ids=range(12),
)
async def test_what_is_no_token_is_no_question(rooms, judge, value):
    async with client_of(rooms, None) as client:
        reply = await client.get("/topics/orders", headers={"Authorization": value})
    assert (reply.status_code, judge.asked_count) == (401, 0)


async def test_two_tokens_are_none(rooms):
    headers = [("Authorization", f"Bearer {TOKEN}")] * 2
    async with client_of(rooms, None) as client:
        assert (await client.get("/topics/orders", headers=headers)).status_code == 401


async def test_the_scheme_may_be_written_in_any_case(rooms):
    async with client_of(rooms, None) as client:
        headers = {"Authorization": f"bEARER   {TOKEN}"}
        assert (await client.get("/topics/orders", headers=headers)).status_code == 200


@pytest.mark.parametrize("query", ["access_token", "token", "Token", "authorization", "a=b&bearer"])
async def test_a_token_in_the_url_is_refused_with_the_way_out(rooms, query):
    async with client_of(rooms) as client:
        reply = await client.get(f"/topics/orders?{query}={TOKEN}")
    assert reply.status_code == 400
    assert "Authorization: Bearer" in reply.json()["error"]["message"]
    assert TOKEN not in reply.text


async def test_no_handler_sees_the_token(rooms):
    async with client_of(rooms) as client:
        await client.post("/sync/orders", content=b"x")
    [request] = rooms.requests
    assert "authorization" not in request.headers
    assert TOKEN not in str(request.headers)


async def test_a_forbidden_body_is_not_asked_for(rooms):
    async def body():
        pytest.fail("somebody has asked for the body")
        yield b""

    async with client_of(rooms) as client:
        assert (await client.post("/sync/secret", content=body())).status_code == 403


async def test_an_unknown_path_tells_nothing_to_strangers(rooms):
    async with client_of(rooms, None) as client:
        assert (await client.get("/nothing")).status_code == 401


async def test_what_is_used_is_told_and_what_is_owed_is_429(rooms, judge):
    judge.ttl_s = 0.0
    async with client_of(rooms) as client:
        await client.post("/sync/orders", content=b"12345")
        judge.delay_s = 1.5
        reply = await client.post("/sync/orders", content=b"12345")
        assert (reply.status_code, reply.headers["retry-after"]) == (429, "2")
        assert "quota of alice" in reply.json()["error"]["message"]
        judge.delay_s = 0.0
        assert (await client.post("/sync/orders", content=b"")).status_code == 200
    used = judge.used[1]
    assert (used.requests, used.read_bytes, used.write_bytes) == (1, 5, 5)
    assert judge.used[2].requests == 1  # a request that is refused is one, too
    assert len(rooms.requests) == 2


async def test_whoever_waits_is_told_when_it_may_no_longer(rooms, judge):
    judge.ttl_s = 0.0
    async with client_of(rooms) as client:
        await client.get("/topics/orders")
    [request] = rooms.requests
    waiting = asyncio.ensure_future(
        rooms.admission.until_denied(request, [Need.of_topic("read", b"orders")])
    )
    await asyncio.sleep(0)
    assert not waiting.done()
    judge.policy = Policy()
    denied = await asyncio.wait_for(waiting, 5)
    assert (denied.status, denied.error.code) == (403, 314)


def audited(caplog):
    return [json.loads(each) for each in caplog.messages]


async def test_the_audit_log_names_the_client_that_was_denied_something(rooms, caplog):
    with caplog.at_level(logging.INFO, LOGGER):
        async with client_of(rooms) as client:
            for _ in range(3):
                assert (await client.get("/topics/secret")).status_code == 403
            assert (await client.get("/topics/orders")).status_code == 200
    denied = {"event": "denied", "principal": "alice", "operation": "read", "kind": "topic"}
    assert audited(caplog) == [{**denied, "name": "secret", "count": 1}]


async def test_the_audit_log_tells_of_denials_though_the_clock_is_put_back(
    rooms, caplog, monkeypatch
):
    now = SimpleNamespace(wall_s=1e9, steady_s=100.0)
    clocks = SimpleNamespace(time=lambda: now.wall_s, monotonic=lambda: now.steady_s)
    monkeypatch.setattr("poe.gateway.http.admission.time", clocks)
    with caplog.at_level(logging.INFO, LOGGER):
        async with client_of(rooms) as client:
            await client.get("/topics/secret")
            now.wall_s -= 86400.0
            now.steady_s += 61.0
            await client.get("/topics/secret")
    assert [each["event"] for each in audited(caplog)] == ["denied", "denied"]


async def test_the_audit_log_names_the_client_that_administers(rooms, judge, caplog):
    judge.policy = Policy(
        [Grant(principals=("alice",), operations=("read", "delete"), groups=(b"workers",))]
    )
    async with client_of(rooms) as client:
        await client.get("/groups/workers/positions")
    [request] = rooms.requests
    with caplog.at_level(logging.INFO, LOGGER):
        for op in ("group_delete", "group_leave"):
            asked = ControlRequest(op, 0, {"group": "workers"})
            await rooms.admission.require_for(request, asked, lambda _: ())
    admitted = {"event": "admitted", "principal": "alice", "op": "group_delete"}
    assert audited(caplog) == [{**admitted, "kind": "group", "name": "workers"}]


async def test_the_audit_log_admits_nobody_who_was_denied_the_rest_of_what_is_needed(
    rooms, judge, caplog
):
    judge.policy = Policy([Grant(principals=("alice",), operations=("create",), topics=(b"a",))])
    async with client_of(rooms) as client:
        await client.get("/topics")
    [request] = rooms.requests
    asked = ControlRequest("topic_alter", 0, {"topic": b"a", "properties": {"max_age": 1}})
    with caplog.at_level(logging.INFO, LOGGER), pytest.raises(Denied):
        await rooms.admission.require_for(request, asked, lambda _: ())
    told = [(each["event"], each["operation"]) for each in audited(caplog)]
    assert told == [("denied", "delete")]


async def test_lists_hold_what_may_be_described(rooms):
    async with client_of(rooms) as client:
        await client.get("/topics")
    [request] = rooms.requests
    names = [b"orders", b"orders-1", b"secret", b"a/b"]
    found = await rooms.admission.permitted(request, "describe", "topic", names)
    assert found == [b"orders", b"orders-1", b"a/b"]


async def test_without_bearers_everybody_may_everything():
    rooms = Rooms(None)
    async with client_of(rooms, None) as client:
        for method, path in REQUESTS:
            assert (await client.request(method, path)).status_code == 200
        await client.get("/topics/orders", headers={"Authorization": "Bearer of news"})
    assert rooms.requests[-1].headers["authorization"] == "Bearer of news"
    await rooms.admission.require(rooms.requests[0], [Need.of_topic("delete", b"secret")])
