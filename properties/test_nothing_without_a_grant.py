"""No request takes effect without a grant that was valid when it was accepted.

Connections of a node authenticate step by step, ask, and ask again, while its files are changed,
broken and reloaded, and time passes. The model knows who each connection is and what the files that
hold say; the node must do what it says, no more and no less. Sockets are real, and the time of
credentials is ours.
"""

import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from poe import Node
from poe.broker.access import failure_delays
from poe.errors import (
    AuthenticationExpired,
    AuthenticationFailed,
    AuthenticationRequired,
    ConnectionClosed,
    NotAuthorized,
    SecurityFileError,
    UnknownTopic,
)
from poe.protocol import Socket
from poe.security.scram import ScramClient, ScramKeys
from poe.security.token import make_token
from tests.broker.nodes import connect, read_by_next
from tests.broker.users_file import step

pytestmark = pytest.mark.timeout(600)

BEGIN_S = 1_800_000_000
USERS = ("alice", "bob")
TOPICS = (b"t", b"t-0", b"u")
OPERATIONS = ("read", "write", "create", "delete", "describe")
PEERS_MAX = 5
KEYS = {name: ScramKeys.of_password(name) for name in USERS}
"""Everybody's password is the name."""
TOKENS = {name: [make_token(f"{name}-{number}") for number in range(2)] for name in USERS}

ENDINGS = (
    AuthenticationExpired,
    AuthenticationFailed,
    AuthenticationRequired,
    ConnectionClosed,
)
"""How a connection ends that is not to go on."""

names = st.sampled_from(USERS)
topics = st.sampled_from(TOPICS)
operations = st.sampled_from(OPERATIONS)
numbers = st.integers(0, 1)
places = st.integers(0, PEERS_MAX - 1)

connected = precondition(lambda self: self.open)


@dataclass
class Files:
    """What the file of users says, or would."""

    passwords: set[str] = field(default_factory=lambda: set(USERS))
    tokens: dict[str, int] = field(default_factory=dict)
    """By digest, when each expires."""
    grants: set[tuple[str, str, bytes]] = field(default_factory=set)
    is_broken: bool = False

    def copy(self):
        return Files(set(self.passwords), dict(self.tokens), set(self.grants))

    def text(self):
        rows = ["version = 1"]
        for name in USERS:
            rows.append(f"[users.{name}]")
            if name in self.passwords:
                rows.append(f'scram_sha_256 = "{KEYS[name].text()}"')
            for number, (_, digest) in enumerate(TOKENS[name]):
                if digest in self.tokens:
                    past_s = self.tokens[digest] - BEGIN_S
                    until = f"2027-01-15T{8 + past_s // 3600:02}:{past_s // 60 % 60:02}:00Z"
                    rows += [f"[[users.{name}.tokens]]", f'id = "{name}-{number}"']
                    rows += [f'sha256 = "{digest}"', f"expires = {until}"]
        for name, operation, topic in sorted(self.grants):
            rows += ["[[grants]]", f'principals = ["{name}"]', f'operations = ["{operation}"]']
            rows.append(f'topics = ["{topic.decode()}"]')
        return "\n".join([*rows, "nonsense" if self.is_broken else ""])

    def allow(self, name, operation, topic):
        covered = {topic, topic.partition(b"-")[0]}  # a literal covers its partitions
        return any((name, operation, each) in self.grants for each in covered)


@dataclass
class Begun:
    """An authentication by password of which the first step is done."""

    scram: ScramClient
    name: str
    answer: bytes
    can_succeed: bool


@dataclass(eq=False)
class Peer:
    """One connection, and what the model knows of it."""

    client: Socket
    user: str | None = None
    proof: str | None = None
    """The digest of a token, or "password"."""
    begun: Begun | None = None
    is_over: bool = False
    """What it has proved holds no more, since a reload."""


class Clock:
    """Tells the time that it was set to."""

    def __init__(self):
        self.now_s = BEGIN_S

    def now_us(self):
        return self.now_s * 1_000_000


