"""A node and the members of its work queue are killed, and members sleep past lease and session."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from torture.group_member import GROUP, LEASE_S, LIMIT, TOPIC
from torture.scenario import Run, Trial
from torture.server import Server

_MEMBERS = 3
_MESSAGES = 6000
_FAULTS = 4
_PATIENCE_S = 30.0


def play(run: Run, ack: str = "flushed") -> None:
    """Have work done under faults, and judge by the journals of the members."""
    run.each(lambda trial: _History(trial, ack).play())


class _History:
    """One node, one queue, and the processes that work on it."""

    def __init__(self, trial: Trial, ack: str) -> None:
        self._trial = trial
        self._ack = ack
        self._folder = trial.folder
        self._members: list[subprocess.Popen[bytes]] = []
        self._journals: list[Path] = []

    def play(self) -> None:
        """Work, with faults in between; then compare."""
        self._server = self._start()
        names = [b"%d" % number for number in range(_MESSAGES)]
        try:
            with self._server.connect() as client:
                client.write(TOPIC, names)
            for _ in range(_MEMBERS):
                self._add_member()
            for _ in range(_FAULTS):
                time.sleep(self._trial.random.choice([0.1, 0.4]))
                self._trial.random.choice([self._kill_node, self._kill_member, self._stop_member])()
            self._wait()
        finally:
            for member in self._members:
                member.kill()
                member.wait()
            self._server.kill()
        self._judge(names)

    def _start(self) -> Server:
        server = Server(self._folder / "store", ack=self._ack, log=self._folder / "server.log")
        port_file = self._folder / "port"
        port_file.with_suffix(".new").write_text(str(server.port))
        port_file.with_suffix(".new").replace(port_file)
        return server

    def _add_member(self) -> None:
        self._journals.append(self._folder / f"journal-{len(self._journals)}")
        arguments = [str(self._folder / "port"), str(self._journals[-1])]
        command = [sys.executable, "-m", "torture.group_member", *arguments]
        self._members.append(subprocess.Popen(command))

    def _kill_node(self) -> None:
        self._server.kill()
        self._server = self._start()
        self._trial.note(node_kills=1)

    def _kill_member(self) -> None:
        member = self._members.pop(self._trial.random.randrange(len(self._members)))
        member.kill()
        member.wait()
        self._add_member()
        self._trial.note(member_kills=1)

    def _stop_member(self) -> None:
        """Stop one until its lease and its session are over; then it goes on where it was."""
        member = self._trial.random.choice(self._members)
        os.kill(member.pid, signal.SIGSTOP)
        time.sleep(2 * LEASE_S + 0.2)
        os.kill(member.pid, signal.SIGCONT)
        self._trial.note(stops=1)

    def _wait(self) -> None:
        """Wait until all is done."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            with self._server.connect() as client:
                [lag] = client.control("group_lag", group=GROUP).values()
            if not lag["messages"]:
                return
            time.sleep(0.05)
        self._trial.failures.append(f"{lag['messages']} messages are left")

    def _judge(self, names: list[bytes]) -> None:
        """Nothing is lost; what was done never comes again; few come twice."""
        done_s: dict[str, float] = {}
        got: list[tuple[float, str]] = []
        for journal in self._journals:
            lines = journal.read_text().splitlines() if journal.exists() else []
            for line in lines:
                what, asked_s, told_s, *told = line.split(" ")
                if what == "got":
                    got += [(float(asked_s), name) for name in told]
                else:
                    done_s |= {name: min(done_s.get(name, 1e18), float(told_s)) for name in told}
        delivered = {name for _, name in got}
        lost = [name for name in names if name.decode() not in delivered]
        again = [name for asked_s, name in got if asked_s > done_s.get(name, 1e18)]
        redelivered_count = len(got) - len(delivered)
        open_count = _FAULTS * _MEMBERS * LIMIT
        self._trial.note(redelivered=redelivered_count)
        self._trial.expect(
            is_true=not lost, otherwise=f"{len(lost)} were never delivered: {lost[:5]}"
        )
        self._trial.expect(is_true=not again, otherwise=f"done, and came again: {again[:5]}")
        self._trial.expect(
            is_true=redelivered_count <= open_count,
            otherwise=f"{redelivered_count} came again, and {open_count} were under lease at most",
        )
