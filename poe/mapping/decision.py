"""What is decided about a batch of messages, grouped by where they go."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Put(NamedTuple):
    """What goes onto one topic, in the order of the messages; columns are as long as each other."""

    places: Sequence[int]
    """Of which message of the batch each is; never falling."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    """None where none has a key."""

    headers: Sequence[Mapping[str, bytes] | None] | None
    """None where none has headers. What a mapping itself tells is not among them."""


class Fallen(NamedTuple):
    """A message of a batch that no topic of the rules gets, and why."""

    place: int
    rule: str
    why: str


class Later(NamedTuple):
    """A message of a batch that is to be tried again."""

    place: int
    rule: str
    after_s: float | None
    """Seconds; None: as `on_error` says."""


@dataclass(slots=True)
class Decisions:
    """What becomes of the messages of a batch.

    A message of which one rule has failed is in `failed` alone, whatever others say of it.
    """

    puts: dict[bytes, Put] = field(default_factory=dict)
    """By topic."""

    failed: list[Fallen] = field(default_factory=list)
    """Of which a rule ended with an error: `on_error` says what becomes of these."""

    dead: list[Fallen] = field(default_factory=list)
    retries: list[Later] = field(default_factory=list)
    stopped: Fallen | None = None
    """The first message before which the mapping waits: all the rest is about those before it."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages by id of the rule and what became of them: ok, drop, to, retry, dead, error."""

    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Of dropped messages, by id of the rule and reason."""
