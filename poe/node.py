"""A node: one base folder, one actor system, one listener, embedded in a process.

Application threads ask the appendix server of a topic directly, by the routing table; only what
that does not answer at once (a new topic, a server that has just moved) takes the slower way
through an actor that serves this one request.
"""

import contextlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TextIO, TypeVar

from poe.actors import KILL, ActorRef, LoopSystem, Reason
from poe.broker import (
    MOVED,
    NODE_SUP,
    AccessFiles,
    ArchiveFolders,
    ArchiverParts,
    BoundPorts,
    GatekeeperParts,
    HybridClock,
    ListenerParts,
    LocalClient,
    LocalRequest,
    Next,
    NodeParts,
    NodeSup,
    Put,
    RegistryParts,
    RequestHandler,
    RoutingTable,
    SegmentInfo,
    SegmentRows,
    check_ports_are_free,
    control,
    describe_all,
    may_repeat,
    remove_admin_token,
)
from poe.broker.requests.queue_messages import QUEUES, ClusterRequest
from poe.config import Config
from poe.errors import (
    ActorDead,
    ChildStartFailed,
    CorruptRecord,
    InvalidMessage,
    NodeNotRunning,
    NodeRunning,
    NoDescriptors,
    OptionError,
    PoeError,
    ReservedTopic,
    StartFailed,
)
from poe.protocol import DescribedTopic, PutId, topic_bytes
from poe.protocol.arguments import check_pointer
from poe.protocol.node_event import EVENTS_COUNT_MAX, EventPage
from poe.protocol.put import check_messages
from poe.protocol.scan import Scanned
from poe.storage import Clock, SegmentOptions, Store, SystemClock
from poe.storage.failure import as_storage_error
from poe.supervision import ChildSpec
from poe.supervision.chronicle import keep_events
from poe.supervision.event_ring import EventRing
from poe.topic_name import topic_text
from poe.topic_properties import is_reserved

if TYPE_CHECKING:
    from poe import client
    from poe.client.local_server import LocalServer
    from poe.cluster.fabric.interface import Fabric
    from poe.cluster.log.engine import LogEngine
    from poe.cluster.tree import ClusterParts

logger = logging.getLogger("poe")

T = TypeVar("T")

_nodes: "weakref.WeakSet[Node]" = weakref.WeakSet()
_of_parents: list[object] = []
"""What a fork has copied of the parent: never used again, and never torn down, since its event loop
shares the kernel's with the parent's."""

_BYTES_ONLY = frozenset({bytes})


