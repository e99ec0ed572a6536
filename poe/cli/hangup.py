"""What SIGHUP does to a service: nothing, from the first lines of this program on.

A terminal that closes sends it, and so does `systemctl reload`: neither is to end a service. A
client's command ends by it, as any program does whose terminal is gone.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # see `poe.cli`

# As `typing` has it, which takes longer to load than all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SERVICES = (("serve",), ("gateway",), ("pipeline", "run"), ("mapping", "run"))
"""The commands that go on."""


def outlive_hangups(arguments: Sequence[str]) -> None:
    """Ignore SIGHUP if the command line starts a service; processes that it starts then do, too."""
    if any(tuple(arguments[: len(each)]) == each for each in SERVICES):
        ignore_hangups()


def ignore_hangups() -> None:
    """Ignore SIGHUP until there is a log to tell of it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def tell_hangups() -> None:
    """Have each SIGHUP told in the log; for programs whose main thread mostly waits."""
    signal.signal(signal.SIGHUP, lambda *_: tell_of_hangup())


def tell_of_hangup() -> None:
    """Log what a SIGHUP has done."""
    import logging  # noqa: PLC0415 - late on purpose, as above

    logging.getLogger("poe.cli").warning("SIGHUP: there is nothing to reload; going on")
