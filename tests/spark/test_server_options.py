"""Reads and writes have the same options for which server they ask, and how they get in."""

import pickle
import subprocess
import sys

import pytest

from poe.errors import OptionError, SecurityError, SecurityFileError, UnknownOption
from poe.protocol.server import Server
from poe.security import Certificate, Entry, PasswordFile, Scram, Tls, Token, TokenFile
from poe.security.token import make_token
from poe.spark.options import check_options
from poe.spark.read_options import ReadOptions
from poe.spark.server_options import (
    DEFAULT_SERVER,
    check_files,
    names_server,
    options_of,
    parse_servers,
)
from poe.spark.write_options import WriteOptions
from tests.python_process import environment

pytestmark = pytest.mark.spark

URL = "poes://h:77"
SECRET, _ = make_token("of-a-test")


def test_a_url_host_and_port_or_nothing_name_a_server():
    assert parse_servers({}) == (DEFAULT_SERVER,)
    assert parse_servers({"URL": "poe://h:77"}) == (Server("h", 77),)
    assert parse_servers({"url": "poe://h"}) == (Server("h", 5555),)
    assert parse_servers({"host": "h"}) == (Server("h", 5555),)
    assert parse_servers({"port": "7"}) == (Server("127.0.0.1", 7),)
    assert parse_servers({"url": "poes://h"}) == (Server("h", 5556, Entry(Tls())),)


def test_a_url_may_name_several_servers_which_are_got_into_in_one_way():
    found = parse_servers({"url": "poes://a,b:7", "tokenFile": "/t"})
    entry = Entry(Tls(), TokenFile("/t"))
    assert found == (Server("a", 5556, entry), Server("b", 7, entry))


def test_several_servers_travel_in_one_url():
    found = parse_servers({"url": "poe://a:1,[::1]:2,c:3"})
    assert options_of(*found) == {"url": "poe://a:1,[::1]:2,c:3"}


ENTRIES = {
    "caFile": ({"caFile": "/ca"}, Entry(Tls(ca="/ca"))),
    "serverName": ({"serverName": "n"}, Entry(Tls(server_name="n"))),
    "tokenFile": ({"tokenFile": "/t"}, Entry(Tls(), TokenFile("/t"))),
    "password": ({"user": "u", "passwordFile": "/p"}, Entry(Tls(), PasswordFile("u", "/p"))),
    "certificate": (
        {"certificateFile": "/c", "keyFile": "/k"},
        Entry(Tls(certificate="/c", key="/k"), Certificate()),
    ),
    "certificate and token": (
        {"certificateFile": "/c", "tokenFile": "/t"},
        Entry(Tls(certificate="/c"), TokenFile("/t")),
    ),
}


@pytest.mark.parametrize(("written", "entry"), ENTRIES.values(), ids=ENTRIES)
def test_options_say_how_to_get_in_and_travel_as_paths(written, entry):
    options = {"url": URL, **written}
    [found] = parse_servers(options)
    assert found == Server("h", 77, entry)
    assert pickle.loads(pickle.dumps(found)) == found
    assert options_of(found) == options


