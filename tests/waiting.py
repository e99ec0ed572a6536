"""The tests' only way to wait."""

from poe.testing import wait_until as wait_until  # noqa: PLC0414 - so it is exported
