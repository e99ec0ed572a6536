"""Serves the gateway with uvicorn until it is told to stop, and then stops it in good order.

At the first signal it accepts no more clients, lets the requests under way end, and flushes the
producer; at the second the process ends at once.

Requests are served in the producer's own event loop. In one beside it messages change threads, and
there wait for the interpreter.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

import uvicorn

from poe.broker.connection.client_count import ClientCount
from poe.client.producer.topic_info import Undelivered
from poe.gateway.http.application import Gateway
from poe.gateway.http.certificate import ServedCertificate
from poe.gateway.http.connection import LimitedConnection
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.tls_listener import TlsListener

_log = logging.getLogger("poe.gateway")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SIGNAL_EXIT_CODE_BASE = 128
_LOOK_S = 0.5


def serve(
    options: GatewayOptions,
    on_ready: Callable[[str], object],
    on_invitation: Callable[[str], object] = lambda _url: None,
) -> list[Undelivered]:
    """Serve until SIGTERM or SIGINT, and return what was accepted but not delivered.

    Args:
        options: of the gateway.
        on_ready: told HOST:PORT once clients can connect.
        on_invitation: told the URL that opens the console for one browser, and the next one
            whenever one was used.

    Raises:
        PortInUse: somebody else listens there.
        SecurityFileError: a file for TLS cannot be used.
        OptionError: the address is none of this machine.
        PoeError: the producer cannot start.
    """
    # Hostile clients would fill the log: each request that is no HTTP is a warning.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    gateway = Gateway(options)
    certificate = None if options.tls is None else ServedCertificate(options.tls)
    if certificate is None and options.authentication == "bearer" and options.address.is_public:
        _log.warning("tokens travel in plaintext, for all on the way to read; use tls_certificate")
    with options.address.listen(options.port) as listening:
        loop = gateway.start()
        try:
            config = _config(gateway, options)
            if certificate is None:
                server = _Server(config, gateway)
            else:
                server = _TlsServer(config, gateway, certificate, options)
                renew = certificate.renew_soon
                signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(renew))
            for number in _SIGNALS:
                signal.signal(number, server.on_signal)
            host, port = listening.getsockname()[:2]
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            on_ready(address)
            if gateway.console is not None:
                scheme = "http" if options.tls is None else "https"
                loop.call_soon_threadsafe(gateway.console.start)
                gateway.console.invite(lambda path: on_invitation(f"{scheme}://{address}{path}"))
            # What is there now stays: the collector need not walk it while requests wait.
            gc.freeze()
            _await_end(asyncio.run_coroutine_threadsafe(server.serve([listening]), loop))
        finally:
            asyncio.run(gateway.close())
    return gateway.undelivered


def _await_end(serving: Future[None]) -> None:
    """Wait until nobody is served any more; signals are taken meanwhile.

    In steps: a signal that another thread gets, or this one right before it waits, does not end the
    wait, and its handler runs behind that.
    """
    while not wait([serving], _LOOK_S).done:
        pass
    serving.result()


def _config(gateway: Gateway, options: GatewayOptions) -> uvicorn.Config:
    clients = ClientCount(options.connections_max, options.connections_per_address_max)
    connection = type("Connection", (LimitedConnection,), {"options": options, "clients": clients})
    return uvicorn.Config(
        gateway,
        http=connection,
        ws="none",
        lifespan="off",  # done above, where an error can be told
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=options.keep_alive_s,
        timeout_graceful_shutdown=options.drain_timeout_s,
    )


class _Server(uvicorn.Server):
    """uvicorn, but it leaves signals to us, and followers do not hold it up."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `on_signal`."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let clients go."""
        await self._gateway.stop()
        await super().shutdown(sockets)

    def on_signal(self, number: int, _frame: object) -> None:
        """Stop in good order; the next signal ends the process at once."""
        for each in _SIGNALS:
            signal.signal(each, _leave)
        _log.info("%s: stopping", signal.Signals(number).name)
        self.should_exit = True


class _TlsServer(_Server):
    """The same by TLS, with the certificate of the moment for each connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Gateway,
        certificate: ServedCertificate,
        options: GatewayOptions,
    ) -> None:
        super().__init__(config, gateway)
        self._certificate = certificate
        self._options = options
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept clients, which uvicorn would do with one context for ever."""
        listeners = [
            TlsListener(
                each, self._certificate.context, self._connection, self._options.body_timeout_s
            )
            for each in sockets or ()
        ]
        self.servers = listeners  # type: ignore[assignment]  # they are closed and waited for alike
        for each in listeners:
            each.start()
        watching = self._certificate.watch(self._options.reload_interval_s)
        self._watching = asyncio.ensure_future(watching)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let clients go."""
        if self._watching is not None:
            self._watching.cancel()
        await super().shutdown(sockets)

    def _connection(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state={})


def _leave(number: int, _frame: object) -> None:
    try:
        _log.warning("%s while stopping: leaving at once", signal.Signals(number).name)
    finally:
        os._exit(_SIGNAL_EXIT_CODE_BASE + number)
