"""Thespian's own API on our loop: every way in that its documentation names."""

import io
import threading
import zipfile
from datetime import timedelta

import pytest
from thespian.actors import (
    ActorExitRequest,
    ActorSystem,
    InvalidActorSourceHash,
    Thespian_ActorStatus,
    Thespian_StatusReq,
    Thespian_SystemStatus,
)

from poe.actors import GenServer, StartFailed, Stop
from poe.thespian import ThespianBase
from tests.actors.puppet import Puppet
from tests.thespian.loop import thespians
from tests.waiting import wait_until

WAIT_S = 5.0


@pytest.fixture
def actor_system():
    """A Thespian system on our loop."""
    system = ThespianBase().system
    yield system
    system.shutdown()


def test_the_base_stands_where_thespians_own_bases_stand():
    system = ActorSystem(ThespianBase(None), transientUnique=True)
    echo = system.createActor(thespians.EchoActor)
    assert system.ask(echo, "hello", WAIT_S) == "hello"
    system.shutdown()


@pytest.mark.parametrize("actor", [thespians.EchoActor, "tests.thespian.loop.thespians.EchoActor"])
def test_an_actor_is_created_by_class_or_dotted_name_and_answers(actor_system, actor):
    assert actor_system.ask(actor_system.createActor(actor), "hello", WAIT_S) == "hello"


def test_messages_are_delivered_by_reference(actor_system):
    message = ["same object"]
    echo = actor_system.createActor(thespians.EchoActor)
    assert actor_system.ask(echo, message, WAIT_S) is message


def test_tell_sends_without_waiting_and_listen_gets_the_answers_in_order(actor_system):
    echo = actor_system.createActor(thespians.EchoActor)
    for number in range(3):
        actor_system.tell(echo, number)
    assert [actor_system.listen(WAIT_S) for _ in range(3)] == [0, 1, 2]


def test_listen_gives_none_when_nothing_can_come_or_time_is_over(actor_system):
    assert actor_system.listen() is None
    assert actor_system.listen(timedelta(milliseconds=1)) is None


def test_a_global_name_finds_the_actor_that_has_it(actor_system):
    first = actor_system.createActor(thespians.EchoActor, globalName="echo")
    assert actor_system.createActor(thespians.Failing, globalName="echo") is first


def test_a_global_name_is_free_after_the_end(actor_system):
    first = actor_system.createActor(thespians.EchoActor, globalName="echo")
    actor_system.tell(first, ActorExitRequest())
    assert actor_system.createActor(thespians.EchoActor, globalName="echo") is not first


def test_an_actor_that_cannot_be_made_raises_at_its_creator_outside(actor_system):
    with pytest.raises(ValueError, match="unborn"):
        actor_system.createActor(thespians.Unborn)
    with pytest.raises(ImportError):
        actor_system.createActor("no.such.module.Class")


def test_a_child_that_cannot_be_made_is_reported_to_its_parent(actor_system):
    parent = actor_system.createActor(thespians.Parent)
    child = actor_system.ask(parent, thespians.Unborn, WAIT_S)
    assert actor_system.listen(WAIT_S) == ("child exited", child)


def test_a_wake_up_comes_with_its_payload(actor_system):
    sleeper = actor_system.createActor(thespians.Sleeper)
    assert actor_system.ask(sleeper, 0.001, WAIT_S) == "awake"


def test_a_wake_up_for_a_time_that_has_passed_comes_at_once(actor_system):
    sleeper = actor_system.createActor(thespians.Sleeper)
    assert actor_system.ask(sleeper, -1.0, WAIT_S) == "awake"


def test_an_exit_request_ends_the_child_and_tells_the_parent_once(actor_system):
    parent = actor_system.createActor(thespians.Parent)
    child = actor_system.ask(parent, thespians.EchoActor, WAIT_S)
    actor_system.tell(child, ActorExitRequest())
    assert actor_system.listen(WAIT_S) == ("child exited", child)
    assert actor_system.listen() is None


