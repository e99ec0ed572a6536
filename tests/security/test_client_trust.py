"""Whose certificates are no longer trusted, when authorities or their revocations have changed."""

import ssl
from base64 import b64encode
from contextlib import suppress

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from poe.security.client_trust import ClientTrust
from tests.tls import Certificates


def der_of(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Put values of DER around, most of which lists of revocations are made of."""
    tags = st.sampled_from([0x30, 0x30, 0x02, 0x17, 0xA0])
    contents = st.lists(inner, max_size=5).map(lambda parts: b"".join(parts)[:100])
    return st.builds(lambda tag, content: bytes([tag, len(content)]) + content, tags, contents)


def der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


def anchor(authority: trustme.CA) -> bytes:
    return der(authority.cert_pem.bytes())


def leaf(authority: trustme.CA) -> bytes:
    return der(authority.issue_cert("client.example").cert_chain_pems[0].bytes())


@pytest.fixture
def made(tmp_path):
    return Certificates.make(tmp_path)


def test_who_is_not_concerned_stays():
    first, second = trustme.CA(), trustme.CA()
    both = ClientTrust.of(frozenset({anchor(first), anchor(second)}))
    one = ClientTrust.of(frozenset({anchor(first)}))
    assert not both.has_lost(leaf(first), both)
    assert not both.has_lost(leaf(first), one)
    assert both.has_lost(leaf(second), one)
    assert not one.has_lost(leaf(first), both)
    assert one.has_lost(leaf(first), None)


def test_authorities_are_read_once_however_many_clients_are_looked_at(monkeypatch):
    authority = trustme.CA()
    trust = ClientTrust.of(frozenset({anchor(authority)}))

    def fail(certificate):
        raise AssertionError(certificate)

    monkeypatch.setattr("poe.security.client_trust._subject", fail)
    assert not trust.has_lost(leaf(authority), trust)


def test_an_authority_of_the_same_name_and_another_key_is_another():
    first = trustme.CA(organization_name="Same", organization_unit_name="Same")
    second = trustme.CA(organization_name="Same", organization_unit_name="Same")
    older, newer = (ClientTrust.of(frozenset({anchor(each)})) for each in (first, second))
    assert older.has_lost(leaf(first), newer)
    # While one takes the place of the other both are trusted, and nobody is hung up on.
    both = ClientTrust.of(older.anchors | newer.anchors)
    assert not older.has_lost(leaf(first), both)
    # Nobody can tell by whose key of the two a certificate was signed: both are to try anew.
    for each in (first, second):
        assert both.has_lost(leaf(each), newer)


def test_behind_an_authority_between_nobody_can_tell():
    root, other = trustme.CA(), trustme.CA()
    between = root.create_child_ca()
    both = ClientTrust.of(frozenset({anchor(root), anchor(other)}))
    assert not both.has_lost(leaf(between), both)
    assert both.has_lost(leaf(between), ClientTrust.of(frozenset({anchor(root)})))


def test_an_authority_between_that_is_trusted_itself_is_worth_what_its_root_is():
    root, other = trustme.CA(), trustme.CA()
    between = root.create_child_ca()
    every = ClientTrust.of(frozenset(map(anchor, (root, between, other))))
    without_root = ClientTrust.of(frozenset(map(anchor, (between, other))))
    without_other = ClientTrust.of(frozenset(map(anchor, (root, between))))
    assert every.has_lost(leaf(between), without_root)
    assert not every.has_lost(leaf(between), without_other)
    assert not every.has_lost(leaf(between), every)


def test_who_was_revoked_has_lost_and_others_of_the_same_authority_have_not(made):
    made.issue("gone", "gone.example")
    made.issue("here", "here.example")
    anchors = frozenset({der(made.file("ca.pem").read_bytes())})
    before = ClientTrust.of(anchors)
    after = ClientTrust.of(anchors, made.revoke("gone").read_bytes())
    assert len(after.revoked) == 1
    assert before.has_lost(der(made.file("gone.pem").read_bytes()), after)
    assert not before.has_lost(der(made.file("here.pem").read_bytes()), after)


def test_the_clients_of_a_revoked_authority_have_lost_and_others_have_not(made, tmp_path):
    between = Certificates.between(made, tmp_path)
    anchors = frozenset({made.der("ca"), made.der("between")})
    before, after = (
        ClientTrust.of(anchors, made.revoke(*names).read_bytes()) for names in ((), ("between",))
    )
    assert not before.has_lost(leaf(between.authority), before)
    assert before.has_lost(leaf(between.authority), after)
    # Who comes in afterwards does by another key of that name, and stays.
    assert not after.has_lost(leaf(between.authority), after)
    assert not before.has_lost(leaf(made.authority), after)


def test_a_list_may_revoke_nobody(made):
    assert ClientTrust.of(frozenset(), made.revoke().read_bytes()).revoked == frozenset()


def test_many_are_revoked_by_one_list(made):
    """Long lengths, of more than one byte."""
    names = [f"n{number}" for number in range(20)]
    for name in names:
        made.issue(name, f"{name}.example")
    assert len(ClientTrust.of(frozenset(), made.revoke(*names).read_bytes()).revoked) == 20


@pytest.mark.parametrize("kept", [1, 2, 10, 50])
def test_a_list_that_is_cut_short_is_refused(made, kept):
    whole = ssl.PEM_cert_to_DER_cert(made.revoke().read_text().replace("X509 CRL", "CERTIFICATE"))
    cut = ssl.DER_cert_to_PEM_cert(whole[:kept]).replace("CERTIFICATE", "X509 CRL")
    with pytest.raises(ValueError, match="cut short"):
        ClientTrust.of(frozenset(), cut.encode())


@given(st.recursive(st.binary(max_size=8), der_of, max_leaves=12))
def test_what_only_looks_like_a_list_of_revocations_is_refused_as_such(content):
    pem = f"-----BEGIN X509 CRL-----\n{b64encode(content).decode()}\n-----END X509 CRL-----\n"
    with suppress(ValueError):
        ClientTrust.of(frozenset(), pem.encode())
