"""What a search in a topic has found, and how far it has looked."""

from typing import Any, NamedTuple, Self

from poe.errors import RemoteProtocolError


class Match(NamedTuple):
    """A message that matches, and where."""

    pointer: int
    ordinal: int
    size_bytes: int
    preview: bytes
    """A part of the message with the match, 2 KiB at most."""
    preview_at: int
    """Where in the message that part begins."""
    match_at: int
    """Where in the message the match begins."""


class Scanned(NamedTuple):
    """What one call has found; the next one goes on behind `looked_up_to`."""

    matches: list[Match]
    """Oldest first."""
    looked_up_to: int
    """Pointer of the last message that was looked at; there may be matches behind it."""
    looked_bytes: int
    is_end: bool
    """Whether nothing follows, up to where it was asked for."""

    @classmethod
    def from_map(cls, content: Any) -> Self:  # noqa: ANN401 - to be checked
        """Take what the control op `scan` has answered.

        Raises:
            RemoteProtocolError: it is no such answer.
        """
        try:
            matches = [Match(*each) for each in content["matches"]]
            looked = int(content["looked_up_to"]), int(content["looked_bytes"])
            return cls(matches, *looked, bool(content["is_end"]))
        except (TypeError, KeyError, ValueError) as error:
            msg = f"the answer to scan is {content!r:.200}"
            raise RemoteProtocolError(msg) from error
