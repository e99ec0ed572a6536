"""Who asks again when an appendix server ends with a request: threads and connections alike."""

import pytest

from poe.actors import KILLED, NOPROC, GenServer, Stop
from poe.actors.server_cell import cell_of_actor
from poe.broker import may_repeat
from poe.broker.appendix.message import ReleaseFiles
from poe.broker.connection.connection import begin_get, begin_put
from poe.broker.requests.retry import RETRY_S, TRIES_MAX, until_answered
from poe.errors import ActorDead, NoDescriptors, TopicUnavailable

TOPIC = b"t"
CRASH = RuntimeError("bug")

pytestmark = pytest.mark.usefixtures("quiet")


class Ending(GenServer):
    """Ends with its first request, and leaves its place in the table to the server it replaced."""

    def init(self, routes, replaced, reason):
        self.routes = routes
        self.replaced = replaced
        self.reason = reason
        routes.replace(TOPIC, replaced, self.ref, None)

    def handle_call(self, request, caller):
        self.routes.replace(TOPIC, self.ref, self.replaced, None)
        return Stop(self.reason)


@pytest.fixture(params=["thread", "connection"])
def ask(request, simulate):
    """Make a put or a next while the appendix server ends for a reason; tell what came of it."""
    sim = simulate()
    sim.node.put(TOPIC, b"first")

    def ask(kind, reason):
        sim.system.start(Ending, sim.routes, sim.routes[TOPIC].writer, reason)
        if request.param == "thread":
            return sim.node.put(TOPIC, b"m") if kind == "put" else sim.node.next(TOPIC, 0)
        if kind == "put":
            return sim.system.call(sim.frame_puts, (TOPIC, [b"m"]))
        return sim.system.call(sim.frame_reads, (TOPIC, 0, 1))

    return ask


@pytest.mark.parametrize("reason", ["normal", "shutdown", ("shutdown", "full")])
@pytest.mark.parametrize("kind", ["put", "next"])
def test_a_server_that_was_stopped_in_good_order_is_asked_again(ask, kind, reason):
    assert ask(kind, reason)


def test_a_read_of_a_server_that_was_killed_is_made_again(ask):
    assert ask("next", KILLED)


@pytest.mark.parametrize(
    ("kind", "reason"), [("put", KILLED), ("put", CRASH), ("next", CRASH), ("next", "some bug")]
)
def test_what_may_be_stored_or_may_have_crashed_its_server_is_not_made_again(ask, kind, reason):
    with pytest.raises(ActorDead) as caught:
        ask(kind, reason)
    assert caught.value.reason == reason


def test_a_server_that_was_never_there_has_touched_nothing():
    assert may_repeat(ActorDead("ref", NOPROC), is_put=True)


def test_a_topic_without_a_server_for_too_long_is_named_in_the_error(simulate):
    """The registry knows nothing of the one that ended, and so replaces nothing."""
    sim = simulate()
    sim.node.put(TOPIC, b"first")
    route = sim.routes[TOPIC]
    dead = sim.system.start(Ending, sim.routes, route.writer, "normal")
    sim.system.exit(dead, "kill")
    with pytest.raises(TopicUnavailable, match=r"'t' for 5\.0 s; retry later") as caught:
        sim.node.next(TOPIC, 0)
    assert caught.value.retriable
    assert sim.clock.monotonic_s() == pytest.approx(TRIES_MAX * RETRY_S, abs=3 * RETRY_S)


class PlainAsker(GenServer):
    """Begins requests in a plain callback, as a connection does."""

    def init(self, routes):
        self.cell, self.routes = cell_of_actor(self), routes

    def handle_call(self, request, caller):
        put = begin_put(self.cell, self.routes, TOPIC, [b"second"])
        get = begin_get(self.cell, self.routes, TOPIC, 0, 10, 1000)
        assert put
        assert get
        return put.is_done, get.is_done


def test_what_a_plain_callback_begins_is_done_at_once(simulate):
    """Otherwise each request of a socket would need a coroutine."""
    sim = simulate()
    sim.node.put(TOPIC, b"first")
    assert sim.system.call(sim.system.start(PlainAsker, sim.routes), "both") == (True, True)


class Starved(GenServer):
    """Makes a request for which there is no descriptor, however often."""

    def init(self, routes):
        self.routes = routes

    async def handle_cast(self, refused):
        async def ask():
            raise NoDescriptors("topics/t", "too many")

        try:
            await until_answered(self, self.routes, TOPIC, ask)
        except NoDescriptors:
            refused.append(self)


class Generous(GenServer):
    """Notes how often it is to let its files go."""

    def init(self, told):
        self.told = told

    def handle_cast(self, message):
        self.told.append(message)


def test_all_who_find_no_descriptor_at_a_time_have_others_asked_for_theirs_once(simulate):
    """With some thousands of topics, each asking all of them kept everybody waiting."""
    sim = simulate()
    sim.node.put(TOPIC, b"first")
    told: list[ReleaseFiles] = []
    refused: list[Starved] = []
    before = sim.routes[TOPIC].writer
    sim.routes.replace(TOPIC, before, sim.system.start(Generous, told), None)
    for _ in range(50):
        sim.system.cast(sim.system.start(Starved, sim.routes), refused)
    sim.advance(4)
    sim.routes.replace(TOPIC, sim.routes[TOPIC].writer, before, None)
    assert len(refused) == 50
    assert [each.is_urgent for each in told[:2]] == [False, True]
    assert len(told) < 10
