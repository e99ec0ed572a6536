"""A server's certificate files become a context that works, or an error that says what is wrong."""

import datetime as dt
import logging
import os
import ssl
from dataclasses import replace

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from poe.errors import SecurityFileError
from poe.security.file_stamp import stamps_of
from poe.security.server_tls import ServerTls
from poe.security.small_file import read_small
from tests.tls import Certificates, shake_hands

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture
def made(tmp_path):
    return Certificates.make(tmp_path)


@pytest.fixture
def tls(made):
    return ServerTls(certificate=made.file("server.pem"), key=made.file("server.key"))


def refused(tls):
    with pytest.raises(SecurityFileError) as error:
        tls.build()
    return str(error.value)


def known(side):
    """Tell what is known of the other side's certificate."""
    found = side.getpeercert()
    assert found is not None
    return found


def test_a_client_connects_by_tls_1_3_and_says_what_it_speaks(made, tls):
    built = tls.build()
    client, server = shake_hands(built.context, made.client_context())
    assert client.version() == "TLSv1.3"
    assert server.selected_alpn_protocol() == client.selected_alpn_protocol() == "poe/1"
    assert client.compression() is None
    assert client.getpeercert(binary_form=True) == built.certificate
    assert built.expires_s == ssl.cert_time_to_seconds(known(client)["notAfter"])
    assert built.client_trust is None


def test_no_session_is_resumed(made, tls):
    """Who was revoked since would get in by it."""
    context, trusting = tls.build().context, made.client_context()
    client, _ = shake_hands(context, trusting)
    assert client.session is None or not client.session.has_ticket