def test_reads_and_writes_have_them():
    options = {"url": URL, "tokenFile": "/t", "topic": "t"}
    server = Server("h", 77, Entry(Tls(), TokenFile("/t")))
    assert WriteOptions.parse(options).servers == (server,)
    assert ReadOptions.parse(options, "batch").servers == (server,)
    assert ReadOptions.parse(options, "stream").servers == (server,)
    assert ReadOptions.parse({"topic": "t"}, "batch").servers == ()
    for name in ("url", "tokenFile"):
        given = {"topic": "t", name: options[name], "path": "/data"}
        with pytest.raises(OptionError, match="either the options of a server, or path"):
            ReadOptions.parse(given, "batch")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"url": "poe://h", "host": "h"}, "'host' is 'h'; use either url, or host and port"),
        ({"url": "poe://h", "port": "1"}, "'port' is 1; use either url, or host and port"),
        ({"url": "kafka://a"}, "'url' is 'kafka://a'; use poe://host:port"),
        ({"url": "h:1"}, "'url' is 'h:1'; use poe://host:port, or poes://host:port by TLS, with"),
        ({"url": ""}, "'url' is ''; use poe://host:port"),
        ({"url": "poe://h", "caFile": "/ca"}, "'caFile' is '/ca'; use it with a url of TLS"),
        ({"serverName": "n"}, "'serverName' is 'n'; use it with a url of TLS: poes://"),
        ({"url": URL, "keyFile": "/k"}, "'keyFile' is '/k'; use it with certificateFile"),
        ({"user": "u"}, "'user' is 'u'; use user and passwordFile together"),
        ({"passwordFile": "/p"}, "'passwordFile' is '/p'; use user and passwordFile together"),
        ({"tokenFile": "/t", "user": "u"}, "'user' is 'u'; use either tokenFile, or user"),
        (
            {"tokenFile": "/t", "passwordFile": "/p"},
            "'passwordFile' is '/p'; use either tokenFile, or user",
        ),
        ({"user": "u:p", "passwordFile": "/p"}, "'user' is 'u:p'; use 1 to 200 of"),
        ({"tokenFile": ""}, "'tokenFile' is ''; use a text that is not empty"),
    ],
)
def test_what_names_no_server_or_does_not_go_together_is_refused(written, words):
    for parse in (parse_servers, WriteOptions.parse):
        with pytest.raises(OptionError, match=words):
            parse(written)


@pytest.mark.parametrize(
    "written",
    [
        {"token": SECRET},
        {"Token": SECRET},
        {"password": SECRET},
        {"tokenFile": SECRET},
        {"passwordFile": SECRET},
        {"url": f"poes://u:{SECRET}@h"},
        {"url": f"poes://{SECRET}@h"},
    ],
)
def test_a_secret_among_the_options_is_refused_unseen_and_with_what_to_do(written):
    refusing = (check_options, parse_servers, WriteOptions.parse)
    for parse in (*refusing, lambda options: ReadOptions.parse(options, "stream")):
        with pytest.raises(OptionError) as raised:
            parse(written)
        assert SECRET not in f"{raised.value} {vars(raised.value)}"
        assert raised.value.__cause__ is None or SECRET not in str(raised.value.__cause__)
        assert "File" in str(raised.value)
        assert raised.value.key.lower() == next(iter(written)).lower()


def test_of_a_server_alone_other_options_are_not_known():
    with pytest.raises(UnknownOption, match="'topic' is not known"):
        parse_servers({"topic": "t"})


def test_whether_a_server_is_named_has_no_case():
    assert names_server(["topic", "Host"])
    assert names_server(["tokenfile"])
    assert not names_server(["topic", "path"])


def test_the_options_of_a_server_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = Server("::1", 77, Entry(Tls(ca="ca.pem"), TokenFile("token")))
    assert options_of(server) == {
        "url": "poes://[::1]:77",
        "caFile": str(tmp_path / "ca.pem"),
        "tokenFile": str(tmp_path / "token"),
    }
    assert options_of(DEFAULT_SERVER) == {"url": "poe://127.0.0.1:5555"}


@pytest.mark.parametrize("credentials", [Token(SECRET), Scram("u", "password")])
def test_who_gets_in_by_a_secret_in_no_file_has_no_options(credentials):
    server = Server("h", 77, Entry(Tls(), credentials))
    with pytest.raises(OptionError, match="use a file that holds it"):
        options_of(server)
    with pytest.raises(SecurityError):
        pickle.dumps(server)


def test_all_files_are_looked_at(tmp_path, certificates):
    token = tmp_path / "token"
    ca = str(certificates.file("ca.pem"))
    options = {"url": URL, "caFile": ca, "tokenFile": str(token)}
    with pytest.raises(SecurityFileError, match=f"{token}: cannot be read"):
        check_files(parse_servers(options)[0])
    token.write_text(SECRET)
    check_files(parse_servers(options)[0])
    with pytest.raises(SecurityFileError, match=f"{token}: it holds no certificate"):
        check_files(parse_servers({**options, "caFile": str(token)})[0])
    check_files(DEFAULT_SERVER)


def test_an_executor_needs_nothing_more_to_get_in():
    """It has numpy, PyArrow, msgpack and xxhash; files of users and new certificates it has not."""
    program = "import sys, poe.spark.data_source, poe.spark.broker_segments; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True)
    assert not {"tomlkit", "cryptography", "uvloop", "thespian", "typer"} & {*run.stdout.split()}
