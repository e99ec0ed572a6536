"""`poe user`: who gets in, as one who administers a server adds, changes and removes it."""

import contextlib
import os
import pty
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from poe.cli import secret
from poe.security.scram import ITERATIONS, ITERATIONS_OF_PEOPLE, ScramKeys
from poe.security.security import read_security
from poe.security.token import split_token
from tests.cli.processes import DEADLINE_S, complaint, poe, poe_here
from tests.python_process import environment


@pytest.fixture
def path(tmp_path):
    return tmp_path / "users.toml"


@pytest.fixture
def user(path):
    def run(*arguments, **variables):
        return poe_here("user", *arguments, "--users", path, **variables)

    return run


def found(path, name="alice"):
    return read_security(path).users.find(name)


def opens(keys, password):
    """Whether keys were made of a password."""
    return ScramKeys.of_password(password, keys.iterations, keys.salt) == keys


def typed(monkeypatch, *passwords):
    """Have somebody type them at a terminal."""
    answers = iter(passwords)
    monkeypatch.setattr(secret, "has_terminal", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda _: next(answers))


# --- Adding --------------------------------------------------------------------------------------


def test_a_user_gets_a_password_that_is_printed_once(user, path):
    run = user("add", "alice")
    assert run.returncode == 0
    password = run.stdout.decode().removesuffix("\n")
    assert len(password) == 32, "160 bits, 5 in each character"
    [keys] = found(path).scram
    assert keys.iterations == ITERATIONS
    assert opens(keys, password)
    assert password not in path.read_text()
    assert b"poe reload" in run.stderr
    assert password.encode() not in run.stderr
    assert user("add", "bob").stdout != run.stdout


def test_the_file_is_made_for_its_owner_alone(user, path):
    user("add", "alice")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_password_goes_to_a_new_file_instead(user, path, tmp_path):
    run = user("add", "alice", "--to", tmp_path / "password")
    assert run.stdout == b""
    [keys] = found(path).scram
    assert opens(keys, (tmp_path / "password").read_text().strip())
    assert stat.S_IMODE((tmp_path / "password").stat().st_mode) == 0o600


def test_a_file_that_is_there_takes_no_password(user, path, tmp_path):
    (tmp_path / "password").write_text("mine")
    run = user("add", "alice", "--to", tmp_path / "password")
    assert run.returncode == 2
    assert "a file that can be made and is not there yet (File exists)" in complaint(run)
    assert (tmp_path / "password").read_text() == "mine"
    assert not path.exists()


def test_of_a_user_who_was_not_added_no_password_is_left(user, tmp_path):
    user("add", "alice")
    assert user("add", "alice", "--to", tmp_path / "password").returncode == 2
    assert not (tmp_path / "password").exists()


def test_a_password_of_a_file_is_made_hard_to_guess(user, path, tmp_path):
    (tmp_path / "password").write_text("pencil\n")
    run = user("add", "alice", "--password-file", tmp_path / "password")
    assert run.stdout == b""
    [keys] = found(path).scram
    assert keys.iterations == ITERATIONS_OF_PEOPLE
    assert opens(keys, "pencil")


def test_a_password_is_asked_for_twice(user, path, monkeypatch):
    typed(monkeypatch, "pencil", "pencil")
    assert user("add", "alice", "--password").returncode == 0
    assert opens(found(path).scram[0], "pencil")


@pytest.mark.parametrize(
    ("passwords", "told"),
    [(("pencil", "pencl"), "the two passwords differ"), (("",), "no password was typed")],
)
def test_a_password_that_was_mistyped_adds_nobody(user, path, monkeypatch, passwords, told):
    typed(monkeypatch, *passwords)
    assert told in complaint(user("add", "alice", "--password"))
    assert not path.exists()


@pytest.mark.slow
def test_a_password_may_be_piped_in_and_without_a_terminal_none_is_asked_for(path):
    run = poe("user", "add", "alice", "--users", path, "--password-file", "-", stdin=b"pencil\n")
    assert run.returncode == 0
    assert opens(found(path).scram[0], "pencil")


def test_a_user_with_a_certificate_needs_no_password(user, path):
    run = user("add", "alice", "--certificate", "URI:urn:poe:client:alice")
    assert run.stdout == b""
    assert found(path).scram == ()
    assert found(path).certificates == {"URI:urn:poe:client:alice"}