def test_a_client_refuses_a_server_of_another_name_or_authority(made, tls):
    context = tls.build().context
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(context, made.client_context(), "other.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake_hands(context, ssl.create_default_context())


def test_files_that_have_changed_hold_for_a_new_context_alone(made, tls):
    """Trap 7: an authority once loaded stays, so no context is ever changed."""
    made.issue("client", "client.example")
    tls = replace(tls, client_ca=made.file("ca.pem"))
    older = tls.build()
    trustme.CA().cert_pem.write_to_path(made.file("ca.pem"))
    newer = tls.build()
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    trusting.load_cert_chain(made.file("client.pem"), made.file("client.key"))
    shake_hands(older.context, trusting)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(newer.context, trusting)
    made.file("server.key").write_text("broken")
    refused(tls)
    shake_hands(older.context, trusting)


def test_a_client_may_be_trusted_by_itself_and_is_no_more_once_its_certificate_is_gone(made, tls):
    """It is no authority, and signed by nobody else."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    signing = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW - DAY, NOW + DAY)
    about = x509.SubjectAlternativeName([x509.DNSName("client.example")])
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    for extension, is_critical in ((about, True), (own, False)):
        signing = signing.add_extension(extension, critical=is_critical)
    pem = signing.sign(key, SHA256()).public_bytes(Encoding.PEM)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    made.file("client.pem").write_bytes(pem + secret)
    authorities = made.file("authorities.pem")
    authorities.write_bytes(made.file("ca.pem").read_bytes() + pem)
    mutual = replace(tls, client_ca=authorities)
    older = mutual.build()
    trusting = made.client_context()
    trusting.load_cert_chain(made.file("client.pem"))
    _, server = shake_hands(older.context, trusting)
    shown = server.getpeercert(binary_form=True)
    assert shown is not None
    assert older.client_trust is not None
    assert not older.client_trust.has_lost(shown, mutual.build().client_trust)
    authorities.write_bytes(made.file("ca.pem").read_bytes())
    newer = mutual.build()
    assert older.client_trust.has_lost(shown, newer.client_trust)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(newer.context, trusting)


def test_the_key_may_be_in_the_file_of_the_certificate(made, tmp_path):
    both = tmp_path / "both.pem"
    both.write_bytes(made.file("server.key").read_bytes() + made.file("server.pem").read_bytes())
    shake_hands(ServerTls(certificate=both).build().context, made.client_context())


def test_tls_1_2_needs_to_be_allowed(made, tls):
    old = made.client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake_hands(tls.build().context, old)
    client, _ = shake_hands(replace(tls, minimum="1.2").build().context, old)
    assert client.version() == "TLSv1.2"
    assert "GCM" in str(client.cipher())


def test_a_file_that_is_not_there_is_named(tls, tmp_path):
    gone = tmp_path / "gone.pem"
    assert (
        refused(replace(tls, certificate=gone))
        == f"{gone}: cannot be read (No such file or directory)"
    )
    assert refused(replace(tls, key=gone)) == f"{gone}: cannot be read (No such file or directory)"
    assert (
        refused(replace(tls, client_ca=gone))
        == f"{gone}: cannot be read (No such file or directory)"
    )
    crl = replace(tls, client_ca=tls.certificate.with_name("ca.pem"), client_crl=gone)
    assert refused(crl) == f"{gone}: cannot be read (No such file or directory)"


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem", "revoked.pem"])
def test_a_file_that_goes_while_it_is_read_is_refused_as_any_other(made, tls, monkeypatch, name):
    """Who replaces it may remove it before; a reload may come in between."""
    mutual = replace(tls, client_ca=made.file("ca.pem"), client_crl=made.revoke())

    def read_and_lose(path, bytes_max):
        found = read_small(path, bytes_max)
        if path == str(made.file(name)):
            made.file(name).unlink()
        return found

    monkeypatch.setattr("poe.security.pem_files.read_small", read_and_lose)
    assert "No such file" in refused(mutual)


def test_what_is_no_file_is_refused_at_once(tls, tmp_path):
    """A reload would wait for the other end of a pipe, and all that the node is asked behind it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refused(replace(tls, certificate=pipe)) == f"{pipe}: it is no file"
    assert refused(replace(tls, key=pipe)) == f"{pipe}: it is no file"
    assert refused(replace(tls, client_ca=pipe)) == f"{pipe}: it is no file"
    crl = replace(tls, client_ca=tls.certificate.with_name("ca.pem"), client_crl=pipe)
    assert refused(crl) == f"{pipe}: it is no file"


def test_the_key_of_another_certificate_is_refused(made, tls):
    made.issue("other", "localhost")
    assert "not the key of the certificate" in refused(replace(tls, key=made.file("other.key")))


def test_what_is_no_pem_is_refused(tls, tmp_path):
    text = tmp_path / "text"
    text.write_text("hello\n")
    assert f"{text}: it holds no certificate" in refused(replace(tls, certificate=text))
    assert f"{text}: it holds no key" in refused(replace(tls, key=text))
    assert f"{text}: it holds no certificate" in refused(replace(tls, client_ca=text))


def test_an_encrypted_key_is_refused_and_nobody_is_asked(made, tls, tmp_path):
    """OpenSSL would ask on the terminal."""
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    key = serialization.load_pem_private_key(made.file("server.key").read_bytes(), None)
    path = tmp_path / "encrypted.key"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    assert refused(replace(tls, key=path)) == f"{path}: the key is encrypted; use one that is not"


def test_a_certificate_out_of_its_time_is_refused(made, tls):
    made.issue("old", "localhost", not_before=NOW - 2 * DAY, not_after=NOW - DAY)
    old = ServerTls(certificate=made.file("old.pem"), key=made.file("old.key"))
    assert "no client would accept it: certificate has expired" in refused(old)
    made.issue("new", "localhost", not_before=NOW + DAY, not_after=NOW + 2 * DAY)
    new = ServerTls(certificate=made.file("new.pem"), key=made.file("new.key"))
    assert "certificate is not yet valid" in refused(new)


def test_a_certificate_that_expires_in_use_keeps_no_revocation_waiting(made, mutual):
    made.issue("alice", "alice.example.org")
    revoking = replace(mutual, client_crl=made.revoke())
    used = revoking.build()
    old = {"not_before": NOW - 2 * DAY, "not_after": NOW - DAY}
    made.issue("server", "localhost", **old)
    made.revoke("alice")
    assert "certificate has expired" in str(refused(revoking))
    with pytest.raises(SecurityFileError, match="certificate has expired"):
        revoking.build(used)  # it is another one
    stamps = stamps_of((revoking.certificate, revoking.key))
    newer = revoking.build(replace(used, own_stamps=stamps))
    assert newer.expires_s == (NOW - DAY).replace(microsecond=0).timestamp()
    assert newer.certificate == made.der("server")
    assert used.client_trust is not None
    assert used.client_trust.has_lost(made.der("alice"), newer.client_trust)


def test_a_certificate_with_a_name_that_is_no_text_is_refused(made):
    garbled = ServerTls(certificate=made.issue_garbled("own"), key=made.file("own.key"))
    assert refused(garbled).endswith("own.pem: it has a name that is no text")


def test_a_key_that_everybody_can_read_is_told(tls, caplog):
    tls.key.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        tls.build()
    assert "chmod 600" in caplog.text
    caplog.clear()
    tls.key.chmod(0o600)
    tls.build()
    assert caplog.text == ""


# ---- certificates of clients ---------------------------------------------------------------------


@pytest.fixture
def mutual(made, tls):
    """A server that wants a certificate of its clients."""
    made.issue("client", "client.example")
    return replace(tls, client_ca=made.file("ca.pem"))


def test_a_client_needs_a_certificate_of_an_authority_that_is_trusted(made, mutual, tmp_path):
    context = mutual.build().context
    _, server = shake_hands(context, made.client_context("client"))
    assert ("DNS", "client.example") in known(server)["subjectAltName"]
    with pytest.raises(ssl.SSLError, match="peer did not return a certificate"):
        shake_hands(context, made.client_context())
    other = trustme.CA().issue_cert("client.example")
    made.write("foreign", other)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context, made.client_context("foreign"))


