import pytest

from poe.client.patience import Patience
from poe.errors import CallTimeout, ConnectFailed, UnknownTopic

AWAY = ConnectFailed("localhost", 5555, "refused")


def test_waits_double_up_to_five_seconds_and_are_never_quite_equal():
    patience = Patience(None)
    waits = [patience.wait_s(AWAY, 0.0) for _ in range(8)]
    for wait_s, expected_s in zip(waits, (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0), strict=True):
        assert 0.8 * expected_s <= wait_s <= 1.2 * expected_s


def test_the_last_wait_ends_with_the_limit_which_counts_from_the_first_failure():
    patience = Patience(1.0)
    patience.wait_s(AWAY, 100.0)
    assert patience.wait_s(AWAY, 100.95) == pytest.approx(0.05)
    with pytest.raises(ConnectFailed):
        patience.wait_s(AWAY, 101.0)
    assert patience.wait_s(AWAY, 102.0) < 0.2


@pytest.mark.parametrize("limit_s", [None, 0.0, 60.0])
def test_what_does_not_pass_is_raised_at_once(limit_s):
    with pytest.raises(UnknownTopic):
        Patience(limit_s).wait_s(UnknownTopic(b"t"), 0.0)


def test_without_patience_all_is_raised_at_once_but_else_a_call_of_unknown_outcome_is_made_again():
    unknown = CallTimeout("server", 1.0)
    assert Patience(60.0).wait_s(unknown, 0.0) > 0
    with pytest.raises(CallTimeout):
        Patience(0.0).wait_s(unknown, 0.0)
