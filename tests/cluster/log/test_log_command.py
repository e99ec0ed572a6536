"""poe topic create --replicas, poe cluster logs and verify, at nodes with engines of their own."""

import json

import pytest

from tests.cli.processes import poe
from tests.cluster.log.test_log_faults import make_topic
from tests.cluster.nodes import PORT, nodes
from tests.gateway.http.front import Front
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


def run(node, *words):
    return poe(*words, "--url", f"poe://{node.host.client_address}:{PORT}")


def test_commands_make_a_topic_tell_of_it_and_compare_its_copies(nats_program, tmp_path):
    del nats_program
    with nodes(tmp_path, 3, "--log-engine", "nats") as made:
        make_topic(made)
        refused = run(made["a"], "topic", "create", "u", "--replicas", "2")
        assert refused.returncode == 2
        assert b"'--replicas' is 2; use 1, or in a cluster 3 or 5" in refused.stderr
        assert run(made["b"], "put", "t", "hello").returncode == 0
        wait_until(lambda: run(made["c"], "read", "t").stdout == b"hello\n", 20)
        told = run(made["a"], "cluster", "logs").stdout.decode().splitlines()
        assert told[0].endswith("3 of 3 nodes")
        assert told[0].split("led by ")[1][0] in "abc"
        assert told[1].split("\t")[:2] == ["t", "following"]
        same = run(made["a"], "cluster", "verify")
        assert same.returncode == 0
        compared = sorted(line.split("\t")[:2] for line in same.stdout.decode().splitlines())
        assert compared == [["t", "b"], ["t", "c"]]
        [rows] = json.loads(
            run(made["a"], "cluster", "verify", "t", "--format", "json").stdout
        ).values()
        assert {row["messages"] for row in rows} == {1}
        unknown = run(made["a"], "cluster", "verify", "nothing")
        assert unknown.returncode == 1
        assert b"'nothing' is not known" in unknown.stderr
        with Front(f"poe://{made['a'].host.client_address}:{PORT}") as front:
            found = front.http.get("/metrics").text
            assert 'poe_log_copies{node="a",state="following"} 1.0' in found
            assert 'poe_log_engine_nodes_reached{node="a"} 3.0' in found
            assert 'poe_log_entries_stored_total{node="a",topic="t"} 1.0' in found
        made["b"].control("group_create", group="g", mode="ordered", topics=[b"t"])
        assert run(made["c"], "group", "list").stdout.startswith(b"g\t")
        told = run(made["a"], "cluster", "logs").stdout.decode().splitlines()
        assert told[1] == "groups of replicated topics: b"
        # A node that does not answer keeps nobody from being compared with the others.
        made["c"].process.freeze()
        told = run(made["a"], "cluster", "verify")
        made["c"].process.thaw()
        assert told.returncode == 0
        [*_, silent] = sorted(told.stdout.decode().splitlines())
        assert silent.startswith("t\tc\tnot compared: ")
        assert "t\tb\tthe same, 1 segment, 1 message" in told.stdout.decode()
        # Bytes that change in a file of a node that is down are found when it is back.
        made["c"].stop()
        [path] = (tmp_path / "c/topics/t").glob("*_data")
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        made["c"].start()
        made.wait_until_whole()
        wait_until(lambda: run(made["a"], "cluster", "verify").returncode == 1, 30)
        assert b"DIFFERENT in segments" in run(made["a"], "cluster", "verify").stdout
