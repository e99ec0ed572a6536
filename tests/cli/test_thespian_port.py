"""`poe serve --thespian-port`: plain Thespian programs ask the node, and nothing is left of it."""

import ast
import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from poe import protocol
from tests.broker.users_file import UsersFile
from tests.cli.processes import DEADLINE_S, Server, complaint, poe
from tests.other_host import other_host
from tests.ports import free_port
from tests.process_tree import descendants, is_running, listeners
from tests.python_process import ROOT, environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


class Client:
    """A plain Thespian program in a process of its own."""

    def __init__(self, port):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.thespian_client", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(THESPIAN_BASE_IPADDR="127.0.0.1"),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def send(self, line):
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def ask(self, request):
        return ast.literal_eval(self.send(repr(request)))

    def look_again(self):
        return ast.literal_eval(self.send("again"))


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def none_runs(pids):
    return not any(map(is_running, pids))


@pytest.fixture
def thespian_port():
    return free_port()


@pytest.fixture(params=["none", "process"])
def offered(request, tmp_path, thespian_port):
    """A server that offers its node, isolated or not."""
    options = ("--thespian-port", thespian_port, "--isolation", request.param)
    with Server(tmp_path / "data", *options) as server:
        yield server


@pytest.fixture
def client(offered, thespian_port):
    with Client(thespian_port) as asking:
        yield asking


def test_it_is_told_with_the_options_of_the_server(offered, thespian_port):
    told = json.loads(poe("config", "--format", "json", port=offered.port).stdout)
    assert told["thespian_port"] == {"value": thespian_port, "from": "argument"}


def test_a_batch_goes_in_as_one_request_and_comes_out_in_order(client, offered):
    last = client.ask({"op": "put", "topic": "t", "messages": [b"a", b"b", b"c"]})["result"]
    first, message = client.ask({"op": "next", "topic": b"t", "pointer": 0})["result"]
    assert message == b"a"
    rest = client.ask({"op": "read", "topic": "t", "pointer": first, "limit": 10})["result"]
    assert [message for _, message in rest] == [b"b", b"c"]
    assert rest[-1][0] == last
    assert client.ask({"op": "next", "topic": "t", "pointer": last}) == {"result": None}
    with protocol.socket(port=offered.port) as connection:
        assert connection.read("t", first, 10) == rest, "it is the same node"


def test_what_there_is_can_be_asked_for(client):
    assert client.ask({"op": "create", "topic": "made"})
    assert client.ask({"op": "topics"}) == {"result": [b"made"]}
    [[_, role]] = client.ask({"op": "status"})["result"][b"made"]
    assert role == "w"
    [segment] = client.ask({"op": "segments", "topic": "made"})["result"]
    assert segment["count"] == 0
    assert client.ask({"op": "info"})["result"].keys() == {b"made"}
    assert client.ask({"op": "health"})["result"]["status"] == "ok"
    assert client.ask({"op": "sync"}) == {"result": None}
    assert client.ask({"op": "next", "topic": "none", "pointer": 0}) == {"result": None}
    assert client.ask({"op": "read", "topic": "none", "pointer": 0, "limit": 1}) == {"result": []}
    assert client.ask({"op": "segments", "topic": "none"})["error"]["name"] == "UnknownTopic"


BAD: list[object] = [
    None,
    1,
    "put",
    (),
    {},
    {1: 2},
    {"op": None},
    {"op": []},
    {"op": "nope"},
    {"op": "wait", "topic": "t", "pointer": 0, "timeout_s": 1},
    {"op": "put"},
    {"op": "put", "topic": "t"},
    {"op": "put", "topic": "t", "messages": "abc"},
    {"op": "put", "topic": "t", "messages": [1]},
    {"op": "put", "topic": "t", "messages": []},
    {"op": "put", "topic": "t", "messages": {1: 2}},
    {"op": "put", "topic": 3, "messages": [b"x"]},
    {"op": "put", "topic": "../x", "messages": [b"x"]},
    {"op": "put", "topic": "t", "messages": [b"x"], "more": 1},
    {"op": "next", "topic": "t", "pointer": -1},
    {"op": "next", "topic": "t", "pointer": 1.5},
    {"op": "read", "topic": "t", "pointer": 0, "limit": 10**30},
    {"op": "read", "topic": None, "pointer": 0, "limit": 1},
    {"op": "topics", "self": 1},
    {"op": "topics", "id": 1},
    {"op": "segments", "topic": {1, 2}},
]


