"""A session of zenoh: what carries a node's bytes between processes and machines, and who is there.

Each node has keys of its own, on which it alone listens, one for each host that speaks to it; an
ask is a put onto one of the peer's, its answer one onto one of the asker's. A put has one receiver,
then, and waits for no other. That a node is there is a token of zenoh's liveliness, whose name
tells all that a `Peer` is.

What zenoh calls does nothing but enqueue: whoever waited there, or called zenoh, would stop the
threads in which it receives. A put may wait until its peer takes it, so that what is large, or
comes on top of much, is sent by the thread of that peer's `Lane`.

Wire of what is attached to a put (big endian):
    kind         u8       1 ask, 2 answer, 3 published
    id           8 bytes  the sender's
    epoch        u64
    incarnation  8 bytes
    number       u64      of the ask, chosen by who asks
"""

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

from poe.cluster.fabric.deadlines import Deadlines
from poe.cluster.fabric.interface import (
    PAYLOAD_MAX_BYTES,
    Asked,
    FabricEvent,
    Overlooked,
    PeerDown,
    PeerUp,
    Published,
    Refused,
)
from poe.cluster.fabric.lane import Lane
from poe.cluster.fabric.token import Token, decode_token, encode_token
from poe.cluster.fabric.zenoh_config import (
    json_of,
    key_of_token,
    key_to,
    key_to_all,
)
from poe.cluster.identity import PROTOCOL, PROTOCOL_MIN, NodeRef, Peer
from poe.cluster.options import ClusterOptions
from poe.errors import (
    ClusterMissing,
    FabricFailed,
    ForeignCluster,
    IncompatibleProtocol,
    PoeError,
    RemoteProtocolError,
)

try:
    import zenoh
except ImportError as error:
    raise ClusterMissing from error

_HEADER: Final = struct.Struct(">B8sQ8sQ")
_ASK: Final = 1
_ANSWER: Final = 2
_PUBLISHED: Final = 3

_DIRECT_MAX_BYTES: Final = 64 * 1024
"""As much fits into the buffers of a connection, so that its sender does not wait for a peer that
takes nothing."""
_DIRECT_ANSWER_MAX_BYTES: Final = 4 * 1024
PEERS_MAX: Final = 1000
_HOSTS_MAX: Final = 10_000
"""Ids of nodes of which is remembered which host they are of; others are heard no more."""
COUNTED: Final = (
    "asks_failed",
    "asks_heard",
    "forged",
    "malformed",
    "published",
    "refused",
    "too_large",
)
"""What a session counts."""
_SEEK_S: Final = 3.0
"""How long a session is there that introduces nodes to each other."""
_REFUSED_MAX: Final = 10_000
"""Strangers of which is remembered that they were told of."""


class _Way(NamedTuple):
    """How to reach a peer."""

    peer: Peer
    key: "zenoh.KeyExpr"
    lane: Lane
    under_way: dict[int, int]
    """The size in bytes of each ask without answer."""


class _Told(NamedTuple):
    """What the key of a token says: who is there."""

    cluster: str
    host: str
    token: Token

    @classmethod
    def by(cls, key: str) -> Self:
        """Read a key.

        Raises:
            RemoteProtocolError: it says nothing that this node understands.
        """
        _, cluster, _, host, text = key.split("/")
        return cls(cluster, host, decode_token(text))

    @property
    def name(self) -> tuple[bytes, bytes]:
        """Return the id and the incarnation."""
        return self.token.peer.ref.id, self.token.peer.incarnation


class _Question(NamedTuple):
    """An ask without answer; `way` is None where a node asks itself."""

    answered: Callable[[bytes | None], None]
    way: _Way | None