class Node:
    """A running node; `with Node(dir=...) as node:` starts and stops it.

    Options come by name, in a dictionary or as keywords, or as a `Config` that is complete.
    All methods may be called from any thread, but not from inside an actor of this node. In a fork
    of the process it does not run: two that write to one folder would overwrite each other. A fork
    keeps the node's ports taken until it has ended, too; workers that are to outlive the node are
    started with `spawn`. `bound` are ports that the node is to use, once, instead of binding those
    of its options; `fabric` is what connects the node with others of its cluster, instead of zenoh,
    `log_engine` what it agrees with them by on replicated topics.

    Raises:
        OptionError: an unknown option or a value that is not allowed; on construction.
    """

    def __init__(
        self,
        options: dict[str, Any] | Config | None = None,
        /,
        *,
        clock: Clock | None = None,
        bound: BoundPorts | None = None,
        fabric: "Fabric | None" = None,
        log_engine: "LogEngine | None" = None,
        **arguments: Any,  # noqa: ANN401 - checked by `Config.load`
    ) -> None:
        if isinstance(options, Config):
            for name, value in arguments.items():
                raise OptionError(name, value, "none beside a Config, which is complete")
            self.config = options  # of `poe serve`, which does what options of the service say
        else:
            self.config = Config.load({**(options or {}), **arguments})
            self.config.service.check_is_default()
        self._bound = bound
        self._fabric = fabric
        self._log_engine = self._open_engine = log_engine
        self._clock = clock or HybridClock()
        self._wall = clock or SystemClock()
        self._store: Store | None = None
        self._system: LoopSystem | None = None
        self._sup: ActorRef | None = None
        self._listener: ListenerParts | None = None
        self._reset()
        _nodes.add(self)

    def _reset(self) -> None:
        self._routes = RoutingTable()
        self._routes.events = EventRing(self._clock.now_us)
        self._routes.options = self.config.told()

    # ---- life -----------------------------------------------------------------------------------

    def start(self, system: LoopSystem | None = None) -> Self:
        """Recover the base folder and start the tree; the port is bound when this returns.

        Args:
            system: an actor system to use, which the node shuts down when it stops, or cannot
                start; by default a new one with a thread of its own.

        Raises:
            OptionError: the folder cannot be used, or there is no Spark for `archive_dir`.
            SecurityFileError: a file of users, grants or TLS is wrong, or cannot be read.
            StoreLocked: another server runs on the folder.
            PortInUse: the port is taken.
            NodeRunning: it runs already, or another one does on the same system.
        """
        if self.is_running or (system is not None and system.is_alive(NODE_SUP)):
            raise NodeRunning
        config = self.config
        if self._bound is None:
            check_ports_are_free(config.listener, config.security)
        archives = ArchiveFolders.of(config.registry.archive_dir, config.segment.topics)
        adopted = config.store.adopt_folder
        files = AccessFiles(config.security) if config.security.files else None
        security = None if files is None else files.security()
        kept = config.registry.retention
        archiver = ArchiverParts.of(config.dir, archives, kept, adopted=adopted)
        store = Store.open(config.dir, config.segment, config.store)
        try:
            logger.info("starting with options: %s", config.as_dict())
            _warn_of_memory(config.segment)
            store.reserve.make()
            store.space.measure()  # less what was just reserved
            gatekeeper = None
            if files is not None:
                gatekeeper = GatekeeperParts.of(
                    files, security, config.dir, self._clock, self._wall, self._routes.events
                )
            self._listener = ListenerParts(
                self._routes,
                config.listener,
                config.connection,
                config.security,
                None if files is None else files.tls,
                None if gatekeeper is None else gatekeeper.access,
                self._bound or BoundPorts(),
            )
            joined, cluster = self._cluster()
            log = self._log(store, joined)
            parts = NodeParts(
                RegistryParts(
                    store=store,
                    routes=self._routes,
                    options=config.registry,
                    appendix=config.appendix,
                    clock=self._clock,
                    archives=archives,
                ),
                self._listener,
                config.scrubber,
                archiver,
                gatekeeper,
                cluster,
                log,
                self._wall,
            )
            self._system = system or LoopSystem()
            self._routes.counters.started_us = self._clock.now_us()
            keep_events(self._system.run_queue, self._routes.events)
            self._sup = self._system.start(NodeSup, parts, name=NODE_SUP)
            self._store = store
        except BaseException as error:
            # Ctrl-C, too: what runs already would keep the folder, and the port.
            system, self._system = self._system, None
            self._leave(system, store)
            if isinstance(error, StartFailed):
                raise root_cause(error) from error
            raise
        return self

    def _cluster(self) -> "tuple[ClusterParts | None, ChildSpec | None]":
        """Return who the node is in its cluster, and its part; of one without nothing is loaded."""
        options = self.config.cluster
        if options.cluster is None:
            return None, None
        from poe.cluster.fabric_actor import FabricParts, fabric_specs  # noqa: PLC0415 - see there
        from poe.cluster.tree import ClusterParts, cluster_spec  # noqa: PLC0415

        parts = ClusterParts.of(options, self.config.dir, self._routes, self._clock)
        fabric = self._fabric
        if fabric is None:
            from poe.cluster.fabric.zenoh_fabric import ZenohFabric  # noqa: PLC0415 - and zenoh

            fabric = ZenohFabric(parts.options)
        return parts, cluster_spec(parts, fabric_specs(FabricParts(fabric, parts.me)))

    def _log(self, store: Store, joined: "ClusterParts | None") -> ChildSpec | None:
        """Return the node's part in the replicated log; of one without nothing is loaded."""
        # Those with the nodes that it remembers: the seeds may be gone.
        options = self.config.cluster if joined is None else joined.options
        if self._log_engine is None and (options.log_engine is None or joined is None):
            return None
        from poe.cluster.log.claims import Claims  # noqa: PLC0415 - a node without loads none of it
        from poe.cluster.log.logs import LogParts  # noqa: PLC0415 - a node without loads none of it
        from poe.cluster.log.tree import log_spec, open_engine  # noqa: PLC0415

        engine, server = self._log_engine, None
        if engine is None:
            assert joined is not None
            engine, server = open_engine(options, self.config.dir, joined.me.ref.id.hex())
        self._open_engine = engine
        appendix = self.config.appendix
        parts = LogParts(
            engine,
            engine.name,
            self.config.dir,
            self._routes,
            self._clock,
            store.check_sizes,
            bytes_max=options.log_bytes_max,
            count_limit=appendix.count_limit,
            size_limit=appendix.size_limit,
            claims=Claims(),
        )
        return log_spec(parts, server)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop accepting, finish what is under way, write everything to disk, release the folder.

        Stopping a node that does not run is fine. In a signal handler that has interrupted an actor
        it returns at once, and the end comes when the actor is done.

        Raises:
            CallTimeout: the tree had not ended after `timeout_s`; the folder is released anyway.
        """
        system, store = self._system, self._store
        if system is None or store is None or self._sup is None:
            return
        if system.run_queue.is_running_here():
            threading.Thread(target=self.stop, args=(timeout_s,), name="poe-stop").start()
            return
        self._system = self._store = None
        try:
            if self.config.cluster.cluster is not None:
                with contextlib.suppress(PoeError):  # then the others see that it is down
                    system.call(QUEUES, ClusterRequest("leave", {}), timeout_s=timeout_s / 2)
            _stop(system, self._sup, timeout_s)
        finally:
            self._leave(system, store)

    def _leave(self, system: LoopSystem | None, store: Store) -> None:
        """Release everything, whoever still runs; also where Ctrl-C comes in the middle of it."""
        with contextlib.ExitStack() as last_first:
            if self._listener is not None:
                last_first.callback(self._listener.bound.close)  # one that was killed could not
            last_first.callback(self._routes.leave_store)
            # Behind it another node may have the folder, and a token of its own.
            last_first.callback(store.leave)  # what could not be closed is left to recovery
            last_first.callback(store.close)
            if self.config.security.users is not None:
                last_first.callback(remove_admin_token, self.config.dir)
            if self._open_engine is not None:  # who was killed in the middle of something could not
                last_first.callback(self._open_engine.close)
            if system is not None:
                last_first.callback(_shut_down, system)

    def _forget(self) -> None:
        """Begin afresh in a process that was forked: the parent's node runs on, with its folder.

        Actors of the copy would write where those of the parent do.
        """
        if self._store is not None:
            self._store.leave()
        if self._system is not None:
            _of_parents.append((self._system, self._store, self._listener))
        self._system = self._store = self._listener = None
        self._reset()

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the node's tree is up."""
        return (
            self._system is not None
            and self._sup is not None
            and (self._system.is_alive(self._sup))
        )

    def when_ended(self, action: Callable[[Reason], object]) -> None:
        """Call `action` with the reason once the node's tree has ended, by `stop` or by itself.

        It is called in whatever thread runs actors then, and must not block or call the node.

        Raises:
            NodeNotRunning: before `start` or after `stop`.
        """
        system, sup = self.system, self._sup
        assert sup is not None
        system.when_ended(sup, action)

    @property
    def address(self) -> tuple[str, int] | None:
        """Return (host, port) where clients connect in plaintext, None where they cannot."""
        if self._listener is None or self._listener.bound.plain.port is None:
            return None
        return self.config.listener.host, self._listener.bound.plain.port

    @property
    def tls_address(self) -> tuple[str, int] | None:
        """Return (host, port) where clients connect by TLS, None where they cannot."""
        if self._listener is None or self._listener.bound.tls.port is None:
            return None
        return self.config.security.tls_host, self._listener.bound.tls.port

    @property
    def system(self) -> LoopSystem:
        """Return the actor system of a running node.

        Raises:
            NodeNotRunning: it does not run.
        """
        if self._system is None:
            raise NodeNotRunning
        return self._system

    # ---- messages -------------------------------------------------------------------------------

    def put(self, topic: bytes | str, message: bytes) -> int:
        """Append a message and return its pointer.

        Raises:
            LocalProtocolError: the topic or the message is empty, or of a wrong type.
            InvalidTopicName: the topic cannot be a folder.
            InvalidMessage: the message is too large.
            StorageFull: no room on the disk; nothing is stored.
            ActorDead: the appendix server ended before it answered; it may be stored.
            NodeNotRunning: before `start` or after `stop`.
        """
        messages = [message] if type(message) is bytes else _as_bytes([message])
        try:
            return self._put(topic, messages)
        except InvalidMessage:
            check_messages(messages)  # an empty one is the caller's mistake, as through a socket
            raise

    def put_many(
        self, topic: bytes | str, messages: Sequence[bytes], put_id: PutId | None = None
    ) -> int:
        """Append messages in order, all or none, and return the pointer of the last one.

        With a `put_id` they are stored once, however often this is called with it.

        Raises:
            LocalProtocolError: there is none, or as for `put`; nothing is stored.
            InvalidMessage: as for `put`.
            SequenceGap, ProducerFenced, RepeatedPut: as for `protocol.Socket.write`.
        """
        # Checked here, at 11 ns a message: a wrong type would end the appendix server.
        if type(messages) is not list or set(map(type, messages)) != _BYTES_ONLY:
            messages = _as_bytes(messages)
        if put_id is not None:
            put_id.encode()  # refuses what a socket would
        try:
            return self._put(topic, messages, put_id)
        except InvalidMessage:
            check_messages(messages)
            raise

    def _put(self, topic: bytes | str, messages: Any, put_id: PutId | None = None) -> int:  # noqa: ANN401 - checked by storage
        name = topic if type(topic) is bytes else topic_bytes(topic)
        system = self._system
        if system is None:
            raise NodeNotRunning
        if name[:4] == b"poe." and is_reserved(name):
            raise ReservedTopic(name)
        route = self._routes.get(name)
        if route is not None:
            try:
                put = Put(messages, put_id)
                call = system.run_queue.call_from_outside(route.refs[-1].cell, put)
                pointer = call.value if call.is_done and not call.error else system.outcome(call)
            except ActorDead as error:
                if not may_repeat(error, is_put=put_id is None):
                    raise
                pointer = MOVED
            except NoDescriptors:
                pointer = MOVED
            if pointer is not MOVED:
                return pointer  # type: ignore[no-any-return]  # a reply to Put
        elif not name:
            topic_bytes(name)
        return self._serve(
            partial(RequestHandler.put, topic=name, messages=messages, put_id=put_id)
        )

    def next(self, topic: bytes | str, pointer: int) -> tuple[int, bytes] | None:
        """Return the message that follows `pointer`, with its pointer; None when nothing follows.

        Raises:
            UnknownTopic: nobody put anything onto the topic.
            PointerOutOfRange: `pointer` is negative or needs more than 56 bits.
            CorruptRecord: what follows is damaged, and `on_corrupt` is not `skip`.
            LocalProtocolError: it is no number, or the topic is empty.
        """
        if not isinstance(pointer, int):
            check_pointer(pointer)
        name = topic if type(topic) is bytes else topic_bytes(topic)
        system = self._system
        if system is None:
            raise NodeNotRunning
        route = self._routes.get(name)
        if route is not None:
            try:
                # Of most topics there is one segment, and nothing to look for.
                reader = route.reader(pointer) if route.bounds else route.refs[-1]
                call = system.run_queue.call_from_outside(reader.cell, Next(pointer))
                found = call.value if call.is_done and not call.error else system.outcome(call)
                if found is not None or self._routes.is_newest(name, reader):
                    return found  # type: ignore[no-any-return]  # a reply to Next
            except ActorDead as error:
                if not may_repeat(error, is_put=False):
                    raise
            except NoDescriptors:
                pass  # files are let go below
            except CorruptRecord:
                if not self._routes.are_gaps_skipped:
                    raise
        return self._serve(partial(RequestHandler.next, topic=name, pointer=pointer))

    # ---- clients --------------------------------------------------------------------------------

    def consumer(self, topics: Any, /, **options: Any) -> "client.Consumer":  # noqa: ANN401 - checked there
        """Return a `Consumer` of this node, which needs no socket; close it before the node stops.

        Raises:
            UnknownOption, OptionError: as `Consumer`.
        """
        from poe import client  # noqa: PLC0415 - a server needs no clients

        return client.Consumer(self.local_server, topics, **options)

    def queue(self, topics: Any, /, *, group: str = "workers", **options: Any) -> "client.Queue":  # noqa: ANN401
        """Return a `Queue` of this node, likewise."""
        from poe import client  # noqa: PLC0415 - a server needs no clients

        return client.Queue(self.local_server, topics, group=group, **options)

    @property
    def local_server(self) -> "LocalServer":
        """What clients in this process take instead of the url of a server."""
        from poe.client.local_server import LocalServer  # noqa: PLC0415 - a server needs no clients

        return LocalServer(self._open_connection)

    def _open_connection(
        self, deliver: Callable[[bytes], object], end: Callable[[], object]
    ) -> "_LocalConnection":
        system, put_timeout_s = self.system, self.config.connection.put_timeout
        ref = system.start(LocalClient, self._routes, put_timeout_s, deliver)
        assert ref is not None
        system.when_ended(ref, lambda _: end())
        return _LocalConnection(system, ref)

    # ---- what there is --------------------------------------------------------------------------

    def topics(self) -> list[bytes]:
        """Return all topics, sorted; those that cannot be served, too.

        Raises:
            NodeNotRunning: before `start` or after `stop`.
        """
        if self._system is None:
            raise NodeNotRunning
        return self._routes.topics()

    def status(self) -> list[tuple[bytes, list[tuple[ActorRef | None, str]]]]:
        """Return each topic's appendix servers, oldest first, with their roles `w`, `r`, `h`.

        A topic that cannot be served has none; of one that rests, None stands for each segment's.
        """
        return [(topic, [(ref, info.role) for ref, info in rows]) for topic, rows in self.info()]

    def info(self) -> list[tuple[bytes, SegmentRows]]:
        """Return each topic's appendix servers with all that is known of their segments."""
        return self._serve(lambda by: describe_all(by.actor, by.routes))

    def print_status(self, file: TextIO | None = None) -> None:
        """Print a line for each topic: its name and the roles of its appendix servers."""
        for topic, servers in self.status():
            roles = "".join(role for _, role in servers)
            print(f"{topic_text(topic)}\t:{roles}", file=file or sys.stdout)

    def counters(self, *, are_all: bool = False) -> dict[str, Any]:
        """Return what the node and its topics have done since it started, as `Socket.counters`.

        Raises:
            NodeNotRunning: before `start` or after `stop`.
        """
        told: dict[str, Any] = self.control("counters", all=are_all)
        return {"node": told["node"], "topics": told["topics"]}

    def events(
        self, after: int = 0, *, limit: int = EVENTS_COUNT_MAX, wait_s: float = 0.0
    ) -> EventPage:
        """Return what has happened behind the event with seq `after`, as `Socket.events`.

        Raises:
            NodeNotRunning: before `start` or after `stop`.
        """
        told = self.control("events", after=after, limit=limit, wait_s=wait_s)
        return EventPage.from_map(told)

    def scan(self, topic: bytes | str, after: int = 0, **what: Any) -> Scanned:  # noqa: ANN401 - checked
        """Look for messages; takes what `Socket.scan` takes.

        Raises:
            PoeError: as there.
            NodeNotRunning: before `start` or after `stop`.
        """
        return Scanned.from_map(self.control("scan", topic=topic_bytes(topic), after=after, **what))

    def create_topic(self, topic: bytes | str, **properties: Any) -> DescribedTopic:  # noqa: ANN401 - checked
        """Make a topic that has these properties, and return it; see `TopicProperties`.

        Raises:
            OptionError: a property that there is not, or a value that is not allowed.
            TopicExists: it is there, or a topic that would be a partition of it.
            PropertyMismatch: its name is that of a partition, of which its topic has not so many.
            InvalidTopicName: it cannot be a folder.
            NodeNotRunning: before `start` or after `stop`.
        """
        return self._changed("topic_create", topic, properties)

    def alter_topic(self, topic: bytes | str, **changes: Any) -> DescribedTopic:  # noqa: ANN401 - checked
        """Change properties of a topic, and return what it has then.

        Raises:
            OptionError: a property that there is not, or a value that is not allowed.
            UnknownTopic: nobody has made it, or put anything onto it.
            PropertyFixed: fewer partitions, or another envelope; nothing was changed.
            TopicExists: a new partition is a topic that is there.
            NodeNotRunning: before `start` or after `stop`.
        """
        return self._changed("topic_alter", topic, changes)

    def adopt_topic(self, topic: bytes | str, **properties: Any) -> DescribedTopic:  # noqa: ANN401 - checked
        """Take topics that are there for the partitions of one; see `Socket.adopt_topic`.

        Raises:
            PoeError: as there.
            NodeNotRunning: before `start` or after `stop`.
        """
        return self._changed("topic_adopt", topic, properties)

    def describe(self, topic: bytes | str) -> DescribedTopic:
        """Return what a topic has, and what its partitions hold.

        Raises:
            UnknownTopic: nobody has made it, or put anything onto it.
            NodeNotRunning: before `start` or after `stop`.
        """
        return DescribedTopic.from_map(self.control("describe", topic=topic_bytes(topic)))

    def _changed(self, op: str, topic: bytes | str, properties: Any) -> DescribedTopic:  # noqa: ANN401
        told = self.control(op, topic=topic_bytes(topic), properties=properties)
        return DescribedTopic.from_map(told)

    def reload(self) -> dict[str, Any]:
        """Read users and grants anew, and go by them; all or nothing.

        Who is connected stays so, unless what has proved who they are would do so no more. Return
        `users_added`, `users_removed` and `users_changed`, names each, and `ended_count`, of
        connections that are hung up on.

        Raises:
            SecurityFileError: a file is wrong; all goes on as before.
            SecurityError: there are no users.
            NodeNotRunning: before `start` or after `stop`.
        """
        told: dict[str, Any] = self.control("reload")
        return told

    def sync(self) -> None:
        """Make everything acknowledged so far survive a power cut."""
        self.control("sync")

    def control(self, op: str, **arguments: Any) -> Any:  # noqa: ANN401 - as the op says
        """Carry out a control request, as over the socket."""
        return self._serve(lambda handler: control(handler, op, arguments))

    def _serve(self, request: Callable[[RequestHandler], Awaitable[T]]) -> T:
        """Have one request served by an actor of its own.

        The hot path makes it by `partial`: variables that a function within it captured would be
        slower for every request.
        """
        system = self.system
        ref = system.start(LocalRequest, self._routes)
        assert ref is not None
        try:
            return system.call(ref, request, None)  # type: ignore[no-any-return]  # its reply
        finally:
            system.exit(ref, KILL)


