"""A node and the members of a group are killed, and members sleep past lease and session.

The trials go over both modes and all `ack`. The journals of the members say what was handed out,
what was done and whose each partition was; times tell what a kill may cost.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from poe.broker.groups.options import Mode
from poe.errors import PoeError
from torture.group_member import GROUP, LEASE_S, LIMIT, TOPIC
from torture.scenario import Run, Trial
from torture.server import Server, read_topics
from torture.workload import Ack

# One after the other, these meet each other in all ways within six trials.
_MODES: tuple[Mode, ...] = ("shared", "ordered")
_ACKS: tuple[Ack, ...] = ("flushed", "memory", "fsync")
_MEMBERS = 3
_PARTITIONS = 4
_MESSAGES = 300
"""In a put onto each partition; there is one before each fault, and one behind the last."""
_FAULTS = 4
_PATIENCE_S = 30.0
_MEMORY_S = 0.05
"""With `memory`, what was acknowledged so long before a kill was written: `docs/durability.md`."""
_SLACK_S = 0.2
"""What is to be done at a time may be done so much later, on a machine that is busy."""


def play(run: Run) -> None:
    """Have work done under faults, and judge by the journals of the members."""
    run.each(lambda trial: _History(trial).play())


@dataclass(frozen=True, slots=True)
class _Fault:
    """Something that happened to a node or a member, from its begin until it was over."""

    begin_s: float
    end_s: float
    open_count: int
    """Messages at most that were handed out and not done, and come again for it."""

    is_kill_of_node: bool = False


@dataclass(slots=True)
class _Put:
    """A put onto one partition."""

    names: list[str]
    acked_s: float


@dataclass(slots=True)
class _Journals:
    """What all members have noted."""

    got: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Of each message, when it was asked for and when it was there, each time."""

    done_s: dict[str, float] = field(default_factory=dict)
    """When it was answered that it is done, the first time."""

    owned: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Of each partition, spans of time in which it was one member's."""

    def read(self, journal: Path) -> None:
        """Take in what a member has noted."""
        spans: dict[tuple[str, float], float] = {}
        for line in journal.read_text().splitlines():
            what, from_s, until_s, *told = line.split(" ")
            times = float(from_s), float(until_s)
            if what == "got":
                for name in told:
                    self.got.setdefault(name, []).append(times)
            elif what == "done":
                for name in told:
                    self.done_s[name] = min(self.done_s.get(name, times[1]), times[1])
            else:
                spans[told[0], times[0]] = times[1]
        for (unit, since_s), last_s in spans.items():
            self.owned.setdefault(unit, []).append((since_s, last_s))


