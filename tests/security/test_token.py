"""Bearer tokens: found by their id, checked whole, refused when a character is missing."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import OptionError
from poe.security.token import make_token, split_token


def test_a_token_is_split_into_its_id_and_the_digest_that_the_file_keeps():
    text, sha256 = make_token("2026-11")
    assert text.startswith("poe_2026-11_")
    assert split_token(text) == ("2026-11", sha256)
    assert sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_no_token_is_made_twice():
    assert make_token("a")[0] != make_token("a")[0]


def test_a_token_with_any_character_changed_or_missing_is_none():
    text, _ = make_token("ci.7")
    for at in range(len(text)):
        assert split_token(text[:at] + text[at + 1 :]) is None
        assert split_token(text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]) is None


@given(st.text(max_size=120))
def test_any_text_can_be_asked(text):
    assert split_token(text) is None
    assert split_token(f"poe_{text}_00000000") is None


@pytest.mark.parametrize("name", ["", "a_b", "ä", "a" * 65, "a\n", None, 7])
def test_an_id_that_would_make_the_text_ambiguous_is_refused(name):
    with pytest.raises(OptionError, match="use 1 to 64 of"):
        make_token(name)
