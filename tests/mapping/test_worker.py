"""The actors of a mapping beside the thread in which its member lives."""

import threading
from types import SimpleNamespace

from poe.actors import LoopSystem
from poe.mapping.worker import Worker
from tests.waiting import wait_until


def test_a_worker_that_ends_holds_up_no_thread_that_has_another_started():
    ended = []
    with LoopSystem() as system:
        bystander = system.start(Worker, SimpleNamespace(is_used=True), lambda *_: None)

        def over(run, is_known):
            # The member's thread may be about to start a worker, and whoever tells it waits for it.
            thread = threading.Thread(target=system.cast, args=(bystander, "start"), daemon=True)
            thread.start()
            thread.join(5)
            ended.append(not thread.is_alive())

        system.start(Worker, SimpleNamespace(is_used=True), over)
        wait_until(lambda: ended)
    assert ended == [True]
