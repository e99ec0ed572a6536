"""Runs mappings in this process, under supervision, until somebody stops it."""

import contextlib
import gc
import math
import time
from collections.abc import Callable
from typing import Final, Self

from poe.actors import SHUTDOWN, ActorRef, LoopSystem
from poe.client.url import parse_url
from poe.errors import ActorDead, OptionError
from poe.mapping.rule_set import RuleSet
from poe.mapping.station import RunOptions, Station
from poe.mapping.worker import INTENSITY, PERIOD_S, mapping_sup
from poe.protocol.server import Server
from poe.security.credentials import Credentials
from poe.security.entry import Entry
from poe.security.tls import Tls
from poe.supervision import Supervisor, SupervisorFlags, supervisor_spec

_STOP_S: Final = 30.0
_LOOK_S: Final = 0.1
_COLLECT_COUNT: Final = 50_000
"""Objects made after which the garbage collector looks at them: of a piece of a batch, none."""


class Runner:
    """One running mapping; any thread may ask it.

        with Runner(rules, "poe://localhost:5555") as runner:
            runner.join()

    Args (of the constructor):
        rules: which mapping.
        url: where its topics are, `poe://host:port`; with more addresses after commas, of nodes of
            one cluster, it goes on at the next one where one dies, and all topics are replicated.
        options: see `RunOptions`.
        load: returns other rules where the file has changed since it was asked last.
        tls: what to demand of TLS, with a url of `poes://`.
        credentials: how to log in.

    Raises (from the constructor):
        OptionError: it is no url, or one of several nodes with rules that cannot be for several.
    """

    def __init__(  # noqa: PLR0913 - what to run, where, how, and how to get in
        self,
        rules: RuleSet,
        url: str,
        options: RunOptions | None = None,
        load: Callable[[], RuleSet | None] = lambda: None,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        rules.compile()  # what is wrong with them is told here
        servers = _servers_for(rules, url, Entry(tls, credentials))
        self.station = Station(servers, rules, options or RunOptions())
        self._load = load
        self._system = LoopSystem()
        self._root: ActorRef | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin."""
        if gc.get_threshold()[0] < _COLLECT_COUNT:
            # Bodies of messages are no circles, and go with the last who looks at them.
            gc.set_threshold(_COLLECT_COUNT)
        flags, children = mapping_sup(self.station, self._system, self._load)
        mapping = supervisor_spec(f"mapping_sup {self.station.rules.name}", flags, children)
        self._root = self._system.start(
            Supervisor,
            SupervisorFlags(intensity=INTENSITY, period_s=PERIOD_S),
            [mapping],
            name="mappings_sup",
        )

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until it is a member of its group, or was stopped; False where not within that time.

        Raises:
            ActorDead, PoeError: as `join`.
        """
        return self._wait(lambda: self.station.has_joined or self._has_stopped(), timeout_s)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until it is stopped; False where it is not within `timeout_s`.

        Raises:
            ActorDead: it has failed too often; the log tells why.
            PoeError: what the server, or the last plan, refuses for good.
        """
        return self._wait(self._has_stopped, timeout_s)

    def _wait(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not is_so():
            if self.station.refusal is not None:
                raise self.station.refusal
            if self._root is not None and not self._system.is_alive(self._root):
                raise ActorDead(self._root, "its workers have failed too often")
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_LOOK_S)
        return True

    def _has_stopped(self) -> bool:
        """Return whether it is stopped; it is then, if somebody has asked for it at the node."""
        if self.station.is_to_stop and self.station.refusal is None:
            self.stop()
        return self._root is None

    def stop(self) -> None:
        """End each batch that is under way, say how far it is, and leave; twice is harmless.

        What takes longer than 5 s is done again by whoever has the partition next.
        """
        root, self._root = self._root, None
        if root is None:
            return
        self.station.is_ending = True
        self.station.leave()  # before the node is told that it has stopped
        with contextlib.suppress(ActorDead):
            self._system.stop(root, SHUTDOWN, timeout_s=_STOP_S)
        self._system.shutdown()


def _servers_for(rules: RuleSet, url: str, entry: Entry) -> list[Server]:
    """Return the servers of a url.

    Raises:
        OptionError: it is none for a mapping; each node has a group of its own for patterns.
    """
    scheme, servers = parse_url(url, entry)
    if scheme != "poe":
        raise OptionError("url", url, "poe://host:port, or poes:// for TLS")
    for topic in rules.source.topics:
        if "*" in topic and len(servers) > 1:
            allowed = "names of replicated topics, or the url of one node: patterns are each node's"
            raise OptionError("source.topics", topic, allowed)
    return servers