class _LocalConnection(NamedTuple):
    """What serves a client of this process."""

    system: LoopSystem
    ref: ActorRef

    def send(self, frame: bytes) -> None:
        """Take a request."""
        self.system.cast(self.ref, frame)

    def close(self) -> None:
        """Serve no more."""
        self.system.exit(self.ref, KILL)


def _warn_of_memory(options: SegmentOptions) -> None:
    """Tell in the log which topics may lose what they have acknowledged."""
    which = ", ".join(each.topic for each in options.topics if each.ack == "memory")
    if options.ack == "memory":
        which = "all topics without one of their own"
    if which:
        logger.warning(
            "ack is memory for %s: what is acknowledged there may be lost when the server dies; "
            "flushed keeps it, fsync through a power cut, too",
            which,
        )


def _as_bytes(messages: object) -> list[bytes]:
    """Copy bytes-likes; the originals may change, or have items that are wider than a byte."""
    return [bytes(message) for message in check_messages(messages)]


def _stop(system: LoopSystem, sup: ActorRef, timeout_s: float) -> None:
    with contextlib.suppress(ActorDead):  # it has given up
        system.stop(sup, "shutdown", timeout_s)


def _shut_down(system: LoopSystem) -> None:
    try:
        system.shutdown()
    except BaseException:  # Ctrl-C: who is left alive would write to files that are closed
        system.shutdown()
        raise


