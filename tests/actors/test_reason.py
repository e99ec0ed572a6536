"""Which ends are failures."""

import pytest

from poe.actors import is_orderly


@pytest.mark.parametrize(
    "reason", ["normal", "shutdown", ("shutdown", "because"), ("shutdown", None)]
)
def test_normal_and_shutdown_are_orderly(reason):
    assert is_orderly(reason)


@pytest.mark.parametrize(
    "reason", ["kill", "killed", "noproc", ("shutdown",), ("shutdown", 1, 2), ValueError(), None, 0]
)
def test_everything_else_is_a_failure(reason):
    assert not is_orderly(reason)
