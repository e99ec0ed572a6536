"""A pipeline under rest_for_one, reader -> parser -> sink, with a line that breaks the parser.

A stage uses those started before it. The reader restarts with the parser; the sink keeps its total.
"""

import logging

from poe.actors import Call, GenServer, LoopSystem
from poe.supervision import ChildSpec, Strategy, Supervisor, SupervisorFlags

LINES = ["1", "20", "three", "400", "5000"]


class Sink(GenServer):
    """Sums up the numbers, and knows how many lines are done."""

    def init(self) -> None:
        """Begin with nothing."""
        self.total = self.done = self.to_skip = 0
        print("sink starts")

    def handle_cast(self, number: int) -> None:
        """Add the number of one line."""
        self.total, self.done = self.total + number, self.done + 1

    def handle_call(self, request: str, caller: Call) -> int:
        """Tell the total, or how many lines a reader should skip."""
        if request == "total":
            return self.total
        self.done += self.to_skip  # the line behind the last good one broke the parser
        self.to_skip = 1
        return self.done


class Parser(GenServer):
    """Makes numbers of lines; what is none ends it."""

    def handle_cast(self, line: str) -> None:
        """Parse one line."""
        self.cast("sink", int(line))


class Reader(GenServer):
    """Sends the lines that are not done to the parser."""

    async def init(self) -> None:
        """Ask the sink where to begin."""
        done = await self.call("sink", "where to begin")
        print("reader starts with line", done + 1)
        for line in LINES[done:]:
            self.cast("parser", line)


logging.getLogger("poe").addHandler(logging.NullHandler())  # here the output tells the story
stages = {"sink": Sink, "parser": Parser, "reader": Reader}
specs = [ChildSpec(id=name, actor=actor, name=name) for name, actor in stages.items()]
system = LoopSystem()
system.start(Supervisor, SupervisorFlags(strategy=Strategy.REST_FOR_ONE), specs)
print("total:", system.call("sink", "total"))
system.shutdown()
