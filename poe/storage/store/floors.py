"""What the next pointers of topics must exceed whose segments do not tell it: they are gone."""

from typing import Final

FLOORS_MAX: Final = 10_000


class Floors:
    """The floors of the topics that lost a segment last.

    A clock that only goes on makes greater pointers anyway; those of a topic run ahead of it for as
    long as it is put onto faster than once in a microsecond, or after the machine's was set back.

    Always: `FLOORS_MAX` topics at most, so that those that come and go do not fill the memory.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def of(self, topic: bytes) -> int:
        """Return the floor of a topic; 0 where none is known."""
        return self._known.get(topic, 0)

    def lift(self, topic: bytes, pointer: int) -> None:
        """Note that a pointer of a topic was given."""
        if pointer:
            self._known[topic] = max(self._known.pop(topic, 0), pointer)
            if len(self._known) > FLOORS_MAX:
                del self._known[next(iter(self._known))]
