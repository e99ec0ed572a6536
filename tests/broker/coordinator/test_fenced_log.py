"""The log of the groups of replicated topics, as the node that coordinates them writes it."""

from typing import Any

from poe.actors import Call, GenServer
from poe.broker import RoutingTable
from poe.broker.appendix.message import Put
from poe.broker.coordinator.fenced_log import Append, Fence, FencedWriter
from poe.broker.registry.log_groups_table import LOG_GROUPS_TOPIC
from poe.protocol import PutId
from poe.storage import SystemClock
from poe.storage.segment.producers import Producers
from poe.testing import SimulatedSystem


class Replica(GenServer):
    """Knows who has put what; `begun_with` puts are there already."""

    def init(self, producers: Producers):
        self._producers = producers
        self._pointer = 1000

    def handle_call(self, put: Put, caller: Call) -> Any:
        assert put.put_id is not None
        put_id = PutId(*put.put_id)
        put_id.encode()  # or it could not be published
        assert self._producers.find(put_id) is None
        self._pointer += len(put.messages)
        self._producers.add(put_id, self._pointer)
        return self._pointer


def test_who_coordinates_goes_on_behind_the_last_number_of_an_epoch():
    producers, routes = Producers(), RoutingTable()
    with SimulatedSystem() as system:
        replica = system.start(Replica, producers)
        assert replica is not None
        routes.replicas = {LOG_GROUPS_TOPIC: replica}
        writer = system.start(FencedWriter, Fence(7), routes, "a", SystemClock())
        assert writer is not None
        assert system.call(writer, Append(b"0")) == 1002  # behind its claim
        [(producer, _)] = producers.newest(1)
        last = 2**32 - 1
        producers.add((producer, 0, last), 2000)
        system.replace_state(writer, lambda state: {**state, "_number": last + 1})
        assert system.call(writer, Append(b"1")) == 1003
        assert producers.last(producer) == (1, 0, 1003)