def root_cause(failed: StartFailed) -> PoeError:
    """Return the error at the bottom of nested start failures, for the one who called `start`."""
    reason: object = failed
    while True:
        if isinstance(reason, tuple) and len(reason) == 2:  # noqa: PLR2004 - ("shutdown", term)
            reason = reason[1]
        elif isinstance(reason, StartFailed | ChildStartFailed):
            inner = reason.reason
            if not isinstance(inner, tuple | BaseException):
                return reason
            reason = inner
        else:
            if isinstance(reason, OSError):
                reason = as_storage_error(reason, "what a node needs")
                if not isinstance(reason, NoDescriptors):  # nobody knows what was written
                    return failed
            return reason if isinstance(reason, PoeError) else failed


def _forget_all() -> None:
    global _starting  # noqa: PLW0603 - a thread of the parent may have it, which is not here
    _starting = threading.RLock()
    for node in list(_nodes):
        node._forget()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_forget_all)


# ---- the node of the process --------------------------------------------------------------------

_node: Node | None = None
"""One a process by default, as with the original's `poe:start()`."""
_starting = threading.RLock()
"""One thread at a time starts it: of two nodes one could never be stopped by `stop`."""


def start(options: dict[str, Any] | None = None, /, **arguments: Any) -> Node:  # noqa: ANN401
    """Start the node of this process and return it.

    Args:
        options: options by name.
        arguments: the same as keywords; see `docs/configuration.md`.

    Raises:
        OptionError: an unknown option or a value that is not allowed.
        NodeRunning: the node of this process runs already.
        StoreLocked: another server runs on the folder.
        PortInUse: the port is taken.
    """
    global _node  # noqa: PLW0603 - see there
    with _starting:
        if _node is not None and _node.is_running:
            raise NodeRunning
        stop()  # one that has given up still holds its folder
        _node = Node(options, **arguments).start()
        return _node


