"""Measures the actor runtime alone: a message, a call with its reply, the size of an idle actor."""

import gc
import time
import tracemalloc
from collections.abc import Iterator

from thespian.actors import Actor

from bench import rounds
from bench.row import Sample
from poe.actors import NO_REPLY, ActorRef, Call, GenServer, LoopSystem
from poe.thespian import ThespianBase


class Plain(Actor):  # type: ignore[misc]  # Thespian is untyped
    """Sends itself a falling number until it is zero, then answers who asked for it."""

    def receiveMessage(self, message, sender):  # noqa: N802 - Thespian's name
        if sender != self.myAddress:
            self.asker = sender
        if message:
            self.send(self.myAddress, message - 1)
        else:
            self.send(self.asker, "done")


class Counter(GenServer):
    """Casts a falling number to its peer until it is zero, then answers who asked for it."""

    def init(self) -> None:
        self.peer = self.ref
        self.asker: Call | None = None

    def handle_call(self, request, caller):
        self.asker = caller
        self.cast(self.peer, request)
        return NO_REPLY

    def handle_cast(self, message):
        if not isinstance(message, int):
            self.peer = message
        elif message > 0:
            self.cast(self.peer, message - 1)
        elif self.asker is not None:
            self.reply(self.asker, None)
        else:
            self.cast(self.peer, 0)


class Echo(GenServer):
    """Answers with what it was asked."""

    def handle_call(self, request, caller):
        return request


class Caller(GenServer):
    """Calls another actor as often as it is told to."""

    async def handle_call(self, request, caller):
        echo, count = request
        for number in range(count):
            await self.call(echo, number)
        return count


class Idle(GenServer):
    """Does nothing."""


def start(runtime: LoopSystem, actor: type[GenServer]) -> ActorRef:
    """Start an actor that cannot decline."""
    ref = runtime.start(actor)
    assert ref is not None
    return ref


def cast_us(runtime: LoopSystem, count: int) -> float:
    """Microseconds per message between two actors."""
    left, right = start(runtime, Counter), start(runtime, Counter)
    runtime.cast(left, right)
    runtime.cast(right, left)
    started = time.perf_counter()
    runtime.call(left, count, timeout_s=600)
    return (time.perf_counter() - started) / count * 1e6


def plain_us(runtime: LoopSystem, count: int) -> float:
    """Microseconds per message of a plain Thespian actor."""
    system = ThespianBase(runtime=runtime).system
    actor = system.createActor(Plain)
    started = time.perf_counter()
    assert system.ask(actor, count) == "done"
    return (time.perf_counter() - started) / count * 1e6


def call_us(runtime: LoopSystem, count: int) -> float:
    """Microseconds per call and reply between two actors."""
    caller, echo = start(runtime, Caller), start(runtime, Echo)
    started = time.perf_counter()
    runtime.call(caller, (echo, count), timeout_s=600)
    return (time.perf_counter() - started) / count * 1e6


def idle_bytes(runtime: LoopSystem, count: int) -> float:
    """Bytes that one more idle actor holds."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    actors = [runtime.start(Idle) for _ in range(count)]
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held / len(actors)


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Start a runtime, round by round."""
    messages = 100_000 if quick else 1_000_000
    for _ in range(count):
        runtime = LoopSystem()
        try:
            samples = measure(runtime, messages)
        finally:
            runtime.shutdown()
        yield samples


def measure(runtime: LoopSystem, count: int) -> list[Sample]:
    """All samples of a round."""
    return [
        Sample.at_most("actor message (plain)", plain_us(runtime, count), "µs", 0.6),
        Sample.at_most("actor message (cast)", cast_us(runtime, count), "µs", 0.6),
        Sample.at_most("actor call and reply", call_us(runtime, count // 4), "µs", 3),
        Sample.at_most("idle actor", idle_bytes(runtime, count // 20), "B", 1024),
    ]


if __name__ == "__main__":
    rounds.main(measure_rounds)
