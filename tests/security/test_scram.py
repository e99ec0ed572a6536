"""SCRAM: the vector of the RFC, another implementation on either end, and every way to cheat."""

import base64
import itertools
import random
import unicodedata

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import AuthenticationFailed, OptionError, RemoteProtocolError, SecurityError
from poe.protocol.faults import error_values
from poe.security.saslprep import saslprep
from poe.security.scram import (
    ITERATIONS,
    ITERATIONS_OF_PEOPLE,
    SCRAM,
    SCRAM_PLUS,
    ScramClient,
    ScramKeys,
    ScramServer,
)

SECRET = b"a server's secret, of 32 bytes.."
KEYS = ScramKeys.of_password("pencil")
BINDING = b"hash of a certificate"


def server(binding=None, known=None, **keywords):
    known = {"user": (KEYS,)} if known is None else known
    return ScramServer(lambda name: known.get(name, ()), SECRET, binding, **keywords)


def client(password="pencil", user="user", binding=None, **keywords):
    return ScramClient(user, password, binding, **keywords)


def authenticate(client, server):
    server_final, user = server.final(client.final(server.first(client.first())))
    client.check(server_final)
    return user


def refused(action, *arguments):
    with pytest.raises(AuthenticationFailed) as caught:
        action(*arguments)
    assert str(caught.value) == "authentication failed"
    assert error_values(caught.value) == {}
    return caught.value.reason


# --- As others do it ---------------------------------------------------------------------------

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_client_is_that_of_rfc_7677():
    one = client(nonce=NONCE)
    assert one.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert one.final(SERVER_FIRST) == CLIENT_FINAL
    one.check(SERVER_FINAL)


