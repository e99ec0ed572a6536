"""The alarm of an actor that is held up, in simulated time."""

from poe.actors import GenServer, LoopSystem
from poe.actors.alarm_clock import AlarmClock
from poe.actors.clock import SimulatedClock


class Ringing(GenServer):
    """Has an alarm each second, and one more look at it for each cast."""

    def init(self, rings):
        self.rings = rings
        self.alarm = AlarmClock(self, "alarm")
        self.alarm.ring_after(1)

    def handle_cast(self, message):
        self.rings.append(message if self.alarm.is_late() else "in time")
        if self.alarm.is_late():
            self.alarm.rang()
        self.alarm.ring_after(1)

    def handle_info(self, message):
        self.rings.append(message)
        self.alarm.rang()
        self.alarm.ring_after(1)


def test_an_alarm_that_was_late_is_one_alarm_behind_that():
    rings: list[str] = []
    with LoopSystem(clock=SimulatedClock()) as system:
        ref = system.start(Ringing, rings)
        assert ref is not None
        for _ in range(3):
            system.suspend(ref)
            system.cast(ref, "late")
            system.advance(5)
            system.resume(ref)
            system.advance(0)
        del rings[:]
        system.advance(10)
        system.cast(ref, "late")
        system.advance(0)
    assert rings == ["alarm"] * 10 + ["in time"]
