"""What the tests of consumers and queues share: somebody waits while they are closed."""

import threading

from poe.errors import PoeError
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
