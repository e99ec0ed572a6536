"""The alarm of an actor that is held up, in simulated time."""

import pytest

from poe.actors import GenServer, LoopSystem
from poe.actors.alarm_clock import AlarmClock
from poe.actors.clock import SimulatedClock


class Ringing(GenServer):
    """Has an alarm each second; a cast has it look at that, and set it unless it only looks."""

    def init(self, rings):
        self.rings = rings
        self.alarm = AlarmClock(self, "alarm")
        self.alarm.ring_after(1)

    def handle_cast(self, message):
        self.rings.append("late" if self.alarm.take_lateness() else "in time")
        if message != "look":
            self.alarm.ring_after(1)

    def handle_info(self, message):
        self.rings.append(message)
        self.alarm.rang()
        self.alarm.ring_after(1)


@pytest.mark.parametrize("message", ["look", "set"])
def test_an_alarm_that_was_late_rings_and_is_one_alarm_behind_that(message):
    rings: list[str] = []
    with LoopSystem(clock=SimulatedClock()) as system:
        ref = system.start(Ringing, rings)
        assert ref is not None
        for _ in range(3):
            system.suspend(ref)
            system.cast(ref, message)
            system.cast(ref, message)
            system.advance(5)
            system.resume(ref)
            system.advance(0)
        assert rings == ["late", "in time", "alarm"] * 3
        del rings[:]
        system.advance(10)
        system.cast(ref, message)
        system.advance(0)
    assert rings == ["alarm"] * 10 + ["in time"]
