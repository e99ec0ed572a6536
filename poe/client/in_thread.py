"""A call that may take long, for who runs on an event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(
    call: Callable[[], T], name: str, unwanted: Callable[[T], object] | None = None
) -> T:
    """Return what a call returns, from a thread of this name that no exit waits for.

    Whoever is cancelled does not wait for the call: `unwanted` gets what it returns, in its thread.
    """
    future: Future[T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - it is raised to whoever waits
            future.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - there it would end the loop
            future.set_exception(RuntimeError(f"thread {name} was ended by {error!r}"))

    def drop(done: Future[T]) -> None:
        if unwanted is not None and not done.cancelled() and done.exception() is None:
            unwanted(done.result())

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(drop)
        raise
