"""`poe serve` as a service manager sees it: readiness, signals, notification, exit codes."""

import contextlib
import gc
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from poe import protocol
from poe.cli.service import LongCollections, Service
from poe.errors import ConnectFailed, PoeError
from poe.node import Node
from tests.cli.processes import Background, Server, complaint, poe, poe_here
from tests.python_process import environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def put_until_refused(port, label, acknowledged):
    """Put numbered messages, one call each, until the server is gone."""
    with contextlib.suppress(PoeError), protocol.socket(port=port, timeout_s=20) as connection:
        for number in range(10**9):
            message = b"%b-%d" % (label, number)
            connection.write("t", [message])
            acknowledged.append(message)


def stored(folder):
    with Node(dir=folder, port=None) as node:
        pointer, messages = 0, []
        while (found := node.next("t", pointer)) is not None:
            pointer, message = found
            messages.append(message)
    return messages


def test_ready_means_that_clients_can_connect(tmp_path):
    with Server(tmp_path / "data") as server:
        assert server.ready_line == f"ready on 127.0.0.1:{server.port}\n"
        with protocol.socket(port=server.port) as connection:
            assert connection.control("health")["status"] == "ok"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_keeps_what_was_acknowledged_and_frees_the_folder(tmp_path, number):
    folder = tmp_path / "data"
    acknowledged: dict[bytes, list[bytes]] = {b"a": [], b"b": [], b"c": []}
    with Server(folder) as server:
        producers = [
            threading.Thread(target=put_until_refused, args=(server.port, *item))
            for item in acknowledged.items()
        ]
        for producer in producers:
            producer.start()
        wait_until(lambda: all(len(each) > 100 for each in acknowledged.values()), timeout_s=20)
        code, _, stderr = server.end(number)
        for producer in producers:
            producer.join()
    assert code == 0
    assert b"stopped" in stderr
    assert not list(folder.rglob("*_lock"))
    messages = stored(folder)
    for label, own in acknowledged.items():
        kept = [message for message in messages if message.startswith(label)]
        assert kept[: len(own)] == own
        assert len(kept) <= len(own) + 1, "one put at most was under way"


def test_an_idle_client_does_not_delay_the_end(tmp_path):
    with Server(tmp_path / "data") as server, protocol.socket(port=server.port) as idle:
        idle.topics()
        code, _, _ = server.end()
        assert code == 0


def test_what_was_acknowledged_survives_a_kill_and_is_served_again(tmp_path):
    folder = tmp_path / "data"
    acknowledged: list[bytes] = []
    with Server(folder, "--count-limit", 500, "--check-interval", 0.05) as server:
        producer = threading.Thread(
            target=put_until_refused, args=(server.port, b"a", acknowledged)
        )
        producer.start()
        wait_until(lambda: len(acknowledged) > 2000, timeout_s=20)
        server.process.kill()
        producer.join()
    with Server(folder) as server, protocol.socket(port=server.port) as connection:
        pointer, messages = 0, []
        while records := connection.read("t", pointer, 1000):
            pointer = records[-1][0]
            messages += [message for _, message in records]
    assert messages[: len(acknowledged)] == acknowledged
    assert len(messages) <= len(acknowledged) + 1


@contextlib.contextmanager
def busy_connection(port):
    """Keep the server sending a reply that is not taken."""
    with protocol.socket(port=port, timeout_s=20) as connection:
        connection.write("t", [bytes(1 << 20)] * 32)
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(protocol.PointerRequest(b"t", 0, 32).encode() * 4)
        wait_until(lambda: slow.recv(1, socket.MSG_PEEK), timeout_s=20)
        yield


@pytest.mark.alone
def test_a_client_that_does_not_take_its_reply_is_cut_off_within_five_seconds(tmp_path):
    with Server(tmp_path / "data") as server, busy_connection(server.port):
        started_s = time.monotonic()
        code, _, stderr = server.end()
        assert time.monotonic() - started_s < 5
    assert code == 0
    assert b"clients were cut off" in stderr
    assert not list((tmp_path / "data").rglob("*_lock"))


def test_a_second_signal_ends_at_once(tmp_path):
    with Server(tmp_path / "data") as server, busy_connection(server.port):
        server.process.send_signal(signal.SIGTERM)
        server.read_until(b"SIGTERM: stopping", pipe=server.process.stderr)
        code, _, stderr = server.end()
    assert code == 128 + signal.SIGTERM
    assert b"leaving at once" in stderr


