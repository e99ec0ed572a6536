"""What the actors of one running mapping share: each field has one owner, others look."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from poe.errors import PoeError
from poe.mapping.doors import Doors, Place, Signals, Status, Tally, now_us
from poe.mapping.judge import Judge
from poe.mapping.message import topic_bytes
from poe.mapping.rule import Call
from poe.mapping.rule_set import RuleSet
from poe.mapping.unit import Grant, Unit
from poe.protocol.server import Server

logger = logging.getLogger("poe.mapping")

BATCH_COUNT: Final = 32768
"""Messages in a batch, at most: a plan is one small write for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a mapping is run."""

    batch: int = BATCH_COUNT
    may_repeat: bool = False
    """Go on, though the rules have changed within a batch that was not ended."""
    session_s: float = 15.0
    """Seconds without a sign of life after which others get the partitions."""


def _stay() -> None:
    pass


@dataclass(slots=True)
class Station:
    """One mapping, as it runs in this process.

    Attributes:
        servers: nodes of one cluster, in the order to try them in, or a single one.
        rules: those of now; the actor `rules` changes it.
        earlier: some of those before, the newest last: batches may be planned with them still.
        refusal: what ends the run: trying again does not change it.
    """

    servers: Sequence[Server]
    rules: RuleSet
    options: RunOptions
    earlier: Sequence[RuleSet] = ()
    refusal: PoeError | None = None
    notes: list[str] = field(default_factory=list)
    """The newest that was told."""
    process: bytes = field(default_factory=lambda: os.urandom(4))
    tally: Tally = field(default_factory=Tally)
    is_to_stop: bool = False
    """Whether somebody has asked for it at the node."""
    has_joined: bool = False
    """Whether it was a member of its group once."""
    is_ending: bool = False
    """Whether it is about to end in order."""
    runs: Callable[[], "list[Run]"] = list
    """What is worked on; the member says how to find it."""
    leave: Callable[[], None] = _stay
    """Leaves the group, once batches that are under way have ended; the member says how."""

    @property
    def group(self) -> str:
        """Return the name of its group."""
        return f"mapping.{self.rules.name}"

    @property
    def topics(self) -> Sequence[bytes]:
        """Return what the group reads."""
        topics = [topic_bytes(each) for each in self.rules.source.topics]
        if self.rules.retries == "unordered":
            topics.append(self.rules.retry_topic)
        return topics

    def tell(self, text: str) -> None:
        """Tell people something."""
        logger.warning("mapping %s: %s", self.rules.name, text)
        del self.notes[:-9]
        self.notes.append(text)


class Run:
    """One ownership of a unit by this process: made by the membership, used up by one worker."""

    def __init__(
        self,
        station: Station,
        place: Place,
        position: Sequence[object] | None,
        group_us: int,
    ) -> None:
        """Begin; `group_us` is when the group was made."""
        self.station = station
        self.place = place
        self.signals = Signals()
        self.is_used = False
        self.status = Status(place.unit, tally=station.tally)
        self._position = position
        self._group_us = group_us
        self._judges: tuple[RuleSet, Judge] | None = None

    def work(self) -> bool:
        """Work until the unit is to go; whether all that was written down is known to be.

        Raises:
            PoeError: the last plan cannot be gone on with.
        """
        self.is_used = True
        try:
            return self._work()
        finally:
            if self._judges is not None:  # not when somebody collects what is left of this
                self._judges[1].close()

    def _work(self) -> bool:
        station, place = self.station, self.place
        doors = Doors(place, station.rules, self.status, self.signals, station.tell)
        match self._position:
            case [int(pointer), bytes(data)]:
                pass
            case _:
                is_oldest = station.rules.start == "oldest"
                pointer, data = 0 if is_oldest else max(0, self._group_us - 1), b""
        grant = Grant(place.unit, place.generation, pointer, data, self._group_us)
        self.status.pointer = pointer
        unit = Unit(
            station.rules.name,
            grant,
            self._judge,
            station.options.batch,
            process=station.process,
            earlier=self._judge_of,
            may_repeat=station.options.may_repeat,
        )
        doors.carry_out(unit.work())
        return not doors.is_in_doubt

    def _judge(self) -> Judge:
        """Return the rules of now, compiled for this unit alone; those of before are closed.

        Only between two batches: it may end the processes of functions that one is at.
        """
        rules = self.station.rules
        if self._judges is None or self._judges[0] is not rules:
            if self._judges is not None:
                self._judges[1].close()
            self._judges = rules, Judge(rules.compile(), now_us)
        return self._judges[1]

    def _judge_of(self, planned: bytes) -> Judge | None:
        """Return rules of before by their hash, in the place of those of now until they are asked.

        Not where processes call their functions: these read the file as it is now.
        """
        for rules in reversed(self.station.earlier):
            judge = Judge(rules.compile(), now_us)
            if judge.hash == planned and not _has_processes(rules):
                if self._judges is not None:
                    self._judges[1].close()
                self._judges = rules, judge
                return judge
        return None


def _has_processes(rules: RuleSet) -> bool:
    return any(
        isinstance(each.fate, Call) and each.fate.isolation == "process" for each in rules.rules
    )
