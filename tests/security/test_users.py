"""The files of users and grants: what is in them, and each kind of what is wrong, with its line."""

import os
from pathlib import Path

import pytest

from poe.errors import SecurityFileError
from poe.security import security
from poe.security.policy import TOPIC
from poe.security.scram import ScramKeys
from poe.security.security import read_security
from poe.security.token import make_token
from poe.security.users import Quota, TokenEntry, User, Users

SHA = "a" * 64
KEYS = ScramKeys(4096, b"salt of 16 bytes", b"s" * 32, b"t" * 32)
OTHER_KEYS = ScramKeys(4096, b"salt of 16 bytes", b"u" * 32, b"v" * 32)
FOREIGN_KEYS = ScramKeys(4096, b"another salt ...", b"u" * 32, b"v" * 32)

WHOLE = f"""\
version = 1
[users.alice]
scram_sha_256 = "{KEYS.text()}"
certificates = ["URI:spiffe://corp/alice", "DNS:alice.example"]
quota = {{write_bytes_s = 10_000_000, requests_s = 5_000.5, connections = 100}}
[[users.ci.tokens]]
id = "2026-11"
sha256 = "{SHA}"
expires = 2027-02-01T00:00:00Z
[[users.ci.tokens]]
id = "2026-12"
sha256 = "{SHA}"
[users.nobody]

[[grants]]
principals = ["alice"]
operations = ["read", "write", "create"]
topics = ["orders", "bücher"]
prefixes = ["team-a."]
"""


def write(path, text, mode=0o600):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


@pytest.fixture
def read(tmp_path):
    def run(text, acl=None, mode=0o600):
        users = write(tmp_path / "users.toml", text, mode)
        return read_security(users, acl and write(tmp_path / "acl.toml", acl))

    return run


def test_a_whole_file_is_what_it_says(read):
    found = read(WHOLE)
    users = found.users
    ci = User(
        name="ci",
        tokens=(TokenEntry("2026-11", SHA, 1801440000.0), TokenEntry("2026-12", SHA, None)),
    )
    assert users.find("alice") == User(
        name="alice",
        scram=(KEYS,),
        certificates=frozenset({"URI:spiffe://corp/alice", "DNS:alice.example"}),
        quota=Quota(write_bytes_s=10_000_000, requests_s=5000.5, connections=100),
    )
    assert users.names() == ["alice", "ci", "nobody"]
    assert users.find("ci") == ci
    assert users.by_token("2026-12") == (ci, ci.tokens[1])
    assert users.scram_keys("alice") == (KEYS,)
    assert found.policy.may("alice", "write", TOPIC, "bücher".encode())
    assert found.policy.may("alice", "describe", TOPIC, b"team-a.x")
    assert not found.policy.may("ci", "describe", TOPIC, b"orders")
    assert found.warnings == ()


def test_nobody_is_found_by_what_is_not_there(read):
    users = read(WHOLE).users
    assert users.find("bob") is None
    assert users.by_token("x") is None
    assert users.scram_keys("bob") == users.scram_keys("ci") == ()


def test_a_certificate_is_whose_name_it_has_and_nobodys_when_it_has_two_users_names():
    alice = User(name="alice", certificates=frozenset({"URI:a", "DNS:a"}))
    bob = User(name="bob", certificates=frozenset({"URI:b"}))
    users = Users([alice, bob])
    assert users.by_certificate(["DNS:other", "URI:a", "DNS:a"]) is alice
    assert users.by_certificate(["URI:a", "URI:b"]) is None
    assert users.by_certificate(["URI:", "URI:aa", "a"]) is None
    assert users.by_certificate([]) is None


def test_two_keys_of_one_salt_are_valid_at_a_time(read):
    text = f'version = 1\n[users.a]\nscram_sha_256 = ["{KEYS.text()}", "{OTHER_KEYS.text()}"]\n'
    assert read(text).users.scram_keys("a") == (KEYS, OTHER_KEYS)


def test_grants_of_a_second_file_are_added(read):
    acl = 'version = 1\n[[grants]]\nprincipals = ["ci"]\noperations = ["admin"]\n'
    found = read(WHOLE, acl)
    assert [each.principals for each in found.policy.grants] == [("alice",), ("ci",)]


def test_a_second_file_has_no_users(read):
    with pytest.raises(SecurityFileError, match=r"acl.toml, line 2: 'users' is not known"):
        read(WHOLE, "version = 1\n[users.bob]\n")


