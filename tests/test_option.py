"""What an option may be is said at its field; the check of it says the same, whoever's it is."""

from typing import Any

import numpy as np
import pytest

from poe.broker import AppendixOptions
from poe.broker.groups.options import GroupOptions
from poe.client.consumer.source import ConsumerOptions
from poe.client.producer.producer_options import ProducerOptions, TopicOptions
from poe.config import option_parts
from poe.errors import OptionError
from poe.gateway.http.options import GatewayOptions
from poe.option import Range, allowed
from poe.topic_properties import TopicProperties

CLASSES = [
    *option_parts(),
    GatewayOptions,
    TopicOptions,
    ProducerOptions,
    ConsumerOptions,
    GroupOptions,
    TopicProperties,
]
NO_NUMBERS = (float("nan"), float("inf"), 10**400, -1, True, "5", b"", [5])
NO_CHOICES = (1, 0, "neither", b"", [True])


@pytest.mark.parametrize("kind", CLASSES)
def test_what_a_field_does_not_allow_is_refused_with_what_it_does(kind):
    for name, each in allowed(kind).items():
        for value in NO_NUMBERS if each.range else NO_CHOICES if each.choices else ():
            with pytest.raises(OptionError) as caught:
                kind(**{name: value})
            assert caught.value.key == name
            endings = each.words(), each.words("None"), each.words("null")
            assert caught.value.allowed.endswith(endings)


def test_a_number_of_numpy_is_one():
    given: dict[str, Any] = {"count_limit": np.int64(5), "worker_timeout": np.float32(2)}
    assert AppendixOptions(**given).count_limit == 5
    given["count_limit"] = 5.0
    with pytest.raises(OptionError, match="use a whole number, 1 or more"):
        AppendixOptions(**given)


def test_a_range_says_what_it_takes():
    assert Range(1024, 2**31, unit="bytes").words(is_whole=True) == "1024 to 2^31 (bytes)"
    assert Range(0, 2**40 - 1).words(is_whole=True) == "0 to 2^40 - 1"
    assert Range(0, 65535).words(is_whole=True) == "0 to 65535"
    assert Range(is_above=True, unit="s").words(is_whole=False) == "more than 0 (finite s)"
    assert [Range(1, 2**63 - 1).holds(2**63 - each) for each in (0, 1, 2)] == [False, True, True]
    assert [Range(1, 3).holds(value) for value in (0, 1, 3, 3.1)] == [False, True, True, False]
