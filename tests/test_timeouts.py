"""What is no time is refused at once, by one error, wherever a time-out or a delay is taken."""

import asyncio
import math

import pytest

from poe import client, protocol
from poe.actors import GenServer, LoopSystem
from poe.errors import ActorDead, InvalidTimeout, LocalProtocolError, OptionError
from poe.thespian import HostedSystem

NO_TIMES = [-1, -0.001, math.nan, -math.inf, "5", True, b"1", [1]]
LONG_TIMES = [math.inf, 1e12, 10**400, None, 0x7FFFFFFF]


class Asking(GenServer):
    """Does with itself what it is called with."""

    async def handle_call(self, request, caller):
        result = request(self)
        return await result if hasattr(result, "__await__") else result


class Quiet(GenServer):
    def handle_call(self, request, caller):
        return request


USES = {
    "call": lambda actor, other, time_s: actor.call(other, "x", time_s),
    "wait_down": lambda actor, other, time_s: actor.wait_down(actor.monitor(other), time_s),
    "wait_reply": lambda actor, other, time_s: actor.wait_reply(actor.call(other, "x"), time_s),
    "stop_actor": lambda actor, other, time_s: actor.stop_actor(other, "normal", time_s),
    "start_link": lambda actor, _, time_s: actor.start_link(Quiet, start_timeout_s=time_s),
    "sleep": lambda actor, _, time_s: actor.sleep(time_s),
    "send_after": lambda actor, _, time_s: actor.send_after(time_s, "x"),
}


@pytest.fixture(params=["loop", "simpleSystemBase"])
def system(request):
    system = LoopSystem() if request.param == "loop" else HostedSystem(request.param)
    yield system
    system.shutdown()


@pytest.fixture(scope="module")
def node(shared_node):
    shared_node.put("t", b"x")
    return shared_node


@pytest.mark.parametrize("time_s", NO_TIMES, ids=repr)
def test_a_system_refuses_it(system, time_s):
    ref = system.start(Quiet)
    uses = {
        "call": lambda: system.call(ref, "x", time_s),
        "stop": lambda: system.stop(ref, "normal", time_s),
        "start": lambda: system.start(Quiet, start_timeout_s=time_s),
    }
    for use in uses.values():
        with pytest.raises(
            InvalidTimeout, match=r"timeout_s is .*; use 0 or more seconds, or None"
        ):
            use()
    assert system.call(ref, "x") == "x", "it was not stopped"


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("time_s", NO_TIMES, ids=repr)
def test_an_actor_refuses_it_and_lives_on_if_it_catches_that(time_s, use):
    async def try_it(actor):
        try:
            result = use(actor, other, time_s)
            if hasattr(result, "__await__"):
                await result
        except InvalidTimeout as error:
            return str(error)

    with LoopSystem() as system:
        asking, other = system.start(Asking), system.start(Quiet)
        assert asking is not None
        assert other is not None
        assert "; use 0 or more seconds" in system.call(asking, try_it)
        assert system.is_alive(other)


@pytest.mark.parametrize("time_s", NO_TIMES, ids=repr)
def test_clients_refuse_it(node, time_s):
    host, port = node.address
    with pytest.raises(InvalidTimeout):
        protocol.socket(host, port, timeout_s=time_s)
    with pytest.raises(InvalidTimeout):
        asyncio.run(client.connect(host, port, timeout_s=time_s))
    with protocol.socket(host, port, timeout_s=10) as socket:
        with pytest.raises(InvalidTimeout):
            socket.wait("t", 0, time_s)
        assert socket.topics() == [b"t"]


@pytest.mark.parametrize("time_s", LONG_TIMES, ids=lambda time_s: repr(time_s)[:20])
def test_a_time_may_be_as_long_as_it_likes(node, system, time_s):
    ref = system.start(Quiet, start_timeout_s=time_s)
    assert system.call(ref, "x", time_s) == "x"
    system.stop(ref, "normal", time_s)
    host, port = node.address
    with protocol.socket(host, port, timeout_s=time_s) as socket:
        assert socket.topics() == [b"t"]


def test_it_is_caught_as_what_was_raised_before():
    for kind in (OptionError, LocalProtocolError, ValueError):
        assert issubclass(InvalidTimeout, kind)


@pytest.mark.parametrize("base", ["loop", "simpleSystemBase", "multiprocQueueBase"])
def test_to_stop_who_is_not_there_is_the_same_error_for_dead_and_unknown(base):
    """As of OTP's `gen_server:stop`, which exits with `noproc`."""
    system = LoopSystem() if base == "loop" else HostedSystem(base)
    try:
        ref = system.start(Quiet, name="once")
        assert ref is not None
        system.stop("once")
        for gone in (ref, "once", "never"):
            with pytest.raises(ActorDead) as caught:
                system.stop(gone)
            assert caught.value.reason == "noproc"
    finally:
        system.shutdown()
