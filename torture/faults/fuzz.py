"""Coverage-guided fuzzing of whatever reads bytes that others wrote.

Run as a program with a target, it is the fuzzer's process; atheris ends that process itself.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from torture.scenario import Run, Trial

_ROOT = Path(__file__).parent.parent.parent
_CORPUS = _ROOT / "build" / "corpus"


def play(run: Run) -> None:
    """Fuzz each target for `run.count` seconds; what was found stays in `build/corpus`."""
    for number, target in enumerate(TARGETS):
        run.one(number, lambda trial, target=target: _fuzz(run, trial, target))  # type: ignore[misc]  # bound now


def _fuzz(run: Run, trial: Trial, target: str) -> None:
    corpus = _CORPUS / target
    corpus.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torture.faults.fuzz", target, str(corpus)]
    command += [f"-max_total_time={run.count}", f"-seed={run.seed % (1 << 31)}", "-max_len=4096"]
    command += [f"-artifact_prefix={corpus}/"]
    ended = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, text=True)
    told = ended.stderr.strip().splitlines()
    runs = next((line.split()[1] for line in reversed(told) if line.startswith("Done ")), "0")
    trial.note(**{target: int(runs)})
    trial.expect(is_true=ended.returncode == 0 and runs != "0", otherwise=f"{target}: {told[-8:]}")


def _frames(data: bytes) -> None:
    from poe.errors import ProtocolError
    from poe.protocol import FrameReader, decode_request

    reader = FrameReader()
    scratch = memoryview(bytearray(65536))
    try:
        while data:
            buffer = reader.buffer(scratch)
            size = min(len(buffer), len(data))
            buffer[:size], data = data[:size], data[size:]
            reader.received(size)
            while (frame := reader.next_frame()) is not None:
                decode_request(*frame)
    except ProtocolError:
        pass


def _records(data: bytes) -> None:
    from poe.errors import CorruptRecord
    from poe.storage import decode_records

    try:
        records = decode_records(data)
    except CorruptRecord:
        return
    assert sum(11 + len(message) for _, message in records) == len(data)


def _segment(data: bytes) -> None:
    """The first byte says how much of the rest is data; then come index and lock."""
    from poe.errors import CorruptRecord
    from poe.storage import SegmentOptions
    from torture.layers.memory import Inode, MemoryFiles
    from torture.workload import open_store, read_store

    share, rest = (data[0] if data else 0), data[1:]
    at = len(rest) * share // 255
    files = MemoryFiles()
    files.folders |= {"topics", "topics/t"}
    files.inodes["topics/t/1_data"] = Inode(rest[:at])
    files.inodes["topics/t/1_index"] = Inode(rest[at:])
    if share % 2:
        files.inodes["topics/t/1_lock"] = Inode(rest[-72:])
    store = open_store(files, SegmentOptions())
    try:
        read_store(store)
    except CorruptRecord:
        return  # found, and told


def _config(data: bytes) -> None:
    from poe.config import Config
    from poe.errors import ConfigError

    with tempfile.NamedTemporaryFile(suffix=".toml", dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        try:
            Config.load({"dir": "x"}, toml_path=file.name)
        except ConfigError:
            return


TARGETS: dict[str, Callable[[bytes], None]] = {
    "frames": _frames,
    "records": _records,
    "segment": _segment,
    "config": _config,
}


def main() -> None:
    """Be the fuzzer of one target."""
    import logging

    import atheris

    logging.getLogger("poe").setLevel(logging.CRITICAL + 1)
    target = sys.argv.pop(1)
    # Loaded once before, so that only what may be wrong is instrumented.
    with atheris.instrument_imports(include=["poe.storage", "poe.protocol", "poe.config"]):
        TARGETS[target](b"")
    atheris.Setup(sys.argv, TARGETS[target])
    atheris.Fuzz()
    os._exit(0)


if __name__ == "__main__":
    main()