HEAD = "version = 1\n[users.a]\n"
TOKEN = f'[[users.a.tokens]]\nid = "x"\nsha256 = "{SHA}"\n'
GRANT = 'version = 1\n[[grants]]\nprincipals = ["a"]\noperations = ["read"]\ntopics = ["t"]\n'

WRONG = {
    "no version": ("[users.a]\n", None, "version has to be 1"),
    "another version": ("\nversion = 2\n", 2, "version has to be 1"),
    "a version that is a text": ('version = "1"\n', 1, "version has to be 1"),
    "a version that is true": ("version = true\n", 1, "version has to be 1"),
    "unknown key": ("version = 1\nuser = 1\n", 2, "'user' is not known; use version, users"),
    "users no table": ("version = 1\nusers = 1\n", 2, "users has to be a table"),
    "user no table": ("version = 1\n[users]\na = 1\n", 3, "users.a has to be a table"),
    "name": ("version = 1\n\n[users.'a b']\n", 3, "user 'a b' is not allowed; use 1 to 200"),
    "name of ours": ("version = 1\n[users.'poe.admin']\n", 2, "'poe.admin' is not allowed"),
    "everybody's name": ("version = 1\n[users.'*']\n", 2, "'*' is not allowed"),
    "long name": (f"version = 1\n[users.{'a' * 201}]\n", 2, "is not allowed"),
    "user twice": (HEAD + "[users.a]\n", 3, "twice|Cannot declare"),
    "unknown key of a user": (HEAD + "password = 'x'\n", 3, "'password' is not known; use scram_"),
    "scram is a number": (HEAD + "scram_sha_256 = 1\n", 3, "has to be an array"),
    "scram is no keys": (HEAD + "scram_sha_256 = 'hunter2'\n", 3, "has to be 1 to 2 values as"),
    "scram has few rounds": (HEAD + f"scram_sha_256 = '1{KEYS.text()[4:]}'\n", 3, "1 to 2 values"),
    "scram of two salts": (
        HEAD + f"scram_sha_256 = [\n'{KEYS.text()}',\n'{FOREIGN_KEYS.text()}']\n",
        3,
        "the same iterations and the same salt",
    ),
    "scram three times": (HEAD + f"scram_sha_256 = {[KEYS.text()] * 3}\n", 3, "1 to 2 values"),
    "tokens no array": (HEAD + "tokens = 1\n", 3, "users.a.tokens has to be an array"),
    "token no table": (HEAD + "tokens = [1]\n", 3, "users.a.tokens.0 has to be a table"),
    "token without id": (HEAD + f"[[users.a.tokens]]\nsha256 = '{SHA}'\n", 3, "id is None; use 1"),
    "token of a wrong id": (HEAD + TOKEN.replace('"x"', '"x_y"'), 4, "id is 'x_y'; use 1 to 64"),
    "token without digest": (HEAD + "[[users.a.tokens]]\nid = 'x'\n", 3, "has to be 64 hex digits"),
    "token itself": (HEAD + TOKEN.replace(SHA, "poe_secret"), 5, "has to be 64 hex digits"),
    "token in capitals": (HEAD + TOKEN.replace(SHA, SHA.upper()), 5, "in lower case"),
    "token without zone": (HEAD + TOKEN + "expires = 2027-02-01T00:00:00\n", 6, "with its zone"),
    "token of a date": (HEAD + TOKEN + "expires = 2027-02-01\n", 6, "with its zone"),
    "unknown key of a token": (HEAD + TOKEN + "expiry = 1\n", 6, "'expiry' is not known; use id"),
    "token id twice": (HEAD + TOKEN + TOKEN, 7, "token 'x' is there already, of 'a'"),
    "token id of another": (
        HEAD + TOKEN + TOKEN.replace("users.a", "users.b"),
        7,
        "token 'x' is there already, of 'a'",
    ),
    "certificate no text": (HEAD + "certificates = [1]\n", 3, "has to be an array of texts"),
    "certificate by subject": (HEAD + "certificates = ['CN=a']\n", 3, "'CN=a' is not allowed"),
    "certificate of two": (
        HEAD + "certificates = ['DNS:a']\n[users.b]\ncertificates = ['DNS:b', 'DNS:a']\n",
        5,
        "certificate 'DNS:a' is there already, of 'a'",
    ),
    "quota no table": (HEAD + "quota = 1\n", 3, "users.a.quota has to be a table"),
    "quota of nothing": (HEAD + "quota = {requests_s = 0}\n", 3, "requests_s' is 0; use more than"),
    "quota of infinity": (HEAD + "quota = {requests_s = inf}\n", 3, "use more than 0"),
    "quota of truth": (HEAD + "quota = {connections = true}\n", 3, "is True; use 1 or more"),
    "quota unknown": (HEAD + "[users.a.quota]\nbytes = 1\n", 4, "'bytes' is not known; use one of"),
    "grants no array": ("version = 1\n[grants]\n", 2, "grants has to be an array"),
    "grant no table": ("version = 1\ngrants = [1]\n", 2, "grants.0 has to be a table"),
    "unknown key of a grant": (GRANT + "deny = ['t']\n", 6, "'deny' is not known; use principals"),
    "operation unknown": (GRANT.replace("read", "own"), 4, "is 'own'; use some of read, write"),
    "operations no array": (GRANT.replace('["read"]', '"read"'), 4, "has to be an array"),
    "topics of numbers": (GRANT.replace('["t"]', "[1]"), 5, "has to be an array of texts"),
    "grant without principals": (
        'version = 1\n\n[[grants]]\noperations = ["read"]\ntopics = ["t"]\n',
        3,
        "use names of users",
    ),
    "grant without operations": (
        'version = 1\n[[grants]]\nprincipals = ["a"]\ntopics = ["t"]\n',
        2,
        "use some of read",
    ),
    "grant without names": (GRANT.replace("topics", "#"), 2, "use topics, prefixes, groups"),
    "grant of no topic": (GRANT.replace('"t"', '""'), 5, "for all, an empty prefix"),
    "node with names": (GRANT.replace("read", "admin"), 4, "a grant of its own, without names"),
    "no toml": ("version = 1\nusers\n", 2, "Expected '='"),
    "no text": (b"version = 1\n# \xff\n", 2, "this is no UTF-8"),
    "a mark before": (b"\xef\xbb\xbfversion = 1\n", 1, "Invalid statement"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_with_its_line(name, read):
    text, line, why = WRONG[name]
    with pytest.raises(SecurityFileError, match=why) as caught:
        read(text)
    assert caught.value.line == line
    assert "hunter2" not in str(caught.value)
    assert "poe_secret" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(mode, read):
    with pytest.raises(SecurityFileError, match="may write it; use `chmod 600"):
        read(WHOLE, mode=mode)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o400 | 0o044])
