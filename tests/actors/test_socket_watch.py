"""Readiness of a descriptor as messages to its owner."""

import contextlib
import socket
import threading

import pytest

from poe.actors import GenServer
from poe.actors.socket_watch import READABLE, SocketWatch
from tests.waiting import wait_until


class Receiver(GenServer):
    """Collects what its socket receives; holds still while it is told to."""

    pinned_to_loop = True

    def init(self, endpoint):
        self.received = bytearray()
        self.endpoint = endpoint
        self.watch = SocketWatch(self, endpoint)
        self.is_writable = threading.Event()

    def handle_info(self, message):
        assert message is READABLE
        self.received += self.endpoint.recv(100)

    async def handle_call(self, request, caller):
        del caller
        return await self.watch.wait_writable(request)

    def terminate(self, reason):
        del reason
        self.watch.close()


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    theirs.settimeout(0)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_the_owner_hears_that_there_is_something_to_receive(live, pair):
    ours, theirs = pair
    ref = live.start(Receiver, ours)
    theirs.send(b"hello")
    wait_until(lambda: live.get_state(ref)["received"] == b"hello")
    live.stop(ref)


def test_a_paused_watch_tells_nothing_until_it_is_resumed(live, pair):
    ours, theirs = pair
    ref = live.start(Receiver, ours)
    watch = live.get_state(ref)["watch"]
    on_loop(live, watch.pause)
    theirs.send(b"hello")
    on_loop(live, lambda: None)
    assert live.get_state(ref)["received"] == b""
    on_loop(live, watch.resume)
    wait_until(lambda: live.get_state(ref)["received"] == b"hello")
    live.stop(ref)


def test_the_watch_of_an_actor_that_stays_busy_is_paused(live, pair):
    """Else the loop would have something to tell for ever, and never sleep."""
    ours, theirs = pair
    ref = live.start(Receiver, ours)
    watch = live.get_state(ref)["watch"]
    fill(ours)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(live.call(ref, 30.0, timeout_s=30.0)))
    thread.start()
    wait_until(lambda: watch.cell.is_busy)
    theirs.send(b"hello")
    wait_until(lambda: watch.is_paused)
    drain(theirs)
    thread.join()
    on_loop(live, watch.resume)
    wait_until(lambda: live.get_state(ref)["received"] == b"hello")
    assert answers == [True]
    live.stop(ref)


def test_what_a_busy_actor_was_told_in_vain_is_told_anew(live, pair):
    """The loop tells of a reset but once."""
    ours, _ = pair
    ref = live.start(Receiver, ours)
    watch = live.get_state(ref)["watch"]
    listened = []

    def tell():
        watch.resume = lambda: listened.append("again")
        watch.tell_anew()
        watch.tell_in_vain()
        watch.tell_anew()
        watch.tell_anew()

    on_loop(live, tell)
    wait_until(lambda: listened == ["again"])
    live.stop(ref)


def test_an_actor_waits_until_the_peer_has_made_room(live, pair):
    ours, theirs = pair
    ref = live.start(Receiver, ours)
    assert live.call(ref, 5.0) is True
    fill(ours)
    assert live.call(ref, 0.01) is False
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(live.call(ref, 5.0)))
    thread.start()
    drain(theirs)
    thread.join()
    assert answers == [True]
    live.stop(ref)


def test_the_socket_of_a_killed_actor_is_closed_and_leaves_the_loop(live, pair):
    ours, theirs = pair
    ref = live.start(Receiver, ours)
    live.exit(ref, "kill")
    wait_until(lambda: not live.is_alive(ref))
    on_loop(live, lambda: None)
    assert ours.fileno() == -1
    theirs.settimeout(5)
    assert theirs.recv(1) == b""


def on_loop(live, action):
    """Run `action` in the loop's thread and return its result."""
    results: list[object] = []
    live.run_queue.event_loop().wake(lambda: results.append(action()))
    wait_until(lambda: results)
    return results[0]


def fill(endpoint):
    with contextlib.suppress(BlockingIOError):
        while True:
            endpoint.send(bytes(65_536))


def drain(endpoint):
    with contextlib.suppress(BlockingIOError):
        while True:
            endpoint.recv(65_536)
