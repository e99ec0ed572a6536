"""Sequences of commands with what OTP did, from a file or from a running Erlang; what we do."""

import argparse
import gzip
import json
import logging
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.conformance.otp_driver import Driver
from tests.testing.json_text import json_text

ROOT = Path(__file__).parent.parent.parent
DATA = Path(__file__).parent / "data"
FAMILIES = ("sup", "proc", "gs", "ets")


def recorded(path):
    """Return the sequences of a file, one in each line."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def fresh(family, count, seed):
    """Make random sequences while Erlang plays them; the generator sees each answer."""
    generator: Any = ModuleType("otp_sequences")
    source = DATA / "otp_sequences.py.txt"
    generator.__file__ = str(source)
    exec(compile(source.read_text(), source, "exec"), vars(generator))
    generator.SHARE = [(family, 1)]
    generator.scenarios = lambda: iter(())
    with tempfile.TemporaryDirectory() as folder:
        reference = generator.erlang_driver(folder)
        yield from generator.generate(count, seed, reference)
        reference.close()
        reference.p.stdout.close()


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
        if _is_race(command, ours[0], theirs[0]):
            ours[0] = theirs[0]
        ours[1], theirs[1] = _without_last_downs(ours[1]), _without_last_downs(theirs[1])
        if json_text(ours) != json_text(theirs):
            return f"{sequence['id']} command {index}: {command}\n  OTP : {theirs}\n  here: {ours}"
    return None


def _is_race(command, ours, theirs):
    """Tell whether a process that signals another, and ends with it, may answer this or that.

    OTP's schedulers decide whether the link ends it before it has answered: mostly it has.
    """
    is_to_other = command["op"] == "signal" and command["from"] != command["to"]
    return is_to_other and (ours, theirs) == (True, "died")


def _without_last_downs(events):
    """Leave out that a process heard of another's end, where it has ended by the same command.

    Both have ended by their links, and OTP's schedulers decide who first: mostly who has heard.
    """
    ended = {event[1] for event in events if event[0] == "exit"}
    return [
        event
        for event in events
        if not (event[0] == "msg" and event[1] in ended and event[2][0] == "DOWN")
    ]


def differences(sequences):
    """Play sequences one after the other in one driver, and describe where they differ."""
    driver = Driver()
    for sequence in sequences:
        difference = first_difference(driver, sequence)
        if difference is not None:
            yield difference


def main():
    """Play fresh sequences of one family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    different_count = 0
    for difference in differences(fresh(options.family, options.count, options.seed)):
        different_count += 1
        print(difference, flush=True)
    print(f"{options.count - different_count} of {options.count} sequences agree")
    raise SystemExit(different_count > 0)


if __name__ == "__main__":
    main()