def test_a_file_that_others_may_read_is_warned_of(mode, read):
    assert "may read" in read(WHOLE, mode=mode).warnings[0]


def test_a_grant_for_nobody_is_warned_of(read):
    assert read(GRANT).warnings == ("a grant names 'a', and no user has this name",)
    assert read(GRANT.replace('"a"', '"*"')).warnings == ()


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("pipe", "is no file"), ("absent", "No such file"), (".", "is no file")):
        with pytest.raises(SecurityFileError, match=why):
            read_security(tmp_path / name)


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_leaves_nothing_open(kind, tmp_path):
    if kind == "pipe":
        os.mkfifo(tmp_path / kind)
    else:
        (tmp_path / kind).mkdir()
    with pytest.raises(SecurityFileError) as caught:
        read_security(tmp_path / kind)
    opened = {each.resolve() for each in Path("/proc/self/fd").iterdir()}
    assert tmp_path / kind not in opened, caught.value


def test_a_huge_file_is_refused_before_it_is_read_whole(read, monkeypatch):
    monkeypatch.setattr(security, "FILE_BYTES_MAX", len(WHOLE.encode()))
    assert len(read(WHOLE).users.names()) == 3
    with pytest.raises(SecurityFileError, match=r"more than \d+ bytes"):
        read(WHOLE + " ")


def test_an_error_at_the_end_of_a_long_file_is_found(read):
    """Within the time-out of a test: no step of it is quadratic."""
    users = "".join(
        f"[users.u{number}]\nscram_sha_256 = '{KEYS.text()}'\n" for number in range(1000)
    )
    with pytest.raises(SecurityFileError, match="line 2002: 'x' is not known"):
        read(f"version = 1\n{users}x = 1\n")


def test_a_token_in_the_place_of_its_id_is_not_shown(read):
    text, _ = make_token("ci")
    with pytest.raises(SecurityFileError, match="id is 'poe_ci_…'; use") as caught:
        read(HEAD + TOKEN.replace('"x"', f'"{text}"'))
    assert text not in str(caught.value)


def test_secrets_are_in_no_repr(read):
    shown = repr(read(WHOLE).users.find("alice")) + repr(read(WHOLE).users.find("ci"))
    assert SHA not in shown
    assert "ssss" not in shown
