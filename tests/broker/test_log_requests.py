"""What is told of replicated topics where some of their replicas do not answer."""

import pytest

from poe.actors import NO_REPLY, Error, GenServer
from poe.broker.requests import logs
from poe.broker.requests.log_messages import VerifyLog
from poe.broker.requests.logs import cluster_verify
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import PoeError, WriteFailed

ROWS = [{"node": "b", "segments": 1, "messages": 2, "differing": []}]


class Replica(GenServer):
    """Answers to be compared, itself as well as what is to do so, as it is told."""

    def init(self, told):
        self._told = told
        self._is_begun = False

    def handle_call(self, request, caller):
        if self._told is NO_REPLY:
            return NO_REPLY
        if not isinstance(request, VerifyLog):
            return {}
        if self._is_begun:
            return Error(self._told) if isinstance(self._told, PoeError) else self._told
        self._is_begun = True
        return self.ref


class Asker(GenServer):
    """Compares all copies, as a connection does."""

    def init(self, routes):
        self._handler = RequestHandler(self, routes)

    async def handle_call(self, request, caller):
        return await cluster_verify(self._handler, {})


@pytest.fixture
def verify(sim):
    """Compare the copies of replicas, given what they answer."""

    def verify(told):
        start = sim.system.start
        sim.routes.replicas = {topic: start(Replica, each) for topic, each in told.items()}
        return sim.system.call(start(Asker, sim.routes), None)

    return verify


def test_replicas_that_do_not_answer_are_waited_for_together(sim, verify):
    busy = {b"busy%d" % number: NO_REPLY for number in range(5)}
    began_s = sim.system.run_queue.monotonic_s()
    told = verify({**busy, b"same": ROWS})
    assert sim.system.run_queue.monotonic_s() - began_s < 2 * logs._BEGIN_S  # noqa: SLF001 - its own
    assert told.pop(b"same") == ROWS
    assert ["did not answer" in row["error"] for [row] in told.values()] == [True] * 5


def test_a_copy_that_a_disk_refuses_keeps_no_others_from_being_told_of(verify):
    told = verify({b"full": WriteFailed("/data", "it is full"), b"same": ROWS})
    assert told[b"same"] == ROWS
    assert "it is full" in told[b"full"][0]["error"]
