"""Keeps nodes that go up and down often out of new choices, for a while that grows.

Each time that such a node comes back it would be given copies, and each time that it goes they have
to be made anew: one bad cable would have the whole cluster copy for ever. Nothing is taken from a
node that is kept out; it hands out what it has, and takes puts of its own clients.
"""

from typing import Final, NamedTuple

DOWNS_FREE: Final = 2
"""So often may a node go down before it is kept out."""

FORGIVE_US: Final = 60_000_000
"""Each time that passes without a down takes one off the count."""

OUT_FIRST_US: Final = 5_000_000
OUT_MAX_US: Final = 300_000_000


class _Record(NamedTuple):
    downs: int
    last_down_us: int
    out_until_us: int


class Flapping:
    """How often each node went down lately; times are of a clock that only goes on."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: dict[bytes, _Record] = {}

    def down(self, node: bytes, now_us: int) -> int:
        """Note that a node went down; return for how many microseconds it is kept out, from now."""
        known = self._records.get(node, _Record(0, now_us, now_us))
        forgiven = (now_us - known.last_down_us) // FORGIVE_US
        count = max(known.downs - forgiven, 0) + 1
        beyond = count - DOWNS_FREE
        # Of a long series of downs the power would take minutes to compute.
        out_us = min(OUT_FIRST_US << min(beyond - 1, 16), OUT_MAX_US) if beyond > 0 else 0
        until_us = max(known.out_until_us, now_us + out_us)
        self._records[node] = _Record(count, now_us, until_us)
        return until_us - now_us

    def is_out(self, node: bytes, now_us: int) -> bool:
        """Return whether a node is kept out of new choices."""
        known = self._records.get(node)
        return known is not None and now_us < known.out_until_us

    def next_deadline_us(self, now_us: int) -> int | None:
        """Return when the next node is let in again; None: none is kept out."""
        later = [each.out_until_us for each in self._records.values() if now_us < each.out_until_us]
        return min(later, default=None)

    def forget(self, node: bytes) -> None:
        """Forget a node that is no member any more."""
        self._records.pop(node, None)
