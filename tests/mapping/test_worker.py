"""The actors of a mapping beside the thread in which its member lives."""

import threading
from types import SimpleNamespace

from poe.actors import LoopSystem
from poe.errors import NotAuthorized
from poe.mapping.station import RunOptions, Station
from poe.mapping.worker import Units, Worker
from poe.protocol.server import Server
from tests.mapping.mapping_process import RULES
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


def test_why_its_group_cannot_be_asked_is_told_once():
    station = Station([Server("127.0.0.1", 1)], RULES, RunOptions())
    units = Units(station, lambda _: None)
    try:
        for _ in range(2):
            units.failed(NotAuthorized("read", "group 'mapping.sort'"))
    finally:
        units.close()
    [told] = station.notes
    assert told.startswith("its group cannot be asked: not authorized to read")
    assert station.refusal is None
