"""Statuses of errors that tell whether the messages may be stored."""

import pytest

from poe.errors import DeliveryTimeout, Dropped, SpoolDamaged
from poe.errors.delivery import MAYBE_STORED, NEVER_SENT
from poe.gateway.http.reply import status_of

ERRORS = [
    lambda fate: DeliveryTimeout(b"t", 1.0, fate, "no answer"),
    lambda fate: Dropped(b"t", "oldest", fate=fate),
    lambda fate: SpoolDamaged(b"t", "spool", fate),
]


@pytest.mark.parametrize("error_with", ERRORS)
def test_only_what_was_never_stored_is_to_be_sent_again(error_with):
    assert status_of(error_with(NEVER_SENT)) == 503
    assert status_of(error_with(MAYBE_STORED)) == 504
