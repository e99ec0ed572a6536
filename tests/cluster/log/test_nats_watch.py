"""What starts a server anew that stores nothing any more."""

import pytest

from poe.actors import GenServer
from poe.errors import ProcessStartFailed
from poe.supervision import ChildSpec, Strategy, Supervisor, SupervisorFlags
from poe.testing import SimulatedSystem

pytest.importorskip("nats")

from poe.cluster.log import nats_watch
from poe.cluster.log.nats_target import NatsTarget


class Server(GenServer):
    """Stands for the process of a server; fails to start as often as it is told."""

    failures = 0
    starts = 0

    def init(self) -> None:
        if Server.failures:
            Server.failures -= 1
            raise ProcessStartFailed("nats-server", "not ready after 30 s", "")
        Server.starts += 1


class Servers:
    """There is one that listens while it runs."""

    def __init__(self, system):
        self.system = system

    def target(self):
        return NatsTarget(("nats://x",)) if self.system.whereis("server") else None


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_server_that_does_not_start_anew_at_once_is_started_later(monkeypatch, failures):
    is_disabled = [True]
    monkeypatch.setattr(nats_watch, "_is_disabled", lambda _: is_disabled and is_disabled.pop())
    Server.starts, Server.failures = 0, 0
    with SimulatedSystem() as system:
        child = ChildSpec(id="server", actor=Server, name="server")
        watch = ChildSpec(
            id="watch", actor=nats_watch.NatsWatch, args=(Servers(system), "sup", "server")
        )
        flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ONE, intensity=10, period_s=60)
        system.start(Supervisor, flags, [child, watch], name="sup")
        Server.failures = failures
        system.advance(nats_watch.LOOK_S * 5)
        assert Server.starts == 2
        assert system.whereis("server") is not None
