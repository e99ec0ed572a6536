"""Signals at each place where one may come: their handlers raise, as that of Ctrl-C, or call."""

import itertools
import sys
from collections.abc import Callable, Iterator
from types import FrameType

_UNHEARD = {"__del__", "<genexpr>"}
"""Where nobody hears of it as an object goes, which these may be about to do."""


class Interrupt(BaseException):
    """What such a handler raises."""


def _interrupt() -> None:
    raise Interrupt


def places(
    *files: str, handler: Callable[[], object] = _interrupt
) -> Iterator[Callable[[Callable[[], object]], bool]]:
    """Yield for each place in these files what calls an action that is interrupted there.

    It returns whether the action has come to that place; the first that does not is the last one.
    The interpreter calls handlers as a function begins, and behind each call of one in C.
    """
    is_over = False

    def call(action: Callable[[], object], left: int) -> bool:
        nonlocal is_over
        is_over = True

        def interrupt(frame: FrameType, event: str, _: object) -> None:
            nonlocal left, is_over
            code = frame.f_code
            is_place = code.co_filename.endswith(files) and code.co_name not in _UNHEARD
            if is_place and event in {"call", "c_return"}:
                left -= 1
                if left < 0 and is_over:
                    is_over = False
                    handler()

        before = sys.getprofile()
        sys.setprofile(interrupt)
        try:
            action()
        except Interrupt:
            pass
        finally:
            sys.setprofile(before)
        return not is_over

    for number in itertools.count():
        yield lambda action, number=number: call(action, number)  # type: ignore[misc]  # bound now
        if is_over:
            return
