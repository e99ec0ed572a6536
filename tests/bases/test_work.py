"""Work that blocks, on each base: its result or failure comes back."""

import pytest

from poe.actors import LoopSystem
from poe.errors import ActorDead, LoopSystemOnly
from tests.bases.actors import Answering, Awaiting, Meanwhile, OnLoop, wait_for_file
from tests.waiting import wait_until


@pytest.mark.parametrize("actor", [Awaiting, Answering])
def test_a_function_that_blocks_gives_its_result_or_failure(system, actor):
    ref = system.start(actor)
    assert system.call(ref, (pow, 2, 10), 20) == 1024
    with pytest.raises((ValueError, ActorDead), match="invalid literal"):
        system.call(ref, (int, "x"), 20)


def test_an_actor_with_a_work_goes_on_while_that_blocks(system, tmp_path):
    path = tmp_path / "done"
    ref = system.start(Meanwhile)
    system.call(ref, ("begin", wait_for_file, path))
    assert system.call(ref, ("result",)) is None
    path.touch()
    wait_until(lambda: system.call(ref, ("result",)) == "found")


@pytest.mark.parametrize("what", ["AsyncWork", "Mailslot"])
def test_what_needs_the_event_loop_is_refused_without_one(system, what):
    ref = system.start(OnLoop)
    if isinstance(system, LoopSystem):
        assert system.call(ref, what) is None
        return
    with pytest.raises(ActorDead) as caught:
        system.call(ref, what)
    assert isinstance(caught.value.reason, LoopSystemOnly)
