"""Work that blocks, in threads: an actor awaits its result, or answers others meanwhile."""

import logging
import threading

from poe.actors import NO_REPLY, Call, GenServer, LoopSystem, Work


def slow_square(number: int) -> int:
    """Stands for what takes long: a file, a query, a library that knows no asyncio."""
    if number < 0:
        raise ValueError(number)
    return number * number


class OneByOne(GenServer):
    """Awaits: its own messages wait meanwhile, other actors go on."""

    async def handle_call(self, number: int, caller: Call) -> object:
        try:
            return await self.run_blocking(slow_square, number)
        except ValueError as error:
            return f"{error} is negative"


class Together(GenServer):
    """Answers each caller when its work is done, and takes the next call at once."""

    def init(self) -> None:
        self.callers: dict[Work, Call] = {}

    def handle_call(self, function: object, caller: Call) -> object:
        if function == "how many":
            return len(self.callers)
        self.callers[Work(self, function)] = caller
        return NO_REPLY

    def handle_info(self, work: Work) -> None:
        caller = self.callers.pop(work)
        if work.error is not None:
            self.reply_error(caller, work.error)
        else:
            self.reply(caller, work.result)


logging.getLogger("poe").addHandler(logging.NullHandler())
with LoopSystem() as system:
    one, together, gate = system.start(OneByOne), system.start(Together), threading.Event()
    print("awaited:", system.call(one, 12), "and", system.call(one, -1))
    hanging = threading.Thread(target=lambda: print("later:", system.call(together, gate.wait)))
    hanging.start()
    while not system.call(together, "how many"):
        pass  # until that call has reached the actor
    print("meanwhile:", system.call(together, lambda: slow_square(7)))
    gate.set()
    hanging.join()
