"""`poe grant` and `poe grants`: what is allowed, told and explained."""

import pytest

from poe.security.security import read_security
from tests.cli.processes import complaint, poe_here


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "users.toml"
    for name in ("alice", "bob"):
        poe_here("user", "add", name, "--users", path)
    return path


@pytest.fixture
def grant(path):
    return lambda *arguments: poe_here("grant", *arguments, "--users", path)


@pytest.fixture
def grants(path):
    return lambda *arguments: poe_here("grants", *arguments, "--users", path)


def test_what_is_granted_is_allowed_and_nothing_else(grant, path):
    run = grant("alice", "--operations", "read,write", "--topic", "orders", "--prefix", "team.")
    assert run.stdout.startswith(b"alice may read, write topic orders, topics team.*; ")
    grant("alice", "--operations", "read", "--group", "billing", "--group-prefix", "b.")
    grant("*", "--operations", "describe", "--prefix", "")
    grant("bob", "--operations", "admin")
    policy = read_security(path).policy
    assert policy.may("alice", "write", "topic", b"orders-1")
    assert policy.may("alice", "read", "group", b"b.1")
    assert policy.may("bob", "describe", "topic", b"anything")
    assert policy.may("bob", "admin", "node")
    assert not policy.may("alice", "admin", "node")
    assert not policy.may("bob", "read", "topic", b"orders")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["carol", "--operations", "read", "--topic", "t"], "option 'NAME' is 'carol'; use a user"),
        (["alice", "--topic", "t"], "option 'operations' is []; use some of"),
        (["alice", "--operations", "fly", "--topic", "t"], "option 'operations' is 'fly'; use"),
        (["alice", "--operations", "read"], "option 'topics' is []; use topics, prefixes, groups"),
        (["alice", "--operations", "admin", "--topic", "t"], "a grant of its own, without names"),
        (["alice", "--operations", "read,", "--topic", "t"], "option '--operations' is ''; use"),
        (["alice", "--operations", "read", "--topic", ""], "option 'topics' is ''; use names"),
        (["alice", "--remove", "1"], "option '--remove' is 1; use the number of a grant of alice"),
        (["alice", "--remove", "1", "--topic", "t"], "option '--remove' is 1; use it alone"),
    ],
)
def test_what_would_grant_nothing_is_refused(grant, path, arguments, told):
    before = path.read_bytes()
    run = grant(*arguments)
    assert run.returncode == 2
    assert told in complaint(run)
    assert path.read_bytes() == before


def test_a_grant_is_taken_away_by_its_number(grant, grants):
    grant("alice", "--operations", "read", "--topic", "a")
    grant("bob", "--operations", "read", "--topic", "b")
    assert grants().stdout == b"1\talice\tread topic a\n2\tbob\tread topic b\n"
    assert "a grant of alice" in complaint(grant("alice", "--remove", "2"))
    assert grant("alice", "--remove", "1").stdout.startswith(b"alice has no longer: read topic a;")
    assert grants().stdout == b"1\tbob\tread topic b\n"


def test_a_grant_of_several_stays_with_the_others(grant, grants, path):
    with path.open("a") as file:
        file.write('\n[[grants]]\nprincipals = ["alice", "bob"]\noperations = ["read"]\n')
        file.write('topics = ["t"]\n')
    grant("alice", "--remove", "1")
    assert grants().stdout == b"1\tbob\tread topic t\n"


def test_those_of_one_user_are_listed_with_those_of_all(grant, grants):
    grant("alice", "--operations", "read", "--topic", "a")
    grant("bob", "--operations", "read", "--topic", "b")
    grant("*", "--operations", "describe", "--group", "g")
    told = grants("--as", "bob").stdout.decode()
    assert told == "2\tbob\tread topic b\n3\t*\tdescribe group g\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--as", "alice", "--may", "write", "orders"], 0, "by grant 1"),
        (["--as", "alice", "--may", "write", "orders-12"], 0, "by grant 1"),
        (["--as", "alice", "--may", "describe", "orders"], 0, "by grant 1"),
        (["--as", "alice", "--may", "delete", "orders"], 1, "no grant allows it"),
        (["--as", "bob", "--may", "write", "orders"], 1, "no grant allows it"),
        (["--as", "alice", "--may", "read", "--group", "billing"], 0, "by grant 2"),
        (["--as", "alice", "--may", "admin"], 1, "no grant allows it"),
    ],
)
def test_a_decision_is_explained(grant, grants, arguments, code, told):
    grant("alice", "--operations", "write", "--topic", "orders")
    grant("alice", "--operations", "read", "--group", "billing")
    run = grants(*arguments)
    assert run.returncode == code
    assert told in run.stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--as", "carol", "--may", "read", "t"], "option '--as' is 'carol'; use a user"),
        (["--may", "read", "t"], "give --as NAME, too"),
        (["--as", "alice", "t"], "give --may OPERATION, too"),
        (["--as", "alice", "--may", "fly", "t"], "option '--may' is 'fly'; use one of read"),
        (["--as", "alice", "--may", "read"], "give a topic, or --group GROUP"),
        (["--as", "alice", "--may", "read", "t", "--group", "g"], "give a topic, or --group"),
        (["--as", "alice", "--may", "admin", "t"], "it without a name"),
    ],
)
def test_a_question_that_is_none_is_refused(grants, arguments, told):
    run = grants(*arguments)
    assert run.returncode == 2
    assert told in complaint(run)


def test_grants_of_a_second_file_count(path, tmp_path):
    acl = tmp_path / "acl.toml"
    acl.write_text(
        'version = 1\n[[grants]]\nprincipals = ["alice"]\noperations = ["read"]\ntopics = ["t"]\n'
    )
    acl.chmod(0o600)
    run = poe_here(
        "grants", "--as", "alice", "--may", "read", "t", "--users", path, POE_ACL=str(acl)
    )
    assert run.returncode == 0, run.stderr


def test_who_would_take_away_a_grant_of_a_second_file_is_told_of_which_one(path, tmp_path):
    acl = tmp_path / "acl.toml"
    acl.write_text(
        'version = 1\n[[grants]]\nprincipals = ["alice"]\noperations = ["read"]\ntopics = ["t"]\n'
    )
    acl.chmod(0o600)
    place = {"POE_ACL": str(acl), "POE_USERS": str(path)}
    assert poe_here("grants", "--as", "alice", **place).stdout.startswith(b"1\talice")
    run = poe_here("grant", "alice", "--remove", "1", **place)
    assert run.returncode == 2
    assert f"the number of a grant of alice in {path}" in complaint(run)


def test_a_name_that_is_no_text_can_be_asked_for(grant, grants):
    grant("alice", "--operations", "write", "--prefix", "")
    run = grants("--as", "alice", "--may", "write", "\udcff")
    assert run.returncode == 0
    assert b"\\xff" in run.stdout
