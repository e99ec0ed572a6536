"""What clients prove themselves with: read when it is needed, shown to nobody."""

import copy
import pickle

import pytest

from poe.errors import OptionError, PoeError, SecurityError, SecurityFileError
from poe.security import Certificate, PasswordFile, Scram, Token, TokenFile
from poe.security.credentials import SECRET_BYTES_MAX
from poe.security.token import make_token

TOKEN, _ = make_token("one")
OTHER, _ = make_token("two")


def test_values_are_what_they_are():
    for each in (Scram("alice", "hunter2"), Token(TOKEN), Certificate()):
        assert each.resolve() == each


def test_files_are_read_each_time(tmp_path):
    path = tmp_path / "secret"
    for text in (TOKEN, OTHER):
        path.write_text(text + "\n")
        assert TokenFile(path).resolve() == Token(text)
        assert PasswordFile("alice", path).resolve() == Scram("alice", text)


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"hunter2", "hunter2"),
        (b"hunter2\r\n", "hunter2"),
        (b" hunter 2 \nand more\n", " hunter 2 "),
        ("pässword\n".encode(), "pässword"),
    ],
)
def test_a_password_is_the_first_line(tmp_path, content, password):
    path = tmp_path / "secret"
    path.write_bytes(content)
    assert PasswordFile("alice", str(path)).resolve().password == password


def test_a_function_is_called_each_time():
    texts = iter([TOKEN, OTHER])
    token = Token(lambda: next(texts))
    assert [token.resolve(), token.resolve()] == [Token(TOKEN), Token(OTHER)]


@pytest.mark.parametrize("text", ["", "poe_", TOKEN[:-1], TOKEN + "\n", None, 7], ids=range(6))
def test_what_is_no_whole_token_is_refused_without_being_shown(text):
    for action in (lambda: Token(text), lambda: Token(lambda: text).resolve()):
        with pytest.raises(OptionError, match="a whole token") as caught:
            action()
        assert caught.value.value == "(hidden)"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "this is empty"),
        (b"\nx", "this is empty"),
        (b"\xff", "no UTF-8"),
        (b"x" * (SECRET_BYTES_MAX + 1), "which is the limit"),
    ],
)
def test_a_file_without_a_secret_is_refused(tmp_path, content, why):
    path = tmp_path / "secret"
    path.write_bytes(content)
    for credentials in (TokenFile(path), PasswordFile("alice", path)):
        with pytest.raises(SecurityFileError, match=why):
            credentials.resolve()


def test_a_file_with_part_of_a_token_is_refused_without_being_shown(tmp_path):
    path = tmp_path / "secret"
    path.write_text(TOKEN[:-1])
    with pytest.raises(SecurityFileError, match="line 1: this is no whole token") as caught:
        TokenFile(path).resolve()
    assert TOKEN[:-1] not in str(caught.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(SecurityFileError, match="No such file"):
        TokenFile(tmp_path / "absent").resolve()
    with pytest.raises(SecurityFileError, match="null"):
        TokenFile("a\0b").resolve()


def test_no_repr_shows_a_secret():
    assert repr(Scram("alice", "hunter2")) == "Scram(user='alice')"
    assert repr(Token(TOKEN)) == "Token()"


@pytest.mark.parametrize("secret", [Scram("alice", "hunter2"), Token(TOKEN)], ids=repr)
@pytest.mark.parametrize("travel", [pickle.dumps, copy.copy, copy.deepcopy])
def test_secrets_do_not_travel(secret, travel):
    with pytest.raises(SecurityError, match=r"use .*File") as caught:
        travel(secret)
    assert isinstance(caught.value, PoeError)


def test_paths_travel():
    for each in (TokenFile("t"), PasswordFile("alice", "p"), Certificate()):
        assert pickle.loads(pickle.dumps(each)) == each