def test_a_client_without_a_certificate_may_be_let_through_to_say_who_it_is(made, mutual):
    context = replace(mutual, is_certificate_needed=False).build().context
    _, server = shake_hands(context, made.client_context())
    assert server.getpeercert() is None
    _, server = shake_hands(context, made.client_context("client"))
    assert server.getpeercert()


def test_a_client_with_a_name_that_is_no_text_is_told_as_an_error_of_its_connection(made, mutual):
    made.issue_garbled("garbled")
    _, server = shake_hands(mutual.build().context, made.client_context("garbled"))
    with pytest.raises(ConnectionAbortedError, match="a name that is no text"):
        server.getpeercert()


def test_a_client_whose_certificate_is_out_of_its_time_is_refused(made, mutual):
    made.issue("old", "client.example", not_before=NOW - 2 * DAY, not_after=NOW - DAY)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(mutual.build().context, made.client_context("old"))


def test_a_revoked_client_is_refused_and_others_are_not(made, mutual):
    made.issue("gone", "gone.example")
    revoking = replace(mutual, client_crl=made.revoke("gone"))
    context = revoking.build().context
    shake_hands(context, made.client_context("client"))
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        shake_hands(context, made.client_context("gone"))


def test_the_clients_of_a_revoked_authority_are_refused(made, mutual, tmp_path):
    between = Certificates.between(made, tmp_path)
    made.write("client", between.authority.issue_cert("client.example"))
    lists = made.file("lists.pem")
    own = between.revoke().read_bytes()
    lists.write_bytes(own + made.revoke().read_bytes())
    revoking = replace(mutual, client_crl=lists)
    shake_hands(revoking.build().context, made.client_context("client"))
    lists.write_bytes(own + made.revoke("between").read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        shake_hands(revoking.build().context, made.client_context("client"))


def test_authorities_without_a_revocation_list_are_told(made, mutual, tmp_path, caplog):
    between = Certificates.between(made, tmp_path)
    made.write("client", between.authority.issue_cert("client.example"))
    both, lists = made.file("both.pem"), made.file("lists.pem")
    both.write_bytes(made.file("ca.pem").read_bytes() + made.file("between.pem").read_bytes())
    lists.write_bytes(own := between.revoke().read_bytes())
    revoking = replace(mutual, client_ca=both, client_crl=lists)
    context = revoking.build().context
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get certificate CRL"):
        shake_hands(context, made.client_context("client"))
    (told,) = caplog.messages
    assert told.startswith(f"{lists} has no list of 1 of the authorities in {both}, ")
    root = x509.load_pem_x509_certificate(made.file("ca.pem").read_bytes())
    for each in root.subject:
        assert each.value in told
    caplog.clear()
    lists.write_bytes(own + made.revoke().read_bytes())
    shake_hands(revoking.build().context, made.client_context("client"))
    assert caplog.messages == []


def test_a_revocation_list_that_is_none_is_refused(made, mutual):
    """OpenSSL would take a certificate that it finds there for one more authority."""
    for name in ("ca.pem", "server.key"):
        path = made.file(name)
        assert f"{path}: it holds no revocation lists" in refused(replace(mutual, client_crl=path))
    both = made.file("both.pem")
    both.write_bytes(made.file("ca.pem").read_bytes() + made.revoke("client").read_bytes())
    assert "and nothing else" in refused(replace(mutual, client_crl=both))


@pytest.mark.parametrize("name", ["ca.pem", "revoked.pem"])
@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_says_who_gets_in_and_others_may_write_is_refused(made, mutual, name, mode):
    """Who writes it trusts an authority of their own, or forgets what was revoked."""
    revoking = replace(mutual, client_crl=made.revoke())
    path = made.file(name)
    path.chmod(mode)
    why = f"{path}: others than its owner may write it; use `chmod 644 {path}`"
    assert why in refused(revoking)
    path.chmod(0o644)
    shake_hands(revoking.build().context, made.client_context("client"))


def test_an_authority_that_is_none_is_refused(made, mutual):
    path = made.file("client.pem")
    assert "none of an authority" in refused(replace(mutual, client_ca=path))
