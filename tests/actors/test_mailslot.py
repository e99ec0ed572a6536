import threading

import pytest

from poe.actors import GenServer, LoopSystem, Mailslot, StartFailed
from poe.testing import SimulatedSystem
from tests.waiting import wait_until


class Collector(GenServer):
    """Keeps what comes, and lets the test have its slot."""

    def init(self) -> None:
        self.slot = Mailslot(self)
        self.heard: list[object] = []

    def handle_call(self, request, caller):
        if request == "post here":
            self.slot.post("from within")
        return self.slot if request == "slot" else list(self.heard)

    def handle_info(self, message) -> None:
        if message == "crash":
            raise ValueError(message)
        self.heard.append(message)


@pytest.fixture
def system():
    with LoopSystem() as made:
        yield made


def test_what_many_threads_post_arrives_once_and_in_order_of_each(system):
    collector = system.start(Collector)
    slot = system.call(collector, "slot")

    def post(thread: int) -> None:
        for number in range(1000):
            slot.post((thread, number))

    threads = [threading.Thread(target=post, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(system.call(collector, "heard")) == 4000)
    heard = system.call(collector, "heard")
    for sender in range(4):
        assert [each for each in heard if each[0] == sender] == [(sender, n) for n in range(1000)]


def test_who_posts_does_not_wait_while_actors_run(system):
    collector = system.start(Collector)
    slot = system.call(collector, "slot")
    posted = threading.Event()

    def while_no_actor_can_run() -> None:
        def post() -> None:
            slot.post("hello")
            posted.set()

        threading.Thread(target=post).start()
        assert posted.wait(10)

    system.run_outside(while_no_actor_can_run)
    wait_until(lambda: system.call(collector, "heard") == ["hello"])


def test_what_is_posted_to_an_actor_that_has_ended_is_dropped(system):
    collector = system.start(Collector)
    slot = system.call(collector, "slot")
    system.stop(collector)
    slot.post("hello")
    other = system.start(Collector)
    system.call(other, "slot").post("hello")
    wait_until(lambda: system.call(other, "heard") == ["hello"])


def test_what_is_posted_in_simulated_time_arrives_at_once():
    with SimulatedSystem() as system:
        collector = system.start(Collector)
        assert collector is not None
        system.call(collector, "slot").post("hello")
        system.call(collector, "post here")
        assert system.call(collector, "heard") == ["hello", "from within"]


def test_a_process_of_thespian_has_no_slot(monkeypatch):
    with LoopSystem() as system:
        monkeypatch.setattr(system.run_queue, "event_loop", object)
        with pytest.raises(StartFailed, match="Mailslot"):
            system.start(Collector)
