"""A login as steps: each kind of credentials against what a server does, without a connection."""

import pytest

from poe.errors import OptionError, RemoteProtocolError, SecurityError, SecurityFileError
from poe.security import Certificate, Entry, PasswordFile, Scram, Token, TokenFile
from poe.security.entry import login
from poe.security.scram import ScramKeys, ScramServer
from poe.security.token import make_token

BINDING = b"hash of a certificate"
KEYS = ScramKeys.of_password("pencil")
TOKEN, _ = make_token("one")
DONE = {"data": None, "principal": "alice", "expires_s": None}


def served(steps, answers):
    """What a login asks, and what it returns."""
    asked = []
    try:
        step = next(steps)
        for answer in answers:
            asked.append(step)
            step = steps.send(answer(step[1]) if callable(answer) else answer)
    except StopIteration as end:
        return asked, end.value
    pytest.fail(f"asked once more: {step}")


def scram_answers(binding, expires_s=None):
    server = ScramServer(lambda _: (KEYS,), b"secret", binding)
    return [
        lambda data: {"data": server.first(data), "principal": None, "expires_s": None},
        lambda data: {
            "data": server.final(data)[0],
            "principal": "alice",
            "expires_s": expires_s,
        },
    ]


def test_without_credentials_nothing_is_asked():
    assert served(login(Entry(), BINDING), []) == ([], None)


@pytest.mark.parametrize("binding", [None, BINDING])
def test_a_password_is_proved_in_two_steps(binding):
    steps = login(Entry(credentials=Scram("alice", "pencil")), binding)
    asked, expires_s = served(steps, scram_answers(binding, 1801440000))
    name = "SCRAM-SHA-256" if binding is None else "SCRAM-SHA-256-PLUS"
    assert [mechanism for mechanism, _ in asked] == [name] * 2
    assert expires_s == 1801440000.0
    assert b"pencil" not in b"".join(data for _, data in asked)


def test_a_token_is_shown_over_tls_and_on_this_machine():
    entry = Entry(credentials=Token(TOKEN))
    answer = {**DONE, "expires_s": 7.5}
    for steps in (login(entry, BINDING), login(entry, None, is_loopback=True)):
        assert served(steps, [answer]) == ([("BEARER", TOKEN.encode())], 7.5)


def test_a_token_is_never_sent_in_the_clear():
    with pytest.raises(OptionError, match="poes://"):
        next(login(Entry(credentials=Token(TOKEN)), None))


def test_a_certificate_is_named_over_tls_alone():
    entry = Entry(credentials=Certificate())
    assert served(login(entry, BINDING), [DONE]) == ([("EXTERNAL", b"")], None)
    with pytest.raises(OptionError, match="poes://"):
        next(login(entry, None, is_loopback=True))


def test_files_are_read_at_each_login(tmp_path):
    path = tmp_path / "secret"
    path.write_text(TOKEN)
    assert next(login(Entry(credentials=TokenFile(path)), BINDING)) == ("BEARER", TOKEN.encode())
    path.write_text("pencil\n")
    steps = login(Entry(credentials=PasswordFile("alice", path)), BINDING)
    served(steps, scram_answers(BINDING))
    path.unlink()
    with pytest.raises(SecurityFileError):
        next(login(Entry(credentials=TokenFile(path)), BINDING))


def test_a_server_that_has_not_proved_itself_is_not_believed():
    steps = login(Entry(credentials=Scram("alice", "pencil")), None)
    first, _ = scram_answers(None)
    with pytest.raises(SecurityError, match="has not proved"):
        served(steps, [first, {**DONE, "data": b"v=AAAA"}])


@pytest.mark.parametrize("result", [{}, {"data": None}, {"data": "text"}, {"data": b"r=x"}])
def test_a_server_that_answers_nonsense_is_refused(result):
    with pytest.raises(RemoteProtocolError):
        served(login(Entry(credentials=Scram("alice", "pencil")), None), [result])


@pytest.mark.parametrize("expires_s", ["soon", b"", [1]])
def test_a_time_that_is_none_is_refused(expires_s):
    steps = login(Entry(credentials=Token(TOKEN)), BINDING)
    with pytest.raises(RemoteProtocolError, match="time of expiry"):
        served(steps, [{**DONE, "expires_s": expires_s}])
