"""How plain Thespian actors receive: retries, poison, and what GenServers send them."""

import pytest
from thespian.actors import PoisonMessage

from poe.actors import ActorDead, LoopSystem
from poe.testing import SimulatedClock
from tests.actors.puppet import Puppet
from tests.thespian.loop import thespians


@pytest.fixture
def actor_system():
    system = thespians.actor_system_of(LoopSystem(clock=SimulatedClock()))
    yield system
    system.shutdown()


def test_a_message_that_fails_three_times_comes_back_as_poison(actor_system):
    failing = actor_system.createActor(thespians.Failing)
    poison = actor_system.ask(failing, "fail", 0.0)
    assert isinstance(poison, PoisonMessage)
    assert poison.poisonMessage == "fail"
    assert "ValueError: fail" in poison.details
    assert actor_system.ask(failing, "tries", 0.0) == 3


def test_a_message_that_succeeds_in_its_third_run_is_no_poison(actor_system):
    failing = actor_system.createActor(thespians.FailingTwice)
    assert actor_system.ask(failing, "fail", 0.0) == "done at last"


def test_poison_goes_to_the_actor_that_sent_the_message(actor_system):
    parent = actor_system.createActor(thespians.Parent)
    actor_system.ask(parent, thespians.Failing, 0.0)
    assert actor_system.ask(parent, ("fail",), 0.0) == ("poison", "fail")


def test_a_cast_reaches_a_plain_actor_as_a_message(system):
    echo = thespians.actor_system_of(system).createActor(thespians.EchoActor)
    ref = system.start(Puppet)
    system.call(ref, lambda puppet, _: puppet.cast(echo, "hello"))
    assert system.get_state(ref)["log"] == [("info", "hello")]


def test_a_call_to_a_plain_actor_fails_instead_of_waiting_in_vain(system):
    echo = thespians.actor_system_of(system).createActor(thespians.EchoActor)
    with pytest.raises(TypeError, match="no GenServer"):
        system.call(echo, "request")


@pytest.mark.parametrize(("reason", "is_alive"), [("normal", True), ("boom", False)])
def test_an_exit_signal_ends_a_plain_actor_unless_it_is_normal(system, reason, is_alive):
    echo = thespians.actor_system_of(system).createActor(thespians.EchoActor)
    system.exit(echo, reason)
    assert system.is_alive(echo) is is_alive


def test_a_link_to_a_plain_actor_works_both_ways(system):
    echo = thespians.actor_system_of(system).createActor(thespians.EchoActor)
    ref = system.start(Puppet)
    system.call(ref, lambda puppet, _: puppet.link(echo))
    system.exit(echo, "boom")
    assert not system.is_alive(ref)
    with pytest.raises(ActorDead):
        system.call(ref, "request")
