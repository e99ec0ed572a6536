"""Changing the file of users: comments stay, what is wrong is refused, no kill leaves a half."""

import fcntl
import os
import threading
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import OptionError, SecurityFileError
from poe.security import replacement
from poe.security.policy import NODE, TOPIC, Grant
from poe.security.scram import ScramKeys
from poe.security.security import parse_security, read_security
from poe.security.token import make_token
from poe.security.user_file import UserFile, changed_users
from poe.security.users import TokenEntry

KEYS = ScramKeys.of_password("pencil")
NEW_KEYS = ScramKeys.of_password("crayon", KEYS.iterations, KEYS.salt)
SHA = "a" * 64

OLD = f"""\
# Who may what. Ask Ada before you change it.
version = 1

[users.alice]  # of team a
scram_sha_256 = "{KEYS.text()}"
certificates = [
    "DNS:a",  # the old one
    "DNS:b",
]

# machines
[[users.ci.tokens]]
id = "one"
sha256 = "{SHA}"
[[users.ci.tokens]]
id = "two"  # since May
sha256 = "{SHA}"

[[grants]]
principals = ["alice"]
operations = ["read"]  # only
topics = ["orders"]

# both
[[grants]]
principals = ["alice", "ci"]
operations = ["write"]
prefixes = ["team-a."]
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "users.toml"
    file.write_text(OLD)
    file.chmod(0o600)
    return file


def removed_lines(old, new):
    return [line for line in old.splitlines() if line not in new.splitlines()]


# --- What is changed, and what is not ----------------------------------------------------------


def test_a_file_that_is_not_there_is_made_for_its_owner_alone(tmp_path):
    path = tmp_path / "users.toml"
    with changed_users(path) as users:
        users.add_user("alice", KEYS)
        users.add_grant(Grant(principals=("alice",), operations=("read",), topics=(b"orders",)))
    found = read_security(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert found.warnings == ()
    assert found.users.scram_keys("alice") == (KEYS,)
    assert found.policy.may("alice", "read", TOPIC, b"orders")
    assert [each.name for each in tmp_path.iterdir()] == ["users.toml"]


def test_what_is_added_takes_no_line_away(path):
    text, sha256 = make_token("three")
    with changed_users(path) as users:
        users.add_user("bob")
        users.add_user("carol.x@y", KEYS)
        users.add_token("ci", "three", sha256, 1801440000.7)
        users.add_token("bob", "four", SHA)
        users.add_certificate("alice", "URI:spiffe://corp/alice")
        users.add_certificate("bob", "DNS:bob")
        users.add_grant(Grant(principals=("bob",), operations=("admin",)))
    assert removed_lines(OLD, path.read_text()) == []
    found = read_security(path)
    there = found.users
    assert there.names() == ["alice", "ci", "bob", "carol.x@y"]
    added = TokenEntry("three", sha256, 1801440000.0)
    assert there.by_token("three") == (there.find("ci"), added)
    assert text not in path.read_text()
    assert there.by_token("four") == (there.find("bob"), TokenEntry("four", SHA))
    assert there.by_certificate(["URI:spiffe://corp/alice"]) is there.find("alice")
    assert there.by_certificate(["DNS:bob"]) is there.find("bob")
    assert found.policy.may("bob", "admin", NODE)
    assert [each.principals for each in found.policy.grants] == [
        ("alice",),
        ("alice", "ci"),
        ("bob",),
    ]


def test_what_is_removed_takes_only_its_own_lines_away(path):
    with changed_users(path) as users:
        assert users.remove_token("one") == "ci"
        assert users.remove_certificate("DNS:a") == "alice"
        users.remove_grant(0)
    found = read_security(path)
    assert found.users.by_token("one") is None
    assert found.users.by_token("two") is not None
    assert found.users.by_certificate(["DNS:a"]) is None
    assert [each.operations for each in found.policy.grants] == [("write",)]
    expected = OLD
    for gone in (
        '    "DNS:a",  # the old one\n',
        f'[[users.ci.tokens]]\nid = "one"\nsha256 = "{SHA}"\n',
        '[[grants]]\nprincipals = ["alice"]\noperations = ["read"]  # only\n',
        'topics = ["orders"]\n\n',
    ):
        assert gone in expected
        expected = expected.replace(gone, "")
    assert path.read_text() == expected


def test_what_is_added_stands_with_its_like_before_the_comments_of_what_follows(path):
    with changed_users(path) as users:
        users.add_user("bob")
        users.add_token("alice", "three", SHA)
    assert path.read_text() == OLD.replace(
        "\n# machines\n",
        f'\n[[users.alice.tokens]]\nid = "three"\nsha256 = "{SHA}"\n\n# machines\n',
    ).replace("\n[[grants]]\n", "\n[users.bob]\n\n[[grants]]\n", 1)


@pytest.mark.slow
def test_a_long_file_is_changed(path):
    """Within the time-out of a test: no step of it is quadratic."""
    many = "".join(f"[users.u{number}]  # nobody\n" for number in range(3000))
    path.write_text(f"version = 1\n{many}")
    with changed_users(path) as users:
        users.add_token("u1500", "one", SHA)
        users.remove_user("u7")
        users.add_grant(Grant(principals=("u8",), operations=("admin",)))
    assert "[users.u1500]  # nobody\n\n[[users.u1500.tokens]]\n" in path.read_text()


def test_a_user_that_is_removed_is_in_no_grant(path):
    with changed_users(path) as users:
        users.remove_user("alice")
    found = read_security(path)
    assert found.users.names() == ["ci"]
    assert [each.principals for each in found.policy.grants] == [("ci",)]
    assert found.warnings == ()


def test_the_last_of_anything_can_be_removed_and_added_again(path):
    with changed_users(path) as users:
        for token in ("one", "two"):
            users.remove_token(token)
        for name in ("DNS:a", "DNS:b"):
            users.remove_certificate(name)
        for _ in range(2):
            users.remove_grant(0)
        for user in ("alice", "ci"):
            users.remove_user(user)
    assert path.read_text().startswith("# Who may what")
    with changed_users(path) as users:
        users.add_user("ci")
        users.add_token("ci", "one", SHA)
        users.add_grant(Grant(principals=("ci",), operations=("read",), groups=("ü".encode(),)))
    assert read_security(path).users.by_token("one") is not None


def test_a_password_is_replaced_at_once_or_with_both_for_a_while(path):
    for keys in ((KEYS, NEW_KEYS), (NEW_KEYS,)):
        with changed_users(path) as users:
            users.set_keys("alice", *keys)
        assert read_security(path).users.scram_keys("alice") == keys


def test_a_file_that_is_not_changed_is_not_written(path):
    before = path.stat()
    with changed_users(path):
        pass
    assert path.stat() == before


# --- What is refused ---------------------------------------------------------------------------

REFUSED = {
    "user there": (lambda users: users.add_user("alice"), "'user' is 'alice'; use a name that"),
    "user not there": (lambda users: users.remove_user("bob"), "'user' is 'bob'; use one that"),
    "name": (lambda users: users.add_user("a b"), "user 'a b' is not allowed"),
    "token of nobody": (lambda users: users.add_token("bob", "x", SHA), "use one that"),
    "token there": (lambda users: users.add_token("alice", "one", SHA), "there already"),
    "token id": (lambda users: users.add_token("ci", "x_y", SHA), "id is 'x_y'"),
    "token not there": (lambda users: users.remove_token("x"), "'token' is 'x'; use the id of"),
    "digest": (lambda users: users.add_token("ci", "x", "1"), "64 hex digits"),
    "certificate": (lambda users: users.add_certificate("ci", "CN=x"), "'CN=x' is not allowed"),
    "certificate there": (lambda users: users.add_certificate("ci", "DNS:a"), "of 'alice'"),
    "certificate of nobody": (lambda users: users.remove_certificate("DNS:x"), "use the name of"),
    "keys of nobody": (lambda users: users.set_keys("bob", KEYS), "use one that"),
    "keys of two salts": (
        lambda users: users.set_keys("alice", KEYS, ScramKeys.of_password("x")),
        "the same iterations and the same salt",
    ),
    "keys of three": (lambda users: users.set_keys("alice", KEYS, KEYS, KEYS), "1 to 2 values"),
    "grant not there": (lambda users: users.remove_grant(2), "one of 2 grants, from 0"),
    "grant before": (lambda users: users.remove_grant(-1), "one of 2 grants, from 0"),
    "grant of no text": (
        lambda users: users.add_grant(
            Grant(principals=("ci",), operations=("read",), topics=(b"\xff",))
        ),
        "use names that are UTF-8",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_changed_is_refused_and_nothing_is_written(name, path):
    change, why = REFUSED[name]
    with pytest.raises((OptionError, SecurityFileError), match=why), changed_users(path) as users:
        change(users)
    assert path.read_text() == OLD


def test_a_file_that_is_wrong_is_left_alone(path):
    path.write_text(OLD + "[[grants]]\n")
    with pytest.raises(SecurityFileError, match="use names of users"), changed_users(path):
        pass


def test_a_file_that_others_may_write_is_left_alone(path):
    path.chmod(0o666)
    with pytest.raises(SecurityFileError, match="may write it"), changed_users(path):
        pass


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(SecurityFileError, match="No such file"):
        changed_users(tmp_path / "absent" / "users.toml").__enter__()


# --- However a file is laid out ----------------------------------------------------------------

LAYOUTS = {
    "inline": f'version = 1\nusers = {{a = {{tokens = [{{id = "t", sha256 = "{SHA}"}}]}}}}\n',
    "one table": f'version = 1\n[users]\na = {{tokens = [{{id = "t", sha256 = "{SHA}"}}]}}\n',
    "dotted": f'version = 1\nusers.a.tokens = [\n{{id = "t", sha256 = "{SHA}"}},\n]\n',
    "quoted": f'version = 1\n["users"."a"]\n[[users.a.tokens]]\nid = "t"\nsha256 = "{SHA}"',
    "grants first": 'version = 1\n[[grants]]\nprincipals = ["*"]\noperations = ["admin"]\n'
    f'[[users.a.tokens]]\nid = "t"\nsha256 = "{SHA}"\n[users.b]\n',
    "mixed": f'version = 1\n[[users.a.tokens]]\nid = "t"\nsha256 = "{SHA}"\n[[grants]]\n'
    'principals = ["*"]\noperations = ["admin"]\n[users.b]\n[[grants]]\n'
    'principals = ["*"]\noperations = ["authorize"]\n',
    "windows": f'version = 1\r\n[[users.a.tokens]]\r\nid = "t"\r\nsha256 = "{SHA}"\r\n',
}
CHANGES = {
    "add_user": lambda users: users.add_user("new", KEYS),
    "remove_user": lambda users: users.remove_user("a"),
    "add_token": lambda users: users.add_token("a", "u", SHA, 1801440000),
    "remove_token": lambda users: users.remove_token("t"),
    "set_keys": lambda users: users.set_keys("a", KEYS),
    "add_certificate": lambda users: users.add_certificate("a", "DNS:x"),
    "add_grant": lambda users: users.add_grant(Grant(principals=("a",), operations=("admin",))),
}


def told(security):
    return {name: security.users.find(name) for name in security.users.names()}, (
        security.policy.grants
    )


@given(st.sampled_from(sorted(LAYOUTS)), st.lists(st.sampled_from(sorted(CHANGES)), max_size=5))
def test_a_change_does_what_it_says_or_is_left_to_a_person(layout, changes):
    """Whatever tomlkit makes of a layout, no other change comes of it."""
    file = UserFile(LAYOUTS[layout], "users.toml")
    for change in changes:
        before = told(file.security)
        try:
            CHANGES[change](file)
        except (OptionError, SecurityFileError):
            assert told(file.security) == before
        assert told(parse_security(file.text, "users.toml")) == told(file.security)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", CHANGES)
def test_each_layout_takes_each_change(layout, change):
    CHANGES[change](UserFile(LAYOUTS[layout], "users.toml"))


# --- Killed in the midst -----------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


class DyingCalls:
    """The system, until a call at which the process is killed, before or behind it."""

    def __init__(self, last, *, is_behind):
        self.left = last
        self.is_behind = is_behind

    def __getattr__(self, name):
        def call(*arguments, **keywords):
            self.left -= 1
            if self.left == 0 and not self.is_behind:
                raise Killed
            if self.left < 0:
                raise Killed  # nothing is done behind the end
            if name == "write":
                arguments = (arguments[0], arguments[1][: max(1, len(arguments[1]) // 2)])
            found = getattr(os, name)(*arguments, **keywords)
            if self.left == 0:
                raise Killed
            return found

        return call


@pytest.mark.parametrize("is_behind", [False, True])
def test_who_is_killed_at_any_step_leaves_the_old_file_or_the_new_one(path, is_behind):
    texts = []
    for last in range(1, 100):
        path.write_text(OLD)
        try:
            with changed_users(path, DyingCalls(last, is_behind=is_behind)) as users:
                users.add_user("dave")
                new = users.text
        except Killed:
            texts.append(path.read_text())
            assert texts[-1] in {OLD, new}
            # What is left behind keeps nobody from changing it again.
            with changed_users(path) as users:
                users.add_user("erin")
            assert "erin" in path.read_text()
            continue
        break
    assert {OLD, new} == set(texts)
    assert texts == sorted(texts, key=lambda text: text == new)
    assert [each.name for each in path.parent.iterdir()] == ["users.toml"]


class FailingCalls:
    """The system, but for one kind of call, which fails."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        if name != self.name:
            return getattr(os, name)

        def fail(*_, **__):
            raise OSError(28, "No space left on device")

        return fail


