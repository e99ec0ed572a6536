"""Topics that a consumer or a queue cannot be made with are refused, before anything is asked."""

import pytest

from poe.client import Consumer, Queue
from poe.errors import LocalProtocolError, OptionError

URL = "poe://127.0.0.1:1"


@pytest.mark.parametrize("kind", [Consumer, Queue])
@pytest.mark.parametrize("topics", [5, None, 1.5, [], ()])
def test_what_is_neither_a_name_nor_several_is_a_wrong_option(kind, topics):
    with pytest.raises(OptionError, match="topics"):
        kind(URL, topics, group="workers")


@pytest.mark.parametrize("kind", [Consumer, Queue])
@pytest.mark.parametrize("topics", ["", b"", [5], ["orders", None]])
def test_a_name_that_is_none_is_told(kind, topics):
    with pytest.raises(LocalProtocolError, match="use bytes or text"):
        kind(URL, topics, group="workers")