@pytest.mark.parametrize("offered", ["none"], indirect=True)
def test_a_bad_message_gets_an_error_and_the_service_goes_on(client):
    pid = client.ask({"op": "pid"})["result"]
    for request in BAD:
        answer = client.ask(request)
        assert answer.keys() == {"error"}, request
        error = answer["error"]
        assert error.keys() == {"code", "name", "message", "retriable"}
        assert error["code"] > 100
        assert error["message"]
    assert client.ask({"op": "topics"}) == {"result": []}
    assert client.ask({"op": "pid"}) == {"result": pid}


@pytest.mark.parametrize("offered", ["process"], indirect=True)
def test_the_service_goes_on_when_the_node_is_killed(client, offered):
    client.ask({"op": "put", "topic": "t", "messages": [b"before"]})
    [node] = [
        pid
        for pid in descendants(offered.process.pid)
        if ("127.0.0.1", offered.port) in listeners(pid)
    ]
    os.kill(node, signal.SIGKILL)
    wait_until(lambda: not is_running(node), DEADLINE_S)
    assert client.ask({"op": "put", "topic": "t", "messages": [b"after"]}).keys() == {"result"}
    records = client.ask({"op": "read", "topic": "t", "pointer": 0, "limit": 9})["result"]
    assert [message for _, message in records] == [b"before", b"after"]


def test_every_process_listens_on_loopback_alone_and_another_host_reaches_none(
    offered, thespian_port
):
    pids = [offered.process.pid, *descendants(offered.process.pid)]
    addresses = set().union(*map(listeners, pids))
    assert {("127.0.0.1", offered.port), ("127.0.0.1", thespian_port)} < addresses
    assert {host for host, _ in addresses} == {"127.0.0.1"}
    with other_host() as host:
        assert host.reaches({port for _, port in addresses}) == set()


def test_a_service_that_is_killed_comes_back(client, offered):
    killed = client.ask({"op": "pid"})["result"]
    family = descendants(offered.process.pid)
    gateway = set(descendants(parent_of(parent_of(killed))))
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, gateway)), DEADLINE_S)
    assert client.look_again()["result"] not in family, "it waits where it has to"
    assert client.ask({"op": "put", "topic": "t", "messages": [b"x"]}).keys() == {"result"}


@pytest.mark.parametrize("offered", ["none"], indirect=True)
def test_the_goodbye_of_a_client_ends_nothing(client, thespian_port):
    """`system.shutdown()` is how Thespian programs end, and everybody shares the one service."""
    pid = client.ask({"op": "pid"})
    for goodbye, answer in (("exit", "told"), ("shutdown", "shut down")) * 3:
        with Client(thespian_port) as leaving:
            assert leaving.ask({"op": "pid"}) == pid
            assert leaving.send(goodbye) == answer
    assert client.ask({"op": "pid"}) == pid


@pytest.mark.parametrize("offered", ["none"], indirect=True)
def test_a_service_that_dies_again_and_again_does_not_end_the_node(offered, thespian_port):
    for _ in range(6):
        with Client(thespian_port) as asking:
            killed = asking.ask({"op": "pid"})["result"]
        gateway = descendants(parent_of(parent_of(killed)))
        os.kill(killed, signal.SIGKILL)
        wait_until(partial(none_runs, gateway), DEADLINE_S)
    with protocol.socket(port=offered.port) as connection:
        assert connection.topics() == []
    assert offered.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_of_a_service_that_ends(client, offered, number):
    assert client.ask({"op": "topics"}) == {"result": []}
    family = descendants(offered.process.pid)
    assert len(family) >= 4, "gateway, admin, logger, service"
    code, _, stderr = offered.end(number)
    assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    assert b"Traceback" not in stderr
    wait_until(lambda: not any(map(is_running, family)), DEADLINE_S)


