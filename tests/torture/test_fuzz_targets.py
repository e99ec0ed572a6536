"""What is fuzzed takes what is right, and nothing at all: the fuzzer begins with that."""

import pytest

from torture import fuzz_cluster, fuzz_files, fuzz_wire

TARGETS = fuzz_wire.TARGETS | fuzz_files.TARGETS | fuzz_cluster.TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_its_seeds_and_nothing_at_all(name):
    target, seeds = TARGETS[name]
    for content in (*seeds, b""):
        target(content)
