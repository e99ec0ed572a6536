"""Simulated systems: waiting moves time, seeds choose the order, and a failing seed is named."""

import pytest

from poe.actors import NO_REPLY, TIMED_OUT, ActorDead, CallTimeout, GenServer, IdleTimeout
from poe.errors import OptionError
from poe.supervision import ChildSpec, Supervisor, SupervisorFlags, tree
from poe.testing import SimulatedClock, SimulatedSystem, try_seeds
from poe.testing.simulated_system import SEED_VARIABLE


class Sleeper(GenServer):
    """Sleeps as long as it is told: at first, in calls, and in the end."""

    async def init(self, seconds=0.0):
        await self.sleep(seconds)

    async def handle_call(self, seconds, caller):
        await self.sleep(seconds)
        return seconds

    async def terminate(self, reason):
        await self.sleep(3.0)


def start(system, actor, *args):
    """Start an actor that does not refuse to."""
    return system.start(actor, *args)


# ---- time ----------------------------------------------------------------------------------------


def test_starts_calls_and_stops_let_time_pass_by_waiting():
    clock = SimulatedClock(50.0)
    with SimulatedSystem(clock=clock) as system:
        sleeper = start(system, Sleeper, 600.0)
        assert clock.monotonic_s() == 650.0
        assert system.call(sleeper, 60.0, timeout_s=None) == 60.0
        assert clock.monotonic_s() == 710.0
        system.stop(sleeper)
        assert clock.monotonic_s() == 713.0
        assert not system.is_alive(sleeper)


def test_a_call_times_out_after_its_simulated_time():
    with SimulatedSystem() as system:
        sleeper = start(system, Sleeper)
        with pytest.raises(CallTimeout):
            system.call(sleeper, 60.0, timeout_s=5.0)
        assert system.run_queue.monotonic_s() == 5.0


def test_a_call_that_nothing_will_ever_answer_is_an_error_rather_than_a_hang():
    class Mute(GenServer):
        def handle_call(self, request, caller):
            return NO_REPLY

    with SimulatedSystem() as system:
        mute = start(system, Mute)
        with pytest.raises(AssertionError, match="no timer will ever bring its answer"):
            system.call(mute, "anybody?", timeout_s=None)


def test_a_condition_is_waited_for_in_simulated_time():
    class Beat(GenServer):
        def init(self):
            self.beats = 0
            return IdleTimeout(10.0)

        def handle_info(self, message):
            self.beats += 1
            return IdleTimeout(10.0)

    with SimulatedSystem() as system:
        beat = start(system, Beat)
        system.wait_until(lambda: system.get_state(beat)["beats"] == 3)
        assert system.run_queue.monotonic_s() == 30.0
        with pytest.raises(AssertionError, match="not true within 15"):
            system.wait_until(lambda: system.get_state(beat)["beats"] == 9, timeout_s=15.0)
        assert system.run_queue.monotonic_s() == 45.0


# ---- order ---------------------------------------------------------------------------------------


class Store(GenServer):
    def init(self):
        self.values = []

    def handle_cast(self, value):
        self.values.append(value)

    def handle_call(self, request, caller):
        return self.values[-1]


class Reader(GenServer):
    """Asks a store when it is told that a value is there."""

    def init(self, store):
        self.store = store

    async def handle_cast(self, message):
        self.found = await self.call(self.store, message)

    def handle_call(self, request, caller):
        return self.found


class Publisher(GenServer):
    """Its mistake: nothing makes the store's message arrive before the reader's question."""

    def init(self, store, reader):
        self.store, self.reader = store, reader

    def handle_cast(self, value):
        self.cast(self.store, value)
        self.cast(self.reader, "look")


def publish(system):
    store = system.start(Store)
    reader = system.start(Reader, store)
    system.cast(system.start(Publisher, store, reader), 7)
    assert system.call(reader, "found") == 7


