"""Which server a command asks, and how it gets in: what is typed, told and saved."""

import contextlib
import os
import shutil
import socket
import stat
import time
from pathlib import Path

import pytest

from poe.cli import endpoint as endpoint_module
from poe.cli import node_place, saved_login, secret
from poe.cli.endpoint import CALL_TIMEOUT_S
from poe.cli.endpoint_options import endpoint_of, variables
from poe.cli.saved_login import SavedLogins
from poe.config import CLIENT_VARIABLES, Config, option_types
from poe.errors import ConfigError, ConnectFailed, OptionError
from poe.security.credentials import Certificate, PasswordFile, Scram, Token, TokenFile
from poe.security.entry import Entry
from poe.security.tls import Tls
from poe.security.token import make_token
from tests.cli.processes import complaint, poe_here


@pytest.fixture
def logins(tmp_path):
    return SavedLogins(tmp_path / "configuration")


@pytest.fixture
def endpoint(logins):
    def found(given=None, **environment):
        return endpoint_of(given or {}, environment, logins)

    return found


@pytest.fixture
def stdin():
    """Have standard input hold some bytes; what is left of them is returned by the function."""
    before = os.dup(0)

    def hold(content):
        end, other = os.pipe()
        os.write(other, content)
        os.close(other)
        os.dup2(end, 0)
        os.close(end)

    yield hold
    os.dup2(before, 0)
    os.close(before)


def _find_no_home(name):
    raise RuntimeError(name)


@pytest.mark.parametrize("find", [_find_no_home, Path("~/.config").joinpath])
def test_who_has_no_home_has_no_login_and_asks_servers_all_the_same(find, monkeypatch):
    monkeypatch.setattr(saved_login, "user_config_path", find)
    monkeypatch.setattr(node_place, "user_data_path", find)
    assert endpoint_of({}, {}).url == "poe://127.0.0.1:5555"
    assert endpoint_of({"url": "poe://127.0.0.1:1"}, {}).entry == Entry()
    with pytest.raises(OptionError, match="'HOME' is 'none'"):
        SavedLogins().save({"url": "poe://127.0.0.1:1"}, {})


def test_without_a_word_it_is_the_server_of_this_machine(endpoint):
    found = endpoint()
    assert (found.url, found.host, found.port) == ("poe://127.0.0.1:5555", "127.0.0.1", 5555)
    assert found.entry == Entry()


@pytest.mark.parametrize(
    ("given", "environment", "url"),
    [
        ({"port": "7"}, {"POE_HOST": "there", "POE_URL": "poe://elsewhere"}, "poe://there:7"),
        ({"url": "poe://a:1"}, {"POE_HOST": "there", "POE_URL": "poe://b"}, "poe://a:1"),
        ({}, {"POE_HOST": "there", "POE_PORT": "8", "POE_URL": "poe://b:2"}, "poe://b:2"),
        ({"host": "::1"}, {"POE_PORT": "8"}, "poe://[::1]:8"),
        ({"url": "poe://a"}, {}, "poe://a:5555"),
        ({"url": "poes://a"}, {}, "poes://a:5556"),
    ],
)
def test_what_is_typed_outdoes_the_environment(endpoint, given, environment, url):
    assert endpoint(given, **environment).url == url


@pytest.mark.parametrize(
    ("given", "environment", "is_told"),
    [
        ({}, {}, False),
        ({"token_file": "/t"}, {}, False),
        ({"port": "5555"}, {}, True),
        ({"url": "poe://h"}, {}, True),
        ({}, {"POE_URL": "poe://h"}, True),
    ],
)
def test_it_is_known_whether_anybody_has_named_the_server(endpoint, given, environment, is_told):
    assert endpoint(given, **environment).is_told is is_told


def test_of_several_servers_the_first_is_asked(endpoint):
    found = endpoint({"url": "poe://a:1,b:2"})
    assert (found.url, found.host, found.port) == ("poe://a:1,b:2", "a", 1)


SAFE = {"url": "poes://a"}


@pytest.mark.parametrize(
    ("given", "environment", "entry"),
    [
        ({"ca": "c"}, {}, Entry(Tls(ca="c"))),
        ({"server_name": "n"}, {"POE_CA": "c"}, Entry(Tls(ca="c", server_name="n"))),
        ({"token_file": "t"}, {}, Entry(Tls(), TokenFile("t"))),
        ({"user": "u", "password_file": "p"}, {}, Entry(Tls(), PasswordFile("u", "p"))),
        ({"user": "u"}, {"POE_PASSWORD_FILE": "p"}, Entry(Tls(), PasswordFile("u", "p"))),
        ({"token_file": "t"}, {"POE_USER": "u"}, Entry(Tls(), TokenFile("t"))),
        (
            {"user": "u", "password_file": "p"},
            {"POE_TOKEN_FILE": "t"},
            Entry(Tls(), PasswordFile("u", "p")),
        ),
        (
            {"certificate": "c", "key": "k"},
            {"POE_KEY": "another"},
            Entry(Tls(certificate="c", key="k"), Certificate()),
        ),
        (
            {"certificate": "c", "token_file": "t"},
            {"POE_KEY": "another"},
            Entry(Tls(certificate="c"), TokenFile("t")),
        ),
    ],
)
def test_options_say_how_to_get_in(endpoint, given, environment, entry):
    assert endpoint({**SAFE, **given}, **environment).entry == entry