@pytest.mark.parametrize("name", ["open", "write", "fsync", "rename", "fchmod"])
def test_a_disk_that_fails_leaves_the_old_file_and_nothing_else(name, path):
    with (
        pytest.raises(SecurityFileError, match="No space left on device"),
        changed_users(path, FailingCalls(name)) as users,
    ):
        users.add_user("dave")
    assert path.read_text() == OLD
    assert [each.name for each in path.parent.iterdir()] == ["users.toml"]


# --- Beside others -----------------------------------------------------------------------------


def test_a_link_stays_and_leads_to_the_new_file(path):
    link = path.parent / "link.toml"
    link.symlink_to(path.name)
    with changed_users(link) as users:
        users.add_user("dave")
    assert link.is_symlink()
    assert "dave" in path.read_text()


def test_mode_and_owner_stay(path):
    path.chmod(0o640)
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(path, 12345, 23456)
    before = path.stat()
    with changed_users(path) as users:
        users.add_user("dave")
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


def test_who_changes_it_second_waits_for_the_first(path):
    begun = threading.Event()

    def second():
        begun.set()
        with changed_users(path) as users:
            users.add_user("second")

    with changed_users(path) as users:
        thread = threading.Thread(target=second)
        thread.start()
        begun.wait()
        folder = os.open(path.parent, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        users.add_user("first")
    thread.join()
    assert {"first", "second"} <= set(read_security(path).users.names())


def test_who_keeps_the_folder_locked_keeps_nobody_waiting_without_end(path, monkeypatch):
    """Any user may, who may read it; a revocation would wait for that, and say nothing."""
    monkeypatch.setattr(replacement, "_LOCK_S", 0.0)
    before = path.read_text()
    folder = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    with pytest.raises(SecurityFileError, match="another process has it locked"):
        changed_users(path).__enter__()
    assert path.read_text() == before
    os.close(folder)
    with changed_users(path) as users:
        users.add_user("dave")
    assert "dave" in read_security(path).users.names()


def test_secrets_of_the_file_are_in_no_error(path):
    path.write_text(OLD.replace(SHA, "hunter2"))
    with suppress(SecurityFileError):
        changed_users(path).__enter__()
    with pytest.raises(SecurityFileError) as caught:
        read_security(path)
    assert "hunter2" not in str(caught.value)
