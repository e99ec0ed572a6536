"""What zenoh does to who uses it carelessly, and the rule that keeps it away; a test for each.

Each fails when its rule is broken: that was tried by hand, and stands in its docstring.
"""

import ast
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poe.cluster.fabric import zenoh_config
from poe.cluster.fabric.interface import PAYLOAD_MAX_BYTES, PeerDown, PeerUp
from poe.cluster.fabric.zenoh_config import settings_of
from poe.cluster.options import ClusterOptions
from tests.cluster.fabric.listener import Cluster, Listener
from tests.ports import free_port

zenoh = pytest.importorskip("zenoh")

ROOT = Path(__file__).parents[3]
MODULE = ROOT / "poe" / "cluster" / "fabric" / "zenoh_session.py"


def run(code: str, timeout_s: float = 60.0) -> str:
    """Run a program that has a node, and return what it printed."""
    begin = """
import os, sys
from tests.cluster.fabric.listener import Cluster
from poe.errors import FabricFailed
cluster = Cluster()
first, second = cluster.start_all(2)
"""
    # Newer Pythons warn of each fork in a process with threads, which is what is tried here.
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", begin + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout


# ---- callbacks that block, or call zenoh, freeze the interpreter ---------------------------------


class Guard:
    """A session that takes note of the threads in which it is used."""

    threads: set[str]

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        Guard.threads.add(threading.current_thread().name)
        return getattr(self._session, name)


def test_no_callback_of_zenoh_calls_zenoh(cluster, monkeypatch):
    """Fails where `_take_token` or `_take_message` puts, or an ask is answered within `hear`."""
    Guard.threads = set()
    really_open = zenoh.open
    monkeypatch.setattr(zenoh, "open", lambda config: Guard(really_open(config)))
    first, second = cluster.start_all(2)
    stranger = cluster.start("other")
    assert first.ask(second.me.ref, bytes(200_000)) == bytes(200_000)
    second.fabric.publish(b"news")
    stranger.close()
    second.close()
    first.wait_for(lambda: not first.is_up(second.me.ref))
    assert not [name for name in Guard.threads if "closure" in name], Guard.threads


def test_a_callback_returns_while_the_owner_is_busy(cluster):
    """What the owner does takes as long as it likes: events are enqueued, and none is lost."""
    first, second = cluster.start_all(2)
    with first._heard:  # noqa: SLF001 - the test's own class: it stands for an actor at work
        second.fabric.publish(b"news")
        assert second.ask(second.me.ref, b"hello") == b"HELLO"
    first.wait_for(lambda: any(getattr(event, "payload", b"") == b"news" for event in first.events))


# ---- what zenoh calls late, while a session is closed --------------------------------------------


class Late:
    """A session that tells of tokens once more while it is closed, as zenoh's threads may."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._late: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def liveliness(self) -> Any:
        return self

    def declare_token(self, key: str) -> Any:
        return self._session.liveliness().declare_token(key)

    def declare_subscriber(self, key: str, take: Callable[[Any], object], **how: Any) -> Any:
        if not how:
            return self._session.declare_subscriber(key, take)

        def note(sample: Any) -> None:
            self._late.append(lambda: take(sample))
            take(sample)

        return self._session.liveliness().declare_subscriber(key, note, **how)

    def close(self) -> None:
        for call in self._late:
            call()
        self._session.close()


def test_who_is_told_of_while_a_session_is_closed_is_seen_by_the_next_one(cluster, monkeypatch):
    """Where sessions shared what they know, the next one took it for a peer that it has told of."""
    first = cluster.start()
    really_open = zenoh.open
    monkeypatch.setattr(zenoh, "open", lambda config: Late(really_open(config)))
    second = cluster.start()
    second.wait_for(lambda: second.is_up(first.me.ref))
    second.fabric.close()
    second.events.clear()
    second.fabric.open(second.me, second.hear)
    second.wait_for(lambda: second.is_up(first.me.ref))
    assert second.ask(first.me.ref, b"hello") == b"HELLO"


# ---- a session that is left open keeps the process from its end ----------------------------------


@pytest.mark.slow
def test_a_process_that_forgets_to_close_ends_all_the_same():
    """Fails without `atexit` where zenoh's threads wait for the interpreter that ends."""
    assert run("print(second.ask(first.me.ref, b'hello'))") == "b'HELLO'\n"