def test_a_seed_finds_a_race_that_the_usual_order_hides_and_repeats_it(monkeypatch):
    for _ in range(50):
        with SimulatedSystem() as system:
            publish(system)
    with pytest.raises(ActorDead) as caught:
        try_seeds(publish)
    [first, second] = caught.value.__notes__
    seed = int(first.removeprefix("repeat it with SimulatedSystem(seed=").rstrip(")"))
    assert second == f"or with {SEED_VARIABLE}={seed}"
    for _ in range(5):
        with pytest.raises(ActorDead), SimulatedSystem(seed=seed) as system:
            publish(system)

    tried = []

    def note_and_publish(system):
        tried.append(system.seed)
        publish(system)

    monkeypatch.setenv(SEED_VARIABLE, str(seed))
    with pytest.raises(ActorDead):
        try_seeds(note_and_publish)
    assert tried == [seed]


class Sender(GenServer):
    def init(self, label, receiver):
        self.label, self.receiver = label, receiver

    def handle_info(self, count):
        for number in range(count):
            self.cast(self.receiver, (self.label, number))


class Recorder(GenServer):
    def init(self):
        self.seen = []

    def handle_cast(self, message):
        self.seen.append(message)


def record(seed):
    with SimulatedSystem(seed=seed) as system:
        recorder = start(system, Recorder)
        senders = [start(system, Sender, label, recorder) for label in "ab"]
        # Both at once: a cast of the test's own would be done before the next.
        system.run_outside(lambda: [each.cell.post(10) for each in senders])
        return system.get_state(recorder)["seen"]


def test_the_order_of_one_sender_to_one_receiver_is_kept_by_every_seed():
    orders = set()
    for seed in range(30):
        seen = record(seed)
        assert record(seed) == seen
        for label in "ab":
            assert [number for each, number in seen if each == label] == list(range(10))
        orders.add(tuple(seen))
    assert len(orders) > 1


def test_supervisors_keep_their_promises_in_every_order():
    class Echo(GenServer):
        def handle_call(self, request, caller):
            return request

        def handle_cast(self, message):
            raise ValueError(message)

    def heal(system):
        specs = [ChildSpec(id=label, actor=Echo, name=label) for label in "abc"]
        root = system.start(Supervisor, SupervisorFlags(intensity=9), specs)
        for label in "abcabc":
            system.cast(label, "crash")
        assert [system.call(label, 1) for label in "abc"] == [1, 1, 1]
        assert [row.restarts for row in tree(root)[1:]] == [2, 2, 2]

    try_seeds(heal, 50)


def test_init_comes_before_whatever_others_send():
    class Friend(GenServer):
        def handle_cast(self, message):
            self.cast("new", message)

    class Parent(GenServer):
        def init(self, friend):
            self.friend = friend

        def handle_cast(self, message):
            self.start_link(Recorder, name="new")
            self.cast(self.friend, message)

    def meet(system):
        friend = start(system, Friend)
        system.cast(start(system, Parent, friend), 7)
        assert system.get_state("new")["seen"] == [7]

    try_seeds(meet, 30)


def test_an_idle_time_out_comes_after_the_messages_that_were_there_before_it():
    class Idle(GenServer):
        def init(self):
            self.seen = []

        def handle_info(self, message):
            self.seen.append("idle" if message is TIMED_OUT else message)
            return None if message is TIMED_OUT else IdleTimeout(0)

    def be_idle(system):
        cell, other = start(system, Idle).cell, start(system, Recorder)
        system.run_outside(lambda: [cell.post(1), cell.post(2, other)])
        first, second, last = system.get_state(cell.address)["seen"]
        assert ({first, second}, last) == ({1, 2}, "idle")

    try_seeds(be_idle, 30)


# ---- wrong use -----------------------------------------------------------------------------------


def test_an_async_test_is_refused_since_it_would_pass_without_running():
    async def test(system):
        raise AssertionError

    with pytest.raises(TypeError, match="is async and would not run; use a plain function"):
        try_seeds(test)


@pytest.mark.parametrize("count", [0, -1])
def test_no_seeds_at_all_are_no_test(count):
    with pytest.raises(ValueError, match=f"count is {count}; use 1 or more"):
        try_seeds(publish, count=count)


def test_a_seed_of_the_environment_that_is_none_is_told_by_name(monkeypatch):
    monkeypatch.setenv(SEED_VARIABLE, "abc")
    with pytest.raises(OptionError, match="option 'POE_TEST_SEED' is 'abc'; use a whole number"):
        try_seeds(publish)


@pytest.mark.parametrize("seed", ["7", 1.5, object()])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(TypeError, match="use a whole number, or None"):
        SimulatedSystem(seed=seed)
