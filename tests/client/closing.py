"""What the tests of consumers and queues share: somebody waits while they are closed."""

import threading
from contextlib import suppress
from typing import Any

from poe.errors import ConsumerClosed, LeaseLost, PoeError, QueueClosed
from tests.interrupts import places
from tests.waiting import wait_until


def told_at_close(closed, call, caplog):
    """Call something of what is closed then, where no server is there; return what it raised."""
    errors: list[PoeError] = []

    def wait():
        try:
            call(closed)
        except PoeError as error:
            errors.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    wait_until(lambda: "trying again" in caplog.text)
    closed.close()
    thread.join(20)
    assert not thread.is_alive()
    return [type(each) for each in errors]


def close_at_each_place(make, use, *files):
    """Have a signal handler close what it interrupts, at each place in these files; how many."""
    made: list[Any] = []

    def close():
        made[-1].close()

    def use_one():
        with suppress(ConsumerClosed, QueueClosed, LeaseLost):
            use(made[-1])

    for interrupted in places(*files, handler=close):
        made.append(make())
        interrupted(use_one)
        close()
    return len(made)