def test_an_exit_request_takes_the_children_along(actor_system):
    parent = actor_system.createActor(thespians.Parent)
    child = actor_system.ask(parent, thespians.EchoActor, WAIT_S)
    actor_system.tell(parent, ActorExitRequest())
    assert not actor_system._systemBase.runtime.is_alive(child)  # noqa: SLF001 - Thespian has no such method


def test_dead_letters_go_to_their_handler(actor_system):
    office = actor_system.createActor(thespians.DeadLetterOffice)
    assert actor_system.ask(office, "start", WAIT_S) == "started"
    dead = actor_system.createActor(thespians.EchoActor)
    actor_system.tell(dead, ActorExitRequest())
    actor_system.tell(dead, "too late")
    assert actor_system.ask(office, "letters", WAIT_S) == [(dead, "too late")]


def test_what_an_interrupt_has_cut_short_is_no_dead_letter(actor_system):
    """It was worked on; a handler that sends dead letters again would have had it done twice."""
    office = actor_system.createActor(thespians.DeadLetterOffice)
    assert actor_system.ask(office, "start", WAIT_S) == "started"
    interrupted = actor_system.createActor(thespians.Interrupted)
    with pytest.raises(KeyboardInterrupt):
        actor_system.tell(interrupted, "worked on")
    assert actor_system.ask(office, "letters", WAIT_S) == []


def test_dead_letters_without_a_handler_vanish(actor_system):
    dead = actor_system.createActor(thespians.EchoActor)
    actor_system.tell(dead, ActorExitRequest())
    assert actor_system.ask(dead, "too late", 0.0) is None


def test_the_status_of_an_actor_names_its_class_and_children(actor_system):
    parent = actor_system.createActor(thespians.Parent)
    child = actor_system.ask(parent, thespians.EchoActor, WAIT_S)
    status = actor_system.ask(parent, Thespian_StatusReq(), WAIT_S)
    assert isinstance(status, Thespian_ActorStatus)
    assert status.actorClass == "Parent"
    assert status.childActors == [child]


def test_the_status_of_the_system_names_its_capabilities(actor_system):
    status = actor_system.ask(actor_system.systemAddress, Thespian_StatusReq(), WAIT_S)
    assert isinstance(status, Thespian_SystemStatus)
    assert status.capabilities["Thespian ActorSystem Name"] == "loopSystem"


