import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from poe.cluster.fabric.envelope import FRAME_MAX_BYTES, decode_envelope
from poe.cluster.fabric.sender import Ask, Pace, Sender, SenderLimits
from poe.cluster.identity import PROTOCOL

LIMITS = SenderLimits(
    window_bytes=1000,
    asks_max=3,
    queue_bytes_max=5000,
    envelope_bytes=400,
    answer_bytes=300,
    slow_after_us=100,
    look_after_us=200,
)


def sender_with(*frames: bytes) -> Sender:
    sender = Sender(PROTOCOL, LIMITS)
    for frame in frames:
        assert sender.tell(frame, 0)
    return sender


def pace_of(sender: Sender) -> Pace:
    return sender.pace


def silence_of(sender: Sender) -> int | None:
    return sender.silent_since_us


def taken(sender: Sender, now_us: int = 0) -> list[Ask]:
    asks = []
    while (ask := sender.next_ask(now_us)) is not None:
        asks.append(ask)
    return asks


def frames_of(asks: list[Ask]) -> list[list[bytes]]:
    return [decode_envelope(ask.payload) for ask in asks]


def test_an_older_peer_is_sent_what_it_understands():
    sender = Sender(PROTOCOL + 7, LIMITS)
    sender.tell(b"frame", 0)
    (ask,) = taken(sender)
    assert msgpack.unpackb(ask.payload) == [PROTOCOL + 7, [b"frame"]]
    sender.tell(b"other", 0)
    assert msgpack.unpackb(sender.take_answer()) == [PROTOCOL + 7, [b"other"]]


def test_what_is_told_to_an_idle_peer_leaves_at_once():
    assert frames_of(taken(sender_with(b"one"))) == [[b"one"]]


def test_frames_that_wait_leave_together():
    sender = sender_with(b"a" * 900)
    first = taken(sender)
    for frame in (b"b" * 200, b"c" * 150, b"d" * 150):
        sender.tell(frame, 1)
    assert taken(sender) == []
    sender.answered(first[0].number, 2)
    assert frames_of(taken(sender)) == [[b"b" * 200, b"c" * 150], [b"d" * 150]]


def test_no_more_than_the_window_is_under_way():
    sender = sender_with(*[b"x" * 350] * 5)
    assert len(taken(sender)) == 2
    assert sender.waiting_bytes == 3 * 350


def test_a_frame_larger_than_the_window_goes_alone():
    sender = sender_with(b"small", b"x" * 3000)
    first, *rest = taken(sender)
    assert decode_envelope(first.payload) == [b"small"]
    assert rest == []
    sender.answered(first.number, 1)
    assert frames_of(taken(sender, 1)) == [[b"x" * 3000]]


def test_no_more_than_so_many_asks_are_under_way():
    sender = sender_with()
    for number in range(5):
        sender.tell(b"%d" % number, 0)
        sender.next_ask(0)
    assert taken(sender) == []
    assert sender.waiting_bytes == 2


def test_what_finds_no_room_is_refused_at_once_and_the_peer_is_slow():
    sender = sender_with(*[b"x" * 1000] * 5)
    assert not sender.tell(b"x", 0)
    assert pace_of(sender) is Pace.SLOW
    assert sender.refused_count == 1


def test_a_slow_peer_is_told_as_much_as_it_takes():
    sender = sender_with(b"x" * 10)
    (ask,) = taken(sender)
    sender.tick(100)
    assert pace_of(sender) is Pace.SLOW
    assert sender.tell(b"y" * 1000, 100)
    assert not sender.tell(b"z", 100)
    sender.answered(ask.number, 110)
    assert len(taken(sender, 110)) == 1
    assert sender.tell(b"z", 110)


def test_a_slow_peer_is_ok_again_after_an_answer_in_time():
    sender = sender_with(b"x")
    (ask,) = taken(sender)
    sender.tick(100)
    sender.answered(ask.number, 150)
    assert pace_of(sender) is Pace.SLOW
    assert sender.next_deadline_us() == 350
    assert taken(sender, 349) == []
    (look,) = taken(sender, 350)
    assert decode_envelope(look.payload) == []
    sender.answered(look.number, 360)
    assert pace_of(sender) is Pace.OK
    assert sender.next_deadline_us() is None


