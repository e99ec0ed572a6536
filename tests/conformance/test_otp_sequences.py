"""The recorded behaviour of Erlang/OTP 25, played on our supervisors, servers and processes.

The recordings and the programs that make them are in `data`: `otp_driver.erl` is the reference, its
head defines the language; `otp_sequences.py.txt` generates and records.
"""

import gzip
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from poe.testing.otp_driver import Driver
from tests.testing.json_text import json_text

DATA = Path(__file__).parent / "data"


def recorded(path):
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [json.loads(line) for line in text.splitlines()]


def first_difference(driver, sequence):
    """Play a sequence and describe where it first differs from OTP; None when it does not."""
    driver.play({"op": "reset"})
    state = None
    pairs = zip(sequence["cmds"], sequence["obs"], strict=True)
    for index, (command, expected) in enumerate(pairs):
        observed = driver.play(command)
        state = expected.get("st", state)
        ours = [observed["ret"], observed["ev"], observed["st"]]
        theirs = [expected["ret"], expected["ev"], state]
        if json_text(ours) != json_text(theirs):
            return f"{sequence['id']} command {index}: {command}\n  OTP : {theirs}\n  here: {ours}"
    return None


def differences(sequences):
    driver = Driver()
    found = [first_difference(driver, sequence) for sequence in sequences]
    return [difference for difference in found if difference is not None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "sequence_count"), [("sup", 140), ("proc", 27), ("gs", 18), ("ets", 15)]
)
def test_every_recorded_sequence_goes_as_in_otp(family, sequence_count):
    sequences = [
        sequence
        for sequence in recorded(DATA / "otp_expected.jsonl.gz")
        if sequence["family"] == family
    ]
    assert len(sequences) == sequence_count
    assert differences(sequences) == []


@pytest.mark.slow
@pytest.mark.erlang
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("erlc") is None, reason="needs Erlang")
def test_fresh_random_sequences_go_as_in_otp(tmp_path):
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    for name in ("otp_driver.erl", "otp_sequences.py.txt"):
        shutil.copy(DATA / name, tmp_path)
    file = tmp_path / "fresh.jsonl"
    # The first 49 sequences are the hand-written ones.
    arguments = ["record", "-n", "89", "--seed", str(seed), "-o", file]
    subprocess.run([sys.executable, tmp_path / "otp_sequences.py.txt", *arguments], check=True)
    assert differences(recorded(file)) == []


def test_the_driver_speaks_json_lines():
    commands = [{"op": "spawn", "p": "p1"}, {"op": "whereis", "name": "nobody"}]
    run = subprocess.run(
        [sys.executable, "-m", "poe.testing.otp_driver"],
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
