"""A worker pool: an actor for each job, three at a time; a poisoned job breaks its own only."""

import logging

from poe.actors import NO_REPLY, Call, Down, GenServer, LoopSystem, Stop
from poe.supervision import (
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
    start_dynamic_child,
)


class Worker(GenServer):
    """Does one job, tells the pool, and ends; it catches nothing."""

    def handle_cast(self, job: int) -> Stop:
        self.cast("pool", (job, 100 // job))
        return Stop("normal")


class Pool(GenServer):
    """Starts a worker for each job and monitors it: its end makes room for the next."""

    async def handle_call(self, jobs: list[int], caller: Call) -> object:
        """Do all jobs; the answer comes when the last worker has ended."""
        self.waiting, self.working, self.caller, self.results = list(jobs), {}, caller, {}
        for _ in jobs[:3]:
            await self.start_next()
        return NO_REPLY

    async def start_next(self) -> None:
        worker = await start_dynamic_child(self, "workers")
        self.working[self.monitor(worker)] = job = self.waiting.pop(0)
        self.cast(worker, job)

    def handle_cast(self, result: tuple[int, int]) -> None:
        self.results[result[0]] = result[1]

    async def handle_info(self, message: Down) -> None:
        """Note a crash, and go on with the next job."""
        job = self.working.pop(message.monitor)
        self.results.setdefault(job, f"{type(message.reason).__name__}, alone")
        if self.waiting:
            await self.start_next()
        elif not self.working:
            self.reply(self.caller, self.results)


logging.getLogger("poe").addHandler(logging.NullHandler())
flags = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE)
template = ChildSpec(id="worker", actor=Worker, restart=Restart.TEMPORARY)
system = LoopSystem()
system.start(Supervisor, flags, [template], name="workers")
system.start(Pool, name="pool")
for job, result in sorted(system.call("pool", [1, 2, 0, 4, 5, 10]).items()):
    print(f"100 / {job}: {result}")
system.shutdown()