def test_a_taken_port_is_told_and_ends_the_service(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = poe(
            "serve", "--dir", tmp_path, "--port", 0, "--thespian-port", port,
            "--log-level", "critical",
        )  # fmt: skip
    assert run.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in complaint(run)


@pytest.mark.parametrize("value", ["0", "70000", "many"])
def test_a_port_that_is_none_is_refused(tmp_path, value):
    run = poe("serve", "--dir", tmp_path / "data", "--port", 0, "--thespian-port", value)
    assert run.returncode == 2
    assert "thespian" in complaint(run)
    assert not (tmp_path / "data").exists()


def test_nothing_of_thespian_s_listens_by_default(tmp_path):
    with Server(tmp_path / "data") as server:
        assert descendants(server.process.pid) == []
        assert listeners(server.process.pid) == {("127.0.0.1", server.port)}


def test_the_help_tells_the_risk():
    told = " ".join(poe("serve", "--help").stdout.decode().split())
    assert "can then run code" in told


@pytest.fixture
def users(tmp_path):
    """Thespian programs may read and write `t` alone."""
    users = UsersFile(tmp_path / "users.toml")
    token = tmp_path / "thespian.token"
    token.write_text(users.token("thespian", "service"))
    token.chmod(0o600)
    users.grant("thespian", "read write create", topics="t")
    users.write()
    return {"users": users.path, "token": token}


@pytest.mark.parametrize(
    ("more", "missing"), [((), "thespian_insecure"), (("--thespian-insecure",), "poe user token")]
)
def test_a_node_with_users_does_not_offer_itself_by_accident(
    users, tmp_path, thespian_port, more, missing
):
    options = ("--users", users["users"], "--thespian-port", thespian_port, *more)
    run = poe("serve", "--dir", tmp_path / "data", "--port", 0, *options)
    assert run.returncode == 2
    assert missing in complaint(run)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("is_there", "why"), [(False, "cannot be read"), (True, "authentication failed")]
)
def test_a_token_that_lets_the_service_not_in_is_told_in_a_sentence(
    users, tmp_path, thespian_port, is_there, why
):
    users["token"].unlink()
    if is_there:
        users["token"].write_text(UsersFile(tmp_path / "others.toml").token("other", "service"))
        users["token"].chmod(0o600)
    options = ("--users", users["users"], "--thespian-port", thespian_port)
    insecure = ("--thespian-insecure", "--thespian-token", users["token"])
    run = poe(
        "serve", "--dir", tmp_path / "data", "--port", 0, *options, *insecure,
        "--log-level", "critical",
    )  # fmt: skip
    assert run.returncode == 1
    told = complaint(run)
    assert "the Thespian service cannot ask the node: " in told
    assert why in told


def test_programs_may_do_what_the_service_s_user_may(users, tmp_path, thespian_port):
    options = ("--users", users["users"], "--thespian-port", thespian_port)
    insecure = ("--thespian-insecure", "--thespian-token", users["token"])
    with Server(tmp_path / "data", *options, *insecure), Client(thespian_port) as client:
        assert client.ask({"op": "put", "topic": "t", "messages": [b"m"]})["result"]
        assert client.ask({"op": "next", "topic": "t", "pointer": 0})["result"][1] == b"m"
        refused = client.ask({"op": "put", "topic": "other", "messages": [b"m"]})["error"]
        assert (refused["code"], refused["name"]) == (314, "NotAuthorized")
        assert client.ask({"op": "sync"})["error"]["name"] == "NotAuthorized"