def test_a_user_is_added_together_with_what_it_may_do(user, path):
    user("add", "alice", "--topic", "orders", "--prefix", "team.")
    policy = read_security(path).policy
    assert policy.may("alice", "create", "topic", b"orders")
    assert policy.may("alice", "write", "topic", b"team.a")
    assert not policy.may("alice", "delete", "topic", b"orders")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a b"], "option 'NAME' is 'a b'; use 1 to 200 of"),
        (["poe.admin"], "option 'NAME' is 'poe.admin'; use 1 to 200 of"),
        (["alice", "--generate", "--password-file", "x"], "give one of --password"),
        (["alice", "--password-file", "/nowhere"], "/nowhere: cannot be read"),
        (["alice", "--certificate", "alice"], "certificate 'alice' is not allowed"),
        (["alice", "--topic", ""], "option 'topics' is ''; use names"),
        (["alice", "--topic", "t", "--operations", "fly"], "option 'operations' is 'fly'; use"),
    ],
)
def test_what_is_wrong_adds_nobody(user, path, arguments, told):
    run = user("add", *arguments)
    assert run.returncode == 2
    assert told in run.stderr.decode()
    assert not path.exists()


def test_a_name_that_is_there_is_refused_and_stays_as_it_was(user, path):
    user("add", "alice")
    before = path.read_bytes()
    assert "a name that" in complaint(user("add", "alice"))
    assert path.read_bytes() == before


# --- The file ------------------------------------------------------------------------------------


def test_comments_of_the_file_stay(user, path):
    path.write_text("version = 1\n# Who is on duty: ask Ada.\n")
    path.chmod(0o600)
    user("add", "alice")
    assert "# Who is on duty: ask Ada." in path.read_text()


def test_a_file_that_is_wrong_is_told_with_its_line_and_stays(user, path):
    path.write_text("version = 1\nusrs = {}\n")
    path.chmod(0o600)
    run = user("add", "alice", "--generate")
    assert run.returncode == 2
    assert "users.toml, line 2: 'usrs' is not known" in run.stderr.decode()
    assert path.read_text() == "version = 1\nusrs = {}\n"


def test_a_file_that_others_may_write_is_refused(user, path):
    user("add", "alice")
    path.chmod(0o620)
    assert "others than its owner may write it" in complaint(user("list"))


def test_a_file_that_others_may_read_is_told(user, path):
    user("add", "alice")
    path.chmod(0o644)
    run = user("list")
    assert run.returncode == 0
    assert b"others than its owner may read" in run.stderr


@pytest.mark.parametrize("command", [["list"], ["remove", "alice"]])
def test_a_folder_that_is_not_there_is_told(command, tmp_path):
    run = poe_here("user", *command, "--users", tmp_path / "nowhere" / "users.toml")
    assert run.returncode == 2
    assert "nowhere" in complaint(run)


def test_the_file_is_that_of_the_server_unless_another_is_named(path, tmp_path, monkeypatch):
    poe_here("user", "add", "alice", "--users", path)
    assert poe_here("user", "list", POE_USERS=str(path)).stdout == b"alice\tpassword\n"
    (tmp_path / "poe.toml").write_text(f"users = {str(path)!r}\n")
    monkeypatch.chdir(tmp_path)
    assert poe_here("user", "list").stdout == b"alice\tpassword\n"
    configuration = str(tmp_path / "poe.toml")
    monkeypatch.chdir("/")
    assert poe_here("user", "list", POE_CONFIG=configuration).stdout == b"alice\tpassword\n"
    assert "which file of users? give --users FILE" in complaint(poe_here("user", "list"))


def test_none_of_the_server_is_none_here(tmp_path, monkeypatch):
    (tmp_path / "poe.toml").write_text('users = "none"')
    monkeypatch.chdir(tmp_path)
    for run in (poe_here("user", "add", "alice"), poe_here("user", "list", POE_USERS="None")):
        assert run.returncode == 2
        assert "which file of users? give --users FILE" in complaint(run)
    assert [each.name for each in tmp_path.iterdir()] == ["poe.toml"]


@pytest.mark.parametrize("content", ["dir = " + "[" * 5000, "users = '~no-such-user/u'"])
def test_what_is_wrong_in_the_file_of_the_server_is_told(content, tmp_path, monkeypatch):
    (tmp_path / "poe.toml").write_text(content)
    monkeypatch.chdir(tmp_path)
    run = poe_here("user", "list")
    assert run.returncode == 2
    assert "poe.toml" in complaint(run)


