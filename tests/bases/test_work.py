"""Work that blocks, on each base: its result or failure comes back."""

import pytest

from poe.errors import ActorDead
from tests.bases.actors import Answering, Awaiting


@pytest.mark.parametrize("actor", [Awaiting, Answering])
def test_a_function_that_blocks_gives_its_result_or_failure(system, actor):
    ref = system.start(actor)
    assert system.call(ref, (pow, 2, 10), 20) == 1024
    with pytest.raises((ValueError, ActorDead), match="invalid literal"):
        system.call(ref, (int, "x"), 20)