class ZenohSession:
    """One session of a `ZenohFabric`; the next one knows nothing of it.

    For zenoh may still tell of tokens and messages while a session is closed, and afterwards. Whom
    the next session took for known for that reason, it would tell of to nobody.

    Attributes are changed by the owner's thread, and by one thread of zenoh's each: tokens,
    messages. Entries of a dict are only ever put in or popped, each of which is one step.
    """

    def __init__(
        self,
        options: ClusterOptions,
        me: Peer,
        hear: Callable[[FabricEvent], None],
        numbers: Iterator[int],
        counts: dict[str, int],
    ) -> None:
        """Join.

        Args:
            options: of the node.
            me: who is seen by others.
            hear: is told of them.
            numbers: of asks; another session may be answered for this one's.
            counts: what is `COUNTED` so far.

        Raises:
            FabricFailed: it cannot listen, or its certificates are none.
        """
        assert options.cluster is not None
        _check_files(options)
        self._options = options
        self._cluster = options.cluster
        self._me = me
        self._name = me.ref.id, me.incarnation
        self._hear = hear
        self._numbers = numbers
        self._counts = counts
        self._ways: dict[tuple[bytes, bytes], _Way] = {}
        """By id and incarnation."""
        self._host = host = options.cluster_host
        self._hosts: dict[bytes, str] = {me.ref.id: host}
        """Which host each id is of: the one that has said it first."""
        self._refused: set[tuple[object, ...]] = set()
        self._questions: dict[int, _Question] = {}
        self._closed = threading.Event()
        self._telling = threading.Lock()
        """Held while tokens are taken, and while all peers are told as gone, the last thing."""
        self._seeking = threading.Lock()
        self._key = self._key_of(host, *self._name)
        self._all_key = zenoh.KeyExpr(key_to_all(self._cluster, host))
        try:
            self._session = session = zenoh.open(zenoh.Config.from_json5(json_of(options)))
        except zenoh.ZError as error:
            raise FabricFailed(_sentence(error, options)) from error
        self._all_lane = Lane("poe-to-all")
        self._deadlines = Deadlines(self._fail, "poe-fabric-deadlines")
        mine = key_to(self._cluster, host, _name_of(*self._name))
        # The token comes last: who sees it may ask at once.
        self._declared: list[Any] = [
            session.declare_subscriber(mine, self._take_message),
            session.declare_subscriber(key_to_all(self._cluster), self._take_message),
            session.liveliness().declare_subscriber(key_of_token(), self._take_token, history=True),
            session.liveliness().declare_token(key_of_token(self._cluster, host, encode_token(me))),
        ]

    def close(self) -> None:
        """Leave; see `Fabric.close`."""
        with self._telling:
            self._closed.set()
            for name in list(self._ways):
                self._lose(name)
            self._hear = _ignore
        self._deadlines.close()
        self._all_lane.close()
        for number in list(self._questions):
            self._fail(number)
        self._session.close()  # type: ignore[no-untyped-call]  # its stub says nothing of a result

    def ask(
        self,
        node: NodeRef,
        payload: bytes,
        deadline_s: float,
        answered: Callable[[bytes | None], None],
    ) -> None:
        """Ask a peer, or this node itself; see `Fabric.ask`."""
        size = len(payload)
        if size > PAYLOAD_MAX_BYTES:
            self._counts["too_large"] += 1
        elif node == self._me.ref:
            number = self._ask(_Question(answered, None), deadline_s)
            self._put(self._key, payload, _ASK, number)
            return
        else:
            way = self._way_to(node)
            if way is not None:
                number = self._ask(_Question(answered, way), deadline_s)
                send = partial(self._put, way.key, payload, _ASK, number)
                # A copy, in one step: answers come in another thread.
                is_direct = sum(list(way.under_way.values())) + size <= _DIRECT_MAX_BYTES
                way.under_way[number] = size
                (_call if is_direct else way.lane.do)(send)
                return
        self._counts["asks_failed"] += 1
        answered(None)

    def publish(self, payload: bytes) -> None:
        """Send something small to all peers; see `Fabric.publish`."""
        self._counts["published"] += 1
        self._all_lane.do(partial(self._put, self._all_key, payload, _PUBLISHED, 0))

    def seek(self, locators: Sequence[str]) -> None:
        """Introduce nodes to this one as a seed does; see `Fabric.seek`.

        Zenoh connects again to seeds alone, which may be gone. A session besides that is connected
        to both sides for a moment has them hear of each other. Whom that one sees, and this node's
        own does not see afterwards either, is told as `Overlooked`.
        """
        if self._seeking.locked():
            return
        thread = threading.Thread(
            target=self._introduce, args=(tuple(locators),), name="poe-fabric-seek", daemon=True
        )
        thread.start()

    def _introduce(self, locators: Sequence[str]) -> None:
        seen: set[str] = set()

        def take(sample: "zenoh.Sample") -> None:
            (seen.add if _is_there(sample) else seen.discard)(str(sample.key_expr))

        with self._seeking, contextlib.suppress(zenoh.ZError):
            settings = json_of(self._options, introduced=locators)
            session = zenoh.open(zenoh.Config.from_json5(settings))
            try:
                session.liveliness().declare_subscriber(key_of_token(), take, history=True)
                self._closed.wait(_SEEK_S)
                found = [*seen]
            finally:
                session.close()  # type: ignore[no-untyped-call]  # as in `close`
            self._closed.wait(_SEEK_S)  # until then who has just heard of this node is connected
            for key in found:
                with contextlib.suppress(RemoteProtocolError), self._telling:
                    self._look_whether_seen(_Told.by(key))

    def _look_whether_seen(self, found: _Told) -> None:
        is_known = found.name == self._name or found.name in self._ways
        if not self._closed.is_set() and not is_known and self._objection(found) is None:
            self._hear(Overlooked(found.token.peer.ref))

    def metrics(self) -> dict[str, int]:
        """Return how many peers there are, and how much is under way."""
        return {"peers": len(self._ways), "under_way": len(self._questions)}

    # ---- what this node sends -------------------------------------------------------------------

    def _key_of(self, host: str, node_id: bytes, incarnation: bytes) -> "zenoh.KeyExpr":
        name = _name_of(node_id, incarnation)
        return zenoh.KeyExpr(key_to(self._cluster, host, name, self._host))

    def _way_to(self, node: NodeRef) -> _Way | None:
        for way in list(self._ways.values()):
            if way.peer.ref == node:
                return way
        return None

    def _ask(self, question: _Question, deadline_s: float) -> int:
        number = next(self._numbers)
        self._questions[number] = question
        self._deadlines.add(number, deadline_s)
        return number

    def _put(
        self,
        key: "zenoh.KeyExpr",
        payload: bytes,
        kind: int,
        number: int,
    ) -> None:
        ref = self._me.ref
        header = _HEADER.pack(kind, ref.id, ref.epoch, self._me.incarnation, number)
        try:
            self._session.put(
                key,
                payload,
                attachment=header,
                congestion_control=zenoh.CongestionControl.DROP,
                express=True,
            )
        except zenoh.ZError:
            # Closed meanwhile. An ask of which nobody hears fails at its deadline.
            return

    def _answer(self, key: "zenoh.KeyExpr", lane: Lane | None, number: int, payload: bytes) -> None:
        if len(payload) > PAYLOAD_MAX_BYTES:
            return
        send = partial(self._put, key, payload, _ANSWER, number)
        is_direct = lane is None or len(payload) <= _DIRECT_ANSWER_MAX_BYTES
        (_call if is_direct or lane is None else lane.do)(send)

    # ---- what zenoh's threads call --------------------------------------------------------------

    def _take_message(self, sample: "zenoh.Sample") -> None:
        attached = sample.attachment
        header = b"" if attached is None else bytes(attached)
        if len(header) != _HEADER.size:
            self._counts["malformed"] += 1
            return
        kind, node_id, epoch, incarnation, number = _HEADER.unpack(header)
        host = str(sample.key_expr).rpartition("/")[2]
        if not self._is_of(node_id, host):
            self._counts["forged"] += 1
            return
        payload = bytes(sample.payload)
        if kind == _ANSWER:
            asked = self._questions.get(number)
            if asked is not None and node_id != self._asked_of(asked):
                self._counts["forged"] += 1
                return
            question = self._end(number)
            if question is not None:
                question.answered(payload)
            return
        sender = NodeRef(node_id, epoch)
        if kind == _ASK:
            self._counts["asks_heard"] += 1
            way = self._ways.get((node_id, incarnation))
            key = self._key_of(host, node_id, incarnation) if way is None else way.key
            lane = None if way is None else way.lane
            self._hear(Asked(sender, payload, partial(self._answer, key, lane, number)))
        elif kind == _PUBLISHED:
            if incarnation != self._me.incarnation:
                self._hear(Published(sender, payload))
        else:
            self._counts["malformed"] += 1

    def _take_token(self, sample: "zenoh.Sample") -> None:
        with self._telling:
            if not self._closed.is_set():
                self._note_token(str(sample.key_expr), is_there=_is_there(sample))

    def _note_token(self, key: str, *, is_there: bool) -> None:
        try:
            told = _Told.by(key)
        except RemoteProtocolError as error:
            self._refuse("unknown", error, key)
            return
        peer, name = told.token.peer, told.name
        if name == self._name:
            return
        if not is_there:
            if self._is_of(peer.ref.id, told.host):
                self._lose(name)
            return
        objection = self._objection(told)
        if objection is not None:
            self._refuse(peer.name, objection, *name, told.host, type(objection))
        elif name in self._ways:
            return
        elif len(self._ways) >= PEERS_MAX:
            why = FabricFailed(f"a node has {PEERS_MAX} peers at most")
            self._refuse(peer.name, why, PEERS_MAX)
        else:
            lane = Lane(f"poe-to-{peer.name[:32]}")
            self._ways[name] = _Way(peer, self._key_of(told.host, *name), lane, {})
            self._hear(PeerUp(peer))

    def _objection(self, told: _Told) -> PoeError | None:
        """Return why a node that says that it is there is no peer of this one."""
        token, host = told.token, told.host
        if told.cluster != self._cluster:
            return ForeignCluster(self._cluster, told.cluster)
        if token.peer.protocol < PROTOCOL_MIN or token.protocol_min > PROTOCOL:
            return IncompatibleProtocol(PROTOCOL, PROTOCOL_MIN, token.peer.protocol)
        if not self._is_of(token.peer.ref.id, host):
            return FabricFailed(f"it shows the certificate of {host!r}, and not that of its host")
        return None

    def _asked_of(self, question: _Question) -> bytes:
        """Return the id of the node that is to answer."""
        return self._me.ref.id if question.way is None else question.way.peer.ref.id

    def _is_of(self, node_id: bytes, host: str) -> bool:
        """Return whether a node is of the host that speaks for it; always, without names of hosts.

        An id is of the host that is heard with it first.
        """
        if not self._options.cluster_nodes:
            return True
        if len(self._hosts) >= _HOSTS_MAX and node_id not in self._hosts:
            return False
        return self._hosts.setdefault(node_id, host) == host

    def _lose(self, name: tuple[bytes, bytes]) -> None:
        way = self._ways.pop(name, None)
        if way is None:
            return
        way.lane.close()
        self._hear(PeerDown(way.peer.ref, "its connection is lost"))
        for number in list(way.under_way):
            self._fail(number)

    def _refuse(self, who: str, why: PoeError, *what: object) -> None:
        if what not in self._refused and len(self._refused) < _REFUSED_MAX:
            self._refused.add(what)
            self._counts["refused"] += 1
            self._hear(Refused(who, why))

    def _fail(self, number: int) -> None:
        question = self._end(number)
        if question is not None:
            self._counts["asks_failed"] += 1
            question.answered(None)

    def _end(self, number: int) -> _Question | None:
        """Return the ask of a number, for who comes first."""
        question = self._questions.pop(number, None)
        if question is not None and question.way is not None:
            question.way.under_way.pop(number, None)
        return question