@pytest.mark.parametrize("variables", [{}, {"POE_CONFIG": "poe.toml"}])
def test_a_file_of_the_server_that_cannot_be_read_is_named_as_the_server_does(
    variables, tmp_path, monkeypatch
):
    (tmp_path / "poe.toml").mkdir()
    monkeypatch.chdir(tmp_path)
    told = complaint(poe_here("user", "list", **variables))
    assert told == complaint(poe_here("serve", **variables))
    assert ("POE_CONFIG" in told) == bool(variables)


# --- Other credentials ---------------------------------------------------------------------------


def test_a_token_is_printed_once_and_ends(user, path):
    user("add", "alice")
    run = user("token", "alice", "--id", "ci.1", "--expires", "90d")
    [token] = found(path).tokens
    assert split_token(run.stdout.decode().strip()) == ("ci.1", token.sha256)
    assert token.id == "ci.1"
    lasts = datetime.fromtimestamp(token.expires_s, UTC) - datetime.now(UTC)
    assert timedelta(days=89, hours=23) < lasts <= timedelta(days=90)
    assert run.stdout.strip() not in path.read_bytes()


@pytest.mark.parametrize(
    ("text", "expires"),
    [("never", None), ("2999-01-02T00:00:00Z", datetime(2999, 1, 2, tzinfo=UTC).timestamp())],
)
def test_a_token_ends_at_a_time_or_never(user, path, text, expires):
    user("add", "alice")
    user("token", "alice", "--expires", text)
    assert found(path).tokens[0].expires_s == expires


@pytest.mark.parametrize("text", ["90", "0d", "-1d", "1999-01-01", "soon", "999999d9", "∞"])
def test_a_time_that_is_none_makes_no_token(user, path, text):
    user("add", "alice")
    run = user("token", "alice", f"--expires={text}")
    assert f"option '--expires' is '{text}'; use 90d, 12h" in complaint(run)
    assert found(path).tokens == ()


def test_a_token_without_an_id_has_that_of_its_user_and_the_day(user, path):
    user("add", "alice@example.com")
    user("token", "alice@example.com")
    today = datetime.now(UTC).date().isoformat()
    assert found(path, "alice@example.com").tokens[0].id == f"alice-example.com-{today}"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bob"], "option 'user' is 'bob'; use one that"),
        (["alice", "--id", "a b"], "option 'id' is 'a b'; use"),
        (["alice", "--id", "there"], "token 'there' is there already"),
    ],
)
def test_a_token_that_cannot_be_is_not_made(user, arguments, told):
    user("add", "alice")
    user("token", "alice", "--id", "there")
    run = user("token", *arguments)
    assert run.returncode == 2
    assert told in complaint(run)


def test_a_password_is_replaced_or_kept_for_a_while(user, path):
    first = user("add", "alice").stdout.decode().strip()
    second = user("password", "alice", "--keep").stdout.decode().strip()
    assert [opens(*each) for each in zip(found(path).scram, (first, second), strict=True)]
    third = user("password", "alice", "--keep").stdout.decode().strip()
    old, new = found(path).scram
    assert opens(old, second)
    assert opens(new, third)
    last = user("password", "alice").stdout.decode().strip()
    [keys] = found(path).scram
    assert opens(keys, last)


@pytest.mark.slow
def test_no_chosen_password_is_made_as_easy_to_guess_as_a_generated_one_may_be(
    user, path, monkeypatch
):
    user("add", "alice")
    before = path.read_bytes()
    typed(monkeypatch, "pencil", "pencil")
    run = user("password", "alice", "--password", "--keep")
    assert run.returncode == 2
    assert "leave out --keep" in complaint(run)
    assert path.read_bytes() == before
    typed(monkeypatch, "pencil", "pencil")
    user("password", "alice", "--password")
    typed(monkeypatch, "eraser", "eraser")
    user("password", "alice", "--password", "--keep")
    assert [each.iterations for each in found(path).scram] == [ITERATIONS_OF_PEOPLE] * 2


