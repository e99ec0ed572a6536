import pytest

from poe.protocol.renewal import Renewal


def test_a_login_is_renewed_at_four_fifths_of_its_time():
    renewal = Renewal(1000.0, 50.0)
    assert renewal.due_s == 850.0
    assert not renewal.is_over(1049.0)
    assert renewal.is_over(1050.0)


def test_what_fails_is_tried_again_at_four_fifths_of_the_rest_and_not_more_often_than_each_second():
    renewal = Renewal(1000.0, 0.0)
    due = []
    while not renewal.is_over(renewal.due_s):
        due.append(renewal.due_s)
        renewal.put_off(renewal.due_s)
    assert due == pytest.approx([800, 960, 992, 998.4, 999.68], abs=0.01)


@pytest.mark.parametrize("expires_s", [-5.0, 0.0, 0.5])
def test_a_server_that_says_nothing_sensible_is_not_asked_without_end(expires_s):
    assert Renewal(expires_s, 10.0).due_s == 11.0
