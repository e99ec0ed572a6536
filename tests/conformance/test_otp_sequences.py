"""What Erlang/OTP 25 did, played on our supervisors, servers, processes and tables.

The recordings and the programs that make them are in `data`: `otp_driver.erl` is the reference, its
head defines the language; `otp_sequences.py.txt` generates and records.
"""

import itertools
import json
import logging
import random
import shutil
import subprocess
import sys

import pytest

from tests.conformance.otp_driver import Driver
from tests.conformance.playback import DATA, FAMILIES, ROOT, differences, fresh, recorded

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _quiet():
    """Crashes are what the sequences are about; a report of each takes longer than all the rest."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(("family", "count"), list(zip(FAMILIES, (140, 27, 18, 15), strict=True)))
def test_every_recorded_sequence_goes_as_in_otp(family, count):
    sequences = [
        sequence
        for sequence in recorded(DATA / "otp_expected.jsonl.gz")
        if sequence["family"] == family
    ]
    assert len(sequences) == count
    assert list(differences(sequences)) == []


@pytest.mark.erlang
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("erlc") is None, reason="needs Erlang")
@pytest.mark.parametrize(("family", "count"), list(zip(FAMILIES, (10, 40, 5, 40), strict=True)))
def test_fresh_random_sequences_go_as_in_otp(family, count):
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"python -m tests.conformance.playback {family} --count {count} --seed {seed}")
    # On a busy machine the driver of the real one may look before a message has come. What differs
    # does so each time.
    plays = (list(differences(fresh(family, count, seed))) for _ in range(5))
    found = list(itertools.takewhile(bool, plays))
    assert len(found) < 5, found


def test_the_driver_speaks_json_lines():
    commands = [{"op": "spawn", "p": "p1"}, {"op": "whereis", "name": "nobody"}]
    run = subprocess.run(
        [sys.executable, "-m", "tests.conformance.otp_driver"],
        cwd=ROOT,
        input="\n".join(json.dumps(command) for command in commands),
        capture_output=True,
        text=True,
        check=True,
    )
    observations = [json.loads(line) for line in run.stdout.splitlines()]
    assert [(o["i"], o["op"], o["ret"]) for o in observations] == [
        (0, "spawn", "ok"),
        (1, "whereis", None),
    ]


def test_the_driver_waits_as_long_as_a_supervisor_that_waits_for_a_child():
    hangs = {"id": "b", "trap": True, "term": "hang", "shutdown": 5000}
    driver = Driver()
    driver.play(
        {
            "op": "start_sup",
            "sup": "root",
            "flags": {"strategy": "rest_for_one"},
            "children": [{"id": "a"}, hangs],
        }
    )
    observation = driver.play({"op": "crash", "child": "a"})
    assert observation["ret"] == "ok"
    assert observation["st"]["root"]["count"] == [2, 2, 0, 2]
