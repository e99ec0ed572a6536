"""Metrics as StatsD takes them: lines of text in UDP datagrams, which may get lost.

Layout of a datagram, lines separated by a newline:
    <prefix>.<topic>.<event>.broker<broker>.<partition>:<number>|c|@1.0     added to a counter
    …:<number>|g|@1.0                                                       a gauge
    …:<milliseconds>|ms                                                     a time

What a measurement is not about is left out of its name. The prefix is the path of the url:
`statsd://127.0.0.1:8125/ekaf` makes names as ekaf's demo does, and is "poe" without one.

Source: ekaf's `ekaf_stats.erl`; the names are those of its demo. ekaf has the helpers and pushes
nothing by itself.
"""

import re
import socket
from collections import deque
from collections.abc import Mapping
from urllib.parse import urlsplit

from poe.client.metrics.metrics import Labels
from poe.errors import OptionError

_PORT = 8125
_NO_NAME = re.compile(r"[^\w-]", re.ASCII)


def metric_name(labels: Labels, event: str) -> str:
    """Return `topic.event.broker<broker>.<partition>`; other characters than words' become `_`."""
    parts = (labels.topic, event, labels.broker and f"broker{labels.broker}", labels.partition)
    return ".".join(_NO_NAME.sub("_", part) for part in parts if part)


class StatsdSink:
    """Sends each measurement at once; nobody has to listen.

    A name may have several addresses, as `localhost` has for IPv6 and IPv4. Where one refuses what
    was sent before, the next one is taken.

    Raises:
        OptionError: on construction, if the host is unknown.
    """

    def __init__(self, host: str, port: int, prefix: str = "poe") -> None:
        self._prefix = prefix
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except OSError as error:
            allowed = f"the host of a StatsD server ({error.strerror})"
            raise OptionError("metrics", host, allowed) from error
        self._places = deque((family, address) for family, _, _, _, address in found)
        self._socket: socket.socket | None = None
        self._is_closed = False

    def add(self, labels: Labels, counts: Mapping[str, int]) -> None:
        """Send counters."""
        self._send([(labels, name, f"{count}|c|@1.0") for name, count in counts.items()])

    def set(self, labels: Labels, gauge: str, value: int) -> None:
        """Send a gauge."""
        self._send([(labels, gauge, f"{value}|g|@1.0")])

    def observe(self, labels: Labels, histogram: str, value: float) -> None:
        """Send a time."""
        self._send([(labels, histogram.removesuffix("_seconds"), f"{value * 1000:.3f}|ms")])

    def close(self) -> None:
        """Close the socket."""
        self._is_closed = True
        if self._socket is not None:
            self._socket.close()

    def _send(self, lines: list[tuple[Labels, str, str]]) -> None:
        text = "\n".join(f"{self._prefix}.{metric_name(of, name)}:{end}" for of, name, end in lines)
        for _ in range(len(self._places)):
            if self._is_closed:
                return
            try:
                self._connected().send(text.encode())
            except BlockingIOError:
                return  # a full buffer: nothing that a producer should stop for
            except OSError:
                self._places.rotate(-1)
                if self._socket is not None:
                    self._socket.close()
                    self._socket = None
            else:
                return

    def _connected(self) -> socket.socket:
        """Return the socket; one that is connected is told of refusals."""
        if self._socket is None:
            family, address = self._places[0]
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.connect(address)
        return self._socket


def sink(url: str) -> StatsdSink:
    """Return the sink of `statsd://host[:port][/prefix]`.

    Raises:
        OptionError: it is no such url, or the host is unknown.
    """
    try:
        parts = urlsplit(url)
        host, port, prefix = parts.hostname, parts.port or _PORT, parts.path.strip("/")
    except ValueError:
        host = None
    if not host:
        raise OptionError("metrics", url, "statsd://host:port or statsd://host:port/prefix")
    return StatsdSink(host, port, prefix or "poe")
