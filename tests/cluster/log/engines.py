"""Servers of the replicated log on loopback, each with an engine, which say what they heard."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from poe.cluster.log.engine import (
    CatalogChanged,
    Connected,
    EngineEvent,
    Entries,
    Entry,
    NotStored,
    PeerAsked,
    Stored,
)
from poe.cluster.log.nats_server import NatsServer
from poe.cluster.log.nats_target import OutsideServers
from poe.cluster.options import ClusterOptions
from poe.errors import NoQuorum, PoeError
from tests.ports import quiet_ports
from tests.python_process import ROOT, environment
from tests.waiting import wait_until

NAMES = "abcdefgh"
PATIENCE_S = 60.0
CALL_S = 12.0
BYTES_MAX = 64 << 20
NO_LEADER = NotStored(True, "no server leads its stream")

T = TypeVar("T")


@dataclass
class Followed:
    """What one follow has heard."""

    entries: list[Entry] = field(default_factory=list)
    ends: list[EngineEvent] = field(default_factory=list)


class EngineNode:
    """A server and its engine, life after life; or an engine alone."""

    def __init__(
        self,
        options: ClusterOptions,
        folder: Path,
        name: str,
        outside: OutsideServers | None = None,
    ) -> None:
        from poe.cluster.log.nats_engine import NatsEngine  # noqa: PLC0415 - an extra

        self.options, self.folder, self.name = options, folder, name
        self.events: list[EngineEvent] = []
        self._heard = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        if outside is None:
            self.server = NatsServer.prepare(options, folder, name)
        self.engine = NatsEngine(name, str(options.cluster), outside or self.server)
        self.is_open = False
        self._ids = 0

    # ---- life -----------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start_server(self) -> None:
        """Run the server, as an `OsProcess` would."""
        assert self._process is None
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *self.server.command],
            cwd=ROOT,
            env=environment(),
            stdout=sys.stderr,
        )

    def kill_server(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it at once."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(number)
        process.wait(PATIENCE_S)

    def freeze_server(self) -> None:
        """Let it do nothing, though all its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def thaw_server(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def open(self) -> None:
        self.engine.open(self._hear)
        self.is_open = True

    def close(self) -> None:
        if self.is_open:
            self.engine.close()
            self.is_open = False
        if self._process is not None:
            self.kill_server()

    def _hear(self, event: EngineEvent) -> None:
        if isinstance(event, PeerAsked):
            event.answer(event.payload.upper())
        with self._heard:
            self.events.append(event)
            self._heard.notify_all()

    # ---- what was heard -------------------------------------------------------------------------

    def wait_for(self, condition: Callable[[], object]) -> None:
        with self._heard:
            assert self._heard.wait_for(condition, PATIENCE_S), self.events[-20:]

    def wait_connected(self, count: int = 1) -> None:
        self.wait_for(lambda: len(self.heard(Connected)) >= count)

    def heard(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    def followed(self, follow_id: int = 1) -> Followed:
        found = Followed()
        for event in list(self.events):
            if getattr(event, "follow_id", None) != follow_id:
                continue
            if isinstance(event, Entries):
                found.entries += event.entries
            else:
                found.ends.append(event)
        return found

    def wait_followed(self, count: int, follow_id: int = 1) -> list[Entry]:
        self.wait_for(lambda: len(self.followed(follow_id).entries) >= count)
        return self.followed(follow_id).entries

    def catalog(self) -> dict[str, tuple[bytes, int]]:
        return {each.key: (each.value, each.revision) for each in self.heard(CatalogChanged)}

    # ---- calls that wait ------------------------------------------------------------------------

    def call(self, call: Callable[[Callable[[Any], None]], object]) -> Any:
        """Call the engine, and return what it tells, once."""
        told: list[Any] = []
        done = threading.Event()

        def tell(result: Any) -> None:
            told.append(result)
            done.set()

        call(tell)
        assert done.wait(PATIENCE_S), "nothing was told"
        assert len(told) == 1
        return told[0]

    def make_stream(
        self, stream: str, replicas: int = 3, bytes_max: int = BYTES_MAX
    ) -> PoeError | None:
        error: PoeError | None = self.call(
            partial(self.engine.make_stream, stream, replicas, bytes_max)
        )
        return error

    def publish_soon(
        self,
        stream: str,
        payload: bytes,
        told: Callable[[Stored | NotStored], None],
        **options: Any,
    ) -> str:
        self._ids += 1
        entry_id = str(options.pop("entry_id", f"{self.name}-{self._ids}"))
        self.engine.publish(stream, entry_id, payload, options.pop("deadline_s", 5.0), told)
        return entry_id

    def publish_now(self, stream: str, payload: bytes, **options: Any) -> Stored | NotStored:
        became: Stored | NotStored = self.call(
            partial(self.publish_soon, stream, payload, **options)
        )
        return became

    def publish(self, stream: str, payload: bytes, **options: Any) -> Stored | NotStored:
        """Publish an entry, as soon as this server has heard that somebody leads the stream."""
        told: list[Stored | NotStored] = []

        def is_led() -> bool:
            told.append(self.publish_now(stream, payload, **options))
            return told[-1] != NO_LEADER

        wait_until(is_led, PATIENCE_S)
        return told[-1]

    def put_catalog(self, key: str, value: bytes, revision: int) -> int | PoeError:
        """Set a value, as soon as somebody leads the catalog."""
        told: list[int | PoeError] = []

        def is_led() -> bool:
            told.append(self.call(partial(self.engine.put_catalog, key, value, revision)))
            return not isinstance(told[-1], NoQuorum)

        wait_until(is_led, PATIENCE_S)
        return told[-1]

    def stream_state(self, stream: str, deadline_s: float = 3.0) -> Any:
        return self.call(partial(self.engine.stream_state, stream, deadline_s))

    def replicas(self, stream: str) -> dict[str, int]:
        """How far each node is behind; nothing where nobody says it."""
        return dict(getattr(self.stream_state(stream), "replicas", {}))

    def state(self) -> Any:
        return self.call(partial(self.engine.state, 3.0))

    def ask(self, node: str, payload: bytes, deadline_s: float = 5.0) -> bytes | PoeError | None:
        answer: bytes | PoeError | None = self.call(
            partial(self.engine.ask, node, payload, deadline_s)
        )
        return answer


class Engines:
    """A cluster of them, which know each other, or all the first one alone."""

    def __init__(
        self, folder: Path, count: int, *, knows_first: bool = False, **options: Any
    ) -> None:
        quiet = quiet_ports(2 * count)
        ports = list(zip(quiet[:count], quiet[count:], strict=True))
        all_seeds = [f"127.0.0.1:{port}" for _, port in ports]
        seeds = tuple(all_seeds[:1] if knows_first else all_seeds)
        self.nodes = [
            EngineNode(
                ClusterOptions(
                    cluster="t.est", cluster_port=port, log_engine="nats", log_port=log_port,
                    log_seeds=seeds, **options,
                ),
                folder / NAMES[index],
                NAMES[index],
            )
            for index, (port, log_port) in enumerate(ports)
        ]  # fmt: skip

    def __iter__(self) -> Iterator[EngineNode]:
        return iter(self.nodes)

    def __getitem__(self, name: str) -> EngineNode:
        return next(node for node in self.nodes if node.name == name)

    def start(self, nodes: Sequence[EngineNode] | None = None) -> None:
        for node in self.nodes if nodes is None else nodes:
            node.start_server()
            node.open()

    def wait_whole(self) -> None:
        """Wait until all are reached and somebody leads them."""
        for node in self:
            node.wait_connected()
        everyone = dict.fromkeys((node.name for node in self), True)
        wait_until(lambda: getattr(self.nodes[0].state(), "nodes", None) == everyone, PATIENCE_S)

    def make_stream(self, stream: str, **options: Any) -> None:
        """Make a stream that has a leader."""
        made: list[PoeError | None] = []

        def is_made() -> bool:
            made.append(self.nodes[0].make_stream(stream, **options))
            return made[-1] is None

        wait_until(is_made, PATIENCE_S)
        wait_until(lambda: hasattr(self.nodes[0].stream_state(stream), "leader"), PATIENCE_S)

    def leader(self, stream: str) -> EngineNode:
        found: list[str] = []

        def is_led() -> bool:
            node = next(node for node in self if node.is_running)
            found.append(getattr(node.stream_state(stream), "leader", ""))
            return found[-1] != "" and self[found[-1]].is_running

        wait_until(is_led, PATIENCE_S)
        return self[found[-1]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for node in self:
            with contextlib.suppress(Exception):
                node.close()
            log = node.folder / "log" / "nats.log"
            if failure[0] is not None and log.exists():
                print(f"--- server of {node.name}:", log.read_text()[-3000:], file=sys.stderr)
