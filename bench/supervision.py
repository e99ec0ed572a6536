"""Measures supervision: how fast crashed children run again, and what dynamic children cost."""

import gc
import logging
import time
import tracemalloc
from collections.abc import Iterator

from bench import rounds
from bench.row import Sample
from poe.actors import ActorRef, GenServer, LoopSystem
from poe.supervision import (
    ChildSpec,
    StartDynamicChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
    WhichChildren,
)


class Worker(GenServer):
    """Crashes when it is told to, and counts the starts of all workers."""

    starts = 0

    def init(self):
        Worker.starts += 1

    def handle_cast(self, message):
        raise ValueError(message)


class Crasher(GenServer):
    """Makes the workers that it is told crash."""

    def handle_call(self, children, caller):
        for child in children:
            self.cast(child, "crash")


TEMPLATE = ChildSpec(id="worker", actor=Worker)


class Starter(GenServer):
    """Asks a supervisor for as many dynamic children as it is told."""

    async def handle_call(self, request, caller):
        supervisor, count = request
        return [
            await self.call(supervisor, StartDynamicChild(), timeout_s=None) for _ in range(count)
        ]


def start_supervisor(runtime: LoopSystem, strategy: Strategy, specs: list[ChildSpec]) -> ActorRef:
    """Start a supervisor that never gives up."""
    flags = SupervisorFlags(strategy=strategy, intensity=1_000_000, period_s=60)
    supervisor = runtime.start(Supervisor, flags, specs)
    assert supervisor is not None
    return supervisor


def start_dynamic(
    runtime: LoopSystem, supervisor: ActorRef, count: int
) -> tuple[list[ActorRef], float]:
    """Start dynamic children, and tell how long it took."""
    starter = runtime.start(Starter)
    assert starter is not None
    started = time.perf_counter()
    children = runtime.call(starter, (supervisor, count), timeout_s=600)
    elapsed_s = time.perf_counter() - started
    runtime.stop(starter)
    return children, elapsed_s


def restart_s(runtime: LoopSystem, children: list[ActorRef]) -> float:
    """Seconds from the first crash of all children until the last one runs again."""
    wanted = Worker.starts + len(children)
    crasher = runtime.start(Crasher)
    assert crasher is not None
    started = time.perf_counter()
    runtime.call(crasher, children, timeout_s=600)
    while Worker.starts < wanted:
        time.sleep(0.001)
    elapsed_s = time.perf_counter() - started
    runtime.stop(crasher)
    return elapsed_s


def ordered_restart_s(runtime: LoopSystem, count: int) -> float:
    """The same with children that each have a spec of their own."""
    specs = [ChildSpec(id=number, actor=Worker) for number in range(count)]
    supervisor = start_supervisor(runtime, Strategy.ONE_FOR_ONE, specs)
    infos = runtime.call(supervisor, WhichChildren(), timeout_s=600)
    elapsed_s = restart_s(runtime, [info.ref for info in infos])
    runtime.stop(supervisor, timeout_s=600)
    return elapsed_s


def dynamic_child_bytes(runtime: LoopSystem, count: int) -> float:
    """Bytes that one more dynamic child holds, what its supervisor keeps of it included."""
    supervisor = start_supervisor(runtime, Strategy.SIMPLE_ONE_FOR_ONE, [TEMPLATE])
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    children, _ = start_dynamic(runtime, supervisor, count)
    del children
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    runtime.stop(supervisor, timeout_s=600)
    return held / count


def measure(runtime: LoopSystem, scale: int) -> list[Sample]:
    """All samples of a round; their bars hold for a scale of 1."""
    supervisor = start_supervisor(runtime, Strategy.SIMPLE_ONE_FOR_ONE, [TEMPLATE])
    children, start_s = start_dynamic(runtime, supervisor, 100_000 // scale)
    crash_s = restart_s(runtime, children[: 10_000 // scale])
    del children
    runtime.stop(supervisor, timeout_s=600)
    ordered_s = ordered_restart_s(runtime, 10_000 // scale)
    size_bytes = dynamic_child_bytes(runtime, 20_000 // scale)
    return [
        Sample.at_most("100 000 dynamic children start", start_s * scale, "s", 1),
        Sample.at_most("10 000 of them crash and run again", crash_s * scale, "s", 1),
        Sample.at_most("10 000 children with specs crash and run again", ordered_s * scale, "s", 1),
        Sample.at_most("dynamic child", size_bytes, "B", 2000),
    ]


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Start a runtime, round by round."""
    # Each crash is two records with a traceback; what a log costs depends on where it goes.
    logging.getLogger("poe").addHandler(logging.NullHandler())
    for _ in range(count):
        runtime = LoopSystem()
        try:
            samples = measure(runtime, 10 if quick else 1)
        finally:
            runtime.shutdown()
        yield samples


if __name__ == "__main__":
    rounds.main(measure_rounds)
