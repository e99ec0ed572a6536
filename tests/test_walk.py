"""How many of our files a call walks through is a budget: it may fall, never rise."""

import json
import subprocess
import sys

import pytest

from tests.python_process import ROOT, environment

LIMITS = {
    "socket put": 11,
    "socket get": 10,
    "in-process put": 9,
    "in-process next": 8,
    "restart": 12,
    "produce_async_batched": 26,
}
"""Files entered; of `produce_async_batched` those of the server, too, to which it is sent."""


@pytest.mark.slow
def test_no_call_enters_more_of_our_files_than_it_may():
    """Where one enters fewer, write that down: the next change must not take it back."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.walk"],
        cwd=ROOT,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    entered = json.loads(run.stdout)
    assert entered.keys() == LIMITS.keys()
    over = {call: files for call, files in entered.items() if len(files) > LIMITS[call]}
    assert over == {}, {call: len(files) for call, files in over.items()}
