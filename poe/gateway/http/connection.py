"""One client's connection: uvicorn's, with the limits that uvicorn leaves to a proxy.

Those are: how many clients there may be, how long and how large the head of a request may be, how
large all of it, and how long a client may take to send what nobody waits for any more or to take
what it is sent. The bodies that somebody waits for have their limits in `inflow`.
"""

import asyncio
import re
import socket
import struct
from typing import TYPE_CHECKING, Any

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from poe.broker.connection.client_count import ClientCount
from poe.errors import Overloaded
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.reply import JSON, as_json, told

if TYPE_CHECKING:  # uvicorn keeps it to itself
    from uvicorn._types import ASGI3Application

HEAD_MAX = 64 << 10
"""Bytes of a request line and its headers; what came with their first byte is not counted."""

_REQUEST_BYTES_PER_BODY = 8
"""Bytes on the wire for each byte of a body: it is 6 in chunks of one byte."""
_GOODBYE_S = 1.0
_PARSED_BYTES = 4 << 10
"""What the parser gets at a time: each request in it costs far more memory than its bytes."""
_SLICE_BYTES = 64 << 10
_AUTHORITY = re.compile(rb"[^:/?#]+://([^/?#]*)")
_REST_BYTES = 16 << 20
"""A body that was refused may go on for so long, so that its client gets to read why."""


class _Parser(HttpRequestParser):
    """Reads a request that asks for another protocol as if it did not, see RFC 9110, 7.8.

    Its base would skip the body of such a request. Java's HttpClient asks so unless told otherwise.
    """

    def __init__(self, connection: "LimitedConnection") -> None:
        super().__init__(connection)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._connection = connection

    def feed_data(self, data: bytes | memoryview) -> None:  # type: ignore[override]  # uvicorn gives bytes
        """Parse what came.

        Raises:
            HttpParserError: it is no HTTP.
        """
        parser = self
        while data:
            try:
                super(_Parser, parser).feed_data(data)
            except HttpParserUpgrade as upgrade:
                if self._connection.transport.is_closing():
                    return
                data = memoryview(data)[upgrade.args[0] :]
                head = self._connection.head_without_upgrade()
                # A new one: this one may take what follows for the rest of a closed connection.
                parser = self._connection.parser = _Parser(self._connection)
                super(_Parser, parser).feed_data(head)
            else:
                return


class _Slices:
    """A transport by TLS, which is given large writes in parts.

    Given one at once, uvloop hands all of it to the transport below, and says that it has none: a
    client that takes nothing would then pass for one that has taken all.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a transport has
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send all of it, some time."""
        if len(data) <= _SLICE_BYTES:
            self._transport.write(data)
            return
        whole = memoryview(data)
        for begin in range(0, len(data), _SLICE_BYTES):
            self._transport.write(whole[begin : begin + _SLICE_BYTES])


