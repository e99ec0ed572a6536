"""What pages see live: named views over one stream of events for each tab of a browser.

A view yields its whole state each time, so that nothing is missed that happens while a tab is away
or slow: it gets the newest state and never a queue of old ones. Views that many tabs of one
identity look at are made once. A view of single things that go by, as a tail, is its tab's own, and
waits for it. A view ends as soon as nobody looks.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlencode

from poe.errors import PoeError, RequestRefused
from poe.gateway.console.look import Look
from poe.gateway.http.refusal import refuse
from poe.gateway.http.reply import as_json, told

_log = logging.getLogger("poe.gateway.console")

VIEWS_MAX: Final = 20
"""Views of one stream."""
STREAMS_MAX: Final = 200
HEARTBEAT_S: Final = 15.0
_RETRY_S: Final = 1.0
_RETRY_MS: Final = 1000
_NAME_MAX: Final = 4096


class View(NamedTuple):
    """How a view is made."""

    states: Callable[[Look, str], AsyncGenerator[object]]
    """Called with what stands behind the colon of its name."""


class SingleView(NamedTuple):
    """How a view of single things is made, which its tab goes on with where it was."""

    states: Callable[[Look, str, str | None], AsyncGenerator[tuple[object, str]]]
    """Called with what stands behind the colon, and where the tab is; yields where it is then."""


class Stream:
    """What one tab is sent; ends when it goes, or its session does."""

    def __init__(self, resume: Mapping[str, str]) -> None:
        """Begin, with where views of single things were."""
        self._places = dict(resume)
        self._pending: dict[str, tuple[bytes, str | None]] = {}
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._is_over = False

    def place_of(self, view: str) -> str | None:
        """Return where a view of single things is; None where it has not begun."""
        return self._places.get(view)

    def offer(self, view: str, state: bytes, place: str | None = None) -> None:
        """Send a state unless a newer one comes first."""
        self._pending[view] = state, place
        self._changed.set()

    async def give(self, view: str, state: bytes, place: str | None) -> None:
        """Send a state as soon as the one before was sent; a browser that comes back tells it."""
        while view in self._pending:
            self._taken.clear()
            await self._taken.wait()
        self.offer(view, state, place)

    def end(self) -> None:
        """Send nothing more."""
        self._is_over = True
        self._changed.set()

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield what is sent, as of the media type text/event-stream."""
        yield b"retry: %d\n\n" % _RETRY_MS
        while not self._is_over:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._changed.wait()
            except TimeoutError:
                # So that a browser that has gone is noticed, and one knows that this is there.
                yield b"event: beat\ndata: {}\n\n"
                continue
            self._changed.clear()
            pending, self._pending = self._pending, {}
            self._taken.set()
            yield b"".join(
                self._event(name, state, place) for name, (state, place) in pending.items()
            )

    def _event(self, view: str, state: bytes, place: str | None) -> bytes:
        event = b"event: %s\ndata: %s\n" % (view.encode(), state)
        if place is None:
            return event + b"\n"
        self._places[view] = place
        return event + b"id: %s\n\n" % urlencode(self._places).encode()


class Live:
    """The streams of all tabs, and the views behind them; belongs to one event loop."""

    def __init__(self, views: Mapping[str, View | SingleView]) -> None:
        self._views = views
        self._streams: set[Stream] = set()
        self._feeds: dict[tuple[Look, str], _Feed] = {}

    def check(self, names: list[str]) -> None:
        """Let pass the names of views that there are.

        Raises:
            RequestRefused: 400 there are others, or too many; 503 too many tabs look.
        """
        if not 1 <= len(names) <= VIEWS_MAX:
            refuse(f"{len(names)} views are asked for; ask for 1 to {VIEWS_MAX} (parameter view)")
        for each in names:
            is_plain = each.isascii() and each.isprintable() and len(each) <= _NAME_MAX
            if not is_plain or each.partition(":")[0] not in self._views:
                known = ", ".join(sorted(self._views))
                refuse(f"there is no view {each!r:.100}; there are: {known}")
        if len(self._streams) >= STREAMS_MAX:
            why = f"{STREAMS_MAX} tabs look at this console; close some"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why)

    async def stream(self, look: Look, names: list[str], stream: Stream) -> AsyncGenerator[bytes]:
        """Yield the states of views until the tab goes."""
        self._streams.add(stream)
        own: list[asyncio.Task[None]] = []
        shared = []
        try:
            for name in dict.fromkeys(names):
                view = self._views[name.partition(":")[0]]
                if isinstance(view, View):
                    shared.append(self._join(look, name, view, stream))
                else:
                    own.append(asyncio.create_task(_run_single(view, look, name, stream)))
            async with aclosing(stream.events()) as events:
                async for each in events:
                    yield each
        finally:
            self._streams.discard(stream)
            for task in own:
                task.cancel()
            for feed in shared:
                self._leave(feed, stream)

    def stop(self) -> None:
        """End all streams."""
        for each in self._streams:
            each.end()

    def _join(self, look: Look, name: str, view: View, stream: Stream) -> "_Feed":
        key = look, name
        if key not in self._feeds:
            self._feeds[key] = _Feed(key, view)
        feed = self._feeds[key]
        feed.join(stream)
        return feed

    def _leave(self, feed: "_Feed", stream: Stream) -> None:
        if not feed.leave(stream):
            del self._feeds[feed.key]


class _Feed:
    """A view that tabs share."""

    def __init__(self, key: tuple[Look, str], view: View) -> None:
        self.key = key
        self._streams: set[Stream] = set()
        self._last: bytes | None = None
        self._task = asyncio.create_task(_run(view, *key, self._spread))

    def join(self, stream: Stream) -> None:
        self._streams.add(stream)
        if self._last is not None:
            stream.offer(self.key[1], self._last)

    def leave(self, stream: Stream) -> int:
        """Return how many still look; without any it has ended."""
        self._streams.discard(stream)
        if not self._streams:
            self._task.cancel()
        return len(self._streams)

    async def _spread(self, name: str, state: bytes) -> None:
        self._last = state
        for each in self._streams:
            each.offer(name, state)


async def _run(
    view: View, look: Look, name: str, send: Callable[[str, bytes], Awaitable[None]]
) -> None:
    """Send the states of a view; where the node is away, say so and try again."""

    async def states() -> None:
        async with aclosing(view.states(look, name.partition(":")[2])) as found:
            async for state in found:
                await send(name, as_json(state))

    await _again(name, states, lambda error: send(name, error))


async def _run_single(view: SingleView, look: Look, name: str, stream: Stream) -> None:
    """Do the same with a view of single things: behind a failure it goes on where it was."""
    place = stream.place_of(name)

    async def states() -> None:
        nonlocal place
        async with aclosing(view.states(look, name.partition(":")[2], place)) as found:
            async for state, at in found:
                await stream.give(name, as_json(state), at)
                place = at

    await _again(name, states, lambda error: stream.give(name, error, place))


async def _again(
    name: str, states: Callable[[], Awaitable[None]], tell: Callable[[bytes], Awaitable[None]]
) -> None:
    while True:
        try:
            await states()
        except PoeError as error:
            await tell(as_json({"error": told(error)}))
        except Exception:  # noqa: BLE001 - one view must not end the others
            _log.exception("view %s has failed", name)
            why = RequestRefused(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "the console has failed at this; its log tells more",
            )
            await tell(as_json({"error": told(why)}))
        else:
            return
        await asyncio.sleep(_RETRY_S)
