"""How many bytes of unfinished work the connections of a node may hold together.

What counts is memory that waits for somebody: received bytes of frames that are not whole yet, or
not served yet, and replies that their peer does not take. Nothing is refused for it: a connection
that would hold too much stops to receive, and TCP slows its peer down. A frame that arrives in one
piece is never held, so that small requests are served however full it is.

Strategy: half of the budget is for whoever comes first. When it is used up, each connection may
still hold its share of the other half, an equal part for each that is allowed. Those that hold more
wait in line, and one at a time goes on beyond the budget, the one that holds least first: a frame
that is larger than what is left gets through, and the memory of half frames is always given back.
"""

from collections.abc import Callable
from typing import NamedTuple

from poe.errors import Overloaded

_SHARE_BYTES_MIN = 1024


class ByteBudget:
    """The sum of what the connections of a node hold; used in the event loop's thread only.

    Always:

        held_bytes == sum of `Holding.size_bytes`
        is_full == (held_bytes >= bytes_max / 2)
        nobody waits in line unless it is full and somebody goes on
        held_bytes <= bytes_max + a frame        (of connections that ask `may_receive` first)
    """

    __slots__ = (
        "_full_bytes",
        "_going",
        "_line",
        "bytes_max",
        "held_bytes",
        "is_full",
        "share_bytes",
    )

    def __init__(self, bytes_max: int, holders_max: int) -> None:
        """Begin with nothing held, for so many connections at most."""
        self.bytes_max = bytes_max
        self.share_bytes = max(bytes_max // 2 // holders_max, _SHARE_BYTES_MIN)
        self.held_bytes = 0
        self.is_full = False
        self._full_bytes = bytes_max // 2
        self._line: dict[Holding, None] = {}
        self._going: Holding | None = None

    @property
    def has_line(self) -> bool:
        """Whether somebody waits until there is room."""
        return bool(self._line)

    def change(self, difference_bytes: int) -> None:
        """Count what a connection holds more than before, or less."""
        self.held_bytes += difference_bytes
        self.is_full = self.held_bytes >= self._full_bytes
        if not self.is_full and self._line:
            self._going = None
            line, self._line = self._line, {}
            for holding in sorted(line, key=_size):
                holding.resume()

    def is_going(self, holding: "Holding") -> bool:
        """Return whether a connection is the one that goes on beyond the budget."""
        return self._going is holding

    def goes_on(self, holding: "Holding") -> bool:
        """Let a connection go on beyond the budget, or put it in line until `resume` is called."""
        if self._going is None:
            self._going = holding
        if self._going is holding:
            return True
        self._line[holding] = None
        return False

    def end_turn(self, holding: "Holding") -> None:
        """Let the next one go on, if this one did or waited to."""
        self._line.pop(holding, None)
        if self._going is holding:
            self._going = min(self._line, key=_size, default=None)
            if self._going is not None:
                del self._line[self._going]
                self._going.resume()


class Holding:
    """What one connection holds of the budget; `resume` is called when it may receive again."""

    __slots__ = ("_resume", "budget", "size_bytes")

    def __init__(self, budget: ByteBudget, resume: Callable[[], object]) -> None:
        self.budget = budget
        self._resume: Callable[[], object] | None = resume
        self.size_bytes = 0

    @property
    def is_going(self) -> bool:
        """Whether it is this connection that goes on beyond the budget."""
        return self.budget.is_going(self)

    @property
    def room_bytes(self) -> int | None:
        """Bytes to receive at most while the budget is full; None for the one that goes on."""
        room_bytes = self.budget.share_bytes - self.size_bytes
        return room_bytes if room_bytes > 0 else None

    def set(self, size_bytes: int) -> None:
        """Note how many bytes the connection holds now."""
        difference_bytes = size_bytes - self.size_bytes
        if difference_bytes:
            self.size_bytes = size_bytes
            if size_bytes < self.budget.share_bytes:
                self.budget.end_turn(self)
            self.budget.change(difference_bytes)

    def may_receive(self) -> bool:
        """Return whether the connection may receive while the budget is full; if not, it waits."""
        return self.room_bytes is not None or self.budget.goes_on(self)

    def may_hold(self, size_bytes: int) -> bool:
        """Return whether there is room for something that the connection makes by itself."""
        return not self.budget.is_full or size_bytes <= self.budget.share_bytes

    def resume(self) -> None:
        """Tell the connection that it may receive again."""
        if self._resume is not None:
            self._resume()

    def release(self) -> None:
        """Hold nothing any more, and wait for nothing."""
        self._resume = None
        self.budget.end_turn(self)
        self.set(0)


class Room(NamedTuple):
    """What the requests of one connection may take of memory."""

    holding: Holding
    frame_max: int
    """Bytes in one frame."""

    def hold(self, size_bytes: int) -> None:
        """Count what a request has made, until the connection counts what it holds anew.

        Raises:
            Overloaded: there is no room for it.
        """
        if not self.holding.may_hold(size_bytes):
            raise Overloaded("in_flight_max", self.holding.budget.bytes_max)
        self.holding.set(self.holding.size_bytes + size_bytes)


def _size(holding: Holding) -> int:
    return holding.size_bytes
