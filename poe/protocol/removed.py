"""What was removed of a topic, and what of that a reader has missed.

A reader that asks before and after it reads, and is told the same, knows that nothing went in
between: what was removed behind its pointer, and before the first message that it found, is lost.
"""

from typing import Any, NamedTuple, Self

from poe.errors import RemoteProtocolError
from poe.record import POINTER_MAX


class Removed(NamedTuple):
    """What was removed of a topic behind the pointer that was asked about."""

    extents: tuple[tuple[int, int], ...]
    """First and last pointer of messages that are gone, oldest first; perhaps some before, too."""

    unknown_high: int
    """What was removed up to this pointer is not known, but for the extents; 0: all is known."""

    @classmethod
    def from_map(cls, content: Any) -> Self:  # noqa: ANN401 - to be checked
        """Take what the control op `removed` has answered.

        Raises:
            RemoteProtocolError: it is no such answer.
        """
        try:
            extents = tuple((int(first), int(last)) for first, last in content["removed"])
            return cls(extents, int(content["unknown_high"]))
        except (TypeError, KeyError, ValueError) as error:
            msg = f"the answer to removed is {content!r:.200}"
            raise RemoteProtocolError(msg) from error

    @classmethod
    def unknown(cls, error: RemoteProtocolError) -> Self:
        """Return what a server of an older version knows, which has refused the op.

        Raises:
            RemoteProtocolError: the error, where that is none for not knowing the op.
        """
        if "'removed' is unknown" not in str(error):
            raise error
        return cls((), POINTER_MAX)

    def is_known_behind(self, pointer: int) -> bool:
        """Return whether the extents are all that was removed behind a pointer.

        Where its message was removed with a note, so was what followed it.
        """
        is_noted = any(first <= pointer <= last for first, last in self.extents)
        return is_noted or pointer >= self.unknown_high

    @property
    def newest(self) -> int:
        """The newest pointer that was removed; 0 where none was."""
        return self.extents[-1][1] if self.extents else 0

    def lost(self, after: int, found: int | None) -> tuple[tuple[int, int], ...]:
        """Return what was removed between what was read last and what was found next.

        Args:
            after: pointer of the last message that was read.
            found: pointer of the next one that is there; None where there is none.
        """
        end = POINTER_MAX + 1 if found is None else found
        return tuple((first, last) for first, last in self.extents if after < last < end)
