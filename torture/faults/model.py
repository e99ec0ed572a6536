"""The properties: state machines that compare store, node and protocol with plain lists."""

import os
import subprocess
import sys
from pathlib import Path

from torture.scenario import Run, Trial

_ROOT = Path(__file__).parent.parent.parent
_PLACES = ("properties", "tests/storage/test_segment_model.py")


def play(run: Run) -> None:
    """Run them once, for long."""
    profile = "nightly" if run.column == "release" else "ci"
    environment = {**os.environ, "HYPOTHESIS_PROFILE": profile}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--timeout", "100000", f"--hypothesis-seed={run.seed}", *_PLACES]

    def once(trial: Trial) -> None:
        ended = subprocess.run(
            command, cwd=_ROOT, env=environment, check=False, capture_output=True, text=True
        )
        told = ended.stdout.strip().splitlines()[-3:]
        trial.expect(is_true=ended.returncode == 0, otherwise="; ".join(told))

    run.one(0, once)
