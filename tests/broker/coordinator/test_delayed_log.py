"""The log of what is put later: what means something waits, and all else is left out."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

from poe.broker.coordinator.delayed_log import DelayedHistory, Later, decode_later, encode_later

DUE_US = 1_800_000_000_000_000


@pytest.mark.parametrize(
    "values",
    [
        [1],
        [1, b"t"],
        [1, b"t", DUE_US, 5],
        [1, b"t", DUE_US, ["text"]],
        [1, b"t", -1, [b"m"]],
        [1, b"t", 1 << 60, [b"m"]],
        [1, ["t"], DUE_US, [b"m"]],
        [2, b"t", 1, 1, 5],
        [2, b"t", 1, 1, [["pointer"]]],
        [2, b"t", "epoch", 1, [1]],
        [3, b"t", None, 1],
        [4, {}, 1, 1],
        [5, b"t"],
        "text",
        7,
    ],
)
def test_a_record_that_means_nothing_is_left_out_and_the_others_wait(values):
    history = DelayedHistory()
    [sound], _ = encode_later(Later(b"t", DUE_US, [b"m"]))
    history.add(1, memoryview(sound))
    history.add(2, memoryview(msgpack.packb(values)))
    assert decode_later(msgpack.packb(values)) is None
    waiting = history.waiting()
    assert waiting.messages_count == 1
    assert waiting.next_us() == DUE_US


def test_a_record_that_is_cut_off_is_left_out():
    [sound], _ = encode_later(Later(b"t", DUE_US, [b"message"]))
    for size in range(len(sound)):
        history = DelayedHistory()
        history.add(1, memoryview(sound)[:size])
        assert history.waiting().messages_count == 0
