"""In which order nodes are asked to hold a copy: drawn by lot, other zones first, and sticky.

One draw counts for a second: the batches of that time go to the same nodes, so that what each of
them holds of a stream is few long ranges, and all nodes get their share over the seconds.
"""

import random
from collections.abc import Iterable
from typing import Final

from poe.cluster.identity import NodeRef, Peer

REDRAW_US: Final = 1_000_000


class Placement:
    """The draw of one node, for one queue.

    While a draw counts, two peers keep their order among themselves within a zone, whoever else
    comes or goes.
    """

    __slots__ = ("_dice", "_lots", "_redraw_us", "_zone")

    def __init__(self, zone: str, dice: random.Random) -> None:
        self._zone = zone
        self._dice = dice
        self._lots: dict[NodeRef, float] = {}
        self._redraw_us = 0

    def order(self, peers: Iterable[Peer], now_us: int) -> list[NodeRef]:
        """Return the peers in the order in which they are to be asked; the node itself is none.

        However many of the first ones are taken, with the node itself they lie in as many zones as
        that many peers can.
        """
        # The second is not trusted: behind a clock that went back, a draw would count for ever.
        if not 0 < self._redraw_us - now_us <= REDRAW_US:
            self._lots.clear()
            self._redraw_us = now_us + REDRAW_US
        # By id, for a draw is to depend on the dice alone.
        drawn = sorted((self._lot(each.ref), each.ref, each.zone) for each in sorted(peers))
        taken = {self._zone: 1}
        turns = []
        for lot, ref, zone in drawn:
            turn = taken.get(zone, 0)
            taken[zone] = turn + 1
            turns.append((turn, lot, ref))
        return [ref for _, _, ref in sorted(turns)]

    def failed(self, node: NodeRef) -> None:
        """Put a node that did not take a copy behind the others, until the next draw."""
        self._lots[node] = 1.0 + self._dice.random()

    def _lot(self, node: NodeRef) -> float:
        lot = self._lots.get(node)
        if lot is None:
            lot = self._lots[node] = self._dice.random()
        return lot
