"""The console as an ASGI application below /console: pages, their data, and one stream for a tab.

/console, /console/PAGE     the page; it holds nothing of the node, and needs no session
/console/static/…           what pages are made of
/console/api/…              what they show and do, in JSON, for a session
/console/api/stream         what they see live
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from poe.errors import PoeError, RequestRefused, SecurityError
from poe.gateway.console import (
    cluster,
    dead_letters,
    dump,
    follow,
    groups,
    happenings,
    mappings,
    messages,
    overview,
    topics,
)
from poe.gateway.console.deeds import Deeds
from poe.gateway.console.entrance import Entrance, cookie_of
from poe.gateway.console.history import History, Told
from poe.gateway.console.lags import Units
from poe.gateway.console.level import Level, check_level
from poe.gateway.console.live import Live, Stream
from poe.gateway.console.look import Look
from poe.gateway.console.sessions import Session, Sessions
from poe.gateway.console.static_files import INDEX, StaticFiles
from poe.gateway.console.visit import Row, Visit
from poe.gateway.http.guard import Guard
from poe.gateway.http.inflow import Inflow
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.reply import as_json, error_reply, json_reply, told
from poe.security.entry import Entry

_log = logging.getLogger("poe.gateway.console")

ROOT: Final = "/console"
_API: Final = f"{ROOT}/api"
_MODULES: Final = (
    overview, topics, messages, follow, dump, groups, dead_letters, mappings, cluster, happenings,
)  # fmt: skip
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
_RESUME_MAX: Final = 20_000
_HEADERS: Final = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
]


class Console:
    """Pages that show a node; belongs to the event loop of its gateway."""

    def __init__(self, options: GatewayOptions, guard: Guard, inflow: Inflow) -> None:
        self._options = options
        self._guard = guard
        self._inflow = inflow
        self._level = Level.of(options.console_level)
        self._sessions = Sessions(time.monotonic)
        self._entrance = Entrance(options, self._sessions)
        self._looks: dict[Entry, Look] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._static = StaticFiles()
        self._deeds = Deeds()
        views = {
            name: view for each in _MODULES for name, view in getattr(each, "VIEWS", {}).items()
        }
        self._live = Live(views)
        self._history = History(self._ask_counters, self._ask_lag)
        self._sampling: asyncio.Task[None] | None = None
        own = (
            Row("/login", {"POST": Level.NONE}, self._entrance.post_login),
            Row("/logout", {"POST": Level.READ}, self._entrance.post_logout),
            Row("/session", {"GET": Level.NONE}, self._get_session),
            Row("/stream", {"GET": Level.READ}, self._get_stream),
            Row("/deeds", {"GET": Level.READ}, self._get_deeds),
        )
        rows: Sequence[Row] = [*own, *(row for each in _MODULES for row in each.ROWS)]
        self._application = Starlette(
            routes=[self._route(row) for row in rows]
            + [Route(f"{ROOT}/static/{{name:path}}", self._get_static)]
            + [Route(path, self._get_page) for path in (ROOT, f"{ROOT}/{{page}}")],
            exception_handlers={
                PoeError: self._on_error,
                HTTPException: self._on_http_error,
                Exception: self._on_failure,
            },
        )
        self._application.router.redirect_slashes = False

    @staticmethod
    def owns(path: str) -> bool:
        """Return whether the console answers at a path."""
        return path == ROOT or path.startswith(f"{ROOT}/")

    def start(self) -> None:
        """Begin to keep what the node does."""
        self._sampling = asyncio.ensure_future(self._history.run())

    def invite(self, tell: Callable[[str], object]) -> None:
        """Have somebody told where to log in, with a new token whenever one was used.

        Args:
            tell: told a path; nothing where users log in with their passwords.
        """
        if self._entrance.kind == "user":
            return

        def renew() -> None:
            tell(f"{ROOT}/login#{self._sessions.new_token()}")

        self._entrance.on_redeemed = renew
        renew()

    async def stop(self) -> None:
        """Let all go who look."""
        self._live.stop()
        self._sessions.end_all()
        if self._sampling is not None:
            self._sampling.cancel()
        for each in self._looks.values():
            await each.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request that is no other site's."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        try:
            self._guard.admit_own(scope, is_page=not scope["path"].startswith(f"{_API}/"))
        except RequestRefused as error:
            await error_reply(error, 0)(scope, receive, with_headers)
            return
        await self._application(scope, receive, with_headers)

    # ---- answers ------------------------------------------------------------------------------

    async def _get_page(self, request: Request) -> Response:
        return self._static.reply(INDEX, request)

    async def _get_static(self, request: Request) -> Response:
        return self._static.reply(request.path_params["name"], request)

    async def _get_session(self, visit: Visit) -> object:
        """Return who is logged in, or how one does it."""
        session = self._session(visit.request)
        login = self._entrance.kind
        if session is None:
            return {"login": login, "level": Level.NONE.label, "user": None}
        known = {"login": login, "server": self._options.broker}
        return {**known, "level": self._level.label, "user": session.user}

    async def _get_deeds(self, visit: Visit) -> object:
        """Return what was done with this console, newest first."""
        return {"rows": self._deeds.newest(visit.user)}

    async def _get_stream(self, visit: Visit) -> Response:
        names = visit.request.query_params.getlist("view")
        self._live.check(names)
        resume = _resume_of(visit)
        assert visit.session is not None, "the row asks for one"
        content = self._stream(visit.session, visit, names, resume)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(content, media_type="text/event-stream", headers=headers)

    async def _stream(
        self, session: Session, visit: Visit, names: list[str], resume: dict[str, str]
    ) -> AsyncGenerator[bytes]:
        stream = Stream(resume)
        session.on_end.add(stream.end)
        try:
            async for each in self._live.stream(visit.look, names, stream):
                self._session(visit.request)  # who looks uses it, also where a page asks nothing
                yield each
        finally:
            session.on_end.discard(stream.end)

    # ---- the way to them ----------------------------------------------------------------------

    def _route(self, row: Row) -> Route:
        async def endpoint(request: Request) -> Response:
            needed = row.levels["GET" if request.method == "HEAD" else request.method]
            session = self._session(request)
            if needed is not Level.NONE and session is None:
                why = "log in first: open the URL that the console has printed"
                raise RequestRefused(HTTPStatus.UNAUTHORIZED, why)
            check_level(self._level if session is not None else Level.NONE, needed)
            found = await row.handler(self._visit(request, session))
            if isinstance(found, Response):
                return found
            reply = json_reply(found)
            reply.headers["Cache-Control"] = "no-store"
            return reply

        return Route(f"{_API}{row.path}", endpoint, methods=list(row.levels))

    def _visit(self, request: Request, session: Session | None) -> Visit:
        look = None if session is None else self._look(session)
        return Visit(request, session, look, self._level, self._inflow, self._deeds)

    def _session(self, request: Request) -> Session | None:
        secret = request.cookies.get(cookie_of(request))
        return None if secret is None else self._sessions.find(secret)

    def _look(self, session: Session) -> Look:
        """Return the console as a session sees it; sessions of one identity share it."""
        if session.user is not None:
            session.on_end.add(self._drop_unused)
        return self._look_of(session.entry)

    def _look_of(self, entry: Entry) -> Look:
        if entry not in self._looks:
            self._looks[entry] = Look(self._options, entry, self._history, self._sessions.end_of)
        return self._looks[entry]

    def _drop_unused(self) -> None:
        """Close the ways of users who are logged out, so that nothing of them is left."""
        used = self._sessions.entries() | {self._options.entry}
        for entry in self._looks.keys() - used:
            task = asyncio.ensure_future(self._looks.pop(entry).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _ask_counters(self) -> Told:
        async with self._look_of(self._options.entry).node() as connection:
            return await connection.counters()

    async def _ask_lag(self, group: str) -> Units:
        async with self._look_of(self._options.entry).node() as connection:
            found: Units = await connection.control("group_lag", group=group)
            return found

    async def _on_error(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, PoeError)
        if isinstance(error, SecurityError):  # what the node says of this session's identity
            content = as_json({"error": told(error)})
            return Response(content, HTTPStatus.FORBIDDEN, media_type="application/json")
        return error_reply(error, self._options.retry_after_s)

    async def _on_failure(self, request: Request, error: Exception) -> Response:
        _log.error("%s %s has failed", request.method, request.url.path, exc_info=error)
        why = "the console has failed at this; its log tells more"
        return error_reply(RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, why), 0)

    async def _on_http_error(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        reply = error_reply(RequestRefused(error.status_code, f"{error.detail}"), 0)
        reply.headers.update(error.headers or {})
        return reply


def _resume_of(visit: Visit) -> dict[str, str]:
    """Return where each view of single things was: as the browser says of the last event."""
    given = visit.request.headers.get("last-event-id") or visit.request.query_params.get(
        "resume", ""
    )
    return dict(parse_qsl(given[:_RESUME_MAX]))