# ---- fork ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_forked_process_leaves_the_sessions_of_its_parent_alone():
    """Without `_note_fork` the child hangs in close(), or when it lets go of the session."""
    printed = run(
        """
sys.stdout.flush()
child = os.fork()
if not child:
    first.fabric.close()
    second.fabric.publish(b"news")
    second.fabric.ask(first.me.ref, b"hello", 0.1, print)
    try:
        cluster.start()
    except FabricFailed as error:
        print(error)
    sys.stdout.flush()
    del first, second, cluster
    sys.exit(0)
print(os.waitpid(child, 0)[1], second.ask(first.me.ref, b"hello"))
"""
    )
    none, refusal, parent = printed.splitlines()
    assert (none, parent) == ("None", "0 b'HELLO'")
    assert "was forked" in refusal


# ---- what is on by default -----------------------------------------------------------------------


def settings(**options: Any) -> Any:
    return settings_of(ClusterOptions(cluster="c", **options))


def in_force(**options: Any) -> Any:
    """What zenoh itself makes of the settings."""
    made = ClusterOptions(cluster="c", **options)
    return zenoh.Config.from_json5(zenoh_config.json_of(made))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", '"peer"'),
        ("listen/endpoints", '["tcp/127.0.0.1:5557"]'),
        ("connect/endpoints", '["tcp/10.0.0.1:5557"]'),
        ("scouting/multicast/enabled", "false"),
        ("scouting/gossip/enabled", "true"),
        ("transport/shared_memory/enabled", "false"),
        ("transport/link/tx/lease", "2000"),
        ("transport/link/tx/queue/congestion_control/block/wait_before_close", "200000"),
        ("transport/link/tx/queue/congestion_control/drop/wait_before_drop", "200000"),
        ("adminspace/enabled", "false"),
        ("access_control/enabled", "true"),
        ("access_control/default_permission", '"deny"'),
        ("timestamping/enabled", "true"),
    ],
)
def test_a_setting_is_in_force(key, value):
    config = in_force(seeds=("10.0.0.1:5557", "127.0.0.1:5557"))
    assert re.sub(r"\s", "", config.get_json(key)) == value


def test_nothing_larger_than_a_payload_is_received():
    most = int(in_force().get_json("transport/link/rx/max_message_size"))
    assert PAYLOAD_MAX_BYTES < most <= PAYLOAD_MAX_BYTES + 64 * 1024


def test_routers_make_a_mesh_too():
    assert settings(cluster_mode="router")["scouting"]["gossip"]["autoconnect"] == {
        "router": ["router"],
        "peer": ["peer"],
    }


def test_certificates_are_asked_of_both_sides(tmp_path):
    files = {f"cluster_{each}": tmp_path / each for each in ("certificate", "key", "ca")}
    made = settings(**files)
    assert made["listen"]["endpoints"] == ["tls/127.0.0.1:5557"]
    assert made["transport"]["link"]["protocols"] == ["tls"]
    tls = made["transport"]["link"]["tls"]
    assert tls["enable_mtls"]
    assert tls["verify_name_on_connect"]


def test_enough_threads_receive(cluster):
    """With fewer, a cut from several peers is seen after 12 s: see test_zenoh_sessions.py."""
    cluster.start()
    assert os.environ["ZENOH_RUNTIME"] == zenoh_config.RUNTIME
    assert zenoh_config.RECEIVERS >= 32


# ---- marks of what is not stable -----------------------------------------------------------------


