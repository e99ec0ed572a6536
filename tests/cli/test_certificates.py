"""`poe certificates`: TLS at its strictest takes what it makes, and nothing is replaced."""

import contextlib
import errno
import fcntl
import os
import ssl
import stat

import pytest

from poe.cli import certificates
from poe.cli.authority import Authority
from poe.security import replacement
from tests.cli.processes import complaint, poe_here


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "certificates"


def make(folder, *arguments):
    return poe_here("certificates", folder, *arguments)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def context(folder, side, name):
    made = ssl.SSLContext(side)
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(folder / "ca.pem")
    made.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def handshake(folder, host, client="alice"):
    """Shake hands over memory, and return what the server has seen of the client."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context(folder, ssl.PROTOCOL_TLS_SERVER, "server").wrap_bio(there, back, True)
    asking = context(folder, ssl.PROTOCOL_TLS_CLIENT, client)
    peer = asking.wrap_bio(back, there, server_hostname=host)
    for _ in range(3):
        for each in (peer, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                each.do_handshake()
    return server.getpeercert()


def test_server_and_client_know_each_other_by_what_was_made(folder):
    assert make(folder, "--host", "poe.example.com", "--client", "alice").returncode == 0
    seen = handshake(folder, "poe.example.com")
    assert seen["subjectAltName"] == (("URI", "urn:poe:client:alice"),)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(folder, "poe.example.org")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_server_of_this_machine_has_its_addresses_too(folder, host):
    make(folder, "--host", "localhost", "--client", "alice")
    assert handshake(folder, host)


def test_a_server_is_no_client_and_the_reverse(folder):
    make(folder, "--host", "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        handshake(folder, "localhost", client="server")


def test_a_node_is_both_a_server_and_a_client(folder):
    make(folder, "--host", "localhost", "--node", "a.example.com")
    seen = handshake(folder, "localhost", client="a.example.com")
    assert seen["subjectAltName"] == (("DNS", "a.example.com"),)


@pytest.mark.parametrize("name", ["ca", "server", "alice", "a:5"])
def test_a_node_has_a_host_as_its_name_and_no_other_file_has_it(folder, name):
    run = make(folder, "--client", "alice", "--node", name)
    assert "option '--node' is" in complaint(run)
    assert not folder.exists()


def test_keys_are_for_their_owner_alone(folder):
    mask = os.umask(0o022)
    try:
        make(folder, "--host", "localhost", "--client", "alice")
    finally:
        os.umask(mask)
    for path in folder.iterdir():
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o600 if path.suffix == ".key" else 0o644), path


def test_each_file_is_told_with_what_it_is_for(folder):
    told = make(folder, "--host", "localhost", "--client", "alice").stdout.decode()
    assert len(told.splitlines()) == len(contents(folder)) == 6
    assert "alice.pem\tof the user with the certificate URI:urn:poe:client:alice, until" in told


def test_a_client_is_added_to_the_authority_that_is_there(folder):
    make(folder, "--host", "localhost")
    before = contents(folder)
    assert make(folder, "--client", "bob").returncode == 0
    assert handshake(folder, "localhost", client="bob")
    assert {name: contents(folder)[name] for name in before} == before


def test_nothing_is_replaced_nor_added_where_one_is_there(folder):
    make(folder, "--host", "localhost", "--client", "alice")
    before = contents(folder)
    run = make(folder, "--host", "localhost", "--client", "bob")
    assert run.returncode == 2
    assert "server.key is there already, and nothing was written" in complaint(run)
    assert contents(folder) == before


def test_a_certificate_is_renewed_by_the_same_authority(folder):
    make(folder, "--host", "localhost", "--client", "alice")
    before = contents(folder)
    assert make(folder, "--host", "localhost", "--renew").returncode == 0
    changed = {name for name, content in contents(folder).items() if content != before.get(name)}
    assert changed == {"server.key", "server.pem"}
    assert handshake(folder, "localhost")
    assert stat.S_IMODE((folder / "server.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("arguments", [("--renew",), ()])
@pytest.mark.parametrize("written_count", range(4))
def test_where_the_disk_is_full_all_files_are_as_they_were(
    folder, monkeypatch, arguments, written_count
):
    folder.mkdir()
    if arguments:
        make(folder, "--host", "localhost", "--client", "alice")
    before, write = contents(folder), os.write
    written: list[bytes] = []

    def full(descriptor, content):
        if len(written) == written_count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(content)
        return write(descriptor, content)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        run = make(folder, "--host", "localhost", "--client", "alice", *arguments)
    assert run.returncode != 0
    assert "No space left on device" in complaint(run)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give --host NAME"),
        (["--host", "there:5556"], "option '--host' is 'there:5556'; use a name such as"),
        (["--host", ""], "option '--host' is ''; use a name such as"),
        (["--host", "büro"], "option '--host' is 'büro'; use a name such as"),
        (["--client", "ca"], "option '--client' is 'ca'; use"),
        (["--client", "a/b"], "option '--client' is 'a/b'; use"),
    ],
)
def test_what_names_nobody_is_refused_and_nothing_is_written(folder, arguments, told):
    run = make(folder, *arguments)
    assert run.returncode == 2
    assert told in complaint(run)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["ca.pem", "ca.key"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_an_authority_that_is_damaged_is_refused_with_its_file(folder, name, content):
    make(folder, "--host", "localhost")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    run = make(folder, "--client", "alice")
    assert run.returncode == 2
    assert str(folder / name) in complaint(run)
    assert not (folder / "alice.pem").exists()


def test_the_key_of_another_authority_is_refused(folder, tmp_path):
    make(folder, "--host", "localhost")
    make(tmp_path / "other", "--host", "localhost")
    (folder / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    assert "this is not the key of" in complaint(make(folder, "--client", "alice"))


def test_a_folder_that_is_none_is_told(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "tls"):
        run = make(place, "--host", "localhost")
        assert run.returncode == 2
        told = f"poe: option 'DIR' is '{place}'; use a folder that can be made and written to ("
        assert complaint(run).startswith(told)


def test_without_the_extra_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.setattr(certificates, "find_spec", lambda _: None)
    run = make(folder, "--host", "localhost")
    assert run.returncode == 2
    assert "install the extra poe-queue[tls]" in complaint(run)
    assert not folder.exists()


def test_an_authority_that_another_command_has_just_made_is_not_replaced(folder, monkeypatch):
    """It has signed a client by then, whom the server would not know."""
    create = Authority.create

    def create_late(now):
        monkeypatch.undo()
        assert make(folder, "--client", "alice").returncode == 0
        return create(now)

    monkeypatch.setattr(Authority, "create", create_late)
    run = make(folder, "--host", "localhost", "--renew")
    assert run.returncode == 2
    assert "ca.key is there by now, and nothing was written; try again" in complaint(run)
    assert make(folder, "--host", "localhost", "--renew").returncode == 0
    assert handshake(folder, "localhost")


def test_while_another_command_writes_nothing_is_written(folder, monkeypatch):
    monkeypatch.setattr(replacement, "_LOCK_S", 0.0)
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    run = make(folder, "--host", "localhost")
    os.close(descriptor)
    assert run.returncode == 2
    assert "another process has it locked" in complaint(run)
    assert not contents(folder)
    assert make(folder, "--host", "localhost").returncode == 0
