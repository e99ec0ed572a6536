"""When an event loop looks for the next input before it sleeps; the clock and the loop are ours."""

from collections.abc import Callable

import pytest

from poe.actors.run_queue import Wakefulness

US = 1e-6


class World:
    """A loop that has something to do, or would sleep now."""

    def __init__(self, **options):
        self.now_s = 1000.0
        self.due: list[Callable[[], None]] = []
        self.wakefulness = Wakefulness(self.due.append, lambda: self.now_s, **options)

    def inputs(self, *gaps_us, peer=7):
        for gap_us in gaps_us:
            self.now_s += gap_us * US
            self.wakefulness.note_input(peer)

    def is_awake(self):
        """Run a turn of the loop; tell whether it comes to another one without sleep."""
        due, self.due[:] = self.due[:], []
        for callback in due:
            callback()
        assert len(self.due) <= 1
        return bool(self.due)


@pytest.fixture
def world():
    return World(has_spare_processor=True)


def test_a_peer_that_asks_now_and_then_lets_the_loop_sleep(world):
    world.inputs(10, 1000, 300, 5000)
    assert not world.is_awake()


def test_after_two_inputs_soon_after_each_other_it_looks_for_the_next_for_a_moment(world):
    world.inputs(10, 60, 60)
    for _ in range(9):
        assert world.is_awake()
        world.now_s += 10 * US
    world.inputs(5)
    for _ in range(9):
        assert world.is_awake()
        world.now_s += 10 * US
    world.now_s += 20 * US
    assert not world.is_awake()


def test_it_looks_in_vain_only_once(world):
    world.inputs(10, 60, 60)
    world.now_s += 150 * US
    assert not world.is_awake()
    world.inputs(1000)
    assert not world.is_awake()


def test_with_several_peers_it_does_not_look(world):
    for peer in (7, 8, 7, 9, 7, 8):
        world.inputs(20, peer=peer)
    assert not world.is_awake()


def test_without_a_processor_to_spare_it_never_looks():
    world = World(has_spare_processor=False)
    world.inputs(10, 60, 60, 60)
    assert not world.is_awake()
