"""An actor that does in its callbacks what a test hands it, and notes what it sees."""

from poe.actors import NO_REPLY, GenServer


class Puppet(GenServer):
    """Runs the functions it is called with, cast or sent; whatever else comes lands in `log`.

    Functions get the puppet, in a call also the caller, and what they return is the callback's
    result.
    """

    def init(self, log=None, *, trap_exits=False, on_init=None, on_terminate=None):
        self.log = [] if log is None else log
        self.trap_exits = trap_exits
        self.on_terminate = on_terminate
        return None if on_init is None else on_init(self)

    def handle_call(self, request, caller):
        return request(self, caller)

    def handle_cast(self, message):
        return self._do_or_note("cast", message)

    def handle_info(self, message):
        return self._do_or_note("info", message)

    def handle_continue(self, argument):
        return self._do_or_note("continue", argument)

    def terminate(self, reason):
        self.log.append(("terminate", reason))
        return None if self.on_terminate is None else self.on_terminate(self)

    def _do_or_note(self, way, message):
        if callable(message):
            return message(self)
        self.log.append((way, message))
        return None


class PinnedPuppet(Puppet):
    """The same in the event loop's thread."""

    pinned_to_loop = True


class SmallPuppet(Puppet):
    """The same with room for two waiting messages."""

    mailbox_max = 2


def log_of(system, ref):
    """Return what a puppet has noted so far."""
    return system.call(ref, lambda puppet, _: list(puppet.log))


def child_of(system, parent, *args, **kwargs):
    """Make a puppet start another one that is linked to it."""

    async def start(puppet, _):
        return await puppet.start_link(Puppet, *args, **kwargs)

    return system.call(parent, start)


def in_actor(system, action, **kwargs):
    """Run `action(puppet)` inside a new puppet and return its result."""
    ref = system.start(Puppet, **kwargs)
    return system.call(ref, lambda puppet, _: action(puppet))


class Gate(GenServer):
    """Keeps every caller waiting until it is told to open."""

    def init(self):
        self.waiting = []

    def handle_call(self, request, caller):
        del request
        self.waiting.append(caller)
        return NO_REPLY

    def handle_cast(self, message):
        for caller in self.waiting:
            self.reply(caller, message)
        self.waiting = []


def start_blocked(system, puppet_class=Puppet, **kwargs):
    """Start a puppet that waits in a callback, and the gate it waits for."""
    gate = system.start(Gate)
    log: list[object] = []

    async def wait(puppet):
        log.append(("gate", await puppet.call(gate, "wait", None)))

    ref = system.start(puppet_class, log, **kwargs)
    system.cast(ref, wait)
    return ref, gate, log


def raise_boom(_):
    msg = "boom"
    raise ValueError(msg)


async def raise_boom_later(puppet):
    await puppet.sleep(0)
    raise_boom(puppet)