def stop() -> None:
    """Stop the node of this process; nothing happens when none runs."""
    global _node
    node, _node = _node, None
    if node is not None:
        node.stop()


def _started() -> Node:
    if _node is None:
        raise NodeNotRunning
    return _node


def put(topic: bytes | str, message: bytes) -> int:
    """Append a message and return its pointer; see `Node.put`."""
    return _started().put(topic, message)


def put_many(topic: bytes | str, messages: Sequence[bytes], put_id: PutId | None = None) -> int:
    """Append messages, all or none, and return the last pointer; see `Node.put_many`."""
    return _started().put_many(topic, messages, put_id)


def next(topic: bytes | str, pointer: int) -> tuple[int, bytes] | None:  # noqa: A001 - `poe:next/2`
    """Return the message that follows `pointer`, with its pointer; see `Node.next`."""
    return _started().next(topic, pointer)


def topics() -> list[bytes]:
    """Return all topics, sorted."""
    return _started().topics()


def status() -> list[tuple[bytes, list[tuple[ActorRef | None, str]]]]:
    """Return each topic's appendix servers with their roles; see `Node.status`."""
    return _started().status()


def info() -> list[tuple[bytes, list[tuple[ActorRef | None, SegmentInfo]]]]:
    """Return each topic's appendix servers with their segments; see `Node.info`."""
    return _started().info()


