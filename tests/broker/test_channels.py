"""Which proof is taken over which connection, by the pure part of authentication."""

from dataclasses import dataclass, replace

import pytest

from poe.broker.access.authentication import Authentication, Channel
from poe.broker.access.secrets import Secrets
from poe.errors import AuthenticationFailed
from poe.security.scram import ScramClient, ScramKeys
from poe.security.token import make_token
from poe.security.users import TokenEntry, User, Users

NOW_S = 1_800_000_000.0
TOKEN, DIGEST = make_token("ci")
ADMIN, ADMIN_DIGEST = make_token("admin")
ALICE = User(
    name="alice",
    scram=(ScramKeys.of_password("secret"),),
    tokens=(TokenEntry("ci", DIGEST, NOW_S + 60),),
    certificates=frozenset({"URI:spiffe://corp/alice", "DNS:alice.example"}),
)
BINDING = bytes(32)

LOCAL = Channel("127.0.0.1", is_local=True)
REMOTE = Channel("192.0.2.1", is_local=False)
REMOTE_TLS = REMOTE.encrypted(BINDING, (), None)
WITH_CERTIFICATE = REMOTE.encrypted(BINDING, ("URI:spiffe://corp/alice",), NOW_S + 60)


@dataclass
class Known:
    users: Users
    secrets: Secrets


def authentication(channel):
    return Authentication(Known(Users([ALICE]), Secrets(bytes(32), ADMIN_DIGEST)), channel)


def proved(channel, mechanism, data=b"", now_s=NOW_S):
    """Tell who a peer is by one step; None: nobody."""
    try:
        identity = authentication(channel).take(mechanism, data, now_s).identity
    except AuthenticationFailed:
        return None
    assert identity is not None
    return identity.principal


@pytest.mark.parametrize(
    ("channel", "token", "admin"),
    [
        (LOCAL, "alice", "poe.admin"),
        (replace(LOCAL, is_encrypted=True), "alice", "poe.admin"),
        (REMOTE, None, None),
        (REMOTE_TLS, "alice", None),
    ],
)
def test_tokens_are_taken_by_tls_or_from_this_machine_and_the_administrators_only_from_here(
    channel, token, admin
):
    assert proved(channel, "BEARER", TOKEN.encode()) == token
    assert proved(channel, "BEARER", ADMIN.encode()) == admin


def test_a_token_is_taken_until_it_expires():
    assert proved(LOCAL, "BEARER", TOKEN.encode(), NOW_S + 59) == "alice"
    assert proved(LOCAL, "BEARER", TOKEN.encode(), NOW_S + 60) is None


@pytest.mark.parametrize(
    ("channel", "expected"), [(WITH_CERTIFICATE, "alice"), (REMOTE_TLS, None), (LOCAL, None)]
)
def test_a_certificate_is_taken_where_there_is_one(channel, expected):
    assert proved(channel, "EXTERNAL") == expected


@pytest.mark.parametrize(
    "names",
    [
        ("URI:spiffe://corp/alice/",),
        ("URI:spiffe://corp/ALICE",),
        ("DNS:spiffe://corp/alice",),
        ("DNS:x.alice.example",),
        (),
    ],
)
def test_a_name_in_a_certificate_is_compared_whole(names):
    assert proved(REMOTE.encrypted(BINDING, names, NOW_S + 60), "EXTERNAL") is None


def test_an_identity_ends_with_its_certificate():
    assert proved(WITH_CERTIFICATE, "EXTERNAL", now_s=NOW_S + 60) is None
    step = authentication(WITH_CERTIFICATE).take("EXTERNAL", b"", NOW_S)
    assert step.identity is not None
    assert step.identity.expires_s == NOW_S + 60


@pytest.mark.parametrize(
    ("channel", "binding"), [(LOCAL, None), (REMOTE, None), (REMOTE_TLS, BINDING)]
)
def test_a_password_is_proved_over_any_connection(channel, binding):
    server, client = authentication(channel), ScramClient("alice", "secret", binding)
    told = server.take(client.mechanism, client.first(), NOW_S).data
    assert told is not None
    step = server.take(client.mechanism, client.final(told), NOW_S)
    assert step.identity is not None
    assert (step.identity.principal, step.identity.expires_s) == ("alice", None)


@pytest.mark.parametrize("mechanism", ["BEARER", "EXTERNAL", "PLAIN", "SCRAM-SHA-1", ""])
def test_nothing_comes_between_the_steps_of_a_password(mechanism):
    server, client = authentication(WITH_CERTIFICATE), ScramClient("alice", "secret", BINDING)
    told = server.take(client.mechanism, client.first(), NOW_S).data
    assert told is not None
    with pytest.raises(AuthenticationFailed):
        server.take(mechanism, TOKEN.encode(), NOW_S)
    with pytest.raises(AuthenticationFailed):  # from the begin again
        server.take(client.mechanism, client.final(told), NOW_S)


def test_a_mechanism_that_changes_its_name_between_the_steps_is_another():
    server, client = authentication(REMOTE_TLS), ScramClient("alice", "secret", BINDING)
    told = server.take("SCRAM-SHA-256-PLUS", client.first(), NOW_S).data
    assert told is not None
    with pytest.raises(AuthenticationFailed):
        server.take("SCRAM-SHA-256", client.final(told), NOW_S)
