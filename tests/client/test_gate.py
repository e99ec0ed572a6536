import pytest

from poe.client.patience import Gate, pause_after
from poe.errors import AuthenticationExpired, AuthenticationFailed, ConnectFailed, NotAuthorized


def test_who_was_not_let_in_asks_again_ever_later_up_to_half_a_minute():
    gate, now_s, waits = Gate(), 0.0, []
    for _ in range(7):
        gate.check(now_s)
        gate.shut(AuthenticationFailed(), now_s)
        begun_s = now_s
        while True:
            try:
                gate.check(now_s)
            except AuthenticationFailed:
                now_s += 0.5
            else:
                break
        waits.append(now_s - begun_s)
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_once_let_in_all_is_forgotten():
    gate = Gate()
    for _ in range(3):
        gate.shut(AuthenticationFailed(), 0.0)
    gate.open()
    gate.check(0.0)
    gate.shut(AuthenticationFailed(), 0.0)
    with pytest.raises(AuthenticationFailed):
        gate.check(0.9)
    gate.check(1.0)


def test_in_the_background_a_refusal_is_waited_for_longer_than_what_passes():
    assert pause_after(NotAuthorized("read", "group 'g'"), 0.2) == 5.0
    assert pause_after(AuthenticationExpired(), 0.2) == 0.2
    assert pause_after(ConnectFailed("h", 1, "refused"), 0.2) == 0.2