def test_the_server_is_that_of_rfc_7677_but_for_its_list_of_mechanisms():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    keys = ScramKeys.of_password("pencil", salt=salt)
    one = server(known={"user": (keys,)}, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert one.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == SERVER_FIRST + b",x=SCRAM-SHA-256"


@pytest.mark.parametrize("binding", [None, BINDING])
@pytest.mark.parametrize(("user", "password"), [("user", "pencil"), ("a,b=c", "pässword Ⅸ")])
def test_scramp_is_let_in_and_lets_us_in(user, password, binding):
    mechanism = SCRAM if binding is None else SCRAM_PLUS
    bound = None if binding is None else ("tls-server-end-point", binding)
    keys = ScramKeys.of_password(password)

    theirs = scramp.ScramClient([mechanism], user, password, channel_binding=bound)
    ours = server(binding, {user: (keys,)})
    theirs.set_server_first(ours.first(theirs.get_client_first().encode()).decode())
    server_final, name = ours.final(theirs.get_client_final().encode())
    theirs.set_server_final(server_final.decode())
    assert name == user

    made = scramp.ScramMechanism(mechanism)
    auth = (keys.salt, keys.stored_key, keys.server_key, keys.iterations)
    their_server = made.make_server(lambda _: auth, channel_binding=bound)
    our_client = client(password, user, binding)
    their_server.set_client_first(our_client.first().decode())
    final = our_client.final(their_server.get_server_first().encode())
    their_server.set_client_final(final.decode())
    our_client.check(their_server.get_server_final().encode())


# --- Right and wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("binding", [None, BINDING])
def test_the_right_password_is_let_in(binding):
    assert authenticate(client(binding=binding), server(binding)) == "user"


def test_a_client_without_binding_is_let_in_over_tls():
    """Another implementation may have none; ours binds wherever there is TLS."""
    one, other = server(BINDING), scramp.ScramClient([SCRAM], "user", "pencil")
    other.set_server_first(one.first(other.get_client_first().encode()).decode())
    assert one.final(other.get_client_final().encode())[1] == "user"


def test_old_and_new_password_are_let_in_while_both_have_keys():
    new = ScramKeys.of_password("crayon", KEYS.iterations, KEYS.salt)
    for password in ("pencil", "crayon"):
        assert authenticate(client(password), server(known={"user": (KEYS, new)})) == "user"
    refused(authenticate, client("chalk"), server(known={"user": (KEYS, new)}))


@pytest.mark.slow
def test_ten_thousand_wrong_guesses_are_refused():
    seed = random.randrange(2**32)
    print("seed", seed)
    random_bytes = random.Random(seed).randbytes
    for _ in range(10_000):
        one, guess = server(), client(nonce="n")
        first = one.first(guess.first())
        nonce = first[2 : first.index(b",")]
        proof = base64.b64encode(random_bytes(32))
        assert refused(one.final, b"c=biws,r=%b,p=%b" % (nonce, proof)) == "wrong password: 'user'"


@pytest.mark.slow
def test_nobody_is_refused_in_the_same_words_with_a_reason_for_the_log():
    reasons = {refused(authenticate, client(user=user), server(known={})) for user in ("a", "b")}
    assert reasons == {
        "unknown user, or one without a password: 'a'",
        "unknown user, or one without a password: 'b'",
    }
    assert refused(authenticate, client("chalk"), server()) == "wrong password: 'user'"


def test_a_name_that_nobody_has_gets_the_same_salt_each_time_as_a_user_does():
    firsts = [server(known={}, nonce="m").first(client(nonce="n").first()) for _ in range(2)]
    assert firsts[0] == firsts[1]
    other = server(known={}, nonce="m").first(client(user="other", nonce="n").first())
    assert other.split(b",")[1] != firsts[0].split(b",")[1]
    known = server(nonce="m").first(client(nonce="n").first())
    assert [len(each) for each in known.split(b",")][:2] == [
        len(each) for each in firsts[0].split(b",")
    ][:2]


def test_names_that_nobody_has_have_each_count_of_iterations():
    names = [f"user{number}" for number in range(50)]
    firsts = [server(known={}).first(client(user=name).first()) for name in names]
    assert {int(each.split(b",")[2][2:]) for each in firsts} == {ITERATIONS, ITERATIONS_OF_PEOPLE}


# --- Somebody in between -----------------------------------------------------------------------


def exchange(binding=None):
    """An authentication that somebody has overheard."""
    one, other = client(binding=binding), server(binding)
    first = one.first()
    server_first = other.first(first)
    return first, server_first, one.final(server_first)


def test_what_was_overheard_lets_nobody_in_again():
    first, _, final = exchange()
    again = server()
    again.first(first)
    assert refused(again.final, final) == "the nonce is another authentication's"


def test_a_final_with_the_nonce_of_now_and_a_proof_of_then_is_refused():
    first, server_first, final = exchange()
    again = server()
    now, then = (each.split(b",")[0][2:] for each in (again.first(first), server_first))
    assert refused(again.final, final.replace(then, now)) == "wrong password: 'user'"


@pytest.mark.parametrize("steps", ["f", "if", "ii", "iff", "if i", "xi", "xf"])
def test_messages_out_of_order_are_refused(steps):
    one, other = client(), server()
    final = b"c=biws,r=abc,p=" + base64.b64encode(bytes(32))
    actions = {
        "i": lambda: other.first(one.first()),
        "f": lambda: other.final(final),
        "x": lambda: other.first(b"nonsense"),
    }
    *before, last = steps.replace(" ", "")
    for each in before:
        try:
            actions[each]()
        except AuthenticationFailed:
            continue
    refused(actions[last])


def test_a_message_with_any_byte_missing_or_changed_is_refused():
    first, *_ = exchange(BINDING)
    for at in range(len(first)):
        for changed in (first[:at], first[:at] + first[at + 1 :], first[:at] + b"\0" + first[at:]):
            one, other = client(binding=BINDING, nonce="n" * 24), server(BINDING)
            final = one.final(other.first(one.first()))
            attacked = server(BINDING)
            try:
                attacked.first(changed)
            except AuthenticationFailed:
                continue
            refused(attacked.final, final)


def test_a_final_with_any_byte_missing_changed_or_added_is_refused():
    _, _, whole = exchange()
    for at in range(len(whole)):
        one, other = client(), server()
        final = one.final(other.first(one.first()))
        how = at % 3
        tail = (b"", b"#" + final[at + 1 :], b"A" + final[at:])[how]
        refused(other.final, final[:at] + tail)


def test_plus_that_was_taken_from_the_first_message_is_noticed():
    one, other = client(binding=BINDING), server(BINDING)
    stripped = one.first().replace(b"p=tls-server-end-point", b"n")
    final = one.final(other.first(stripped))
    assert refused(other.final, final) == "bound to another certificate"


def test_a_client_that_says_it_was_told_of_no_binding_is_refused_where_there_is_one():
    first = client().first().replace(b"n,,", b"y,,", 1)
    assert refused(server(BINDING).first, first) == "the client was kept from binding"
    server(None).first(first)


def test_a_client_that_was_kept_from_tls_goes_no_further():
    """Somebody speaks plaintext with the client and TLS with the server."""
    one, other = client(), server(BINDING)
    server_first = other.first(one.first())
    with pytest.raises(SecurityError, match="somebody is in between"):
        one.final(server_first)


def test_a_list_of_mechanisms_that_somebody_has_changed_is_in_no_proof():
    one, other = client(), server(BINDING)
    server_first = other.first(one.first()).replace(SCRAM_PLUS.encode() + b" ", b"")
    assert refused(other.final, one.final(server_first)) == "wrong password: 'user'"


def test_another_certificate_in_between_is_noticed():
    one, other = client(binding=b"hash of another certificate"), server(BINDING)
    final = one.final(other.first(one.first()))
    assert refused(other.final, final) == "bound to another certificate"


def test_a_binding_without_tls_is_refused():
    assert "without TLS" in refused(server(None).first, client(binding=BINDING).first())


def test_a_server_that_has_no_keys_is_found_out():
    one, thief = client(), server()
    final = one.final(thief.first(one.first()))
    assert final
    for forged in (b"v=" + base64.b64encode(bytes(32)), b"v=", b"", b"e=other-error", b"v=AA=="):
        with pytest.raises(SecurityError, match="has not proved"):
            one.check(forged)


def test_a_server_is_not_believed_before_the_client_has_proved_itself():
    with pytest.raises(SecurityError, match="has not proved"):
        client().check(b"v=" + base64.b64encode(b""))


@pytest.mark.parametrize(
    "server_first",
    [
        b"",
        b"r=other,s=QUJD,i=4096",
        b"r=n,s=QUJD,i=4096",
        b"r=nm,s=QUJD,i=0",
        b"r=nm,s=QUJD,i=4095",
        b"r=nm,s=QUJD,i=10000001",
        b"r=nm,s=QUJD,i=-5000",
        b"r=nm,s=Q,i=4096",
        b"r=nm,s=,i=4096",
        b"s=QUJD,r=nm,i=4096",
        b"m=must,r=nm,s=QUJD,i=4096",
        b"r=nm,s=QUJD,i=4096,",
        b"e=unknown-user",
        b"r=nm,s=QUJD,i=4096\n",
    ],
)
def test_a_server_that_answers_nonsense_or_asks_for_too_much_is_refused(server_first):
    with pytest.raises(RemoteProtocolError):
        client(nonce="n").final(server_first)


# --- Any bytes ---------------------------------------------------------------------------------

PIECES = st.sampled_from(
    b"n,,|y,,|p=tls-server-end-point,,|n=|r=|c=biws|p=|,|=2C|=|a=x|user|\xff|\0|AAAA|v=".split(b"|")
)


@given(st.lists(PIECES, max_size=10).map(b"".join) | st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_a_refusal(data):
    try:
        assert server(BINDING).first(data).startswith(b"r=")
    except AuthenticationFailed as error:
        print(error.reason)
    other = server()
    other.first(client().first())
    refused(other.final, data)


@pytest.mark.parametrize(
    "name", [b"=", b"=2c", b"=41", b"\xff", b"a\x07b", b"\xc2\xad", b"a" * 1001]
)
def test_a_name_that_is_no_text_is_refused(name):
    assert refused(server().first, b"n,,n=%b,r=abc" % name)


def test_an_authentication_for_somebody_else_is_refused():
    refused(server().first, b"n,a=admin,n=user,r=abc")


# --- Names and passwords -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "prepared"),
    [  # RFC 4013, section 3
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007", None),
        ("\u0627\u0031", None),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
        ("\u0627a\u0628", None),
        ("a\u00a0b", "a b"),
        ("\U0001f600", None),
        ("", ""),
    ],
)
def test_texts_have_the_form_of_rfc_4013(text, prepared):
    assert saslprep(text) == prepared


def test_a_name_of_many_characters_that_become_many_more_costs_little(monkeypatch):
    """Strangers send such names: one of 1 kB kept a node busy for 10 ms."""
    asked: list[str] = []
    monkeypatch.setattr("poe.security.saslprep._PROHIBITED", (asked.append,))
    assert saslprep("\ufdfa" * 333) == unicodedata.normalize("NFKC", "\ufdfa") * 333
    assert len(asked) < 20


@given(st.text(max_size=8))
def test_one_form_is_its_own_form(text):
    prepared = saslprep(text)
    if prepared is not None:
        assert saslprep(prepared) == prepared


@given(st.text(max_size=8) | st.text(st.characters(max_codepoint=0x700), max_size=4))
def test_a_form_is_that_of_scramp(text):
    try:
        theirs = scramp.core.saslprep(text)
    except scramp.ScramException:
        theirs = None
    assert saslprep(text) == theirs


def test_names_and_passwords_that_look_alike_are_the_same():
    keys = ScramKeys.of_password("Ⅸ\u00ad caf\u00e9")
    one = client("IX cafe\u0301", user="us\u00ader")
    assert authenticate(one, server(known={"user": (keys,)})) == "user"


def test_a_count_of_iterations_has_limits():
    for iterations in (1, 4095, 10_000_001):
        assert ScramKeys.parse(f"{iterations}{KEYS.text().removeprefix('4096')}") is None


@pytest.mark.parametrize("wrong", ["", "a\x07b", "\u00ad"])
def test_a_password_or_name_that_none_may_have_is_refused_without_being_shown(wrong):
    with pytest.raises(OptionError, match="control") as caught:
        ScramKeys.of_password(wrong)
    assert caught.value.value == "(hidden)"
    with pytest.raises(OptionError, match="'user' is"):
        client(user=wrong)


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("\N{SLIGHTLY SMILING FACE}", "as emoji are"),
        ("\N{ARABIC LETTER ALEF}1", "begin and end so"),
    ],
)
def test_a_password_that_cannot_be_one_is_refused_with_why(password, why):
    with pytest.raises(OptionError, match=why):
        ScramKeys.of_password(password)


# --- Keys as text ------------------------------------------------------------------------------


def test_keys_are_the_same_after_text():
    assert ScramKeys.parse(KEYS.text()) == KEYS
    assert KEYS.text().startswith("4096$")


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize(
    "part", ["", "x", "0", "40", "-4096", "10000001=", "QUI=", "=", "$", "٤٠٩٦"]
)
def test_keys_with_a_wrong_part_are_none(at, part):
    parts = KEYS.text().split("$")
    parts[at] = part
    is_sound = at == 1 and part == "QUI="  # a salt may be short
    assert (ScramKeys.parse("$".join(parts)) is not None) == is_sound


def test_keys_and_clients_show_no_secret():
    shown = repr(KEYS) + repr(client("pencil"))
    assert "pencil" not in shown
    assert all(repr(each) not in shown for each in (KEYS.stored_key, KEYS.server_key))


def test_salts_are_never_the_same():
    salts = [ScramKeys.of_password("pencil").salt for _ in range(5)]
    assert all(one != other for one, other in itertools.combinations(salts, 2))