STUCK_PROGRAM = """
import time
from poe.cli.service import Service

class Stuck:
    address = tls_address = None

    def start(self, system):
        self.system = system

    def when_ended(self, action):
        pass

    def stop(self, timeout_s):
        self.system.run_outside(self.wait_for_a_dead_disk)

    def wait_for_a_dead_disk(self):
        self.system.run_queue.event_loop().wake(lambda: self.system.run_outside(lambda: None))
        print("stuck", flush=True)
        time.sleep(60)

Service(Stuck(), lambda _: print("ready", flush=True)).run()
"""


def test_a_second_signal_ends_what_waits_for_a_dead_disk():
    """The loop's thread then waits for the one that stops the node, and takes no signal."""
    program = [sys.executable, "-c", STUCK_PROGRAM]
    with subprocess.Popen(program, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        for line in (b"ready\n", b"stuck\n"):
            assert process.stdout.readline() == line
            time.sleep(0.1)  # until the loop's thread waits, too
            process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(10) == 128 + signal.SIGTERM
        finally:
            process.kill()


def test_hanging_up_the_terminal_is_ignored(tmp_path):
    with Server(tmp_path / "data") as server:
        server.process.send_signal(signal.SIGHUP)
        with protocol.socket(port=server.port) as connection:
            assert connection.topics() == []
        assert server.end()[0] == 0


def test_systemd_is_told_readiness_and_stopping(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.settimeout(20)
        notified.bind(str(tmp_path / "notify"))
        with Server(tmp_path / "data", NOTIFY_SOCKET=str(tmp_path / "notify")) as server:
            ready = notified.recv(1000).decode().split("\n")
            assert ready == ["READY=1", f"STATUS=serving on 127.0.0.1:{server.port}"]
            assert server.end()[0] == 0
            assert notified.recv(1000).startswith(b"STOPPING=1\n")


def test_files_are_for_the_owner_only(tmp_path):
    with Server(tmp_path / "data") as server:
        poe("put", "t", "x", port=server.port)
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").rglob("*")}
    assert modes == {0o600, 0o700}


def test_the_log_has_no_payload_and_one_line_per_record(tmp_path):
    with Server(tmp_path / "data", "--log-level", "debug") as server:
        poe("put", "t", "secret-payload", port=server.port)
        with socket.create_connection(("127.0.0.1", server.port)) as rude:
            rude.sendall(protocol.PutRequest(b"new\nline\x1b[2J", [b"secret-payload"]).encode())
            assert rude.recv(1000)
        _, _, stderr = server.end()
    assert b"secret-payload" not in stderr
    assert b"\x1b" not in stderr
    assert all(line[:4].isdigit() for line in stderr.splitlines())


@pytest.fixture
def process_state():
    """Signal handlers, umask and collector of the test run: a service in this process changes them.

    One that stops needs no collector any more.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)}
    mask = os.umask(0o077)
    yield
    gc.enable()
    gc.unfreeze()
    os.umask(mask)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("process_state")
@pytest.mark.parametrize("signals", [(), (signal.SIGTERM,)], ids=["alone", "then SIGTERM"])
def test_a_tree_that_gives_up_ends_the_service_with_an_error(tmp_path, caplog, signals):
    node = Node(dir=tmp_path / "data", port=0)

    def kill_the_tree(_address):
        sup = node.system.whereis("poe_sup")
        assert sup is not None
        node.system.exit(sup, "given up")
        for number in signals:
            # The loop takes it after the end of the tree, while the starter is still here.
            os.kill(os.getpid(), number)
            wait_until(lambda: "SIGTERM: stopping" in caplog.text, timeout_s=20)

    with caplog.at_level("INFO", "poe"):
        assert Service(node, kill_the_tree).run() == 1
    assert "the supervision tree gave up" in caplog.text
    assert "Traceback" not in caplog.text
    assert not node.is_running
    wait_until(lambda: "poe-reload" not in {each.name for each in threading.enumerate()})
    with Node(dir=tmp_path / "data", port=None) as again:
        assert again.is_running, "the folder is free again"


def let_loop_go_round(node):
    """Return once the loop has taken the signals that have come before."""
    loop = node.system.run_queue.event_loop().loop
    for _ in range(4):  # it learns of signals in a round, and takes them in the next one
        has_come = threading.Event()
        loop.call_soon_threadsafe(has_come.set)
        assert has_come.wait(20)


@pytest.mark.usefixtures("process_state")
def test_hanging_up_ever_so_often_is_one_reload_more(tmp_path, monkeypatch):
    node = Node(dir=tmp_path / "data", port=0)
    reloads: list[None] = []
    may_end = threading.Event()

    def reload():
        reloads.append(None)
        may_end.wait(20)

    def hang_up():
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: reloads, timeout_s=20)
        for _ in range(50):
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.001)
        let_loop_go_round(node)
        may_end.set()
        wait_until(lambda: len(reloads) > 1, timeout_s=20)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(node, "reload", reload)
    hanging_up = threading.Thread(target=hang_up)
    assert Service(node, lambda _address: hanging_up.start()).run() == 0
    hanging_up.join()
    assert len(reloads) == 2


@pytest.mark.parametrize(
    ("generation", "took_s", "is_kept"), [(2, 0.3, True), (2, 0.001, False), (1, 0.3, False)]
)
def test_what_a_long_collection_has_gone_through_the_next_one_passes_over(
    monkeypatch, generation, took_s, is_kept
):
    freezes: list[None] = []
    times = iter([100.0, 100.0 + took_s])
    monkeypatch.setattr(gc, "freeze", lambda: freezes.append(None))
    limit = LongCollections(lambda: next(times))
    for phase in ("start", "stop"):
        limit.note(phase, {"generation": generation, "collected": 0, "uncollectable": 0})
    assert bool(freezes) == is_kept


@pytest.mark.usefixtures("process_state")
def test_a_service_looks_at_collections_while_it_runs(tmp_path):
    before = list(gc.callbacks)
    meanwhile: list[object] = []

    def look(_address):
        meanwhile.extend(gc.callbacks)
        os.kill(os.getpid(), signal.SIGTERM)

    assert Service(Node(dir=tmp_path / "data", port=0), look).run() == 0
    assert len(meanwhile) == len(before) + 1
    assert gc.callbacks == before


@pytest.mark.usefixtures("process_state")
def test_whatever_a_start_meets_ends_the_service(tmp_path):
    node = Node(dir=tmp_path / "data", port=0)

    def fail(_address):
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        Service(node, fail).run()
    assert not node.is_running
    wait_until(lambda: "poe-reload" not in {each.name for each in threading.enumerate()})
    with Node(dir=tmp_path / "data", port=None) as again:
        assert again.is_running, "the folder is free again"


def test_a_taken_port_is_told_and_leaves_nothing_behind(tmp_path, server):
    run = poe("serve", "--dir", tmp_path / "other", port=server.port)
    assert run.returncode == 2
    assert f"cannot listen on 127.0.0.1:{server.port}" in complaint(run)
    assert not (tmp_path / "other").exists()


def test_a_second_server_on_the_folder_is_refused(tmp_path, server):
    run = poe("serve", "--dir", tmp_path / "data", "--port", 0)
    assert run.returncode == 2
    told = complaint(run)
    assert f"in use by the server with pid {server.process.pid}" in told
    assert poe("topics", port=server.port).returncode == 0, "the first one goes on"


def test_a_folder_that_cannot_be_written_is_told():
    run = poe("serve", "--dir", "/proc/nothing/here", "--port", 0)
    assert run.returncode == 2
    assert "use a folder that this user may write" in complaint(run)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--prot", 1), "No such option: --prot (Possible options: --host, --port)"),
        (("--count-limit", "many"), "option '--count-limit' is 'many'; use a whole number"),
        (("--count-limit", 0), "option '--count-limit' is 0; use 1 or more (messages)"),
        (("--worker-timeout", "1s"), "option '--worker-timeout' is '1s'; use a number"),
        (("--ack", "never"), "option '--ack' is 'never'; use memory or flushed or fsync"),
        (("--port", 70_000), "0 to 65535"),
        (
            ("--port", "none"),
            "option '--port' is 'none'; use 0 to 65535; without a port nobody could",
        ),
        (("--port", ""), "option '--port' is ''; use a whole number"),
        (("--dir", ""), "option '--dir' is ''; use a path"),
        (("--config", ""), "option '--config' is ''; use the path of a TOML file"),
        (
            ("--host", "192.0.2.1", "--insecure"),
            "option 'host' is '192.0.2.1'; use an address of",
        ),
        (("--host", "nosuch.invalid", "--insecure"), "use an address of this machine"),
        (("--host", "a..b", "--insecure"), "use an address of this machine"),
        (("--host", "0.0.0.0"), "or set insecure as well"),
        (("--log-level", "loud"), "one of debug, info"),
        (("--config", "/no/such.toml"), "a TOML file that exists"),
    ],
)
def test_a_wrong_option_is_told_in_one_sentence(tmp_path, arguments, told):
    run = poe_here("serve", "--dir", tmp_path / "data", *arguments)
    assert run.returncode == 2
    assert told in complaint(run)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("POE_DIR", "", "option 'POE_DIR' is ''; use a path"),
        ("POE_CONFIG", "", "option 'POE_CONFIG' is ''; use the path of a TOML file"),
        ("POE_FOO", "1", "option 'POE_FOO' is not known; use one of ack, "),
    ],
)
def test_a_wrong_variable_is_told_in_one_sentence(tmp_path, variable, text, told):
    run = poe_here("serve", "--dir", tmp_path / "data", **{variable: text})
    assert run.returncode == 2
    assert told in complaint(run)


def test_a_server_serves_though_nobody_can_read_that_it_is_ready(tmp_path):
    with (
        Path("/dev/full").open("w") as full,
        Background("serve", "--dir", tmp_path, "--port", 0, stdout=full) as server,
    ):
        told = server.read_until(b"serving on 127.0.0.1:", pipe=server.process.stderr)
        assert b"cannot write to standard output (No space left on device)" in told
        assert server.end()[0] == 0


def test_arguments_come_before_environment_before_file(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wrong_port = taken.getsockname()[1]
        config = tmp_path / "poe.toml"
        config.write_text(f'port = {wrong_port}\ndir = "{tmp_path / "from_file"}"\n')
        # Both the file's and the environment's port are taken: only the argument's can be served.
        with Background(
            "serve", "--port", 0, POE_PORT=str(wrong_port), POE_DIR=str(tmp_path / "from_env"),
            cwd=tmp_path,
        ) as server:  # fmt: skip
            server.read_until(b"ready on 127.0.0.1:")
    assert (tmp_path / "from_env").is_dir()
    assert not (tmp_path / "from_file").exists()


def test_a_just_started_server_is_small(server):
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    rss_kb = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    assert rss_kb <= 60 * 1024


def test_a_client_that_finds_no_server_is_told(tmp_path):
    with socket.socket() as unlistened:
        unlistened.bind(("127.0.0.1", 0))
        port = unlistened.getsockname()[1]
        for command in (("put", "t", "x"), ("read", "t"), ("topics",), ("status",), ("bench",)):
            run = poe(*command, port=port)
            assert run.returncode == 3
            assert complaint(run) == (
                f"poe: cannot reach a server at 127.0.0.1:{port} (Connection refused); "
                "check the address, and that it runs"
            )
        with pytest.raises(ConnectFailed):
            protocol.socket(port=port)


@pytest.mark.parametrize("host", ["nosuch.invalid", "a..b"])
def test_a_host_that_is_none_is_told(host):
    run = poe("topics", "--host", host)
    assert run.returncode == 3
    assert f"cannot reach a server at {host}:5555 (" in complaint(run)


def test_a_folder_of_another_program_is_refused_until_it_is_adopted(tmp_path):
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "src").mkdir()
    run = poe("serve", "--dir", tmp_path, "--port", 0)
    assert run.returncode == 2
    assert "this one holds 'package.json', 'src'; or set adopt_folder" in complaint(run)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["package.json", "src"]
    with Server(tmp_path, "--adopt-folder") as server:
        assert server.end()[0] == 0
    with Server(tmp_path, POE_ISOLATION="process") as server:
        assert server.end()[0] == 0


def test_an_isolated_node_refuses_a_folder_of_another_program_too(tmp_path):
    (tmp_path / "package.json").write_text("{}")
    run = poe("serve", "--dir", tmp_path, "--port", 0, "--isolation", "process")
    assert run.returncode == 2
    assert b"this one holds 'package.json'; or set adopt_folder" in run.stderr.splitlines()[-1]
    with Server(tmp_path, "--isolation", "process", POE_ADOPT_FOLDER="yes") as server:
        assert server.end()[0] == 0
