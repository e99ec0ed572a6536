"""What consumers refuse before they ask a server."""

import threading

import pytest

from poe.errors import OptionError, UnknownOption
from tests.client.consumers import values


def test_an_unknown_option_is_an_error_that_lists_them(consumer):
    with pytest.raises(UnknownOption, match=r"'follows' is not known; use one of batch, commit,"):
        consumer(follows=True)


@pytest.mark.parametrize(
    "option",
    [{"partitions": 0}, {"batch": 0}, {"batch": "1"}, {"follow": 1}, {"envelope": 1},
     {"on_corrupt": "raise"}, {"on_lost": True}, {"timeout_s": -1}, {"timeout_s": float("nan")},
     {"timeout_s": "1"}, {"timeout_s": False}, {"timeout_s": float("inf")},
     {"request_timeout_s": 0}, {"request_timeout_s": None}, {"fetch_bytes": 0}, {"kafka": None},
     {"fetch_bytes": 1 << 40}, {"batch": 1 << 70}, {"partitions": 1 << 40}, {"start": 1 << 63},
     {"start": "latest"}, {"start": -2}, {"start": 1.5}, {"start": {"0": 1}}, {"start": {0: None}},
     {"start": True}, {"group": b"g"}, {"instance": "i"}, {"commit": "manual"},
     {"commit": "never", "group": "g"}, {"commit_interval_s": 0, "group": "g"},
     {"group_options": None}, {"start": {0: 1}, "group": "g"}],
)  # fmt: skip
def test_a_wrong_value_is_an_error_that_names_the_option(consumer, option):
    with pytest.raises(OptionError, match=next(iter(option))):
        consumer(**option)


@pytest.mark.parametrize("timeout_s", [-1, "1", True, float("nan")])
def test_a_wrong_time_to_wait_is_an_error(node, consumer, timeout_s):
    node.put("t", b"m")
    reader = consumer(follow=True)
    with pytest.raises(OptionError, match=r"timeout_s is .*; use 0 or more seconds, or None"):
        reader.receive(timeout_s)
    assert values(reader.receive(10)) == [b"m"]


@pytest.mark.parametrize("timeout_s", [float("inf"), 1e12, 10**400], ids=["inf", "1e12", "10^400"])
def test_a_time_to_wait_may_be_as_long_as_it_likes(node, consumer, timeout_s):
    reader = consumer(follow=True)
    threading.Timer(0.05, node.put, ("t", b"m")).start()
    assert values(reader.receive(timeout_s)) == [b"m"]
