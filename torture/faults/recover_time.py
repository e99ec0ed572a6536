"""How long a start takes, with thousands of sealed segments and some that a kill left unsealed."""

import os
import signal

from poe.storage import Files, SegmentOptions
from torture.scenario import Run, Trial
from torture.server import Server
from torture.store_process import run_alone
from torture.workload import START_US, open_store

_READY_MAX_S = 5.0
_UNSEALED_BYTES = 64 << 20
_SEALED_PER_UNSEALED = 100
_SEGMENTS_PER_TOPIC = 100


def play(run: Run) -> None:
    """Make `run.count` sealed segments, and one unsealed of 64 MiB for each hundred; start."""
    run.one(0, lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    folder = run.folder / "data"
    unsealed_count = run.count // _SEALED_PER_UNSEALED

    def fill(files: Files) -> None:
        store = open_store(files, SegmentOptions())
        for number in range(run.count):
            topic = b"sealed-%d" % (number // _SEGMENTS_PER_TOPIC)
            store.create_segment(topic, START_US).append([b"m" * 100] * 100, START_US)
            for sealed in store.topics[topic][-2:-1]:
                sealed.hibernate()  # there are more of them than files may be open
        for segments in store.topics.values():
            segments[-1].close()
        for number in range(unsealed_count):
            segment = store.create_segment(b"unsealed-%d" % number, START_US)
            while segment.size_bytes < _UNSEALED_BYTES:
                segment.append([b"m" * 1000] * 1000, START_US)
            segment.hibernate()
        os.kill(os.getpid(), signal.SIGKILL)

    trial.expect(is_true=run_alone(folder, lambda _: None, fill), otherwise="nothing was made")
    for name in ("after_kill_s", "after_stop_s"):
        with Server(folder, ready_s=120) as server:
            took_s = server.start_s - server.kept_waiting_s()
            run.measure(name, took_s)
            trial.expect(is_true=took_s <= _READY_MAX_S,
                         otherwise=f"{name}: ready after {took_s:.1f} s")  # fmt: skip
            server.stop()
    trial.note(sealed=run.count, unsealed=unsealed_count)
