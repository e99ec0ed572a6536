"""Coverage-guided fuzzing of whatever reads bytes that others wrote; see fuzzer.py."""

import subprocess
import sys
from pathlib import Path

from torture import fuzz_cluster, fuzz_files, fuzz_wire
from torture.scenario import Run, Trial

_ROOT = Path(__file__).parent.parent.parent
_CORPUS = _ROOT / "build" / "corpus"
_IS_BLIND = "Is the code instrumented for coverage?"


def play(run: Run) -> None:
    """Fuzz each target for `run.count` seconds; what was found stays in `build/corpus`."""
    for number, target in enumerate(fuzz_wire.TARGETS | fuzz_files.TARGETS | fuzz_cluster.TARGETS):
        run.one(number, lambda trial, target=target: _fuzz(run, trial, target))  # type: ignore[misc]  # bound now


def _fuzz(run: Run, trial: Trial, target: str) -> None:
    # Of a mutant nothing is to be kept.
    corpus = (run.folder if run.mutant else _CORPUS) / target
    corpus.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torture.fuzzer", target, str(corpus)]
    command += [f"-max_total_time={run.count}", f"-seed={run.seed % (1 << 31)}", "-max_len=4096"]
    command += [f"-artifact_prefix={corpus}/"]
    ended = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, text=True)
    told = ended.stderr.strip().splitlines()
    runs = next((line.split()[1] for line in reversed(told) if line.startswith("Done ")), "0")
    trial.note(**{target: int(runs)})
    trial.expect(is_true=ended.returncode == 0 and runs != "0", otherwise=f"{target}: {told[-8:]}")
    trial.expect(is_true=_IS_BLIND not in ended.stderr, otherwise=f"{target}: the fuzzer is blind")
