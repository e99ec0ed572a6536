"""A file descriptor kept back, so that a client can be told when there is no other one left."""

import contextlib
import os
from collections.abc import Iterator


class SpareDescriptor:
    """Owns one descriptor that leads nowhere, as long as it lives; lends the room that it takes."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._take_back()

    def __del__(self) -> None:
        self.close()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Leave room for one descriptor while the block runs, which must close what it opens."""
        self.close()
        try:
            yield
        finally:
            self._take_back()

    def _take_back(self) -> None:
        """Have a spare one again, if there is room."""
        if self._fd is None:
            with contextlib.suppress(OSError):
                self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Keep none back any more."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
