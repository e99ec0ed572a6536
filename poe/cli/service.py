"""Turns a node into a service: readiness, signals, systemd notification, an orderly end.

The main thread runs the event loop, since signals arrive there and most of the work is done there.
Starting and stopping the node block, so each is done by a thread of its own; the loop serves
clients meanwhile. The service ends by a signal, or when the node's tree gives up.
"""

import contextlib
import gc
import logging
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from sdnotify import SystemdNotifier

from poe.actors import LoopSystem, Reason
from poe.cli.doors import address_text
from poe.cli.exit_code import ExitCode
from poe.cli.output import OutputFailed, write_line
from poe.errors import CallTimeout, PoeError

_log = logging.getLogger("poe.cli")

DRAIN_TIMEOUT_S = 4.5
"""Time that clients get after the first signal; the process is to be gone within 5 s."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SIGNAL_EXIT_CODE_BASE = 128
_OLDEST_GENERATION = 2
_LONG_COLLECTION_S = 0.01


class Served(Protocol):
    """What a service runs: a node, wherever it is, and what may be around it."""

    @property
    def address(self) -> tuple[str, int] | None:
        """Return (host, port) where clients connect in plaintext."""

    @property
    def tls_address(self) -> tuple[str, int] | None:
        """Return (host, port) where clients connect by TLS."""

    def start(self, system: LoopSystem) -> object:
        """Start; clients are served when this returns."""

    def stop(self, timeout_s: float) -> None:
        """Stop in good order, and shut the system down."""

    def when_ended(self, action: Callable[[Reason], object]) -> None:
        """Call `action` with the reason once it has ended."""

    def reload(self) -> object:
        """Have it read users, grants and certificates anew; its log tells what came of it."""


class LongCollections:
    """Has what a long garbage collection went through passed over by later ones.

    With ten thousand topics in use each took 0.25 s and more, for which all clients waited. What
    is passed over goes by its reference counts when it ends, as nearly all in a node does; what is
    in a cycle at that moment stays for the life of the process.
    """

    def __init__(self, clock_s: Callable[[], float] = time.thread_time) -> None:
        self._clock_s = clock_s
        self._began_s = 0.0

    def note(self, phase: str, info: Mapping[str, int]) -> None:
        """Learn, as one of `gc.callbacks`, that a collection begins or has ended."""
        if phase == "start":
            self._began_s = self._clock_s()
            return
        is_long = self._clock_s() - self._began_s > _LONG_COLLECTION_S
        if is_long and info["generation"] == _OLDEST_GENERATION:
            gc.freeze()


class Service:
    """Runs one node from start to end; `run` is called once, in the main thread.

    Raises:
        PoeError, OSError: from `run`, when the node cannot start; nothing runs then.
    """

    def __init__(
        self,
        node: Served,
        on_ready: Callable[[str], object],
        drain_timeout_s: float = DRAIN_TIMEOUT_S,
    ) -> None:
        """Prepare to run a node that was not started; `on_ready` is told where clients connect."""
        self._node = node
        self._drain_timeout_s = drain_timeout_s
        self._on_ready = on_ready
        self._system = LoopSystem()
        self._exit_code = ExitCode.OK
        self._start_error: Exception | None = None
        self._is_stopping = False
        self._lock = threading.Lock()
        self._starter = threading.Thread(target=self._start, name="poe-start")
        self._stopper = threading.Thread(target=self._stop, name="poe-stop")
        self._is_reload_due = threading.Event()
        self._note_collection = LongCollections().note

    def run(self) -> ExitCode:
        """Serve until a signal comes or the tree gives up."""
        os.umask(0o077)
        raise_descriptor_limit()
        self._system.run(started=self._begin)
        self._starter.join()
        if self._stopper.ident is not None:
            self._stopper.join()
        self._is_stopping = True  # also where it could not start
        self._is_reload_due.set()
        with contextlib.suppress(ValueError):  # it is not there where the node has not started
            gc.callbacks.remove(self._note_collection)
        if self._start_error is not None:
            raise self._start_error
        return self._exit_code

    def _begin(self) -> None:
        """Take the signals, then start the node; runs in the loop's thread."""
        loop = self._system.run_queue.event_loop().loop
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._is_reload_due.set)
        self._starter.start()
        # Beside the loop, which the reload needs.
        threading.Thread(target=self._reload, name="poe-reload", daemon=True).start()

    def _start(self) -> None:
        try:
            self._node.start(self._system)
            self._node.when_ended(self._on_tree_ended)
            # What is there now stays. Each full collection would walk it, and clients wait 40 ms.
            gc.freeze()
            gc.callbacks.append(self._note_collection)
            self._tell_ready()
        except Exception as error:  # noqa: BLE001 - `run` raises it, in the main thread
            self._start_error = error
            self._node.stop(self._drain_timeout_s)
            self._system.shutdown()

    def _tell_ready(self) -> None:
        plain, tls = self._node.address, self._node.tls_address
        told = [] if plain is None else [address_text(plain)]
        if tls is not None:
            told.append(f"{address_text(tls)} (TLS)")
        address = " and ".join(told)
        self._on_ready(address)
        notify(f"READY=1\nSTATUS=serving on {address}")
        _log.info("serving on %s", address)

    def _reload(self) -> None:
        """Reload once for all the signals that have come meanwhile, be they thousands."""
        self._starter.join()
        while self._is_reload_due.wait() and not self._is_stopping:
            self._is_reload_due.clear()
            try:
                self._node.reload()
            except PoeError as error:
                _log.warning("SIGHUP: %s; going on", error)

    def _on_signal(self, number: signal.Signals) -> None:
        """Drain at the first signal, leave at the second; runs in the loop's thread."""
        loop = self._system.run_queue.event_loop().loop
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
            # The next one does not ask the loop, whose thread waits for actors, and they may wait
            # for a dead disk.
            signal.signal(each, _leave)
        _log.info("%s: stopping", signal.Signals(number).name)
        if self._may_stop():
            notify("STOPPING=1\nSTATUS=finishing what is under way")
            self._stopper.start()

    def _on_tree_ended(self, reason: object) -> None:
        """Leave with an error when the tree ends by itself; runs in whatever thread ran actors."""
        if self._may_stop():
            _log.critical("the supervision tree gave up (%r); leaving", reason)
            notify("STOPPING=1\nSTATUS=the supervision tree gave up")
            self._exit_code = ExitCode.FAILURE
            self._stopper.start()

    def _may_stop(self) -> bool:
        """Return whether this is the first call: the one that starts the stopper."""
        with self._lock:
            was_stopping, self._is_stopping = self._is_stopping, True
        return not was_stopping

    def _stop(self) -> None:
        # A node can be stopped once it has started, and recovery cannot be interrupted but by the
        # second signal.
        self._starter.join()
        # To look for cycles in what is there, again and again and once more at the very end, would
        # take more than a fifth of the time in which ten thousand topics stop.
        gc.disable()
        gc.freeze()
        try:
            self._node.stop(self._drain_timeout_s)
        except CallTimeout:
            _log.warning(
                "clients were cut off after %s s; all acknowledged is kept", self._drain_timeout_s
            )
        except Exception:  # noqa: BLE001 - told in full, and by the exit code
            _log.exception("the node could not be stopped in good order")
            self._exit_code = ExitCode.FAILURE
        _log.info("stopped")


def _leave(number: int, _frame: object) -> None:
    """End the process at once."""
    try:
        _log.warning("%s while stopping: leaving at once", signal.Signals(number).name)
    finally:
        os._exit(_SIGNAL_EXIT_CODE_BASE + number)


def raise_descriptor_limit() -> None:
    """Lift the soft limit on open files to the hard one: each client takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def print_ready(address: str) -> None:
    """Print that clients can connect; that nobody can read it is no reason not to serve them."""
    try:
        write_line(f"ready on {address}")
    except OutputFailed as error:
        _log.warning("%s", error)


def notify(state: str) -> None:
    """Tell systemd, where it asked for it."""
    if "NOTIFY_SOCKET" in os.environ:
        SystemdNotifier().notify(state)
