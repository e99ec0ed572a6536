from base64 import urlsafe_b64encode

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.cluster.fabric.token import Token, decode_token, encode_token
from poe.cluster.identity import PROTOCOL, PROTOCOL_MIN, NodeRef, Peer
from poe.cluster.members.table import Member, MemberTable, decode_members
from poe.errors import RemoteProtocolError

PEER = Peer(NodeRef(b"12345678", 7), "näme / *", "zone", PROTOCOL, b"abcdefgh", "host:1")


def encoded(*fields: object) -> str:
    return urlsafe_b64encode(msgpack.packb(fields)).decode().rstrip("=")


FIELDS = (3, 2, b"12345678", 7, b"abcdefgh", "name", "", "host:1")


def test_a_peer_comes_out_as_it_went_in_by_characters_that_a_key_may_have():
    text = encode_token(PEER)
    assert decode_token(text) == Token(PEER, PROTOCOL_MIN)
    assert not set(text) & set("/*$?#@=")


def test_what_a_later_version_adds_is_passed_over():
    assert decode_token(encoded(*FIELDS, "more", 4)).protocol_min == 2


@pytest.mark.parametrize("place", range(len(FIELDS)))
def test_a_field_of_another_type_is_refused(place):
    fields = list(FIELDS)
    fields[place] = None
    with pytest.raises(RemoteProtocolError, match="cannot be made out"):
        decode_token(encoded(*fields))


@given(st.one_of(st.text(max_size=100), st.binary(max_size=100).map(encoded)))
@example("x" * 100_000)
@example(encoded(*FIELDS[:-1], "x" * 2000))
@example(encoded({"a": 1}))
@example(urlsafe_b64encode(b"\x91" * 3000).decode())
@example(urlsafe_b64encode(b"\x81\x90\x90").decode())
def test_any_other_text_is_refused(text):
    with pytest.raises(RemoteProtocolError):
        decode_token(text)


@pytest.mark.parametrize("place", [5, 6, 7])
@pytest.mark.parametrize("text", ["x" * 513, "two\nlines", "\0"], ids=["long", "lines", "nul"])
def test_a_name_that_no_table_takes_or_that_writes_lines_into_logs_is_refused(place, text):
    fields = list(FIELDS)
    fields[place] = text
    with pytest.raises(RemoteProtocolError):
        decode_token(encoded(*fields))


def test_the_longest_name_is_read_again_from_a_table():
    longest = decode_token(encode_token(PEER._replace(name="x" * 512))).peer
    table = MemberTable([Member.of(longest)])
    assert decode_members(table.encode()) == list(table)
