"""A user's attributes may have any name: what they hold harms their own actor at most.

Each name that the runtime or Thespian knows of is shadowed with a foreign value: in the class, in
`init`, and in a later callback. Others must not notice, and the actor can be stopped and replaced.
"""

import threading

import pytest
from thespian.actors import Actor, ActorExitRequest

from poe.actors import (
    HIBERNATE,
    ActorDead,
    CallTimeout,
    Continue,
    GenServer,
    IdleTimeout,
    Reply,
    StartFailed,
)
from poe.actors.actor_cell import ActorCell
from poe.actors.server_cell import ServerCell
from poe.supervision import (
    ChildSpec,
    CountChildren,
    Partitions,
    PartitionSupervisor,
    StartChild,
    StartDynamicChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
    TerminateChild,
    WhichChildren,
    call_supervisor,
    render_tree,
    tree,
)
from poe.testing import SimulatedSystem
from tests.actors.puppet import Puppet
from tests.thespian.loop import thespians


class Foreign:
    """Answers whatever it is asked with an error."""

    def __bool__(self):
        msg = "a foreign value has no truth"
        raise ValueError(msg)

    def __eq__(self, other):
        msg = "a foreign value is like no other"
        raise ValueError(msg)

    __hash__ = None  # type: ignore[assignment]


VALUES = {"event": threading.Event, "none": lambda: None, "foreign": Foreign}

CALLBACKS = frozenset(
    {
        *("init", "handle_call", "handle_cast", "handle_info", "handle_continue", "terminate"),
        *("code_change", "describe_role", "get_state", "set_state", "configure"),
    }
)
"""They are there to be replaced; what is no function crashes the actor that has it."""

SETTINGS = frozenset(
    {
        *("trap_exits", "mailbox_max", "hibernate_after_s", "colocated", "pinned_to_loop"),
        "strict",
    }
)

READ_ONLY = frozenset({"ref", "parent", "name"})

# Every name that a subclass inherits, every slot of a cell, and what the runtime once used.
NAMES = sorted(
    {name for name in dir(PartitionSupervisor) if not name.startswith(("__", "_GenServer__"))}
    | {slot for kind in (ActorCell, ServerCell) for slot in kind.__slots__}
    | {
        *("_awaited", "_coroutine", "_handling", "_idle_time", "_inspector", "_is_suspended"),
        *("_mailbox", "_stop", "_unanswered", "receiveMessage", "_children", "_arguments"),
        *("_is_dynamic", "_keep", "_refuse", "_log_unexpected", "_drop", "_end", "keeper"),
        *("_cell", "_supervisor", "_myRef", "cell", "system", "deliver", "abort"),
    }
)


@pytest.fixture
def system():
    with SimulatedSystem() as base:
        yield base


class Neighbour(GenServer):
    """Shows that others are well; crashes would replace it."""

    def handle_call(self, request, caller):
        return Reply(request, Continue("more"))

    def handle_continue(self, argument):
        return IdleTimeout(5)

    def handle_info(self, message):
        return HIBERNATE


class Shadowed(GenServer):
    """Sets an attribute when it is told to, and uses all that a result can ask for."""

    def init(self, name, make, *, now):
        self.told = name, make
        if now:
            setattr(self, name, make())

    def handle_call(self, request, caller):
        if request == "shadow":
            name, make = self.told
            setattr(self, name, make())
            return None
        if request == "wait":
            return self.wait_and_answer()
        return Reply(request, Continue("more"))

    async def wait_and_answer(self):
        await GenServer.sleep(self, 0.5)
        return "waited"

    def handle_cast(self, message):
        return IdleTimeout(1)

    def handle_info(self, message):
        return HIBERNATE

    def handle_continue(self, argument):
        return IdleTimeout(2)


def tried(action):
    """Do something that may fail in the actor's own way, and in no other."""
    try:
        return action()
    except (ActorDead, StartFailed, CallTimeout, TypeError, AttributeError, ValueError):
        return None


def use(system, ref):
    """Do with an actor all that others may do."""
    tried(lambda: system.call(ref, "request", timeout_s=1))
    waiting = system.start(Asker, ref)
    system.cast(waiting, "ask")
    system.cast(ref, "cast")
    system.run_queue.post_from_outside(ref.cell, "info", None)
    system.cast(ref, "while busy")
    for request in (system.get_status, system.get_state, system.suspend, system.resume):
        tried(lambda request=request: request(ref))
    tried(lambda: system.inspect(ref))
    system.advance(10)
    assert render_tree(tree(ref))
    system.stop(waiting)


