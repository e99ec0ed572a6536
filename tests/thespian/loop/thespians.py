"""Plain Thespian actors for the tests; module-level, so that they have dotted names."""

# mypy: disable-error-code="misc"
# Thespian has no types, so every subclass of its classes is one of Any.

from thespian.actors import (
    Actor,
    ActorExitRequest,
    ActorTypeDispatcher,
    ChildActorExited,
    DeadEnvelope,
    PoisonMessage,
    ValidatedSource,
    ValidateSource,
    WakeupMessage,
)
from thespian.initmsgs import initializing_messages
from thespian.troupe import troupe

from poe.thespian import ThespianBase


def actor_system_of(runtime):
    """Thespian's system among the actors of a runtime; one for each."""
    base = runtime.actors.guests or ThespianBase(runtime=runtime)
    return base.system


class EchoActor(Actor):
    """Gives every message back, except those of the system."""

    def receiveMessage(self, message, sender):  # noqa: N802
        if not isinstance(message, ActorExitRequest):
            self.send(sender, message)


class Relay(Actor):
    """Sends on the second half of a pair, and gives the answer, or anything else, to the asker."""

    def receiveMessage(self, message, sender):  # noqa: N802
        if isinstance(message, tuple):
            self.asker = sender
            self.send(*message)
        else:
            self.send(getattr(self, "asker", sender), message)


class Failing(Actor):
    """Fails for "fail" and counts how often it was tried."""

    tries = 0

    def receiveMessage(self, message, sender):  # noqa: N802
        if message == "fail":
            self.tries += 1
            raise ValueError(message)
        if message == "tries":
            self.send(sender, self.tries)


class FailingTwice(Failing):
    """Fails for "fail" in the first two runs only."""

    def receiveMessage(self, message, sender):  # noqa: N802
        if message == "fail" and self.tries == 2:
            self.send(sender, "done at last")
        else:
            super().receiveMessage(message, sender)


class Unborn(Actor):
    """Cannot be made."""

    def __init__(self):
        msg = "unborn"
        raise ValueError(msg)


class Parent(Actor):
    """Makes a child of a given class, passes messages on to it, and tells of its end."""

    def __init__(self):
        self.asker = self.child = None

    def receiveMessage(self, message, sender):  # noqa: N802
        if isinstance(message, type | str):
            self.asker = sender
            self.child = self.createActor(message)
            self.send(sender, self.child)
        elif isinstance(message, ChildActorExited):
            self.send(self.asker, ("child exited", message.childAddress))
        elif isinstance(message, PoisonMessage):
            self.send(self.asker, ("poison", message.poisonMessage))
        elif isinstance(message, tuple):
            self.asker = sender
            self.send(self.child, message[0])


class Sleeper(Actor):
    """Wakes up after the seconds it is sent, and tells."""

    def receiveMessage(self, message, sender):  # noqa: N802
        if isinstance(message, WakeupMessage):
            self.send(message.payload, "awake")
        elif isinstance(message, float):
            self.wakeupAfter(message, payload=sender)


class DeadLetterOffice(Actor):
    """Keeps the dead letters until it is asked for them."""

    def __init__(self):
        self.letters = []

    def receiveMessage(self, message, sender):  # noqa: N802
        if message == "start":
            self.handleDeadLetters()
            self.send(sender, "started")
        elif isinstance(message, DeadEnvelope):
            self.letters.append((message.deadAddress, message.deadMessage))
        elif message == "letters":
            self.send(sender, self.letters)


class Interrupted(Actor):
    """Is interrupted by Ctrl-C at whatever it is sent."""

    def receiveMessage(self, message, sender):  # noqa: N802
        raise KeyboardInterrupt


class ByType(ActorTypeDispatcher):
    """Answers by the type of the message."""

    def receiveMsg_int(self, message, sender):  # noqa: N802
        self.send(sender, ("int", message))

    def receiveMsg_str(self, message, sender):  # noqa: N802
        self.send(sender, ("str", message))


@initializing_messages([("setting", str)])
class Configured(Actor):
    """Needs one text before it serves."""

    def receiveMessage(self, message, sender):  # noqa: N802
        self.send(sender, (self.setting, message))


@troupe(max_count=3, idle_count=1)
class Worker(Actor):
    """One of many that do the same."""

    def receiveMessage(self, message, sender):  # noqa: N802
        if isinstance(message, int):
            self.send(sender, message * 2)


class ShutsDown(Actor):
    """Ends its whole system."""

    def receiveMessage(self, message, sender):  # noqa: N802
        del sender
        if message == "end":
            self.actorSystemShutdown()


class Authority(Actor):
    """Accepts every source."""

    def receiveMessage(self, message, sender):  # noqa: N802
        if message == "start":
            self.registerSourceAuthority()
            self.send(sender, "started")
        elif isinstance(message, ValidateSource):
            self.send(sender, ValidatedSource(message.sourceHash, message.sourceData))
