"""Users at the command line: logging in, doing what is granted, being taken off the list."""

import signal
import stat

import pytest

from poe.cli.exit_code import ExitCode
from tests.cli.processes import Background, Server, complaint, poe, poe_here
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with what an administrator makes once."""
    place = tmp_path_factory.mktemp("place")
    for command in (
        ("certificates", place, "--host", "localhost", "--client", "carol"),
        ("user", "add", "alice", "--topic", "orders", "--to", place / "alice.password"),
        ("user", "token", "alice", "--id", "one", "--to", place / "alice.token"),
        ("user", "add", "carol", "--certificate", "URI:urn:poe:client:carol", "--topic", "orders"),
    ):
        run = poe_here(*command, POE_USERS=str(place / "users.toml"))
        assert run.returncode == 0, run.stderr
    return place


@pytest.fixture(scope="module")
def node(place):
    users = ("--users", place / "users.toml", "--tls-port", 0)
    tls = ("--tls-certificate", place / "server.pem", "--tls-key", place / "server.key")
    with Server(place / "data", *users, *tls) as server:
        server.url = f"poes://localhost:{server.tls_port}"
        yield server


@pytest.fixture
def home(tmp_path):
    """The variables of a user who has a home, and is not the administrator."""
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "configuration"),
        "XDG_DATA_HOME": str(tmp_path / "nothing"),
    }


@pytest.fixture
def as_alice(place):
    return "--user", "alice", "--password-file", place / "alice.password"


def test_each_way_in_leads_in(place, node, home, as_alice):
    there = "--url", node.url, "--ca", place / "ca.pem"
    for way in (
        (*there, *as_alice),
        (*there, "--token-file", place / "alice.token"),
        ("--port", node.port, *as_alice),
        ("--port", node.port, "--token-file", place / "alice.token"),
    ):
        assert poe("put", "orders", "x", *way, **home).returncode == 0, way


def test_a_secret_is_piped_in_and_what_follows_is_put(place, node, home):
    password = (place / "alice.password").read_bytes()
    told = ("--port", node.port, "--user", "alice", "--password-file", "-")
    run = poe("put", "orders", "-", *told, stdin=password + b"one\ntwo\n", **home)
    assert run.stdout.startswith(b"2 messages"), run.stderr


def test_who_shows_nothing_does_not_get_in(node, home):
    run = poe("put", "orders", "x", "--port", node.port, **home)
    assert run.returncode == ExitCode.FAILURE
    assert "authenticate first: give --user with --password-file" in complaint(run)


def test_who_trusts_another_authority_is_told_of_the_option(node, home, as_alice):
    run = poe("topics", "--url", node.url, *as_alice, **home)
    assert run.returncode == ExitCode.UNREACHABLE
    assert "not known here; give that as --ca" in complaint(run)


@pytest.mark.parametrize(
    ("name", "content"),
    [("password_file", b"mistaken\n"), ("password_file", b"\n"), ("token_file", b"mistaken\n")],
)
def test_what_is_wrong_does_not_get_in_and_is_not_repeated(node, home, tmp_path, name, content):
    (tmp_path / "secret").write_bytes(content)
    (tmp_path / "secret").chmod(0o600)
    flag = f"--{name.replace('_', '-')}"
    who = ("--user", "alice") if name == "password_file" else ()
    run = poe("topics", "--port", node.port, flag, tmp_path / "secret", *who, **home)
    assert run.returncode in {ExitCode.FAILURE, ExitCode.USAGE}
    assert "mistaken" not in complaint(run)


def test_what_is_not_granted_is_refused(place, node, home, as_alice):
    run = poe("put", "secrets", "x", "--port", node.port, *as_alice, **home)
    assert run.returncode == ExitCode.FAILURE
    assert "not authorized" in complaint(run)
    run = poe("tree", "--port", node.port, *as_alice, **home)
    assert run.returncode == ExitCode.FAILURE


def test_a_user_sees_the_topics_that_it_may_know(place, node, home, as_alice):
    there = "--port", node.port, "--dir", place / "data"
    poe("put", "secrets", "x", *there, **home)
    poe("put", "orders", "x", *there, **home)
    for told in (b"orders\n", b"orders\t:w\n"):
        command = "status" if b":w" in told else "topics"
        run = poe(command, "--port", node.port, *as_alice, **home)
        assert (run.returncode, run.stdout) == (0, told), run.stderr
        assert told in poe(command, *there, **home).stdout


def test_topics_are_completed_by_who_needs_not_be_asked(place, node, home):
    def completed(who):
        words = f"poe read --port {node.port} {who} ord"
        count = str(len(words.split()) - 1)
        environment = {"_POE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
        run = poe("", **environment, **home)
        assert (run.returncode, run.stderr) == (0, b"")
        return run.stdout.strip()

    poe("put", "orders", "x", "--port", node.port, "--dir", place / "data", **home)
    assert completed(f"--token-file {place / 'alice.token'}") == b"orders"
    assert completed("--user alice --password-file -") == b""
    assert completed("--user alice") == b""


def test_a_certificate_is_a_credential(place, tmp_path, home):
    users = ("--users", place / "users.toml", "--tls-port", 0)
    tls = ("--tls-certificate", place / "server.pem", "--tls-key", place / "server.key")
    client = "--certificate", place / "carol.pem", "--key", place / "carol.key"
    ca = place / "ca.pem"
    with Server(tmp_path / "data", *users, *tls, "--tls-client-ca", ca) as server:
        there = f"poes://localhost:{server.tls_port}", "--ca", ca
        run = poe("put", "orders", "x", "--url", *there, *client, **home)
        assert run.returncode == 0, run.stderr
        assert poe("login", *there, *client, **home).returncode == 0
        assert poe("read", "orders", **home).stdout == b"x\n"
        poe("logout", **home)
        run = poe("topics", "--url", *there, **home)
        assert "authenticate first" in complaint(run)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "of an authority that is not known here"),
        (["--ca", "ca.pem", "--server-name", "poe.example.com"], "for other names"),
        (["--ca", "alice.password"], "holds no certificate"),
        (["--ca", "nowhere.pem"], "cannot be read"),
    ],
)
def test_a_server_that_cannot_be_trusted_is_told(place, node, home, options, told):
    options = [place / each if each.endswith(("pem", "password")) else each for each in options]
    run = poe("topics", "--url", node.url, *options, **home)
    assert run.returncode in {ExitCode.UNREACHABLE, ExitCode.USAGE}
    assert told in complaint(run)


def test_tls_where_there_is_none_and_the_reverse_are_told(place, node, home, as_alice):
    tls_port = node.tls_port
    plain = ("--url", f"poes://localhost:{node.port}", "--ca", place / "ca.pem")
    for way in (plain, ("--port", tls_port)):
        run = poe("topics", *way, *as_alice, **home)
        assert run.returncode in {ExitCode.UNREACHABLE, ExitCode.FAILURE}
        assert complaint(run)


# --- Logins --------------------------------------------------------------------------------------


def test_who_has_logged_in_says_nothing_more(place, node, home, as_alice, tmp_path):
    run = poe("login", node.url, "--ca", place / "ca.pem", *as_alice, **home)
    assert run.stdout == f"logged in as alice at {node.url}\n".encode(), run.stderr
    for path in (tmp_path / "configuration").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name == "configuration", path
    assert poe("put", "orders", "x", **home).returncode == 0
    assert poe("topics", "--url", node.url, **home).stdout == b"orders\n"
    assert poe("logout", **home).returncode == 0
    assert poe("logout", **home).returncode == ExitCode.USAGE
    assert not [path for path in (tmp_path / "configuration").rglob("*") if path.is_file()]


def test_who_names_the_folder_is_the_administrator_in_spite_of_a_login(place, node, home, as_alice):
    run = poe("login", node.url, "--ca", place / "ca.pem", *as_alice, **home)
    assert run.returncode == 0, run.stderr
    for there in ("--port", node.port), ("--url", node.url):
        assert poe("tree", *there, "--dir", place / "data", **home).returncode == 0, there


def test_a_token_and_a_certificate_are_kept_too(place, node, home):
    there = node.url, "--ca", place / "ca.pem"
    run = poe("login", *there, "--token-file", place / "alice.token", **home)
    assert run.stdout == f"logged in at {node.url}\n".encode(), run.stderr
    assert poe("put", "orders", "x", **home).returncode == 0


def test_who_does_not_get_in_has_no_login(place, node, home, tmp_path):
    (tmp_path / "password").write_text("wrong")
    (tmp_path / "password").chmod(0o600)
    wrong = ("--user", "alice", "--password-file", tmp_path / "password")
    run = poe("login", node.url, "--ca", place / "ca.pem", *wrong, **home)
    assert run.returncode == ExitCode.FAILURE
    assert complaint(run) == "poe: authentication failed"
    assert not (tmp_path / "configuration").exists()


# --- The administrator ---------------------------------------------------------------------------


def test_a_login_that_cannot_be_kept_is_told_with_its_place(place, node, home, as_alice):
    elsewhere = {**home, "XDG_CONFIG_HOME": "/proc/nothing"}
    run = poe_here("login", node.url, "--ca", place / "ca.pem", *as_alice, **elsewhere)
    assert run.returncode == ExitCode.FAILURE
    told = "poe: the system refuses: No such file or directory (/proc/nothing)"
    assert complaint(run) == told


def test_who_owns_the_folder_is_the_administrator(place, node, home):
    for how in ({"POE_DIR": str(place / "data")}, {}):
        options = () if how else ("--dir", place / "data")
        assert poe("tree", "--port", node.port, *options, **home, **how).returncode == 0
        run = poe("reload", "--port", node.port, *options, **home, **how)
        assert run.returncode == 0, run.stderr


def test_a_server_without_users_is_not_shown_the_token_of_another(node, place, server, home):
    there = ("--port", server.port, "--dir", place / "data")
    assert poe("put", "t", "x", *there, **home).returncode == 0
    assert poe("reload", *there, **home).returncode == ExitCode.FAILURE


def test_a_user_of_the_server_is_not_the_administrator_by_that(place, node, home, as_alice):
    run = poe("reload", "--port", node.port, "--dir", place / "data", *as_alice, **home)
    assert run.returncode == ExitCode.FAILURE
    assert "not authorized to administer the node" in complaint(run)


@pytest.fixture
def own(place, tmp_path):
    """A server whose users a test may change."""
    users = tmp_path / "users.toml"
    users.write_bytes((place / "users.toml").read_bytes())
    users.chmod(0o600)
    with Server(tmp_path / "data", "--users", users, "--reload-interval", 0) as server:
        server.users, server.data = users, tmp_path / "data"
        yield server


def test_a_reload_takes_what_was_changed(own, home):
    run = poe("user", "add", "bob", "--users", own.users, "--topic", "t", "--to", own.data / "b")
    who = ("--port", own.port, "--user", "bob", "--password-file", own.data / "b")
    assert run.returncode == 0
    assert poe("put", "t", "x", *who, **home).returncode == ExitCode.FAILURE
    run = poe("reload", "--port", own.port, "--dir", own.data, **home)
    assert run.stdout == b"reloaded\tbob added\t0 connections ended\n", run.stderr
    assert poe("put", "t", "x", *who, **home).returncode == 0
    poe("user", "remove", "bob", "--users", own.users)
    assert poe("reload", "--port", own.port, "--dir", own.data, **home).returncode == 0
    assert poe("put", "t", "x", *who, **home).returncode == ExitCode.FAILURE


def test_a_server_without_users_reloads_its_certificate(place, tmp_path, home):
    poe_here("certificates", tmp_path / "tls", "--host", "localhost")
    files = (
        "--tls-certificate",
        tmp_path / "tls/server.pem",
        "--tls-key",
        tmp_path / "tls/server.key",
    )
    with Server(tmp_path / "data", "--tls-port", 0, *files, "--reload-interval", 0) as server:
        poe_here("certificates", tmp_path / "tls", "--host", "localhost", "--renew")
        run = poe("reload", "--port", server.port, **home)
        assert run.stdout == b"reloaded\t0 connections ended\n", run.stderr
        there = ("--url", f"poes://localhost:{server.tls_port}", "--ca", tmp_path / "tls/ca.pem")
        assert poe("topics", *there, **home).returncode == 0


def test_a_reload_of_a_file_that_is_wrong_is_refused_with_its_line(own, home, as_alice):
    own.users.write_text("version = 1\nusrs = {}\n")
    run = poe("reload", "--port", own.port, "--dir", own.data, **home)
    assert run.returncode == ExitCode.FAILURE
    assert "users.toml, line 2: 'usrs' is not known" in complaint(run)
    assert poe("put", "orders", "x", "--port", own.port, *as_alice, **home).returncode == 0


def test_a_hangup_has_a_server_reload(own, home):
    poe_here("user", "add", "bob", "--users", own.users, "--to", own.data / "b")
    own.process.send_signal(signal.SIGHUP)
    own.read_until(b"'users_added': ['bob']", pipe=own.process.stderr)
    who = ("--user", "bob", "--password-file", own.data / "b")
    assert poe("topics", "--port", own.port, *who, **home).returncode == 0


def test_a_hangup_reaches_a_node_in_a_process_of_its_own(place, tmp_path, home):
    users = tmp_path / "users.toml"
    users.write_bytes((place / "users.toml").read_bytes())
    users.chmod(0o600)
    options = ("--users", users, "--reload-interval", 0, "--isolation", "process")
    with Server(tmp_path / "data", *options) as server:
        poe_here("user", "add", "bob", "--users", users, "--to", tmp_path / "b")
        server.process.send_signal(signal.SIGHUP)
        server.read_until(b"'users_added': ['bob']", pipe=server.process.stderr)
        who = ("--user", "bob", "--password-file", tmp_path / "b")
        assert poe("topics", "--port", server.port, *who, **home).returncode == 0


def test_a_follower_whose_user_is_removed_is_cut_off(own, home, as_alice):
    poe("put", "orders", "one", "--port", own.port, *as_alice, **home)
    follow = ("read", "orders", "--follow", "--port", own.port, *as_alice)
    with Background(*follow, **home) as follower:
        follower.read_until(b"one\n")
        poe_here("user", "remove", "alice", "--users", own.users)
        assert poe("reload", "--port", own.port, "--dir", own.data, **home).returncode == 0
        wait_until(lambda: follower.process.poll() is not None)
    assert follower.process.returncode == ExitCode.FAILURE


def test_no_option_takes_a_secret_itself():
    told = poe_here("put", "--help").stdout
    assert b"--password-file" in told
    assert b"--password " not in told
    assert b"--token " not in told
