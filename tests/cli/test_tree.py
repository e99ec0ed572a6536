"""`poe tree` and the control request behind it: a real server's tree, for people and programs."""

import json
import socket
import threading
from itertools import product

import pytest

from poe import Node
from poe.cli.exit_code import ExitCode
from poe.errors import RemoteProtocolError
from tests.broker.nodes import connect, kill
from tests.cli.processes import complaint, poe
from tests.protocol.scripted_server import ScriptedServer


@pytest.mark.slow
def test_the_tree_of_a_server_has_every_part_of_it(server):
    poe("put", "the_topic", "m", port=server.port)
    run = poe("tree", port=server.port)
    assert (run.returncode, run.stderr) == (0, b"")
    heading, *lines = run.stdout.decode().splitlines()
    assert heading.split() == ["actor", "state", "restarts", "mailbox", "last", "reason"]
    names = [line.strip("│├└─ ").split()[0].partition(".")[0] for line in lines]
    assert names == [
        "poe_sup",
        "appendix_sup",
        "AppendixServer",
        "topic_registry",
        "scrubber",
        "pipelines",
        "events",
        *["groups_sup", "group_sup", "groups", "delayer"],
        "listener_sup",
        "connection_sup",
        "Connection",
        *["('acceptor',"] * 10,
    ]
    assert " w the_topic " in lines[2]


@pytest.mark.slow
def test_programs_get_a_line_of_json_for_each_row(server):
    run = poe("tree", "--all", "--json", port=server.port)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert (rows[0]["depth"], rows[0]["name"], rows[0]["strategy"]) == (0, "poe_sup", "one_for_one")
    assert {row["state"] for row in rows} <= {"running", "busy"}


def test_a_restart_and_its_reason_are_told_through_the_socket(tmp_path):
    with Node(dir=tmp_path, port=0) as node, connect(node) as client:
        kill(node, "topic_registry")
        node.put("t", b"m")
        rows = {row["id"]: row for row in client.control("tree")}
        registry = rows["topic_registry"]
        assert (registry["restarts"], registry["last_reason"]) == (1, "'killed'")
        with pytest.raises(RemoteProtocolError, match="argument all is 1; send true or false"):
            client.control("tree", all=1)
        assert node.control("tree")[0]["name"] == "poe_sup"


def test_a_tree_that_does_not_fit_into_a_frame_is_refused_and_the_connection_goes_on(tmp_path):
    with Node(dir=tmp_path, port=0, frame_max=2048) as node, connect(node) as client:
        with pytest.raises(RemoteProtocolError, match="more than option frame_max; ask for less"):
            client.control("tree")
        assert client.control("health")["status"] == "ok"


@pytest.mark.slow
def test_a_server_that_knows_no_tree_is_said_to_be_older():
    def script(peer):
        peer.receive_control()
        peer.send_error(302, "RemoteProtocolError", "control op 'tree' is unknown; use topics")
        peer.wait_closed()

    with ScriptedServer(script) as old:
        run = poe("tree", port=old.port)
    assert run.returncode == ExitCode.of(RemoteProtocolError(""))
    assert complaint(run) == (
        "poe: this server is older than `poe tree` and cannot answer it; use `poe status`"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "answer", "told"),
    [
        *product(
            ["tree", "status", "topics"],
            [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x04abcd"],
            ["what answers there is no server of Poe"],
        ),
        # All look in the same way, and one silence takes its five seconds.
        ("tree", b"", "what listens there gave no answer within 5 s"),
    ],
)
def test_what_is_no_server_of_poe_is_said_to_be_none(command, answer, told):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            peer, _ = listening.accept()
            with peer:
                peer.sendall(answer)
                while peer.recv(100):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        run = poe(command, port=listening.getsockname()[1])
        thread.join()
    assert run.returncode == ExitCode.UNREACHABLE
    assert told in complaint(run)
    assert "may have been done" not in complaint(run)


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["POE_PORT", "POE_HOST"])
def test_an_empty_variable_is_no_default(variable):
    run = poe("tree", **{variable: ""})
    assert run.returncode == ExitCode.USAGE
    assert f"option '{variable}' is ''; use" in complaint(run)
