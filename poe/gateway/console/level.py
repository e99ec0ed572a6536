"""What a session may do, as far as the console is asked; the node judges its users besides."""

from enum import IntEnum
from http import HTTPStatus

from poe.errors import RequestRefused


class Level(IntEnum):
    """Each holds those before it."""

    NONE = 0
    """What needs no session."""
    READ = 1
    """To look."""
    OPERATE = 2
    """To change what can be changed back: produce, pause, reset, redrive."""
    DESTROY = 3
    """To delete and to trim."""

    @classmethod
    def of(cls, name: str) -> "Level":
        """Return the level that an option names."""
        return cls[name.upper()]

    @property
    def label(self) -> str:
        """How it is named in options and to pages."""
        return self.name.lower()


def check_level(held: Level, needed: Level) -> None:
    """Let pass who may.

    Raises:
        RequestRefused: 403, with how it can be allowed.
    """
    if held >= needed:
        return
    how = {
        Level.OPERATE: "it was started to be looked at only; start it with console_level=operate",
        Level.DESTROY: "deleting is off; start it with console_level=destroy "
        "(poe console --destructive)",
    }[needed]
    raise RequestRefused(HTTPStatus.FORBIDDEN, f"this console may not do that: {how}")
