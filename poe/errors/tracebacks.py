"""Lets go of tracebacks: their frames keep what was at work, and often the error as well.

An error that a message carries on, to a caller or as the reason of an end, would then be one
reference cycle with the actor, its message, and all that was received for it.
"""

import sys


def drop_tracebacks(error: BaseException) -> None:
    """Take the tracebacks off an error, its causes and what was handled when it was raised.

    Those of another exception that this thread is still handling stay: it may be raised again.
    """
    error.__traceback__ = None
    left = [error.__cause__, error.__context__]
    if left == [None, None]:
        return
    running = set()
    frame = sys._getframe(1)  # noqa: SLF001 - there is no other way
    while frame is not None:
        running.add(frame)
        frame = frame.f_back  # type: ignore[assignment]  # None at the bottom
    seen: set[BaseException | None] = {error, None}
    while left:
        other = left.pop()
        if other is None or other in seen:
            continue
        seen.add(other)
        traceback = other.__traceback__
        if traceback is None or traceback.tb_frame not in running:
            other.__traceback__ = None
            left += (other.__cause__, other.__context__)
