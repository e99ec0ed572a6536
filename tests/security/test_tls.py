"""The client's end of TLS, in memory: what it accepts, and what it says of all else."""

import hashlib
import os
import pickle
import ssl
from datetime import UTC, datetime

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from poe.errors import OptionError, SecurityFileError, TlsFailed
from poe.security import Tls
from poe.security.binding import endpoint_binding
from poe.security.tls import ALPN, binding_of, client_context, server_hostname, tls_failed

HOST, PORT = "broker.example", 5556


@pytest.fixture(scope="module")
def authority():
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.fixture
def ca(authority, tmp_path):
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


def server_context(certificate, alpn=(ALPN,)):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def handshake(client_context, server_context, host=HOST):
    """The two ends after their handshake."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    ends = [client, server]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
        if not ends:
            return client, server
    pytest.fail("the handshake does not end")


def failure(client_context, server_context, host=HOST):
    with pytest.raises(ssl.SSLError) as caught:
        handshake(client_context, server_context, host)
    error = tls_failed(host, PORT, caught.value)
    assert isinstance(error, TlsFailed)
    assert f"no TLS connection to {host}:5556: " in str(error)
    return error.reason


# --- What is accepted --------------------------------------------------------------------------


def test_a_server_of_a_known_authority_is_accepted(authority, ca):
    client, server = handshake(Tls(ca).context(), server_context(authority.issue_cert(HOST)))
    assert client.version() == "TLSv1.3"
    assert server.selected_alpn_protocol() == ALPN
    assert binding_of(HOST, PORT, client) == endpoint_binding(client.getpeercert(True))


def test_a_server_of_another_name_is_accepted_by_that_name(authority, ca):
    tls = Tls(ca, server_name=HOST)
    name = server_hostname(tls, "10.0.0.1")
    handshake(tls.context(), server_context(authority.issue_cert(HOST)), name)
    assert server_hostname(Tls(ca), "10.0.0.1") == "10.0.0.1"
    assert server_hostname(ssl.create_default_context(), "10.0.0.1") == "10.0.0.1"


@pytest.mark.parametrize("name", [".example.org", "x" * 64 + ".example.org", "a..b", 5, 0, b"a"])
def test_a_name_that_no_server_has_is_refused(name):
    """OpenSSL, or Python, would refuse it where somebody connects, by no error of ours."""
    with pytest.raises(OptionError, match="server_name"):
        Tls(server_name=name)


def test_a_client_shows_its_certificate(authority, ca, tmp_path):
    own = authority.issue_cert("client@example")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    demanding = server_context(authority.issue_cert(HOST))
    demanding.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(demanding)
    _, server = handshake(Tls(ca, tmp_path / "client.pem").context(), demanding)
    assert server.getpeercert()["subjectAltName"] == (("email", "client@example"),)


def test_a_context_that_is_given_speaks_our_protocol(authority, ca):
    given = ssl.create_default_context(cafile=ca)
    context = client_context(given)
    assert context is given
    client, _ = handshake(context, server_context(authority.issue_cert(HOST)))
    binding_of(HOST, PORT, client)
    assert client_context(Tls(ca)) is Tls(ca).context()


def test_files_travel_to_other_processes(ca):
    assert pickle.loads(pickle.dumps(Tls(ca))) == Tls(ca)


# --- Files that change -------------------------------------------------------------------------


def test_a_context_is_made_anew_when_a_file_was_replaced(authority, ca):
    tls, server = Tls(ca), server_context(authority.issue_cert(HOST))
    first = tls.context()
    assert tls.context() is first
    trustme.CA().cert_pem.write_to_path(ca)
    os.utime(ca, ns=(1, 1))
    assert tls.context() is not first
    assert "not known here" in failure(tls.context(), server)


@pytest.mark.parametrize("what", ["ca", "certificate", "key"])
@pytest.mark.parametrize("content", [None, "", "no PEM", "folder"])
def test_a_file_that_cannot_be_used_is_named(authority, what, content, tmp_path):
    paths = {each: tmp_path / f"{each}.pem" for each in ("ca", "certificate", "key")}
    own = authority.issue_cert(HOST)
    authority.cert_pem.write_to_path(paths["ca"])
    own.cert_chain_pems[0].write_to_path(paths["certificate"])
    own.private_key_pem.write_to_path(paths["key"])
    Tls(**paths).context()
    paths[what].unlink()
    if content == "folder":
        paths[what].mkdir()
    elif content is not None:
        paths[what].write_text(content)
    with pytest.raises(SecurityFileError) as caught:
        Tls(**paths).context()
    assert str(paths[what]) in str(caught.value)


def test_a_key_of_another_certificate_is_named(authority, tmp_path):
    authority.issue_cert(HOST).cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    authority.issue_cert(HOST).private_key_pem.write_to_path(tmp_path / "k.pem")
    with pytest.raises(
        SecurityFileError, match=r"k.pem: this is not the key of the certificate .*c.pem"
    ):
        Tls(certificate=tmp_path / "c.pem", key=tmp_path / "k.pem").context()


def test_nobody_is_asked_for_the_password_of_a_key(authority, tmp_path):
    authority.issue_cert(HOST).cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )
    (tmp_path / "k.pem").write_bytes(key)
    with pytest.raises(SecurityFileError, match=r"k.pem: the key is encrypted"):
        Tls(certificate=tmp_path / "c.pem", key=tmp_path / "k.pem").context()


# --- What is not accepted, and why -------------------------------------------------------------


def test_a_server_of_an_unknown_authority(authority, ca):
    other = trustme.CA().issue_cert(HOST)
    assert "not known here; give that as `ca`" in failure(Tls(ca).context(), server_context(other))


def test_a_server_of_another_name(authority, ca):
    server = server_context(authority.issue_cert("other.example"))
    assert "is for other names" in failure(Tls(ca).context(), server)
    assert "is for other addresses" in failure(Tls(ca).context(), server, "10.0.0.1")


def test_a_certificate_that_has_expired(authority, ca):
    old = authority.issue_cert(HOST, not_after=datetime(2020, 1, 1, tzinfo=UTC))
    assert "has expired; renew it" in failure(Tls(ca).context(), server_context(old))


def test_a_certificate_that_is_not_valid_yet(authority, ca):
    new = authority.issue_cert(
        HOST,
        not_before=datetime(2090, 1, 1, tzinfo=UTC),
        not_after=datetime(2091, 1, 1, tzinfo=UTC),
    )
    assert "is not valid yet" in failure(Tls(ca).context(), server_context(new))


def test_a_server_of_something_else(authority, ca):
    certificate = authority.issue_cert(HOST)
    client, _ = handshake(Tls(ca).context(), server_context(certificate, alpn=()))
    with pytest.raises(TlsFailed, match="is no Poe"):
        binding_of(HOST, PORT, client)


def test_a_server_of_an_old_tls(authority, ca):
    old = server_context(authority.issue_cert(HOST))
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    assert failure(Tls(ca).context(), old)


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\0\x20\x03some frame of a server, in the clear",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
def test_a_server_without_tls(answer, ca):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = Tls(ca).context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    incoming.write(answer)
    with pytest.raises(ssl.SSLError) as caught:
        client.do_handshake()
    assert "speaks no TLS" in str(tls_failed(HOST, PORT, caught.value))


def test_a_server_that_hangs_up(ca):
    for error in (ssl.SSLEOFError(8, "EOF"), ConnectionResetError(104, "reset")):
        assert "has hung up; perhaps" in str(tls_failed(HOST, PORT, error))


def test_any_other_error_keeps_its_words():
    assert str(tls_failed(HOST, PORT, TimeoutError("timed out"))).endswith(": timed out")
    assert str(tls_failed(HOST, PORT, OSError(113, "No route to host"))).endswith(
        "No route to host"
    )


# --- Binding -----------------------------------------------------------------------------------


def certificate_of(key, algorithm, **keywords):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a" * 60)])
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2027, 1, 1, tzinfo=UTC))
    )
    made = builder.sign(key, algorithm, **keywords)
    return made.public_bytes(serialization.Encoding.DER)


@pytest.fixture(scope="module")
def rsa_key():
    return rsa.generate_private_key(65537, 2048)


HASHES = [hashes.SHA224(), hashes.SHA256(), hashes.SHA384(), hashes.SHA512()]


@pytest.mark.parametrize("algorithm", HASHES, ids=lambda each: each.name)
def test_a_certificate_is_bound_by_the_hash_of_its_signature(algorithm, rsa_key):
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), 20)
    for certificate in (
        certificate_of(rsa_key, algorithm),
        certificate_of(rsa_key, algorithm, rsa_padding=pss),
        certificate_of(ec.generate_private_key(ec.SECP256R1()), algorithm),
    ):
        expected = hashlib.new(algorithm.name, certificate).digest()
        assert endpoint_binding(certificate) == expected


def test_a_certificate_whose_signature_has_no_hash_is_bound_by_sha_256():
    certificate = certificate_of(ed25519.Ed25519PrivateKey.generate(), None)
    assert endpoint_binding(certificate) == hashlib.sha256(certificate).digest()
