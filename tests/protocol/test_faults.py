import pytest

from poe import errors
from poe.errors import (
    ActorDead,
    FrameTooLarge,
    InvalidMessage,
    NoQuorum,
    Overloaded,
    PoeError,
    PointerOutOfRange,
    RemoteProtocolError,
    ServerError,
    StorageFull,
    UnknownTopic,
)
from poe.protocol import ErrorReply
from poe.protocol.faults import TEXT_MAX
from tests.protocol.streams import body_of


def through_a_frame(error: PoeError) -> PoeError:
    return ErrorReply.decode(body_of(ErrorReply.from_error(error, 5).encode())).to_error()


@pytest.mark.parametrize(
    "error",
    [
        UnknownTopic(b"\xfftopic"),
        InvalidMessage(0, 100),
        FrameTooLarge(1 << 32, 1000),
        Overloaded("connections_max", 10_000),
        StorageFull("/data/topic", "no space left"),
        PointerOutOfRange(-1),
        RemoteProtocolError("put request holds no message"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_arrives_as_it_was_raised(error):
    arrived = through_a_frame(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
    assert arrived.retriable == error.retriable


def test_attribute_that_is_not_plain_arrives_as_text():
    arrived = through_a_frame(ActorDead(("appendix", 1), ValueError("x")))
    assert isinstance(arrived, ActorDead)
    assert (arrived.ref, arrived.reason) == ("('appendix', 1)", "ValueError('x')")


def test_attribute_too_large_for_the_wire_arrives_as_text():
    arrived = through_a_frame(PointerOutOfRange(1 << 70))
    assert isinstance(arrived, PointerOutOfRange)
    assert vars(arrived)["pointer"] == str(1 << 70)


def test_path_that_is_no_text_does_not_stop_the_error():
    arrived = through_a_frame(StorageFull("/data/\udcff", "no space left"))
    assert isinstance(arrived, StorageFull)
    assert arrived.path == "/data/\\udcff"


def test_topic_as_long_as_a_frame_does_not_come_back_whole():
    error = UnknownTopic(b"t" * 1_000_000)
    assert len(ErrorReply.from_error(error).encode()) < 3 * TEXT_MAX


@pytest.mark.parametrize(
    ("code", "values"), [(9999, {}), (401, {}), (401, {"other": 1}), (305, {"name": "x"})]
)
def test_error_that_cannot_be_rebuilt_is_a_server_error(code, values):
    error = ErrorReply(code, "Newer", "it is so", None, values).to_error()
    assert type(error) is ServerError
    assert (error.remote_code, error.name) == (code, "Newer")
    assert "it is so" in str(error)


def test_what_an_older_server_does_not_know_of_has_its_default():
    error = ErrorReply(680, "NoQuorum", "m", None, {"what": "topic t"}).to_error()
    assert isinstance(error, NoQuorum)
    assert (error.what, error.why, str(error)) == ("topic t", "", "m")


def test_server_sets_no_attribute_but_those_of_the_class():
    values = {"topic": b"t", "__class__": "x", "code": 7, "args": 1}
    error = ErrorReply(401, "UnknownTopic", "m", None, values).to_error()
    assert vars(error) == {"topic": b"t"}


def test_no_two_errors_share_a_code():
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, PoeError)
    ]
    assert len({each.code for each in classes}) == len(classes)
