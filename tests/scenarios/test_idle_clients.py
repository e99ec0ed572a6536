"""Who says nothing for `idle_timeout` is closed; who waits for news is not idle."""

import pytest

from poe.protocol import ControlRequest, PointerRequest
from tests.scenarios.conftest import TOPIC

pytestmark = pytest.mark.slow

IDLE_TIMEOUT_S = 0.2
READ = PointerRequest(TOPIC, 0, 10)


@pytest.fixture
def node(serve):
    return serve(idle_timeout=IDLE_TIMEOUT_S)


@pytest.mark.parametrize("sent", [b"", READ.encode()], ids=["nothing", "one request"])
def test_a_silent_client_is_closed_without_a_word(raw, sent):
    raw.send(sent)
    if sent:
        assert raw.frame()
    raw.assert_closed()


def test_who_waits_longer_than_the_idle_time_gets_its_answer(raw):
    arguments = {"topic": TOPIC, "pointer": 2**56 - 2, "timeout_s": 4 * IDLE_TIMEOUT_S}
    raw.send(ControlRequest("wait", 1, arguments).encode() + READ.encode())
    assert raw.frame()[1].endswith(b"\xa6result\xc2")
    assert raw.frame()
    raw.assert_closed()