class Asker(GenServer):
    """Asks another actor, as an actor does."""

    def init(self, ref):
        self.asked = ref

    async def handle_cast(self, message):
        try:
            await self.call(self.asked, "wait", timeout_s=5)
        except (ActorDead, CallTimeout):
            return


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", NAMES)
def test_an_attribute_of_any_name_harms_its_own_actor_at_most(system, name, value):
    neighbour = system.start(Neighbour)
    make = VALUES[value]
    for way in ("class", "init", "later"):
        kind = type("Shadower", (Shadowed,), {})
        if way == "class":
            try:
                kind = type("Shadower", (Shadowed,), {name: make()})
            except (TypeError, ValueError) as error:
                assert name in str(error)  # noqa: PT017 - refused before there is an actor
                continue
        try:
            ref = system.start(kind, name, make, now=way == "init")
        except (StartFailed, TypeError, AttributeError, ValueError) as error:
            told = f"{error} {getattr(error, 'reason', '')!r}"
            assert name in told or name in CALLBACKS | SETTINGS, told
            continue
        if way == "later":
            tried(lambda ref=ref: system.call(ref, "shadow"))
        if name not in CALLBACKS | SETTINGS and way != "later":
            assert system.call(ref, "hello") == "hello"
        use(system, ref)
        assert system.call(neighbour, "well?") == "well?"
        if system.is_alive(ref):
            system.stop(ref, timeout_s=20)
        assert not system.is_alive(ref)
        assert system.call(neighbour, "well?") == "well?"
    assert len(system.run_queue.timers) <= 1


# ---- supervisors ---------------------------------------------------------------------------------


def shadowing(kind, name, make, way):
    """Make a subclass of a supervisor class that has a foreign attribute."""
    if way == "class":
        return type("Shadower", (kind,), {name: make()})

    class Shadower(kind):  # type: ignore[misc,valid-type]
        def configure(self, *args):
            setattr(self, name, make())
            return super().configure(*args)

    return Shadower


FLAGS = SupervisorFlags(intensity=100)
DYNAMIC = SupervisorFlags(intensity=100, strategy=Strategy.SIMPLE_ONE_FOR_ONE)
CHILD = ChildSpec(id="child", actor=Puppet)
SUPERVISORS = {
    "ordered": (Supervisor, (FLAGS, [CHILD])),
    "dynamic": (Supervisor, (DYNAMIC, [CHILD])),
    "partition": (PartitionSupervisor, (Partitions("part", 1), CHILD)),
}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in CALLBACKS | SETTINGS])
@pytest.mark.parametrize("kind", SUPERVISORS)
def test_a_supervisor_with_an_attribute_of_any_name_supervises(system, kind, name):
    base, arguments = SUPERVISORS[kind]
    for way in ("class", "init"):
        try:
            shadower = shadowing(base, name, threading.Event, way)
            supervisor = system.start(shadower, *arguments)
        except (StartFailed, TypeError) as error:
            assert name in f"{error} {getattr(error, 'reason', '')!r}"  # noqa: PT017
            continue

        def ask(request, supervisor=supervisor):
            return call_supervisor(system, supervisor, request)

        if kind == "dynamic":
            ask(StartDynamicChild())
        (child,) = ask(WhichChildren())
        system.exit(child.ref, "boom")
        (restarted,) = ask(WhichChildren())
        assert restarted.ref not in (None, child.ref)
        assert ask(CountChildren()).active == 1
        if kind == "ordered":
            more = ask(StartChild(ChildSpec(id="more", actor=Puppet)))
            ask(TerminateChild("more"))
            assert not system.is_alive(more)
        assert len(tree(supervisor)) > 1
        system.stop(supervisor)
        assert not system.is_alive(supervisor)
        assert not system.is_alive(restarted.ref)


# ---- Thespian's actors ---------------------------------------------------------------------------


class Plain(Actor):  # type: ignore[misc]  # Thespian is untyped
    """Gives a foreign value to the attribute that it is told, then answers."""

    def receiveMessage(self, message, sender):  # noqa: N802 - Thespian's name
        if isinstance(message, tuple):
            name, value = message
            setattr(self, name, value)
        elif not isinstance(message, ActorExitRequest):
            self.send(sender, message)


@pytest.mark.parametrize("name", sorted({*NAMES, *dir(Plain)} - {"__class__", "__dict__"}))
def test_a_plain_actor_with_an_attribute_of_any_name_harms_nobody(system, name):
    neighbour, plain = system.start(Neighbour), thespians.actor_system_of(system).createActor(Plain)
    thespians.actor_system_of(system).tell(plain, (name, threading.Event()))
    thespians.actor_system_of(system).tell(plain, "hello")
    system.cast(plain, "hello")
    assert system.call(neighbour, "well?") == "well?"
    thespians.actor_system_of(system).tell(plain, ActorExitRequest())
    assert not system.is_alive(plain)
    assert system.call(neighbour, "well?") == "well?"


@pytest.mark.parametrize("name", sorted({*NAMES} - {"receiveMessage"}))
def test_a_plain_actor_whose_class_has_an_attribute_of_any_name_answers(system, name):
    kind = type("Shadower", (Plain,), {name: 5})
    plain = thespians.actor_system_of(system).createActor(kind)
    if name in ("send", "myAddress"):  # Thespian's own, which the actor uses itself
        thespians.actor_system_of(system).tell(plain, "hello")
    else:
        assert thespians.actor_system_of(system).ask(plain, "hello", 0.0) == "hello"
    thespians.actor_system_of(system).tell(plain, ActorExitRequest())
    assert not system.is_alive(plain)
