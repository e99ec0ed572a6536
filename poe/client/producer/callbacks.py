"""The callbacks of a producer: what they are called for, and how their own errors are contained.

ekaf has twelve. Ten of them tell what happened and are functions of option `callbacks`; the two
that return data are options of their own: `massage` (ekaf's `massage_buffer`) and `picker`
(`custom_partition_picker`).

A callback is `function(event, worker, state, data, extra)`:
    event   its `Event`, which is a str
    worker  what it is about: an object that stands for a worker, or where the table says *topic*
            for the topic; the same one each time
    state   of a worker: "connecting", "ready", "draining", "down"; of a topic: "starting", "ready",
            "downtime"
    data    `WorkerInfo` of a worker, or None if that has ended; `TopicInfo` of a topic
    extra   the last column of the table

What it raises is logged and ends there, whatever it is: SystemExit and KeyboardInterrupt, too.

It is called in the producer's own thread, and of what a call causes at once, in that of the call. A
slow one delays deliveries, a blocking one stops them.

Source: ekaf's `ekaf_callbacks.erl` and `ekaf.hrl`. `flushed_replied` never fires there.
"""

import inspect
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from poe.client.producer.contained import Contained
from poe.client.producer.payload import Messages, parse
from poe.errors import InvalidPayload, MassageFailed, OptionError
from poe.errors.short_text import short_repr

EKAF_PREFIX = "ekaf_callback_"
"""What ekaf writes before the name of an event; may be left out."""

_OPTION_OF = {"massage_buffer": "massage", "custom_partition_picker": "picker"}

Callback = Callable[[str, Any, str, Any, Any], object]
Massage = Callable[[bytes, list[Any]], object]
"""`massage(topic, messages)` returns the messages to send instead, as any payload; it gets a list
of bytes, or of `Message` where a key or headers came along."""


class Event(StrEnum):
    """What callbacks are called for; ekaf's names without `EKAF_PREFIX`, and two more."""

    FLUSH = "flush"
    """A batch was handed to the connection. Extra: how many messages."""

    FLUSHED_REPLIED = "flushed_replied"
    """The broker has answered a batch. Extra: its `Sent`, or the error."""

    WORKER_UP = "worker_up"
    """A worker is connected. Extra: None."""

    WORKER_DOWN = "worker_down"
    """A worker has ended. Extra: the reason."""

    WORKER_STILL_DOWN = "worker_still_down"
    """Another attempt to connect has failed; *topic*. Extra: the reason."""

    TIME_TO_CONNECT = "time_to_connect"
    """A worker is connected. Extra: microseconds that it took."""

    TIME_DOWN = "time_down"
    """A broker can be reached again; *topic*. Extra: microseconds of downtime."""

    DOWNTIME_SAVED = "downtime_saved"
    """Messages wait for the end of a downtime; *topic*. Extra: the messages."""

    DOWNTIME_REPLAYED = "downtime_replayed"
    """Messages that waited are on their way; *topic*. Extra: the messages."""

    MAX_DOWNTIME_BUFFER_REACHED = "max_downtime_buffer_reached"
    """The buffer of a downtime is full; *topic*. Extra: the messages about to be dropped."""

    DROPPED = "dropped"
    """Messages fell out of the buffer of a downtime; *topic*. Extra: how many. Not in ekaf."""

    FAILED = "failed"
    """A batch was given up, or messages that have no partition; *topic* then. Extra: the error. Not
    in ekaf."""


class Callbacks:
    """The functions of a producer by event; any thread may fire.

    A function that raises costs a line in the log, one a second at most, and is counted.
    """

    def __init__(
        self, functions: Mapping[str, Callback], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._functions = {_event(name, each): each for name, each in functions.items()}
        self._contained = Contained(clock)

    def __contains__(self, event: Event) -> bool:
        return event in self._functions

    @property
    def raised_count(self) -> int:
        """Calls that ended with an exception."""
        return self._contained.raised_count

    def fire(self, event: Event, worker: object, state: str, data: object, extra: object) -> None:
        """Call the event's function, if it has one; never raises."""
        function = self._functions.get(event)
        if function is not None:
            what = f"callback {event}"
            self._contained.call(what, function, event, worker, state, data, extra)


def massaged(massage: Massage, topic: bytes, messages: Messages, *, empty: bool) -> Messages:
    """Return what `massage` makes of a batch; `empty` as for `parse`.

    Raises:
        MassageFailed: it raised, or returned no payload.
    """
    try:
        return parse(massage(topic, messages), empty=empty)
    except InvalidPayload as error:
        raise MassageFailed(topic, f"returned what cannot be sent ({error})") from error
    except BaseException as error:  # `sys.exit`, too: a thread that serves others may call it
        raise MassageFailed(topic, f"raised {short_repr(error)}") from error


def _event(name: str, function: Callback) -> Event:
    """Return the event that a function was given for.

    Raises:
        OptionError: there is no such event, or no function that could be called for it.
    """
    short_name = str(name).removeprefix(EKAF_PREFIX)
    key = f"callbacks[{str(name)!r}]"
    if short_name in _OPTION_OF:
        raise OptionError(key, function, f"option {_OPTION_OF[short_name]}, since it returns data")
    if short_name not in set(Event):
        raise OptionError("callbacks", name, "names of events: " + ", ".join(Event))
    check_function(key, function, 5)
    return Event(short_name)


def check_function(key: str, function: object, argument_count: int) -> None:
    """Refuse what cannot be called from the producer's thread.

    Raises:
        OptionError: it is no function, a coroutine function, or takes other arguments.
    """
    allowed = f"a function (no coroutine) of {argument_count} arguments"
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise OptionError(key, function, allowed)
    try:
        inspect.signature(function).bind(*range(argument_count))
    except TypeError as error:
        raise OptionError(key, function, allowed) from error
    except ValueError:
        pass  # one of C that does not tell its arguments