def unstable_names() -> set[str]:
    """What the stubs of zenoh mark as unstable: classes, functions, members of enumerations."""
    stub = Path(zenoh.__file__).with_suffix(".pyi").read_text()
    marked = {
        node.name
        for node in ast.walk(ast.parse(stub))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and any(
            isinstance(each, ast.Name) and each.id == "_unstable" for each in node.decorator_list
        )
    }
    return marked | set(re.findall(r"(\w+) = _unstable\(", stub))


def test_nothing_is_used_that_zenoh_marks_as_unstable():
    marked = unstable_names()
    assert {"CancellationToken", "SourceInfo"} <= marked
    tree = ast.parse(MODULE.read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and not (isinstance(node.value, ast.Attribute) and node.value.attr == "ref")
    }
    used |= {node.arg or "" for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    # The id is that of a `NodeRef`; sessions have one as well.
    assert not used & (marked | {"cancellation_token", "indirect", "source_info"}) - {"id"}


# ---- shared fate: who does not take what it is sent holds up all others --------------------------


class Child:
    """A node in another process."""

    def __init__(self, seed: Listener) -> None:
        port = str(free_port())
        self.locator = f"127.0.0.1:{port}"
        arguments = ["127.0.0.1", port, seed.options.locator]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.fabric.zenoh_node", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        seed.wait_for(lambda: self.peers_at(seed))
        self.ref = self.peers_at(seed)[-1].ref

    def peers_at(self, seed: Listener) -> list[Any]:
        return [
            event.peer
            for event in seed.events
            if isinstance(event, PeerUp) and event.peer.name == "child"
        ]

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def child_and_others():
    with Cluster() as cluster:
        first, second = cluster.start_all(2)
        child = Child(first)
        second.wait_for(lambda: second.is_up(child.ref))
        yield child, first, second
        child.end()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_frozen_peer_costs_the_others_nothing(child_and_others):
    """With the lanes taken out, the calls of the owner wait 0.2 s and more.

    Sent with `CongestionControl.BLOCK`, a peer that takes nothing is often missed after 10 s, and
    not after its lease: zenoh closes its connection, and the thread that does so gets stuck.
    """
    child, first, second = child_and_others
    stopped_s = time.monotonic()
    child.send(signal.SIGSTOP)
    answers: list[bytes | None] = []
    took_s = []
    for _ in range(200):
        began_s = time.monotonic()
        first.fabric.ask(child.ref, bytes(256 * 1024), 1.0, answers.append)
        took_s.append(time.monotonic() - began_s)
    # Who waits does so each time, once what lies in between is full: not a few times by chance.
    assert sorted(took_s)[-10] < 0.1
    for _ in range(50):
        assert first.ask(second.me.ref, b"hello", 1.0) == b"HELLO"
    first.wait_for(lambda: not first.is_up(child.ref))
    assert time.monotonic() - stopped_s < 9.0
    first.wait_for(lambda: len(answers) == 200)
    assert set(answers) == {None}
    child.send(signal.SIGCONT)
    first.wait_for(lambda: first.is_up(child.ref))
    assert first.ask(child.ref, b"hello") == b"HELLO"


@pytest.mark.cluster
@pytest.mark.slow
def test_a_killed_peer_is_missed_soon_and_a_frozen_one_after_the_lease(child_and_others):
    child, first, second = child_and_others
    stopped_s = time.monotonic()
    child.send(signal.SIGSTOP)
    for node in (first, second):
        node.wait_for(lambda node=node: not node.is_up(child.ref))
    assert 1.0 < time.monotonic() - stopped_s < 9.0
    child.send(signal.SIGCONT)
    first.wait_for(lambda: first.is_up(child.ref))
    second.wait_for_one_that_is_lost(child.ref, child.locator)
    killed_s = time.monotonic()
    child.send(signal.SIGKILL)
    for node in (first, second):
        node.wait_for(lambda node=node: not node.is_up(child.ref))
        assert isinstance(node.events[-1], PeerDown)
    assert time.monotonic() - killed_s < 1.5  # before its lease is over
