"""One topic whose disk hangs, or whose writer goes on crashing: nobody else notices.

The others' puts are compared with those of the same server before the fault. A put begun while all
stood still hides those that its producer would have begun meanwhile; they are counted as well.
"""

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Literal

from poe.errors import ActorDead, CallTimeout, PoeError, TopicFailed
from torture.checker import Journal, Sender
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import POISON, Server, read_all, read_topics
from torture.shim import Call, Shim

_BAD = b"bad"
_OTHERS = (b"one", b"two", b"three", b"four")
_POISON = b"poison"
_HANG_S = 10.0
_CRASHING_S = 5.0
_CONTROL_S = 3.0
_PUT_TIMEOUT_S = 2.0
_PAUSE_S = 0.01
_SLOWER_MAX_S = 0.1
_CRASHES_MAX = 6
"""A first one, and five restarts."""

Kind = Literal["crash"] | Call


def play(run: Run, kind: Kind) -> None:
    """Have one topic meet a call that hangs, or poison; look at all others meanwhile."""
    run.each(lambda trial: _Trial(run, trial, kind).play())


class _Trial:
    """One server and its producers."""

    def __init__(self, run: Run, trial: Trial, kind: Kind) -> None:
        self.run = run
        self.trial = trial
        self.kind = kind
        self.journal = Journal()

    def play(self) -> None:
        # In memory, so that whoever else uses the real disk holds up nobody.
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            self._play(Path(folder))

    def _play(self, folder: Path) -> None:
        trial, journal = self.trial, self.journal
        base = folder / "data"
        shim = Shim(folder, base / "topics" / _BAD.decode()) if self.kind != "crash" else None
        environment = {POISON: _POISON.decode()} if shim is None else shim.environment
        options = {
            "ack": "fsync",
            "put_timeout": _PUT_TIMEOUT_S,
            "check_interval": 0.1,
            "min_free": 0,
        }
        with Server(base, environment=environment, **options) as server:  # type: ignore[arg-type]  # of several types
            with server.connect() as client:
                put = Sender(journal, trial.random).begin(_BAD)
                put.pointer = client.write(_BAD, put.messages)
            producers = [
                Producer(
                    server,
                    journal,
                    topic,
                    Random(trial.random.random()),
                    window=1,
                    pause_s=_PAUSE_S,
                )
                for topic in _OTHERS
            ]
            for producer in producers:
                producer.start()
            producers[0].join(_CONTROL_S)
            actors = _actors(server)
            begun_s = time.monotonic()
            if shim is None:
                self._crash(server)
            else:
                self._hang(server, shim, self.kind)  # type: ignore[arg-type]  # no crash
            ended_s = time.monotonic()
            gone = actors - _actors(server)
            trial.expect(is_true=not gone, otherwise=f"these actors were restarted: {gone}")
            for producer in producers:
                producer.stop()
                told = f"others were refused: {producer.refused[:1]}"
                trial.expect(is_true=not producer.refused and not producer.is_gone, otherwise=told)
            self._compare(producers, begun_s, ended_s)
            trial.failures += journal.judge(read_topics(server))
        with Server(base, **options) as server:  # type: ignore[arg-type]  # as above
            trial.failures += journal.judge(read_topics(server))
        trial.note(acked=journal.acked_count())

    def _hang(self, server: Server, shim: Shim, call: Call) -> None:
        """Have the bad topic wait for its disk, and others begin."""
        shim.hang(call)
        bad = Producer(server, self.journal, _BAD, Random(self.trial.random.random()), window=1)
        bad.start()
        bad.join(_HANG_S / 2)
        self._begin_another(server)
        bad.join(_HANG_S / 2)
        shim.heal()
        bad.stop()
        self.trial.note(hung_calls=shim.failed_count, timed_out=len(bad.refused))
        self.trial.expect(is_true=shim.failed_count > 0, otherwise="no call has hung")
        told = {type(error) for error in bad.refused}
        self.trial.expect(is_true=told == {CallTimeout}, otherwise=f"who waits was told {told}")
        self.run.measure("told_s", max(wait_s for _, wait_s in bad.waits))

    def _crash(self, server: Server) -> None:
        """Have the bad topic's writer crash again and again, until it is read only."""
        told: list[type[PoeError]] = []
        deadline_s = time.monotonic() + _CRASHING_S
        with server.connect() as client:
            before = read_all(client, _BAD)
            while time.monotonic() < deadline_s:
                try:
                    client.write(_BAD, [_POISON])
                except PoeError as error:
                    told.append(type(error))
                time.sleep(_PAUSE_S)
            self._begin_another(server)
            self.trial.expect(
                is_true=read_all(client, _BAD) == before, otherwise="it cannot be read any more"
            )
        crashes = told.count(ActorDead)
        self.trial.note(crashes=crashes, refused=told.count(TopicFailed))
        self.trial.expect(
            is_true=crashes == _CRASHES_MAX and {*told} == {ActorDead, TopicFailed},
            otherwise=f"it crashed {crashes} times; producers were told { ({*told}) }",
        )

    def _begin_another(self, server: Server) -> None:
        """Expect that a new client and a new topic are served."""
        begun_s = time.monotonic()
        put = Sender(self.journal, self.trial.random).begin(b"new")
        try:
            with server.connect(_HANG_S / 2) as client:
                put.pointer = client.write(b"new", put.messages)
        except PoeError as error:
            self.trial.failures.append(f"a new client is not served: {error}")
        self.run.measure("new_s", time.monotonic() - begun_s)

    def _compare(self, producers: list[Producer], begun_s: float, ended_s: float) -> None:
        """Compare the others' puts during the fault with those before it."""
        waits = [wait for producer in producers for wait in producer.waits]
        before_s = _p99(wait_s for at_s, wait_s in waits if at_s < begun_s)
        during_s = _p99(wait_s for at_s, wait_s in waits if begun_s <= at_s < ended_s)
        self.run.measure("before_p99_s", before_s)
        self.run.measure("others_p99_s", during_s)
        self.trial.expect(
            is_true=during_s <= before_s + _SLOWER_MAX_S,
            otherwise=f"p99 of the others rose from {before_s:.3f} s to {during_s:.3f} s",
        )


def _actors(server: Server) -> set[str]:
    """Tell all actors but those of the bad topic, and but connections, which come and go."""
    with server.connect(_HANG_S) as client:
        rows = client.control("tree", all=True)
    return {
        row["ref"]
        for row in rows
        if row["actor"] != "Connection" and _BAD.decode() not in row["role"].split()
    }


def _p99(waits_s: Iterable[float]) -> float:
    """Tell the 99th percentile of waits, with those of puts that were not begun because of one."""
    all_s: list[float] = []
    for wait_s in waits_s:
        all_s.append(wait_s)
        all_s += [wait_s - late * _PAUSE_S for late in range(1, int(wait_s / _PAUSE_S))]
    all_s.sort()
    return all_s[len(all_s) * 99 // 100]
