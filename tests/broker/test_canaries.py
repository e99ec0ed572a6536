"""No secret that a client proves itself with is written down anywhere: log, files, or answers."""

import json
import logging
import re
import tracemalloc
from contextlib import suppress

import pytest

from poe.broker.access.access import GATEKEEPER
from poe.broker.access.audit_trail import AuditTrail
from poe.broker.access.permission import Need
from poe.errors import NotAuthorized, PoeError
from tests.broker.nodes import connect
from tests.broker.users_file import UsersFile, connect_as, log_in, step
from tests.waiting import wait_until

PASSWORD = "canary-of-a-password"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("poe.broker.access.failure_delays.FIRST_S", 0.001)


@pytest.fixture
def guarded(serve, tmp_path):
    """A node, and a token; the canaries are its secret, its digest and a password."""
    users = UsersFile(tmp_path / "users.toml")
    token = users.token("alice", "ci")
    users.password("bob", PASSWORD)
    users.grant("alice bob", "read write create", prefixes="")
    users.write()
    node = serve(dir=tmp_path / "data", users=users.path, reload_interval=0)
    text = users.path.read_text()
    found = re.search(r'sha256 = "(.*)"', text)
    keys = re.search(r'scram_sha_256 = "\d+\$(.*)\$(.*)\$(.*)"', text)
    assert found is not None
    assert keys is not None
    canaries = [PASSWORD, token.split("_", 2)[2].rpartition("_")[0], found[1], keys[2], keys[3]]
    return node, token, canaries


def misuse(node, token):
    """Give a token and a password wherever they do not belong."""
    for mechanism, data in (
        (token, b""),
        (PASSWORD, b""),
        ("BEARER", token.encode() + b"x"),
        ("BEARER", PASSWORD.encode()),
        ("SCRAM-SHA-256", token.encode()),
        ("EXTERNAL", token.encode()),
    ):
        with connect(node) as client, suppress(PoeError):
            step(client, mechanism, data)
    with connect(node) as client, suppress(PoeError):
        log_in(client, "bob", PASSWORD[:-1])
    with connect(node) as client, suppress(PoeError):
        client.control(token)
    with connect_as(node, token) as client:
        for op, arguments in (
            ("authorize", {"token": token.encode(), "operation": "read"}),
            ("auth", {"mechanism": "BEARER", "data": token}),
        ):
            with suppress(PoeError):
                client.control(op, **arguments)


def test_nothing_that_is_written_holds_a_secret(guarded, caplog, tmp_path):
    node, token, canaries = guarded
    caplog.set_level(logging.DEBUG)
    answers = []
    with connect(node) as client:
        log_in(client, "bob", PASSWORD)
        client.write("t", [b"m"])
        answers += [client.control(op) for op in ("health", "status", "info", "topics")]
    misuse(node, token)
    with connect_as(node, None) as admin:
        answers += [admin.control(op) for op in ("security", "tree", "health", "info", "reload")]
        answers.append(admin.control("tree", all=True))
        # It crashes, and whatever it was asked and knew may be told.
        node.system.cast(GATEKEEPER, (token, PASSWORD))
        wait_until(lambda: "gatekeeper" in caplog.text, 10)
        wait_until(lambda: node.system.actors.find(GATEKEEPER) is not None, 10)
        assert admin.control("reload")["ended_count"] == 0
    with connect_as(node, token) as client:
        assert client.control("topics") == [b"t"]
    written = [
        repr(answers),
        repr(node.config),
        caplog.text,
        *(
            path.read_bytes().decode("latin-1")
            for path in (tmp_path / "data").rglob("*")
            if path.is_file()
        ),
    ]
    for canary in canaries:
        assert not [text[:200] for text in written if canary in text], canary
    assert "authentication failed" in caplog.text


def test_the_audit_log_tells_who_came_and_who_may_not(guarded, caplog):
    node, token, _ = guarded
    with caplog.at_level(logging.INFO, "poe.audit"):
        with connect_as(node, token) as client:
            for _ in range(3):
                with pytest.raises(PoeError):
                    client.control("delete", topic=b"t\nforged")
        with connect(node) as client, suppress(PoeError):
            log_in(client, "nobody", "x")
        node.reload()
        with connect_as(node, None) as admin, suppress(PoeError):
            admin.control("delete", topic="t")
    told = [json.loads(each.message) for each in caplog.records if each.name == "poe.audit"]
    came, denied, failed, reloaded, admin_came, admitted = told
    assert came["event"] == "authenticated"
    assert (came["principal"], came["mechanism"], came["credential"]) == ("alice", "BEARER", "ci")
    assert denied["event"] == "denied"
    assert (denied["operation"], denied["name"], denied["count"]) == ("delete", "t\nforged", 1)
    assert failed["event"] == "authentication failed"
    assert "nobody" in failed["reason"]
    assert reloaded["event"] == "reload"
    assert admin_came["principal"] == "poe.admin"
    assert (admitted["event"], admitted["op"], admitted["name"]) == ("admitted", "delete", "t")
    assert all("\n" not in each.message for each in caplog.records if each.name == "poe.audit")


