"""How a queue takes its messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Annotated, Any

from poe.errors import OptionError
from poe.option import Range, check_options
from poe.security.credentials import Credentials
from poe.security.entry import Entry
from poe.security.tls import Tls


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """How a queue takes its messages.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    batch: Annotated[int, Range(1, 1 << 18, unit="messages")] = 100
    """Messages to take at a time. With 1, none waits here while another is worked on."""

    fetch_bytes: Annotated[int, Range(1, 1 << 30, unit="bytes")] = 1 << 20
    """Bytes to take at a time; a message that is larger comes alone."""

    ack_interval_s: Annotated[float, Range(unit="seconds")] = 0.1
    """What is done is told with the next messages asked for, or after this, or half a lease."""

    envelope: bool | None = None
    """Whether messages are stored with key and headers; None: as the topic tells."""

    instance: str | None = None
    """A name that outlives the process: who joins the group under it anew replaces the other."""

    group_options: Mapping[str, Any] = field(default_factory=dict)
    """Of the group, where this makes it: `lease_s`, `attempts_max`, `retry_s` …."""

    timeout_s: Annotated[float | None, Range(unit="seconds")] = 60.0
    """Seconds that no server may be reachable before that is an error; None: for ever, 0: none."""

    request_timeout_s: Annotated[float, Range(is_above=True, unit="seconds")] = 30.0
    """Seconds without an answer after which a connection is given up, and another one made."""

    tls: Tls | SSLContext | None = None
    """With `poes://`: what to demand of TLS, and to show of oneself; None: a certificate
    of the server that the system trusts."""

    credentials: Credentials | None = None
    """How to log in; None: not at all."""

    def __post_init__(self) -> None:
        """Reject what cannot be worked with."""
        check_options(self, none="None")
        if not isinstance(self.group_options, Mapping):
            raise OptionError("group_options", self.group_options, "a dictionary of options")
        if not isinstance(self.instance, str | None):
            raise OptionError("instance", self.instance, "a name, or None")

    @property
    def entry(self) -> Entry:
        """How to get in at the servers."""
        return Entry(self.tls, self.credentials)