def test_a_plaintext_server_is_shown_no_authorities_of_the_environment(endpoint):
    assert endpoint({"host": "there"}, POE_CA="c").entry == Entry()


@pytest.mark.parametrize(
    ("given", "environment", "told"),
    [
        ({"url": "poe://a", "port": "7"}, {}, "option '--port' is '7'; use --url alone, or"),
        ({"url": "http://a"}, {}, "option '--url (or POE_URL)' is 'http://a'; use poe"),
        ({"url": "kafka://a"}, {}, "option '--url (or POE_URL)' is 'kafka://a'; use poe"),
        ({"url": "http://a"}, {}, "use poe://host:port, or poes:// for TLS"),
        ({"url": f"poe://a:{'1' * 5000}"}, {}, "use poe://host:port, or poes:// for TLS"),
        ({}, {"POE_URL": ""}, "option 'POE_URL' is ''; use URL, or leave it out"),
        ({"user": ""}, {}, "option '--user' is ''; use NAME, or leave it out"),
        ({"port": "0"}, {}, "option '--port (or POE_PORT)' is '0'; use a whole number, 1 to 65535"),
        ({}, {"POE_PORT": "none"}, "is 'none'; use --url poes://host:port (or POE_URL)"),
        ({"ca": "c"}, {}, "option '--ca' is 'c'; use it with --url poes://…, for TLS"),
        ({"ca": "c"}, {"POE_URL": "poe://a"}, "option '--ca' is 'c'; use it with --url poes://…"),
        ({}, {"POE_CA": "c", "POE_URL": "poe://a"}, "option '--ca' is 'c'; use it with"),
        ({**SAFE, "key": "k"}, {}, "option '--key' is 'k'; use it with --certificate"),
        ({"password_file": "p"}, {}, "option '--password-file' is 'p'; use it with --user"),
        ({"token_file": "t", "user": "u"}, {}, "option '--user' is 'u'; use a token, or a user"),
        ({}, {"POE_TOKEN_FILE": "t", "POE_USER": "u"}, "use a token, or a user"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_name(endpoint, given, environment, told):
    with pytest.raises(OptionError) as refused:
        endpoint(given, **environment)
    assert told in str(refused.value)


def test_no_node_takes_the_variable_of_a_client_for_an_option():
    options = {f"POE_{name.upper()}" for name in option_types()}
    assert set(variables()) <= CLIENT_VARIABLES | options
    assert not CLIENT_VARIABLES & options
    Config.load({}, dict.fromkeys(CLIENT_VARIABLES, "x"), "/dev/null")


# --- Secrets -------------------------------------------------------------------------------------


def test_a_password_may_be_piped_in_and_what_follows_is_left(endpoint, stdin):
    stdin(b"pencil\r\nmessage\n")
    found = endpoint({"user": "u", "password_file": "-"}).entry.credentials
    assert found == Scram("u", "pencil")
    assert "pencil" not in repr(found)
    assert os.read(0, 100) == b"message\n"


def test_a_token_may_be_piped_in(endpoint, stdin):
    token, _ = make_token("one")
    stdin(token.encode())
    assert endpoint({"token_file": "-"}).entry.credentials == Token(token)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe\n"])
def test_nothing_piped_in_is_no_secret(endpoint, stdin, content):
    stdin(content)
    with pytest.raises(OptionError, match="first line of standard input"):
        endpoint({"user": "u", "password_file": "-"})


def test_a_password_is_asked_for_on_the_terminal_and_not_shown(endpoint, monkeypatch):
    asked = []

    def answer(question):
        asked.append(question)
        return "pencil"

    monkeypatch.setattr(secret, "has_terminal", lambda: True)
    monkeypatch.setattr("getpass.getpass", answer)
    assert endpoint({"user": "u"}).entry.credentials == Scram("u", "pencil")
    assert asked == ["password of u at poe://127.0.0.1:5555: "]


def test_without_a_terminal_nobody_is_asked(endpoint, monkeypatch):
    monkeypatch.setattr(secret, "has_terminal", lambda: False)
    with pytest.raises(ConfigError, match="use --password-file"):
        endpoint({"user": "u"})


@pytest.mark.parametrize("given", [{"user": "u"}, {"user": "u", "password_file": "-"}])
def test_a_key_for_completion_asks_nobody(logins, given):
    with pytest.raises(ConfigError, match="nobody can be asked"):
        endpoint_of(given, {}, logins, may_ask=False)


@pytest.mark.parametrize("name", ["token_file", "password_file"])
def test_a_secret_that_others_can_read_is_told(endpoint, tmp_path, capsys, name):
    path = tmp_path / "secret"
    path.write_text("secret")
    who = {} if name == "token_file" else {"user": "u"}
    path.chmod(0o600)
    endpoint({name: str(path), **who})
    assert capsys.readouterr().err == ""
    path.chmod(0o640)
    endpoint({name: str(path), **who})
    told = capsys.readouterr().err
    assert told == f"poe: others than its owner may read {path}; use chmod 600 {path}\n"


def test_nobody_is_told_to_close_a_folder_to_others(endpoint, tmp_path, capsys):
    tmp_path.chmod(0o755)
    endpoint({"token_file": str(tmp_path)})
    assert not capsys.readouterr().err


# --- Saved logins --------------------------------------------------------------------------------

THERE = {"url": "poes://there:5556", "user": "alice"}
THERE_FILES = {"ca": b"the authority", "password_file": b"pencil\n"}


def entry_there(logins):
    kept = logins.find(THERE["url"])
    return Entry(Tls(ca=kept["ca"]), PasswordFile("alice", kept["password_file"]))


def test_a_login_holds_where_nobody_says_another_server(endpoint, logins):
    logins.save(THERE, THERE_FILES)
    assert endpoint().url == "poes://there:5556"
    assert endpoint().entry == entry_there(logins)
    assert endpoint({"url": "poes://there"}).entry == entry_there(logins)
    assert endpoint(POE_URL="poes://there:5556").entry == entry_there(logins)


def test_a_login_is_none_for_another_server(endpoint, logins):
    logins.save(THERE, THERE_FILES)
    assert endpoint({"url": "poes://there:5557"}).entry == Entry(Tls())
    assert endpoint({"url": "poe://there:5556"}).entry == Entry()
    assert endpoint({"port": "5556"}).entry == Entry()
    assert endpoint(POE_HOST="there").entry == Entry()


def test_a_credential_that_is_typed_goes_with_the_place_of_the_login(endpoint, logins):
    logins.save(THERE, THERE_FILES)
    found = endpoint({"token_file": "t"})
    assert found.url == "poes://there:5556"
    assert found.entry == Entry(Tls(ca=logins.find(None)["ca"]), TokenFile("t"))


def test_the_password_of_one_user_is_not_tried_for_another(endpoint, logins, stdin):
    logins.save(THERE, THERE_FILES)
    with pytest.raises(ConfigError, match="nobody can be asked"):
        endpoint_of({"user": "bob"}, {}, logins, may_ask=False)


def test_the_last_login_is_the_current_one_and_each_url_keeps_its_own(logins):
    logins.save(THERE, THERE_FILES)
    logins.save({"url": "poes://b:1"}, {"token_file": b"x"})
    assert logins.find(None)["url"] == "poes://b:1"
    assert logins.find(THERE["url"])["user"] == "alice"
    logins.save({"url": "poes://there:5556"}, {})
    assert logins.find(None) == {"url": "poes://there:5556"}, "nothing of the one before"


def test_a_folder_that_is_typed_is_the_server_of_this_machine(endpoint, logins, tmp_path):
    logins.save(THERE, THERE_FILES)
    found = endpoint({"dir": str(tmp_path)})
    assert (found.url, found.entry) == ("poe://127.0.0.1:5555", Entry())
    there = endpoint({"dir": str(tmp_path), "url": THERE["url"]})
    assert there.entry.credentials is None
    assert there.entry.tls.ca, "what a login says of the server holds"
    assert endpoint(POE_DIR=str(tmp_path)).url == THERE["url"]


@pytest.mark.parametrize("url", ["poe://bob:pencil@host", "poes://bob:pencil@host:1,other"])
def test_a_user_in_a_url_is_hidden_and_the_way_of_commands_named(endpoint, url):
    with pytest.raises(OptionError, match=r"hidden.*--user with --password") as raised:
        endpoint({"url": url})
    assert "pencil" not in str(raised.value)
    assert "credentials" not in str(raised.value)


def test_a_login_is_for_its_owner_alone(logins, tmp_path):
    logins.save(THERE, THERE_FILES)
    for path in (tmp_path / "configuration" / "logins").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_who_logs_out_is_forgotten(endpoint, logins, tmp_path):
    logins.save(THERE, THERE_FILES)
    assert logins.remove(None)
    assert not logins.remove(None)
    assert endpoint().entry == Entry()
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


@pytest.mark.parametrize("renamed_count", [0, 1, 2])
def test_who_is_killed_while_a_login_is_replaced_has_one_and_forgets_all_of_it(
    endpoint, logins, tmp_path, monkeypatch, renamed_count
):
    logins.save(THERE, THERE_FILES)
    rename, names = Path.rename, iter(range(10))

    def rename_or_die(path, target):
        if next(names) == renamed_count:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_or_die)
    monkeypatch.setattr(shutil, "rmtree", dying_rmtree(shutil.rmtree, renamed_count == 2))
    with contextlib.suppress(KeyboardInterrupt):
        logins.save({**THERE, "user": "bob"}, THERE_FILES)
    monkeypatch.undo()
    assert endpoint().url == THERE["url"]
    assert logins.find(None)["user"] == ("bob" if renamed_count == 2 else "alice")
    assert logins.remove(THERE["url"])
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def dying_rmtree(rmtree, is_dying):
    """Have whoever lets go of the former login die at that."""

    def rmtree_or_die(path, **options):
        if is_dying and path.suffix == ".old" and path.exists():
            raise KeyboardInterrupt
        rmtree(path, **options)

    return rmtree_or_die


@pytest.mark.parametrize("moves_count", [1, 2])
def test_who_reads_while_a_login_is_replaced_finds_one(logins, tmp_path, monkeypatch, moves_count):
    logins.save(THERE, THERE_FILES)
    [folder] = (tmp_path / "configuration" / "logins").iterdir()
    old = folder.with_name(f"{folder.name}.old")
    moves = [(folder, old), (old, folder)][:moves_count]
    read_text = Path.read_text

    def read_too_late(path, *arguments):
        if path.name == "login.toml" and moves:
            place, other = moves.pop(0)
            place.rename(other)
        return read_text(path, *arguments)

    monkeypatch.setattr(Path, "read_text", read_too_late)
    assert logins.find(THERE["url"])["user"] == "alice"


@pytest.mark.parametrize("place", [{}, {"port": "1"}, {"url": THERE["url"]}], ids=str)
def test_a_home_that_cannot_be_looked_into_has_no_logins(tmp_path, place):
    (tmp_path / "file").touch()
    found = endpoint_of(place, {}, SavedLogins(tmp_path / "file" / "poe"))
    assert found.entry.credentials is None


def test_a_home_that_this_user_may_not_see_has_no_logins(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert SavedLogins(Path("home")).find(THERE["url"]) == {}


def test_a_login_that_this_user_may_not_read_is_told_with_its_folder(logins, tmp_path, monkeypatch):
    """Of root, of `sudo poe login` maybe: without it the command would go on as somebody else."""
    logins.save(THERE, {})

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ConfigError, match=str(tmp_path)):
        logins.find(THERE["url"])


def test_a_login_that_was_damaged_is_told_with_its_folder(endpoint, logins, tmp_path):
    logins.save(THERE, THERE_FILES)
    [path] = tmp_path.rglob("login.toml")
    path.write_bytes(b"= nonsense")
    with pytest.raises(ConfigError, match="holds no login that can be used"):
        endpoint()


def test_a_command_goes_on_at_the_next_address_where_one_cannot_be_reached(node):
    host, port = node.address
    node.put("orders", b"bell")
    for url in (f"poe://{host}:1,{host}:{port}", f"poe://{host}:{port},{host}:1"):
        assert poe_here("topic", "list", "--url", url).stdout.startswith(b"orders\t")
        assert poe_here("put", "orders", "bicycle", "--url", url).returncode == 0
    ended = poe_here("topic", "list", "--url", f"poe://{host}:1,{host}:2")
    assert "cannot reach a server at" in complaint(ended)


@pytest.fixture
def mute():
    """The port of a machine that does not answer: connecting to it takes for ever."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        place = listening.getsockname()
        # The kernel takes one or two, and drops what more of them send.
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(place)
        yield place[1]


def test_a_look_at_groups_waits_for_no_address_as_long_as_for_an_answer(
    node, endpoint, mute, monkeypatch
):
    monkeypatch.setattr(endpoint_module, "LOOK_TIMEOUT_S", 0.2)
    host, port = node.address
    began_s = time.monotonic()
    several = endpoint({"url": f"poe://{host}:{mute},{host}:{port}"})
    with several.looking(CALL_TIMEOUT_S) as connection:
        assert connection.control("groups") == []
    with several.connect() as connection:
        assert connection.control("groups") == []
    alone = endpoint({"url": f"poe://{host}:{mute}"})
    with pytest.raises(ConnectFailed), alone.looking(CALL_TIMEOUT_S):
        pass
    assert time.monotonic() - began_s < CALL_TIMEOUT_S / 2