class _History:
    """One node, one group, and the processes that work in it."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._mode = _MODES[trial.number % len(_MODES)]
        self._ack = _ACKS[trial.number % len(_ACKS)]
        self._folder = trial.folder
        self._members: list[subprocess.Popen[bytes]] = []
        self._journals: list[Path] = []
        self._puts: dict[bytes, list[_Put]] = {}
        self._faults: list[_Fault] = []
        self._positions: list[tuple[float, Mapping[bytes, Any]]] = []
        """What the node told of positions, and when it was asked."""

    def play(self) -> None:
        """Work, with faults in between; then compare."""
        self._server = self._start()
        try:
            with self._server.connect() as client:
                client.create_topic(TOPIC, partitions=_PARTITIONS)
            for _ in range(_MEMBERS):
                self._add_member()
            self._wait(lambda: len(self._ask("group")["members"]) == _MEMBERS)
            for _ in range(_FAULTS):
                self._put()
                time.sleep(self._trial.random.choice([0.05, 0.2]))
                self._trial.random.choice([self._kill_node, self._kill_member, self._stop_member])()
            self._put()
            self._wait(lambda: not self._left_count())
            self._look_at_positions()
            stored = read_topics(self._server)
        finally:
            for member in self._members:
                member.kill()
                member.wait()
            self._server.kill()
        journals = _Journals()
        for journal in self._journals:
            if journal.exists():
                journals.read(journal)
        self._judge(journals, stored)
        if self._trial.failures:
            self._trial.failures.append(f"of {self._mode}, {self._ack}")

    # ---- what happens ----------------------------------------------------------------------------

    def _start(self) -> Server:
        server = Server(self._folder / "store", ack=self._ack, log=self._folder / "server.log")
        port_file = self._folder / "port"
        port_file.with_suffix(".new").write_text(str(server.port))
        port_file.with_suffix(".new").replace(port_file)
        return server

    def _put(self) -> None:
        with self._server.connect() as client:
            for number in range(_PARTITIONS):
                unit = b"%s-%d" % (TOPIC, number)
                puts = self._puts.setdefault(unit, [])
                names = [f"{number}.{len(puts)}.{at}" for at in range(_MESSAGES)]
                client.write(unit, [name.encode() for name in names])
                puts.append(_Put(names, time.monotonic()))

    def _add_member(self) -> None:
        self._journals.append(self._folder / f"journal-{len(self._journals)}")
        arguments = [self._mode, str(self._folder / "port"), str(self._journals[-1])]
        command = [sys.executable, "-m", "torture.group_member", *arguments]
        self._members.append(subprocess.Popen(command))

    def _kill_node(self) -> None:
        begin_s = time.monotonic()
        self._server.kill()
        self._server = self._start()
        end_s = time.monotonic()
        self._faults.append(_Fault(begin_s, end_s, _MEMBERS * LIMIT, is_kill_of_node=True))
        self._look_at_positions()
        self._trial.note(node_kills=1)

    def _kill_member(self) -> None:
        begin_s = time.monotonic()
        member = self._members.pop(self._trial.random.randrange(len(self._members)))
        member.kill()
        member.wait()
        self._add_member()
        self._faults.append(_Fault(begin_s, time.monotonic(), LIMIT))
        self._trial.note(member_kills=1)

    def _stop_member(self) -> None:
        """Stop one until its lease and its session are over; then it goes on where it was."""
        begin_s = time.monotonic()
        member = self._trial.random.choice(self._members)
        os.kill(member.pid, signal.SIGSTOP)
        time.sleep(LEASE_S + 0.5)
        os.kill(member.pid, signal.SIGCONT)
        # What it had comes again, and it may read a partition once more that was its own.
        self._faults.append(_Fault(begin_s, time.monotonic(), 2 * LIMIT))
        self._trial.note(stops=1)

    def _ask(self, op: str) -> Any:
        with self._server.connect() as client:
            return client.control(op, group=GROUP)

    def _left_count(self) -> int:
        return sum(each["messages"] for each in self._ask("group_lag").values())

    def _look_at_positions(self) -> None:
        if self._mode == "ordered":
            asked_s = time.monotonic()
            self._positions.append((asked_s, self._ask("group_positions")))

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            error: PoeError | None = None
            try:
                if is_so():
                    return
            except PoeError as refusal:  # nobody has made the group yet
                error = refusal
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"nothing happens any more: {error or self._ask('group_lag')}")
            time.sleep(0.05)

    # ---- the judge -------------------------------------------------------------------------------

    def _judge(self, journals: _Journals, stored: Mapping[bytes, Any]) -> None:
        """Nothing is lost; what was done never comes again; few come twice, and for a reason."""
        self._judge_puts(stored)
        names = {name.decode() for unit in self._puts for _, name in stored.get(unit, ())}
        self._expect_none("were never delivered", names - journals.got.keys())
        again, baseless, redelivered_count = [], [], 0
        for name, times in journals.got.items():
            done_s = journals.done_s.get(name, float("inf"))
            is_forgotten = self._may_be_lost(done_s)
            if not is_forgotten:
                again += [name for asked_s, _ in times if asked_s > done_s]
                redelivered_count += len(times) - 1
            told_s = sorted(told_s for _, told_s in times)
            baseless += [name for pair in pairwise(told_s) if not self._has_reason(*pair)]
        self._expect_none("were done, and came again", again)
        self._expect_none("came again, and nothing had happened", baseless)
        open_count = sum(fault.open_count for fault in self._faults)
        self._trial.note(handed_out=len(journals.got), redelivered=redelivered_count)
        self._trial.expect(
            is_true=redelivered_count <= open_count,
            otherwise=f"{redelivered_count} came again, and {open_count} were handed out at most",
        )
        for unit, spans in journals.owned.items():
            shared = [pair for pair in pairwise(sorted(spans)) if pair[0][1] > pair[1][0]]
            self._expect_none(f"times {unit} had two owners", shared)
        for asked_s, positions in self._positions:
            self._judge_positions(journals, stored, positions, asked_s)

    def _judge_puts(self, stored: Mapping[bytes, Any]) -> None:
        """Each put is there whole, or one that a kill may have taken is gone."""
        for unit, puts in self._puts.items():
            there = [name.decode() for _, name in stored.get(unit, ())]
            kept = [
                put for put in puts if put.names[0] in there or not self._may_be_lost(put.acked_s)
            ]
            expected = [name for put in kept for name in put.names]
            self._trial.expect(
                is_true=there == expected,
                otherwise=f"{unit!r} holds {len(there)} messages instead of {len(expected)}",
            )

    def _judge_positions(
        self,
        journals: _Journals,
        stored: Mapping[bytes, Any],
        positions: Mapping[bytes, Any],
        asked_s: float,
    ) -> None:
        """Nothing up to a position had yet to be handed out when that was told."""
        for unit, position in positions.items():
            last = position[0] if position else 0
            names = [name.decode() for pointer, name in stored.get(unit, ()) if pointer <= last]
            ahead = [
                name
                for name in names
                if min((told_s for _, told_s in journals.got.get(name, ())), default=1e18) > asked_s
            ]
            self._expect_none(f"of {unit!r} were passed over", ahead)

    def _may_be_lost(self, acked_s: float) -> bool:
        """Whether what was acknowledged then may have been in memory alone when the node died."""
        return self._ack == "memory" and any(
            fault.is_kill_of_node and fault.begin_s - _MEMORY_S - _SLACK_S < acked_s < fault.end_s
            for fault in self._faults
        )

    def _has_reason(self, first_s: float, again_s: float) -> bool:
        """Whether something happened that may have a message come again."""
        return any(
            fault.begin_s < again_s and first_s < fault.end_s + _SLACK_S for fault in self._faults
        )

    def _expect_none(self, what: str, found: Iterable[object]) -> None:
        found = list(found)
        self._trial.expect(is_true=not found, otherwise=f"{len(found)} {what}: {found[:5]}")