def _is_there(sample: "zenoh.Sample") -> bool:
    """Return whether a token has come, and not gone."""
    return bool(sample.kind == zenoh.SampleKind.PUT)


def _name_of(node_id: bytes, incarnation: bytes) -> str:
    return f"{node_id.hex()}.{incarnation.hex()}"


def _call(call: Callable[[], object]) -> None:
    call()


def _ignore(event: FabricEvent) -> None:
    """Stand in for who hears no more."""


def _sentence(error: Exception, options: ClusterOptions) -> str:
    """Return what zenoh says, without the places of its source, and what can be done."""
    first = str(error).splitlines()[0].partition(" at /")[0].rpartition("[")[2]
    told = first if first.startswith(options.locator) else f"{options.locator}: {first}"
    if "in use" in first:
        told += "; stop what listens there, or choose another cluster_port"
    return told


def _check_files(options: ClusterOptions) -> None:
    """See whether the certificates can be read, since zenoh does not say which file cannot.

    Raises:
        FabricFailed: one cannot.
    """
    for key in ("cluster_certificate", "cluster_key", "cluster_ca"):
        path = getattr(options, key)
        try:
            if path is not None:
                path.open("rb").close()
        except OSError as error:
            why = f"{key} {path} cannot be read ({error.strerror}); give the path of a PEM file"
            raise FabricFailed(why) from error
