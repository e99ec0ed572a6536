"""Callbacks are called with what they are promised, and their own errors go no further."""

import logging

import pytest

from poe.client.producer.callbacks import EKAF_PREFIX, Callbacks, Event, massaged
from poe.client.producer.payload import Message
from poe.errors import MassageFailed, OptionError


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def fail(*arguments):
    raise KeyError(*arguments[:1])


def test_a_callback_gets_event_worker_state_data_and_extra():
    seen = []
    callbacks = Callbacks({"worker_up": lambda *arguments: seen.append(arguments)})
    callbacks.fire(Event.WORKER_UP, "worker", "ready", {"partition": 0}, None)
    callbacks.fire(Event.WORKER_DOWN, "worker", "ready", {}, "nobody asked for this one")
    assert seen == [("worker_up", "worker", "ready", {"partition": 0}, None)]


def test_ekaf_s_names_are_known():
    callbacks = Callbacks({EKAF_PREFIX + "flush": print})
    assert Event.FLUSH in callbacks
    assert Event.FAILED not in callbacks


def test_a_callback_that_raises_is_logged_once_a_second_and_counted(caplog):
    clock = Clock()
    callbacks = Callbacks({"flush": fail}, clock)
    with caplog.at_level(logging.ERROR, "poe.client.producer.contained"):
        for passed_s in (0, 0.5, 0.4, 0.2, 1):
            clock.now_s += passed_s
            callbacks.fire(Event.FLUSH, None, "ready", None, 1)
    assert callbacks.raised_count == 5
    assert [record.getMessage() for record in caplog.records] == [
        f"callback flush raised ({count} have so far)" for count in (1, 4, 5)
    ]


@pytest.mark.parametrize(("name", "option"), [("massage_buffer", "massage"),
                                              ("custom_partition_picker", "picker")])  # fmt: skip
def test_callbacks_that_return_data_are_options_of_their_own(name, option):
    for full_name in (name, EKAF_PREFIX + name):
        with pytest.raises(OptionError, match=f"use option {option}"):
            Callbacks({full_name: print})


def test_the_error_of_an_unknown_event_lists_them_all():
    with pytest.raises(OptionError) as caught:
        Callbacks({"worker_upp": print})
    assert all(event in caught.value.allowed for event in Event)


async def coroutine_function(*arguments):
    return arguments


@pytest.mark.parametrize("function", [None, "print", coroutine_function, lambda event: event])
def test_what_cannot_be_called_in_the_producer_s_thread_is_refused(function):
    with pytest.raises(OptionError, match="callbacks\\['flush'\\]"):
        Callbacks({"flush": function})


def test_a_massage_replaces_the_messages_of_a_batch():
    assert massaged(lambda _topic, batch: b",".join(batch), b"t", [b"a", b"b"], empty=False) == [
        b"a,b"
    ]
    pairs = [Message(b"v", b"k")]
    assert massaged(lambda _topic, batch: batch, b"t", pairs, empty=False) == pairs


@pytest.mark.parametrize(
    ("massage", "words"),
    [(fail, "raised KeyError"), (lambda *_: None, "payload is None"), (lambda *_: [], "empty")],
)
def test_a_massage_that_makes_no_messages_fails_its_batch(massage, words):
    with pytest.raises(MassageFailed, match=words) as caught:
        massaged(massage, b"orders", [b"a"], empty=False)
    assert caught.value.topic == b"orders"
