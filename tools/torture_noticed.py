"""Find which trial of a scenario notices each mutant, so that `make test` can begin with it.

    python -m tools.torture_noticed
    python -m tools.torture_noticed cluster log

`torture/noticed.json` keeps what was found. It only says where to begin: where that trial notices
nothing any more, all others are tried as well, which takes longer.
"""

import json
import re
import subprocess
import sys
from typing import Final

from torture.scenario import NOTICED_FILE, noticed
from torture.table import SCENARIOS

_TRIAL: Final = re.compile(r"^\s+trial (\d+):", re.MULTILINE)
SEED: Final = "1"
"""That of `make test`."""


def main(names: list[str]) -> None:
    """Try each mutant of these scenarios, or of all, and keep which trials notice them."""
    found = {name: dict(trials) for name, trials in noticed().items()}
    for name in names or list(SCENARIOS):
        for mutant in SCENARIOS[name].mutants:
            trial = _trial(name, mutant)
            if trial:
                found.setdefault(name, {})[mutant] = trial
            print(f"{name} {mutant}: {'nobody notices it' if trial is None else f'trial {trial}'}")
        NOTICED_FILE.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


def _trial(name: str, mutant: str) -> int | None:
    count = str(SCENARIOS[name].bite_count or SCENARIOS[name].ci)
    command = [sys.executable, "-m", "torture", "--seed", SEED, name]
    run = subprocess.run(
        [*command, "--mutant", mutant, "--count", count],
        check=False,
        capture_output=True,
        text=True,
    )
    told = _TRIAL.search(run.stdout)
    return None if told is None else int(told[1])


if __name__ == "__main__":
    main(sys.argv[1:])
