"""The edit hook: a user's function that sees each post before it is produced.

It may be plain or async. It returns the post as it is or changed, an answer to give in its place,
or a rejection. What it raises is logged and answered with 500, and 503 stands for one that takes
too long; nothing is produced then.

Source: kafboy, `kafboy_callback_edit_json`; the messages to a process have become return values.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from poe.actors.work import Threads
from poe.client.producer.payload import Messages
from poe.errors import RequestRefused

_log = logging.getLogger("poe.gateway")

_THREADS_MAX = 16


@dataclass(frozen=True, slots=True)
class Post:
    """What a client wants to produce; `dataclasses.replace` makes a changed one."""

    topic: bytes
    messages: Messages
    """A list of bytes, or of `Message(value, key, headers)`."""

    path: str
    """As sent, such as /async/events: it tells async from sync."""

    headers: Mapping[str, str]
    """Of the request, by lower-case name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets in place of being produced."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the client's post is not produced; it gets this as an error."""

    why: str
    status: int = 400


Edited = Post | Answer | Rejection
Edit = Callable[[Post], Edited | Awaitable[Edited]]


class EditHook:
    """Has a user's function see posts.

    A plain function runs in a thread, which the time limit cannot end: it only leaves it behind.
    Nor does the end of the gateway wait for it, as it would for a thread of an executor.
    """

    def __init__(self, edit: Edit, timeout_s: float) -> None:
        self._edit = edit
        self._timeout_s = timeout_s
        self._threads = Threads("poe-edit", _THREADS_MAX)
        self._free = asyncio.Semaphore(_THREADS_MAX)
        self._running: dict[int, str] = {}

    async def edited(self, post: Post) -> Post | Answer:
        """Let the hook see a post.

        Raises:
            RequestRefused: the hook rejects the post, fails, or takes too long.
        """
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                if inspect.iscoroutinefunction(self._edit):
                    result = await self._edit(post)
                else:
                    result = await self._in_thread(post)
        except Exception as error:
            if limit.expired():
                _log.error("the edit hook took more than %g s for %s", self._timeout_s, post.path)
                why = f"the edit hook took more than {self._timeout_s:g} s; nothing was produced"
                raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why) from error
            _log.exception("the edit hook failed for %s", post.path)
            why = "the edit hook failed, see the log of the gateway; nothing was produced"
            raise RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, why) from error
        match result:
            case Post() | Answer():
                return result
            case Rejection():
                raise RequestRefused(result.status, result.why)
        kind = type(result).__name__
        _log.error("the edit hook returned %s; return a Post, an Answer or a Rejection", kind)
        why = "the edit hook returned what it must not; nothing was produced"
        raise RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, why)

    def close(self) -> None:
        """Tell of what still runs; it ends with the process, or by itself."""
        for path in tuple(self._running.values()):
            _log.error("the edit hook %r still runs for %s, and is left behind", self._edit, path)

    async def _in_thread(self, post: Post) -> object:
        # Waited for here: what threads that hang do not come to would be kept with them for ever.
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        future: Future[object] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            self._running[id(post)] = post.path
            try:
                future.set_result(self._edit(post))
            except StopIteration as error:  # as of `next`; no future of asyncio takes it
                failure = RuntimeError("the edit hook raised StopIteration")
                failure.__cause__ = error
                future.set_exception(failure)
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                future.set_exception(error)
            finally:
                del self._running[id(post)]
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(self._free.release)

        try:
            self._threads.submit(run)
        except RuntimeError:
            self._free.release()
            raise
        return await asyncio.wrap_future(future)