def test_who_may_do_a_part_of_it_is_told_as_denied_and_not_as_admitted(guarded, caplog):
    node, token, _ = guarded
    with (
        caplog.at_level(logging.INFO, "poe.audit"),
        connect_as(node, token) as client,
        pytest.raises(NotAuthorized, match="delete topic 't'"),
    ):
        client.control("topic_alter", topic="t", properties={"max_age": 1})
    told = [json.loads(each.message) for each in caplog.records if each.name == "poe.audit"]
    assert [each["event"] for each in told] == ["authenticated", "denied"]


def test_who_may_not_make_what_there_is_not_is_told_as_denied(serve, tmp_path, caplog):
    users = UsersFile(tmp_path / "users.toml")
    token = users.token("alice", "ci")
    users.grant("alice", "read write", topics="t", groups="g")
    users.write()
    node = serve(dir=tmp_path / "data", users=users.path, reload_interval=0)
    joining = {"group": "g", "mode": "shared", "topics": ["t"], "member": bytes(16)}
    with caplog.at_level(logging.INFO, "poe.audit"), connect_as(node, token) as client:
        with pytest.raises(NotAuthorized, match="create topic 't'"):
            client.write("t", [b"m"])
        with pytest.raises(NotAuthorized, match="create topic 't'"):
            client.control("queue_put", topic=b"t", messages=[b"m"], due_us=1)
        with pytest.raises(NotAuthorized, match="create group 'g'"):
            client.control("group_join", **joining)
    told = [json.loads(each.message) for each in caplog.records if each.name == "poe.audit"]
    denied = [
        (each["operation"], each["kind"], each["name"])
        for each in told
        if each["event"] == "denied"
    ]
    assert denied == [("create", "topic", "t"), ("create", "group", "g")]
    assert node.control("security")["denied_count"] == 3


def test_a_refusal_that_comes_in_masses_is_told_once_a_minute_with_its_count(caplog):
    trail, need = AuditTrail(), Need.of_topic("read", b"t")
    with caplog.at_level(logging.INFO, "poe.audit"):
        for now_s in (*range(60), 60):
            trail.denied("alice", need, now_s)
        trail.denied("bob", need, 60)
    told = [json.loads(each.message) for each in caplog.records]
    assert [(each["principal"], each["count"]) for each in told] == [
        ("alice", 1),
        ("alice", 60),
        ("bob", 1),
    ]


def test_refusals_under_ever_other_names_fill_neither_the_log_nor_the_memory(caplog):
    trail = AuditTrail()
    with caplog.at_level(logging.INFO, "poe.audit"):
        for number in range(5000):
            trail.denied("mallory", Need.of_topic("read", b"%d" % number), number / 1000)
        trail.denied("bob", Need.of_topic("read", b"t"), 5)
        trail.denied("mallory", Need.of_topic("read", b"another"), 61)
        trail.denied("mallory", Need.of_topic("read", b"x"), 70)
    told = [json.loads(each.message) for each in caplog.records]
    names = [(each["principal"], each["name"], each["count"]) for each in told[100:]]
    assert names == [
        ("mallory", "*", 1),
        ("bob", "t", 1),
        ("mallory", "another", 1),
        ("mallory", "x", 1),
    ]


def test_a_name_of_megabytes_is_not_kept(caplog):
    trail = AuditTrail()
    tracemalloc.start()
    try:
        for number in range(20):
            trail.denied("mallory", Need.of_topic("read", bytes([65 + number]) * 1_000_000), 0)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_connection_remembers_no_name_that_no_topic_can_have(guarded):
    node, token, _ = guarded
    with connect_as(node, token) as client:
        tracemalloc.start()
        try:
            for number in range(20):
                with suppress(PoeError):
                    client.read(bytes([65 + number]) * 1_000_000, 0, 1)
            assert tracemalloc.get_traced_memory()[0] < 5_000_000
        finally:
            tracemalloc.stop()
