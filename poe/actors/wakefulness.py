"""Keeps an event loop from going to sleep while its peer answers as fast as it does.

A thread that sleeps on a processor that has nothing else to do is woken late, in a virtual machine
by tens of microseconds: as long as all the rest of a small request takes. So after an input the
loop looks for the next one for a moment, but only where a single peer has just sent two that soon
after each other. Peers that ask now and then cost nothing, and one that stops costs one such
moment; where several ask at a time, one of them has mostly come when the loop is about to sleep.

Source: haltpoll, by which Linux does the same for a processor of a virtual machine.
"""

import os
import time
from collections.abc import Callable

_LOOK_S = 100e-6
HAS_SPARE_PROCESSOR = len(os.sched_getaffinity(0)) > 1
"""Whether a peer on this machine can go on while the loop looks."""


class Wakefulness:
    """Decides for one event loop; belongs to the loop's thread."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        monotonic_s: Callable[[], float] = time.monotonic,
        *,
        has_spare_processor: bool = HAS_SPARE_PROCESSOR,
    ) -> None:
        """Begin asleep; `call_soon` is the loop's."""
        self._call_soon = call_soon
        self._monotonic_s = monotonic_s
        self._has_spare_processor = has_spare_processor
        self._peer = -1
        self._input_s = 0.0
        self._is_looking = False

    def note_input(self, peer: int) -> None:
        """Tell that something came over the connection with this descriptor."""
        if peer != self._peer:
            self._peer = peer
            self._input_s = 0.0
            return
        now_s = self._monotonic_s()
        is_close = now_s - self._input_s < 2 * _LOOK_S
        self._input_s = now_s
        if is_close and not self._is_looking and self._has_spare_processor:
            self._is_looking = True
            self._call_soon(self._look)

    def _look(self) -> None:
        if self._monotonic_s() - self._input_s < _LOOK_S:
            # With a callback that is due, a loop only looks at its sockets and does not sleep.
            self._call_soon(self._look)
        else:
            self._is_looking = False
