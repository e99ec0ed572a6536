"""The waiting helper itself: every other test that waits depends on it."""

import pytest

from tests.waiting import wait_until


def test_waiting_ends_with_the_first_true_answer():
    answers = iter([False, 0, "yes", False])
    wait_until(lambda: next(answers))
    assert next(answers) is False


def test_waiting_past_the_deadline_fails_and_names_the_deadline():
    with pytest.raises(AssertionError, match=r"within 0\.01 s"):
        wait_until(lambda: False, timeout_s=0.01)