class Sessions(RuleBasedStateMachine):
    """A node with users against the model."""

    is_begun = False

    @initialize()
    def begin(self):
        self.home = Path(mkdtemp(prefix="poe-props-"))
        self.impatient = mock.patch.object(failure_delays, "FIRST_S", 0.0001)
        self.impatient.start()
        self.clock = Clock()
        self.files = Files()
        for name in USERS:
            for number, (_, digest) in enumerate(TOKENS[name]):
                self.files.tokens[digest] = BEGIN_S + 3600 + number * 1800
            self.files.grants |= {(name, each, b"t") for each in OPERATIONS}
            self.files.grants |= {(name, "write", b"u"), (name, "read", b"u")}
        self.loaded = self.files.copy()
        self.stored: dict[bytes, list[bytes]] = {}
        self.put_count = 0
        self.open: list[Peer] = []
        self.path = self.home / "users.toml"
        self.write()
        options = {"dir": self.home / "node", "port": 0, "users": self.path, "reload_interval": 0}
        self.node = Node(options, clock=self.clock).start()
        self.is_begun = True

    def teardown(self):
        if self.is_begun:
            for peer in self.open:
                peer.client.close()
            self.node.stop()
            self.impatient.stop()
            shutil.rmtree(self.home)

    # ---- files and time -------------------------------------------------------------------------

    def write(self):
        self.path.write_text(self.files.text())
        self.path.chmod(0o600)

    @rule(name=names, operation=operations, topic=topics)
    def toggle_grant(self, name, operation, topic):
        self.files.grants ^= {(name, operation, topic)}
        self.reload()

    @rule(name=names, number=numbers, minutes=st.integers(1, 59))
    def set_token(self, name, number, minutes):
        self.files.tokens[TOKENS[name][number][1]] = BEGIN_S + 3600 + minutes * 60
        self.reload()

    @rule(name=names, number=numbers)
    def remove_token(self, name, number):
        self.files.tokens.pop(TOKENS[name][number][1], None)
        self.reload()

    @rule(name=names)
    def toggle_password(self, name):
        self.files.passwords ^= {name}
        self.reload()

    @rule(name=names, operation=operations, topic=topics)
    def change_without_reload(self, name, operation, topic):
        self.files.grants ^= {(name, operation, topic)}
        self.write()

    @rule()
    def reload_broken(self):
        self.files.is_broken = True
        self.write()
        with pytest.raises(SecurityFileError):
            self.node.reload()
        self.files.is_broken = False

    @rule()
    def reload(self):
        self.write()
        self.node.reload()
        self.loaded = self.files.copy()
        for peer in self.open:
            peer.is_over = peer.is_over or self.has_lost(peer)

    def has_lost(self, peer):
        if peer.user is None:
            return False
        if peer.proof == "password":
            return peer.user not in self.loaded.passwords
        return peer.proof not in self.loaded.tokens

    @rule(minutes=st.sampled_from([1, 30, 60]))
    def pass_time(self, minutes):
        self.clock.now_s += minutes * 60

    def is_valid(self, peer):
        if peer.user is None or peer.is_over:
            return False
        if peer.proof == "password":
            return True
        assert peer.proof is not None
        return self.clock.now_s < self.loaded.tokens[peer.proof]

    # ---- connections ----------------------------------------------------------------------------

    @precondition(lambda self: len(self.open) < PEERS_MAX)
    @rule()
    def connect(self):
        self.open.append(Peer(connect(self.node)))

    @precondition(lambda self: len(self.open) < PEERS_MAX)
    @rule(name=names, number=numbers)
    def enter(self, name, number):
        self.open.append(Peer(connect(self.node)))
        self.show_token(len(self.open) - 1, name, number)

    @connected
    @rule(place=places)
    def close(self, place):
        self.forget(self.peer(place))

    def peer(self, place):
        return self.open[place % len(self.open)]

    def forget(self, peer):
        peer.client.close()
        self.open.remove(peer)

    def must_have_closed(self, peer):
        with suppress(*ENDINGS):
            while True:
                peer.client.control("health")
        self.forget(peer)

    @connected
    @rule(place=places, name=names, number=numbers)
    def show_token(self, place, name, number):
        peer = self.peer(place)
        text, digest = TOKENS[name][number]
        is_good = peer.begun is None and self.clock.now_s < self.loaded.tokens.get(digest, 0)
        self.prove(peer, name, digest, ("BEARER", text.encode()), is_good=is_good)

    @connected
    @rule(place=places, name=names, password=names)
    def begin_with_password(self, place, name, password):
        peer = self.peer(place)
        scram = ScramClient(name, password, None)
        is_good = peer.begun is None
        told = self.step(peer, (scram.mechanism, scram.first()), is_good=is_good)
        if told is not None:
            can_succeed = name == password and name in self.loaded.passwords
            peer.begun = Begun(scram, name, told["data"], can_succeed)

    @connected
    @rule(place=places)
    def end_with_password(self, place):
        peer = self.peer(place)
        begun, peer.begun = peer.begun, None
        if begun is None:
            return
        is_good = begun.can_succeed and begun.name in self.loaded.passwords
        sent = begun.scram.mechanism, begun.scram.final(begun.answer)
        self.prove(peer, begun.name, "password", sent, is_good=is_good)

    def prove(self, peer, name, proof, sent, *, is_good):
        """Take the last step of an authentication."""
        is_same = peer.user in {None, name}
        if self.step(peer, sent, is_good=is_good and is_same) is not None:
            peer.user, peer.proof = name, proof

    def step(self, peer, sent, *, is_good):
        """Take a step of which the model knows how it ends; None: the connection has ended."""
        is_good = is_good and not peer.is_over
        try:
            told = step(peer.client, *sent)
        except ENDINGS:
            assert not is_good
            self.must_have_closed(peer)
            return None
        assert is_good, told
        return told

    # ---- requests -------------------------------------------------------------------------------

    def ask(self, peer, request, *, is_allowed):
        """Ask for something; return whether it was done, which is what the model says."""
        try:
            request(peer.client)
        except NotAuthorized:
            assert self.is_valid(peer)
            assert not is_allowed
            return False
        except ENDINGS:
            assert not self.is_valid(peer)
            self.must_have_closed(peer)
            return False
        assert self.is_valid(peer)
        assert is_allowed
        return True

    def may(self, peer, operation, topic):
        return peer.user is not None and self.loaded.allow(peer.user, operation, topic)

    @connected
    @rule(place=places, topic=topics)
    def put(self, place, topic):
        peer = self.peer(place)
        is_there = topic in self.stored
        is_allowed = self.may(peer, "write", topic)
        is_allowed = is_allowed and (is_there or self.may(peer, "create", topic))
        self.put_count += 1
        message = b"%d" % self.put_count
        if self.ask(peer, lambda client: client.write(topic, [message]), is_allowed=is_allowed):
            self.stored.setdefault(topic, []).append(message)

    @connected
    @rule(place=places, topic=topics)
    def read(self, place, topic):
        peer = self.peer(place)
        found: list[bytes] = []

        def request(client):
            found.extend(message for _, message in client.read(topic, 0, 1000))

        if self.ask(peer, request, is_allowed=self.may(peer, "read", topic)):
            assert found == self.stored.get(topic, [])

    @connected
    @rule(place=places, topic=topics)
    def delete(self, place, topic):
        peer = self.peer(place)
        may = self.may(peer, "delete", topic)
        if self.ask(peer, lambda client: delete(client, topic), is_allowed=may):
            self.stored.pop(topic, None)

    @connected
    @rule(place=places)
    def list_topics(self, place):
        peer = self.peer(place)
        found: list[bytes] = []
        if self.ask(peer, lambda client: found.extend(client.topics()), is_allowed=True):
            visible = ("read", "write", "describe")
            seen = [each for each in self.stored if any(self.may(peer, op, each) for op in visible)]
            assert found == sorted(seen)

    # ---- just before or after something has changed ---------------------------------------------

    @connected
    @rule(place=places, topic=topics, late_s=st.sampled_from([-1, 0]))
    def put_when_a_token_expires(self, place, topic, late_s):
        peer = self.peer(place)
        expires_s = self.loaded.tokens.get(peer.proof or "", 0)
        self.clock.now_s = max(self.clock.now_s, expires_s + late_s)
        self.put(place, topic)

    @connected
    @rule(place=places, topic=topics)
    def put_when_it_is_not_granted_any_more(self, place, topic):
        peer = self.peer(place)
        self.put(place, topic)
        if peer in self.open:
            self.files.grants -= {(name, "write", topic) for name in USERS}
            self.reload()
            self.put(self.open.index(peer), topic)

    @connected
    @rule(place=places, topic=topics)
    def put_when_the_proof_is_gone(self, place, topic):
        peer = self.peer(place)
        self.files.tokens.pop(peer.proof or "", None)
        self.reload()
        self.put(place, topic)

    @precondition(lambda self: len(self.open) < PEERS_MAX)
    @rule(name=names)
    def change_a_password_between_the_steps(self, name):
        self.connect()
        self.files.passwords |= {name}
        self.reload()
        self.begin_with_password(len(self.open) - 1, name, name)
        self.toggle_password(name)
        self.end_with_password(len(self.open) - 1)

    # ---- what must hold -------------------------------------------------------------------------

    @invariant()
    def nothing_is_stored_that_was_not_granted(self):
        if self.is_begun:
            assert self.node.topics() == sorted(self.stored)
            for topic, messages in self.stored.items():
                assert [message for _, message in read_by_next(self.node, topic)] == messages


def delete(client, topic):
    with suppress(UnknownTopic):
        client.control("delete", topic=topic)


TestSessions = Sessions.TestCase