def print_status(file: TextIO | None = None) -> None:
    """Print a line for each topic; see `Node.print_status`."""
    _started().print_status(file)


def create_topic(topic: bytes | str, **properties: Any) -> DescribedTopic:  # noqa: ANN401 - checked
    """Make a topic that has these properties; see `Node.create_topic`."""
    return _started().create_topic(topic, **properties)


def alter_topic(topic: bytes | str, **changes: Any) -> DescribedTopic:  # noqa: ANN401 - checked
    """Change properties of a topic; see `Node.alter_topic`."""
    return _started().alter_topic(topic, **changes)


def describe(topic: bytes | str) -> DescribedTopic:
    """Return what a topic has, and what its partitions hold; see `Node.describe`."""
    return _started().describe(topic)


def consumer(topics: Any, /, **options: Any) -> "client.Consumer":  # noqa: ANN401 - checked there
    """Return a consumer of the node of this process; see `Node.consumer`."""
    return _started().consumer(topics, **options)


def queue(topics: Any, /, *, group: str = "workers", **options: Any) -> "client.Queue":  # noqa: ANN401
    """Return a work queue of the node of this process; see `Node.queue`."""
    return _started().queue(topics, group=group, **options)


def sync() -> None:
    """Make everything acknowledged so far survive a power cut."""
    _started().sync()
