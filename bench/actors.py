"""Measures the actor runtime alone: a message, a call with its reply, the size of an idle actor."""

import argparse
import gc
import time
import tracemalloc

from bench.row import Row, print_rows
from poe.actors import ActorRef, GenServer, LoopSystemBase


class Counter(GenServer):
    """Passes a falling number to its peer until it is zero."""

    def init(self) -> None:
        self.peer: ActorRef | None = None

    def handle_call(self, request, caller):
        self.peer = request
        return "ready"

    def handle_cast(self, message):
        if message and self.peer is not None:
            self.cast(self.peer, message - 1)


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


def start(runtime: LoopSystemBase, actor: type[GenServer]) -> ActorRef:
    """Start an actor that cannot decline."""
    ref = runtime.start(actor)
    assert ref is not None
    return ref


def cast_us(runtime: LoopSystemBase, count: int) -> float:
    """Microseconds per message between two actors."""
    left, right = start(runtime, Counter), start(runtime, Counter)
    runtime.call(left, right)
    runtime.call(right, left)
    started = time.perf_counter()
    runtime.cast(left, count)
    return (time.perf_counter() - started) / count * 1e6


def call_us(runtime: LoopSystemBase, count: int) -> float:
    """Microseconds per call and reply between two actors."""
    caller, echo = start(runtime, Caller), start(runtime, Echo)
    started = time.perf_counter()
    runtime.call(caller, (echo, count), timeout_s=600)
    return (time.perf_counter() - started) / count * 1e6


def idle_bytes(runtime: LoopSystemBase, count: int) -> float:
    """Bytes that one more idle actor holds."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    actors = [runtime.start(Idle) for _ in range(count)]
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held / len(actors)


def main() -> None:
    """Measure on one runtime."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    count = 100_000 if quick else 1_000_000
    runtime = LoopSystemBase()
    try:
        rows = [
            Row.at_most("actor message (cast)", cast_us(runtime, count), "µs", 0.6),
            Row.at_most("actor call and reply", call_us(runtime, count // 4), "µs", 3),
            Row.at_most("idle actor", idle_bytes(runtime, count // 20), "B", 1024),
        ]
    finally:
        runtime.shutdown()
    print_rows(rows)


if __name__ == "__main__":
    main()
