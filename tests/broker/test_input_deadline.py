"""The patience with a peer, in simulated time."""

import pytest

from poe.actors import GenServer
from poe.broker.connection.input_deadline import LATE, QUIET, InputDeadline
from poe.testing import SimulatedClock, SimulatedSystem

FRAME_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 600.0
KIB = 1024


class Patient(GenServer):
    """Has a deadline as a connection does, and notes when it has run out."""

    def init(self, idle_timeout_s):
        self.deadline = InputDeadline(self, FRAME_TIMEOUT_S, idle_timeout_s)
        self.received_bytes = 0
        self.overdue_s = None
        self.is_idle = False

    def handle_info(self, message):
        if message is LATE:
            self.overdue_s = self.deadline.overdue_s(self.received_bytes)
        elif message is QUIET:
            self.is_idle = self.deadline.is_idle()


@pytest.fixture
def system():
    system = SimulatedSystem(clock=SimulatedClock())
    yield system
    system.shutdown()


def start(system, idle_timeout_s=IDLE_TIMEOUT_S):
    return system.start(Patient, idle_timeout_s).cell.instance


def test_a_frame_may_take_frame_timeout_and_not_more(system):
    patient = start(system)
    patient.deadline.watch_frame()
    system.advance(FRAME_TIMEOUT_S - 0.1)
    assert patient.overdue_s is None
    system.advance(0.2)
    assert patient.overdue_s == pytest.approx(FRAME_TIMEOUT_S)


@pytest.mark.parametrize("received_bytes", [16 * KIB, 160 * KIB, 1024 * KIB])
def test_each_16_kib_give_a_second_more(system, received_bytes):
    patient = start(system)
    patient.received_bytes = received_bytes
    patient.deadline.watch_frame()
    allowed_s = FRAME_TIMEOUT_S + received_bytes / (16 * KIB)
    system.advance(allowed_s - 0.1)
    assert patient.overdue_s is None
    system.advance(0.2)
    assert patient.overdue_s == pytest.approx(allowed_s)


def test_the_time_of_the_next_frame_begins_with_it(system):
    patient = start(system)
    patient.deadline.watch_frame()
    system.advance(8)
    patient.deadline.unfinished_since_s = None
    patient.deadline.watch_frame()
    system.advance(9.9)
    assert patient.overdue_s is None
    system.advance(0.2)
    assert patient.overdue_s == pytest.approx(FRAME_TIMEOUT_S)


def test_silence_is_noticed_after_the_idle_time_and_at_most_a_quarter_more(system):
    patient = start(system)
    system.advance(IDLE_TIMEOUT_S - 1)
    assert not patient.is_idle
    system.advance(IDLE_TIMEOUT_S / 4 + 2)
    assert patient.is_idle


def test_who_says_something_now_and_then_is_not_idle(system):
    patient = start(system)
    for _ in range(10):
        system.advance(IDLE_TIMEOUT_S - 1)
        patient.deadline.quiet_parts = 0
    assert not patient.is_idle
    system.advance(2 * IDLE_TIMEOUT_S)
    assert patient.is_idle


def test_an_idle_time_of_0_never_ends(system):
    patient = start(system, 0.0)
    system.advance(100 * IDLE_TIMEOUT_S)
    assert not patient.is_idle


def test_nothing_rings_once_it_is_cancelled(system):
    patient = start(system)
    patient.deadline.watch_frame()
    patient.deadline.cancel()
    system.advance(2 * IDLE_TIMEOUT_S)
    assert (patient.overdue_s, patient.is_idle) == (None, False)