def test_each_private_context_gets_its_own_answers(actor_system):
    echo = actor_system.createActor(thespians.EchoActor)
    wrong: list[tuple[int, object]] = []

    def converse(mine):
        with actor_system.private() as context:
            for number in range(200):
                answer = context.ask(echo, (mine, number), WAIT_S)
                if answer != (mine, number):
                    wrong.append((mine, answer))

    threads = [threading.Thread(target=converse, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_troupe_shares_the_work(actor_system):
    worker = actor_system.createActor(thespians.Worker)
    for number in range(1, 11):
        actor_system.tell(worker, number)
    answers = [actor_system.listen(WAIT_S) for _ in range(10)]
    assert sorted(answers) == [number * 2 for number in range(1, 11)]


def test_a_dispatcher_chooses_by_type(actor_system):
    by_type = actor_system.createActor(thespians.ByType)
    assert actor_system.ask(by_type, 1, WAIT_S) == ("int", 1)
    assert actor_system.ask(by_type, "a", WAIT_S) == ("str", "a")


def test_messages_wait_until_an_actor_has_its_initializing_messages(actor_system):
    configured = actor_system.createActor(thespians.Configured)
    actor_system.tell(configured, 1)
    actor_system.tell(configured, "setting")
    assert actor_system.listen(WAIT_S) == ("setting", 1)


def test_an_actor_can_shut_its_system_down(actor_system):
    ender = actor_system.createActor(thespians.ShutsDown)
    actor_system.tell(ender, "end")
    wait_until(lambda: not actor_system._systemBase.runtime.is_alive(ender))  # noqa: SLF001


# ---- loaded sources ------------------------------------------------------------------------------


@pytest.fixture
def source():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(
            "visitor.py",
            "from thespian.actors import Actor\n"
            "class Visitor(Actor):\n"
            "    def receiveMessage(self, message, sender):\n"
            "        self.send(sender, 'greetings')\n",
        )
    content.seek(0)
    return content


# Thespian's import hooks are of the old kind.
@pytest.mark.filterwarnings("ignore:.*exec_module:ImportWarning")
def test_an_actor_of_a_loaded_source_runs(actor_system, source):
    authority = actor_system.createActor(thespians.Authority)
    assert actor_system.ask(authority, "start", WAIT_S) == "started"
    source_hash = actor_system.loadActorSource(source)
    visitor = actor_system.createActor("visitor.Visitor", sourceHash=source_hash)
    assert actor_system.ask(visitor, "hello", WAIT_S) == "greetings"
    actor_system.unloadActorSource(source_hash)


def test_a_source_that_nobody_has_validated_gives_no_actor(actor_system, source):
    source_hash = actor_system.loadActorSource(source)
    with pytest.raises(InvalidActorSourceHash):
        actor_system.createActor("visitor.Visitor", sourceHash=source_hash)


# ---- GenServers and plain actors together --------------------------------------------------------


class Greeter(GenServer):
    def handle_info(self, message):
        if isinstance(message, tuple):
            self.cast(message[1], message[0])
        elif message == "end":
            return Stop("boom")
        return None


def test_a_gen_server_can_be_created_and_spoken_to_as_any_actor(actor_system):
    greeter = actor_system.createActor(Greeter)
    echo = actor_system.createActor(thespians.EchoActor)
    actor_system.tell(greeter, ("hello", echo))
    assert actor_system._systemBase.runtime.is_alive(greeter)  # noqa: SLF001


def test_the_end_of_a_gen_server_is_told_to_the_plain_actor_that_created_it(actor_system):
    parent = actor_system.createActor(thespians.Parent)
    child = actor_system.ask(parent, Greeter, WAIT_S)
    actor_system.tell(child, "end")
    assert actor_system.listen(WAIT_S) == ("child exited", child)


def test_an_exit_request_ends_a_gen_server_in_good_order(actor_system):
    log: list[object] = []
    ref = actor_system._systemBase.runtime.start(Puppet, log)  # noqa: SLF001
    actor_system.tell(ref, ActorExitRequest())
    assert log == [("terminate", "shutdown")]


def test_a_gen_server_whose_init_fails_is_reported_to_the_plain_actor_that_created_it(actor_system):
    class Refuses(GenServer):
        def init(self):
            return Stop("no")

    parent = actor_system.createActor(thespians.Parent)
    child = actor_system.ask(parent, Refuses, WAIT_S)
    assert actor_system.listen(WAIT_S) == ("child exited", child)
    with pytest.raises(StartFailed):
        actor_system._systemBase.runtime.start(Refuses)  # noqa: SLF001


def test_actors_of_two_systems_in_one_process_write_to_each_other(actor_system):
    here, there = actor_system.createActor(thespians.EchoActor), ThespianBase().system
    relay = there.createActor(thespians.Relay)
    assert there.ask(relay, (here, "hello"), WAIT_S) == "hello"
    there.shutdown()


def test_a_message_to_a_system_that_was_shut_down_is_lost(actor_system):
    # Loops of other tests may be about to end; no new one may start.
    before = set(threading.enumerate())
    there = ThespianBase().system
    gone = there.createActor(thespians.EchoActor)
    there.shutdown()
    relay = actor_system.createActor(thespians.Relay)
    actor_system.tell(relay, (gone, "hello"))
    assert actor_system.ask(relay, "still here", WAIT_S) == "still here"
    assert set(threading.enumerate()) <= before