def test_credentials_are_revoked_and_the_user_stays(user, path):
    user("add", "alice", "--generate", "--certificate", "URI:a", "--certificate", "DNS:a")
    user("token", "alice", "--id", "one")
    user("token", "alice", "--id", "two")
    assert user("revoke", "alice", "--token", "one", "--certificate", "URI:a").returncode == 0
    assert [each.id for each in found(path).tokens] == ["two"]
    assert found(path).certificates == {"DNS:a"}
    user("revoke", "alice", "--password")
    assert found(path).scram == ()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["alice"], "what is to be revoked?"),
        (["alice", "--token", "of-bob"], "use one of alice: this is bob's"),
        (["alice", "--token", "nobody-s"], "option 'token' is 'nobody-s'"),
        (["carol", "--password"], "option 'user' is 'carol'"),
    ],
)
def test_what_is_not_the_user_s_is_not_revoked(user, path, arguments, told):
    user("add", "alice")
    user("add", "bob")
    user("token", "bob", "--id", "of-bob")
    before = path.read_bytes()
    run = user("revoke", *arguments)
    assert run.returncode == 2
    assert told in complaint(run)
    assert path.read_bytes() == before


def test_a_user_is_removed_with_all_that_it_had(user, path):
    user("add", "alice", "--topic", "orders")
    user("remove", "alice")
    assert read_security(path).users.names() == []
    assert read_security(path).policy.grants == ()


def test_who_is_removed_and_has_grants_in_a_second_file_is_named(user, path, tmp_path):
    """Else the next one who is called so would have them, and nobody knew."""
    user("add", "alice")
    acl = tmp_path / "acl.toml"
    acl.write_text(
        'version = 1\n[[grants]]\nprincipals = ["alice"]\noperations = ["read"]\ntopics = ["t"]\n'
    )
    acl.chmod(0o600)
    run = user("remove", "alice", POE_ACL=str(acl))
    assert run.returncode == 0
    assert b"a grant names 'alice', and no user has this name" in run.stderr


def test_who_is_removed_is_so_though_a_second_file_cannot_be_read(user, path, tmp_path):
    user("add", "alice")
    run = user("remove", "alice", POE_ACL=str(tmp_path / "none.toml"))
    assert run.returncode == 0
    assert b"grants of the option acl were not looked at" in run.stderr
    assert read_security(path).users.names() == []


def test_the_list_tells_how_each_gets_in_and_no_secret(user, path):
    user("add", "alice")
    user("add", "bob", "--certificate", "URI:b")
    token = user("token", "bob", "--id", "x", "--expires", "2999-01-01T00:00Z").stdout
    user("add", "carol")
    user("revoke", "carol", "--password")
    told = user("list").stdout
    assert told == (
        b"alice\tpassword\nbob\ttoken x until 2999-01-01, URI:b\ncarol\tcannot get in\n"
    )
    assert token.strip() not in told


@pytest.mark.slow
def test_a_password_is_typed_at_a_terminal_that_does_not_show_it(path):
    """Whatever standard input is: messages may be piped in beside it."""
    controlling, terminal = pty.openpty()
    own = "import fcntl, os, sys, termios; fcntl.ioctl(2, termios.TIOCSCTTY, 0); "
    own += "os.execv(sys.executable, [sys.executable, '-m', 'poe', *sys.argv[1:]])"
    command = [sys.executable, "-c", own, "user", "add", "alice", "--password", "--users", path]
    shown = b""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env=environment(),
    ) as process:
        os.close(terminal)
        for question in (b"new password of alice: ", b"once more: "):
            while not shown.endswith(question):
                shown += os.read(controlling, 1000)
            os.write(controlling, b"pencil\n")
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(controlling, 1000):
                shown += part
        assert process.wait(DEADLINE_S) == 0
    os.close(controlling)
    assert b"pencil" not in shown
    assert opens(found(path).scram[0], "pencil")


@pytest.mark.slow
def test_without_a_terminal_nobody_is_asked(path):
    command = [sys.executable, "-m", "poe", "user", "add", "alice", "--password", "--users", path]
    run = subprocess.run(
        command,
        input=b"pencil\npencil\n",
        capture_output=True,
        check=False,
        env=environment(),
        start_new_session=True,  # the one of whoever runs the tests is left
    )
    assert run.returncode == 2
    assert "there is no terminal to ask for a password on; use --password-file" in complaint(run)
    assert not path.exists()


@pytest.mark.slow
def test_who_cannot_be_told_the_password_is_not_added(path):
    command = [sys.executable, "-m", "poe", "user", "add", "alice", "--users", str(path)]
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(command, stdout=full, check=False, env=environment())
    assert run.returncode == 4
    assert not path.exists()
