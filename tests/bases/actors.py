"""Actors for all bases: their requests are data or module-level functions, so they can be pickled.

Nothing is shared with the test: what happens is told to a `Recorder`, which is found by name.
"""

import os
from functools import partial

from poe.actors import IGNORE, NO_REPLY, AsyncWork, GenServer, Stop, Work
from poe.actors.mailslot import Mailslot
from poe.supervision import ChildSpec, Restart, WhichChildren, call_supervisor
from tests.waiting import wait_until

RECORDER = "recorder"


class Recorder(GenServer):
    """Keeps what it is told, in order; what it is told by name comes from anywhere."""

    def init(self):
        self.events = []
        self.plans = {}

    def handle_cast(self, event):
        self.events.append(event)

    def handle_call(self, request, caller):
        del caller
        what, *arguments = request
        if what == "events":
            return self.events
        if what == "take":
            taken, self.events = self.events, []
            return taken
        if what == "plan":
            label, outcomes = arguments
            self.plans[label] = list(outcomes)
            return None
        if what == "stop":
            self.events.append(request)
            return None
        # A start of a worker: note it, and say what is to become of it.
        (label,) = arguments
        plan = self.plans.get(label)
        outcome = plan.pop(0) if plan else "ok"
        self.events.append(("start" if outcome == "ok" else "fail", label))
        return outcome


class Doer(GenServer):
    """Runs the function it is sent, `function(doer, *arguments)`; notes other messages in `log`."""

    def init(self, *setup, trap_exits=False):
        self.log = []
        self.trap_exits = trap_exits
        if setup:
            function, *arguments = setup
            return function(self, *arguments)
        return None

    def handle_call(self, request, caller):
        self.caller = caller
        function, *arguments = request
        return function(self, *arguments)

    def handle_cast(self, message):
        if isinstance(message, tuple) and callable(message[0]):
            function, *arguments = message
            return function(self, *arguments)
        self.log.append(("cast", message))
        return None

    def handle_info(self, message):
        self.log.append(message)

    def handle_continue(self, argument):
        self.log.append(("continue", argument))


def log_of(doer):
    return doer.log


def pid_of(doer):
    del doer
    return os.getpid()


class Worker(GenServer):
    """A child that tells the recorder of its starts and stops, and ends as it is told."""

    async def init(self, label, *, trap=True, cleanup=""):
        self.trap_exits = trap
        self.label, self.cleanup = label, cleanup
        outcome = await self.call(RECORDER, ("start", label))
        if outcome == "ignore":
            return IGNORE
        return None if outcome == "ok" else Stop(outcome)

    def handle_call(self, request, caller):
        del request, caller
        return os.getpid()

    def handle_cast(self, message):
        what, *arguments = message
        if what == "raise":
            raise ValueError(self.label)
        if what == "spin":
            while True:
                pass
        return Stop(*arguments)

    async def terminate(self, reason):
        told = "raised" if isinstance(reason, ValueError) else reason
        # A call and not a cast: the process goes when this is done.
        await self.call(RECORDER, ("stop", self.label, told), None)
        if self.cleanup == "hangs":
            await self.sleep(1e9)
        if self.cleanup == "spins":
            while True:
                pass


class Stage:
    """A recorder, and short names for what the supervision tests do."""

    def __init__(self, system):
        self.system = system
        self.recorder = system.start(Recorder, name=RECORDER)

    def take(self):
        return self.system.call(self.recorder, ("take",))

    def wait_for(self, *events):
        """Wait until at least so many events have come, then compare them and forget them."""
        wait_until(lambda: len(self.system.call(self.recorder, ("events",))) >= len(events), 20)
        assert self.take() == list(events)

    def plan(self, label, *outcomes):
        self.system.call(self.recorder, ("plan", label, outcomes))

    def ask(self, supervisor, request):
        return call_supervisor(self.system, supervisor, request)

    def refs(self, supervisor):
        """Map the ids of the children to their refs, in start order."""
        children = self.ask(supervisor, WhichChildren())
        return {child.id: child.ref for child in reversed(children)}

    def end(self, supervisor, label, reason="boom"):
        self.system.cast(self.refs(supervisor)[label], ("stop", reason))


def spec(label, *, restart=Restart.PERMANENT, significant=False, shutdown_s=5.0, **options):
    return ChildSpec(
        id=label,
        actor=Worker,
        args=(label,),
        kwargs=options,
        restart=restart,
        significant=significant,
        shutdown_s=shutdown_s,
    )


def specs(labels, **options):
    return [spec(label, **options) for label in labels]


class Awaiting(GenServer):
    """Answers with what a function that blocks returns."""

    async def handle_call(self, request, caller):
        del caller
        function, *arguments = request
        return await self.run_blocking(function, *arguments)


class Answering(GenServer):
    """Answers later, and goes on meanwhile."""

    def init(self):
        self.callers = {}

    def handle_call(self, request, caller):
        if request == "ping":
            return "pong"
        function, *arguments = request
        self.callers[Work(self, partial(function, *arguments))] = caller
        return NO_REPLY

    def handle_info(self, message):
        caller = self.callers.pop(message)
        if message.error is not None:
            self.reply_error(caller, message.error)
        else:
            self.reply(caller, message.result)


class Meanwhile(GenServer):
    """Has a function run beside it, and says what that has returned."""

    def init(self):
        self.result = None

    def handle_call(self, request, caller):
        del caller
        what, *function = request
        if what == "begin":
            Work(self, partial(*function))
        return self.result

    def handle_info(self, work):
        self.result = work.result


def wait_for_file(path):
    wait_until(path.exists)
    return "found"


class OnLoop(GenServer):
    """Uses what only a `LoopSystem` has."""

    def handle_call(self, what, caller):
        del caller
        if what == "Mailslot":
            Mailslot(self)
        else:
            AsyncWork(self, wait_for_nothing())

    def handle_info(self, work):
        pass


async def wait_for_nothing():
    pass
