"""`poe mapping`: rules are checked, tested and explained."""

import json
from time import time_ns

import pytest

from poe.broker.appendix.hybrid_clock import HybridClock
from poe.protocol import socket as connect
from poe.protocol.envelope import encode
from tests.cli.processes import Background, complaint, poe_here
from tests.mapping.test_document import COMPLETE
from tests.waiting import wait_until

ORDERS = """\
name = "orders"
source = { topics = ["orders"] }
otherwise = "dead"

[[rule]]
id = "vip"
body = { type = "order", amount = { gt = 100 } }
to = "orders.vip"

[[rule]]
id = "small"
body = { type = "order" }
to = "orders.{body.country}"

[[rule]]
id = "never"
body = { type = "order", x = 1 }
drop = "no"

[[test]]
in = { body = { type = "order", amount = 120 } }
expect = { rule = "vip", action = "to", to = "orders.vip", body = { amount = 120 } }

[[test]]
in = { body = { type = "order" } }
expect = { action = "error", why = "{body.country} is missing" }

[[test]]
in = { value = "{" }
expect = { rule = "decode", action = "error" }
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "orders.toml"
    path.write_text(ORDERS)
    return path


def lines(run):
    return run.stdout.decode().splitlines()


def test_check_counts_and_warns(file):
    run = poe_here("mapping", "check", file)
    assert (run.returncode, lines(run)) == (0, ["orders\t3 rules, 3 tests"])
    assert f"{file}, line 15: rule 'never' is never reached" in run.stderr.decode()


def test_check_tells_the_line_of_what_is_wrong(file):
    file.write_text(ORDERS.replace("gt = 100", "gt = true"))
    run = poe_here("mapping", "check", file)
    assert run.returncode == 2
    assert complaint(run) == (
        f"poe: {file}, line 7: rule 'vip': body.amount.gt: is True; use a number or a text"
    )


def test_check_tells_programs(file):
    told = json.loads(poe_here("mapping", "check", file, "--format", "json").stdout)
    assert told["rules"] == ["vip", "small", "never"]
    assert len(told["hash"]) == 64


def test_tests_pass_or_say_what_is_otherwise(file):
    run = poe_here("mapping", "test", file)
    assert (run.returncode, [each.split("\t")[0] for each in lines(run)]) == (0, ["ok"] * 3)
    file.write_text(ORDERS.replace('to = "orders.vip", body', 'to = "x", body'))
    run = poe_here("mapping", "test", file)
    assert run.returncode == 1
    assert lines(run)[:2] == [
        f"failed\t{file}, line 20",
        "\tto: is ['orders.vip'] instead of ['x']",
    ]


def test_the_test_of_a_complete_file_passes(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text(COMPLETE)
    assert poe_here("mapping", "test", file).returncode == 0


def test_a_message_is_explained_clause_by_clause(file):
    message = '{"type": "order", "amount": 5, "country": "DE"}'
    run = poe_here("mapping", "explain", file, "--topic", "orders", "--message", message)
    assert lines(run) == [
        "vip\tnot met",
        "\tyes\tbody.type: eq 'order', is 'order'",
        "\tno\tbody.amount: gt 100, is 5",
        "small\tmet",
        "\tyes\tbody.type: eq 'order', is 'order'",
        "becomes\tto orders.DE (rule small)",
    ]
    run = poe_here("mapping", "explain", file, "--topic", "orders", "--message", "{}")
    assert lines(run)[-1] == "becomes\tdead: it met no rule (no rule is met)"


def test_a_message_is_explained_to_programs(file):
    run = poe_here(
        *("mapping", "explain", file, "--topic", "orders", "--message", "{}"),
        *("--format", "json"),
    )
    told = json.loads(run.stdout)
    assert told["rules"][0]["clauses"][0] == {
        "place": "body.type",
        "is_met": False,
        "wanted": "eq 'order'",
        "found": "nothing",
    }


def test_what_cannot_be_decoded_is_explained_too(file):
    run = poe_here("mapping", "explain", file, "--topic", "orders", "--message", "{")
    assert run.returncode == 0
    assert b"the message is no json" in run.stderr
    assert lines(run)[0].startswith("becomes\terror: the message is no json")


def test_explain_wants_one_message(file):
    run = poe_here("mapping", "explain", file, "--topic", "orders")
    assert complaint(run) == "poe: give either --message TEXT or --pointer P"


@pytest.mark.parametrize("other", ["--message-key=k", "--header=a=b"])
def test_what_a_stored_message_has_cannot_be_typed_as_well(file, other):
    run = poe_here("mapping", "explain", file, "--topic", "orders", "--pointer", 5, other)
    flag, _, value = other.partition("=")
    assert run.returncode == 2
    assert complaint(run) == f"poe: option {flag!r} is {value!r}; use it with --message"


@pytest.mark.slow
def test_a_message_on_a_server_is_explained(file, server):
    with connect("127.0.0.1", server.port) as connection:
        pointer = connection.write(b"orders", [b'{"type": "order", "amount": 500}'])
    where = ("--topic", "orders", "--pointer")
    run = poe_here("mapping", "explain", file, *where, pointer, port=server.port)
    assert lines(run)[-1] == "becomes\tto orders.vip (rule vip)"
    run = poe_here("mapping", "explain", file, *where, pointer + 1, port=server.port)
    assert "use that of a message of the topic" in complaint(run)


@pytest.mark.slow
def test_a_message_of_any_partition_is_explained_as_one_of_the_topic(file, server):
    file.write_text(ORDERS.replace('id = "vip"', 'id = "vip"\ntopic = "orders"', 1))
    with connect("127.0.0.1", server.port) as connection:
        connection.create_topic(b"orders", partitions=2, envelope=True)
        order = encode(b"k", b'{"type": "order", "amount": 500}')
        pointers = [connection.write(b"orders-%d" % number, [order]) for number in range(2)]
    for pointer in pointers:
        where = ("--topic", "orders", "--pointer", pointer)
        run = poe_here("mapping", "explain", file, *where, port=server.port)
        assert lines(run)[-1] == "becomes\tto orders.vip (rule vip)"


def test_a_pointer_that_messages_of_several_partitions_have_is_refused(file, node, monkeypatch):
    node.create_topic("orders", partitions=2)
    with monkeypatch.context() as patch:
        now_us = time_ns() // 1000
        patch.setattr(HybridClock, "now_us", lambda _: now_us)
        pointers = [node.put(f"orders-{number}", b"{}") for number in range(2)]
    assert pointers == [now_us, now_us]
    where = ("--topic", "orders", "--pointer", now_us)
    run = poe_here("mapping", "explain", file, *where, port=node.address[1])
    assert "several partitions have it; type the value with --message" in complaint(run)


@pytest.mark.slow
def test_a_mapping_that_runs_is_listed_and_shown(file, server):
    with connect("127.0.0.1", server.port) as connection:
        connection.write(b"orders", [b'{"type": "order", "amount": 500}'])
        with Background("mapping", "run", file, port=server.port):
            wait_until(lambda: b"orders.vip" in connection.topics(), 20)
            wait_until(lambda: "idle" in listed(server), 20)
            name, state, where, count, _ = listed(server).split("\t")
            assert (name, state, count) == ("orders", "idle", "1 partition")
            run = poe_here("mapping", "show", "orders", "--format", "json", port=server.port)
            shown = json.loads(run.stdout)
            assert (shown["process"], shown["unit"], shown["state"]) == (where, "orders", "idle")
        by_rule = ("mapping", "show", "orders", "--rules", "--format", "json")
        wait_until(lambda: counts_of(poe_here(*by_rule, port=server.port)).get("vip"), 20)
        rows = [json.loads(row) for row in lines(poe_here(*by_rule, port=server.port))]
        assert [row["name"] for row in rows][-1] == "otherwise"
        vip = next(row for row in rows if row["name"] == "vip")
        assert (vip["what"], vip["counts"]) == ("to orders.vip", {"to": 1})
        text = poe_here("mapping", "show", "orders", "--rules", port=server.port).stdout.decode()
        assert "vip\tto orders.vip\t" in text
        run = poe_here("mapping", "show", "others", port=server.port)
        assert run.returncode == 1
        assert "no mapping 'others' runs" in run.stderr.decode()
        assert [message for _, message in connection.read(b"orders.vip", 0, 10)] == [
            b'{"type": "order", "amount": 500}'
        ]


@pytest.mark.slow
def test_a_mapping_says_when_it_runs_and_can_be_stopped_from_elsewhere(file, server):
    with connect("127.0.0.1", server.port) as connection:
        connection.write(b"orders", [b"x"])
    with Background("mapping", "run", file, port=server.port) as background:
        ready = f"mapping orders runs on 127.0.0.1:{server.port}\n".encode()
        assert background.read_until(b"\n") == ready
        wait_until(lambda: "idle" in listed(server), 20)
        run = poe_here("mapping", "stop", "orders", port=server.port)
        assert (run.returncode, lines(run)) == (0, ["orders\tstopped"])
        assert background.process.wait(20) == 0
        assert "\tstopped\t" in listed(server)
    run = poe_here("mapping", "stop", "orders", port=server.port)
    assert run.returncode == 1
    assert complaint(run) == "poe: no mapping 'orders' runs; see `poe mapping list`"


@pytest.mark.slow
def test_who_waits_for_a_server_says_so_and_ends_without_a_crash(file):
    with Background("mapping", "run", file, port=1) as background:
        background.read_until(b"yet; waits until there is one\n", pipe=background.process.stderr)
        code, stdout, stderr = background.end()
        assert (code, stdout) == (143, b"")
        assert b"ERROR" not in stderr, stderr


def counts_of(run):
    return {row["name"]: row["counts"] for row in map(json.loads, lines(run))}


def listed(server):
    return poe_here("mapping", "list", port=server.port).stdout.decode().rstrip("\n")


@pytest.mark.slow
def test_a_dry_run_puts_nothing_and_tells_programs(file, server):
    with connect("127.0.0.1", server.port) as connection:
        connection.write(b"orders", [b'{"type": "order", "amount": 500}', b"{", b"{}"])
        arguments = ("mapping", "dry-run", file, "--from", "0s")
        told = json.loads(poe_here(*arguments, "--format", "json", port=server.port).stdout)
        assert told["messages"] == 3
        assert told["targets"] == {"orders.vip": 1}
        assert {each["action"] for each in told["rules"]} == {"to", "dead", "error"}
        assert told["samples"]["orders.vip"][0]["after"] == '{"type": "order", "amount": 500}'
        limited = json.loads(
            poe_here(*arguments, "--limit", 1, "--format", "json", port=server.port).stdout
        )
        assert limited["messages"] == 1
        assert connection.topics() == [b"orders"]
    assert poe_here("mapping", "dry-run", file, "--from", "1w", port=server.port).returncode == 2


@pytest.mark.slow
def test_a_dry_run_of_topics_that_are_not_there_says_so(file, server):
    run = poe_here("mapping", "dry-run", file, port=server.port)
    assert run.returncode == 1
    assert "orders" in complaint(run)