def test_a_frame_that_waits_long_makes_a_peer_slow():
    sender = sender_with(b"x" * 900)
    (ask,) = taken(sender)
    sender.tell(b"y" * 900, 50)
    assert sender.next_deadline_us() == 100
    sender.answered(ask.number, 90)
    assert pace_of(sender) is Pace.OK
    assert sender.next_deadline_us() == 150
    sender.tick(150)
    assert pace_of(sender) is Pace.SLOW


def test_a_peer_that_does_not_answer_gets_nothing_but_a_look_now_and_then():
    sender = sender_with(b"x", b"y" * 1000)
    (ask,) = taken(sender, 10)
    sender.tell(b"waits", 20)
    sender.failed(ask.number, 1000)
    assert pace_of(sender) is Pace.DOWN
    assert silence_of(sender) == 10
    assert sender.lost_count == 3
    assert not sender.tell(b"no", 1000)
    assert taken(sender, 1199) == []
    (look,) = taken(sender, 1200)
    assert decode_envelope(look.payload) == []
    sender.failed(look.number, 2200)
    (look,) = taken(sender, 2400)
    assert silence_of(sender) == 10
    sender.answered(look.number, 2410)
    assert pace_of(sender) is Pace.OK
    assert silence_of(sender) is None
    assert sender.tell(b"again", 2410)


def test_an_answer_takes_along_what_waits():
    sender = sender_with(b"a" * 200, b"b" * 100, b"c" * 100)
    assert decode_envelope(sender.take_answer()) == [b"a" * 200, b"b" * 100]
    assert frames_of(taken(sender)) == [[b"c" * 100]]
    assert decode_envelope(sender.take_answer()) == []


def test_an_answer_takes_no_large_frame_along():
    sender = sender_with(b"a" * 301)
    assert decode_envelope(sender.take_answer()) == []
    assert frames_of(taken(sender)) == [[b"a" * 301]]


def test_an_answer_that_comes_twice_or_late_changes_nothing():
    sender = sender_with(b"x")
    (ask,) = taken(sender)
    sender.answered(ask.number, 1)
    sender.answered(ask.number, 2)
    sender.failed(ask.number, 3)
    assert (pace_of(sender), sender.under_way_bytes) == (Pace.OK, 0)


def test_a_frame_that_no_envelope_holds_is_refused():
    with pytest.raises(ValueError, match="too large"):
        Sender(PROTOCOL).tell(bytes(FRAME_MAX_BYTES + 1), 0)


class SenderMachine(RuleBasedStateMachine):
    """Every frame is refused, lost, waits, is under way or has arrived: none is forgotten."""

    def __init__(self):
        super().__init__()
        self.sender = Sender(PROTOCOL, LIMITS)
        self.now_us = 0
        self.under_way: dict[int, list[bytes]] = {}
        self.sent_count = self.arrived_count = 0

    @rule(size=st.integers(0, 2000), us=st.integers(0, 300))
    def tell(self, size, us):
        self.now_us += us
        self.sent_count += self.sender.tell(b"x" * size, self.now_us)

    @rule()
    def send(self):
        for ask in taken(self.sender, self.now_us):
            self.under_way[ask.number] = decode_envelope(ask.payload)

    @rule()
    def take_answer(self):
        self.arrived_count += len(decode_envelope(self.sender.take_answer()))

    @rule(data=st.data(), is_answered=st.booleans())
    def end(self, data, is_answered):
        if self.under_way:
            number = data.draw(st.sampled_from(sorted(self.under_way)))
            frames = self.under_way.pop(number)
            if is_answered:
                self.sender.answered(number, self.now_us)
                self.arrived_count += len(frames)
            else:
                self.sender.failed(number, self.now_us)

    @rule()
    def tick(self):
        self.sender.tick(self.now_us)

    @invariant()
    def its_bounds_hold(self):
        sizes = [sum(map(len, frames)) for frames in self.under_way.values()]
        assert len(sizes) <= LIMITS.asks_max
        assert sum(sizes) <= LIMITS.window_bytes or len(sizes) == 1
        assert self.sender.waiting_bytes <= LIMITS.queue_bytes_max

    @invariant()
    def no_frame_is_forgotten(self):
        under_way = sum(map(len, self.under_way.values()))
        known = self.arrived_count + self.sender.lost_count + under_way
        assert known + self.sender.waiting_count == self.sent_count == self.sender.told_count


TestSenderMachine = SenderMachine.TestCase