class LimitedConnection(HttpToolsProtocol):
    """A connection that ends where its client passes a limit.

    Always: a timer runs while bytes are missing that no handler waits for: the head of a request,
    and the rest of one that is answered already. While requests wait for those before them nothing
    is parsed, so that those that wait have _PARSED_BYTES together.
    """

    options: GatewayOptions
    clients: ClientCount
    """Of all connections together."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as uvicorn likes
        super().__init__(*args, **kwargs)
        self.parser = _Parser(self)
        self._is_in_head = self._is_in_request = True
        self._unanswered_count = 0
        self._received_bytes = 0
        self._unparsed = memoryview(b"")
        self._served: RequestResponseCycle | None = None
        self._request_max = HEAD_MAX + _REST_BYTES
        self._request_max += _REQUEST_BYTES_PER_BODY * self.options.body_max
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._address: str | None = None
        """Whose client it is counted as; None: it is not."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Take a client, unless there are enough."""
        by_tls = transport.get_extra_info("sslcontext") is not None
        super().connection_made(_Slices(transport) if by_tls else transport)  # type: ignore[arg-type]  # as good as one
        address = self.client[0] if self.client is not None else ""
        refusal = self.clients.admit(address)
        if refusal is None:
            self._address = address
            self._watch()
        else:
            self._refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        for timer in (self._read_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self._address is not None:
            self.clients.leave(self._address)
        # Its base knows of the request that came last, and this one may be in front of that.
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        rest = self._unparsed
        self._unparsed = memoryview(b"".join((rest, data)) if rest else data)
        self._parse()

    def _parse(self) -> None:
        """Let the parser have what came, until requests wait; look whether it is too much."""
        while self._unparsed and not self.pipeline:
            if not self._is_in_request and not self._unanswered_count:
                self._begin_head()
            part = bytes(self._unparsed[:_PARSED_BYTES])
            self._unparsed = self._unparsed[_PARSED_BYTES:]
            self._received_bytes += len(part)
            super().data_received(part)
            if self.transport.is_closing():
                return
            if self._is_in_head and self._received_bytes > HEAD_MAX:
                self._end(b"431 Request Header Fields Too Large")
                return
            if self._received_bytes > self._request_max:
                self.transport.abort()
                return
        if self.pipeline:
            self.flow.pause_reading()
        self._watch()

    def _begin_head(self) -> None:
        """Begin to count, also where a head begins with empty lines: the parser tells of none."""
        self._is_in_head = self._is_in_request = True
        self._received_bytes = 0

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._begin_head()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that follows the body is dropped, see RFC 9110, 6.5.1.

        It comes when a guard, or a proxy in front, has looked at the headers already.
        """
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request over; from now on its handler minds the time."""
        if self.parser.get_method() == b"CONNECT":
            self._end(b"405 Method Not Allowed")
        if self.parser.should_upgrade():
            return
        self._is_in_head = False
        self._unanswered_count += 1
        self._add_host_of_url()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Know that nothing is missing."""
        if self.parser.should_upgrade():
            return
        self._is_in_request = False
        super().on_message_complete()

    def _add_host_of_url(self) -> None:
        """Have a host in the request line count as well, see RFC 9112, 3.2.2.

        `GET http://there/path` is how clients ask proxies. One that says different things in its
        two places has two hosts, and is refused as that.
        """
        if not self.url.startswith((b"/", b"*")):
            authority = _AUTHORITY.match(self.url)
            host = authority[1] if authority is not None else b""
            if (b"host", host) not in self.headers:
                self.headers.append((b"host", host))

    def head_without_upgrade(self) -> bytes:
        """Return the head that has been parsed, less what asks for another protocol."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % each for each in self.headers if each[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_response_complete(self) -> None:
        """Mind the time of what is still to come of the request."""
        self._unanswered_count -= 1
        super().on_response_complete()
        if self.transport.is_closing():
            self._hurry_the_last()
        else:
            self._parse()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, but not where an answer is due to what came before."""
        is_of_this = self._is_in_request and not self._is_in_head
        if self._unanswered_count > is_of_this:
            self.transport.close()
        else:
            super().send_400_response(msg)
        self._say_goodbye()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """Serve a request, of several that came at once the first."""
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """Give a client that reads nothing so much time, and no more."""
        super().pause_writing()
        self._expect_to_be_read()

    def resume_writing(self) -> None:
        """Go on with a client that reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._hurry_the_last()

    def eof_received(self) -> None:
        """Let a client go that will ask nothing more."""
        super().eof_received()
        # The transport closes once this has returned.
        self.loop.call_soon(self._hurry_the_last)

    def timeout_keep_alive_handler(self) -> None:
        """Let a client go that has asked nothing for long."""
        super().timeout_keep_alive_handler()
        self._hurry_the_last()

    def _hurry_the_last(self) -> None:
        """Give a client so much time to take what is left for it at the end, and no more.

        What is too little to pause the writing would be kept for one that takes nothing for ever,
        and its connection with it.
        """
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._expect_to_be_read()

    def _expect_to_be_read(self) -> None:
        if self._write_timer is None:
            timeout_s = self.options.body_timeout_s
            self._write_timer = self.loop.call_later(timeout_s, self._cut)

    def shutdown(self) -> None:
        """Let a client go when the gateway stops; one that asks nothing is not waited for."""
        super().shutdown()
        if self.transport.is_closing():
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """End a closed connection: by TLS its client would have to say that it has seen the end.

        Most do not look for it, and some mean to stay.
        """
        self._hurry_the_last()
        if self.scheme == "https" and not self.transport.get_write_buffer_size():
            self.loop.call_later(_GOODBYE_S, self.transport.abort)

    def _watch(self) -> None:
        """Have the timer run when it is to run."""
        is_waiting = self._is_in_request and not self._unanswered_count
        if is_waiting and self._read_timer is None:
            timeout_s = self.options.head_timeout_s
            self._read_timer = self.loop.call_later(timeout_s, self._on_late)
        elif not is_waiting and self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _on_late(self) -> None:
        if self._is_in_head:
            self._end(b"408 Request Timeout")
        else:
            self.transport.close()
            self._say_goodbye()

    def _cut(self) -> None:
        """End at once, so that the kernel, too, forgets what the client has not taken."""
        linger = struct.pack("ii", 1, 0)
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self.transport.abort()

    def _refuse(self, refusal: Overloaded) -> None:
        """Tell a client which limit it is beyond."""
        headers = f"retry-after: {self.options.retry_after_s}\r\ncontent-type: {JSON}\r\n"
        self._end(b"503 Service Unavailable", headers.encode(), as_json({"error": told(refusal)}))

    def _end(self, status: bytes, headers: bytes = b"", body: bytes = b"") -> None:
        """Tell a client that its connection ends, outside of any request."""
        if not self._unanswered_count:
            ending = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(b"HTTP/1.1 " + status + b"\r\n" + headers + ending + body)
        self.transport.close()
        self._say_goodbye()
