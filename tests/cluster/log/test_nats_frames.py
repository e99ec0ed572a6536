"""What a server of NATS sends comes out as it went in, however it is cut."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.cluster.log.nats_frames import Frames, Message, description_of, status_of

WORDS = st.text("abc$._-=~019", min_size=1, max_size=12).map(str.encode)
MESSAGES = st.builds(
    Message,
    st.integers(1, 10**9),
    WORDS,
    st.one_of(st.just(b""), WORDS),
    st.one_of(st.just(b""), st.binary(max_size=30).map(lambda rest: b"NATS/1.0\r\n" + rest)),
    st.one_of(st.binary(max_size=40), st.just(b"\r\nMSG a 1 3\r\nabc\r\n")),
)
LINES = st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'why'\r\n", b"\r\n"])


def encoded(frame: Message | bytes) -> bytes:
    if isinstance(frame, bytes):
        return frame
    sizes = [len(frame.headers) + len(frame.payload)]
    if frame.headers:
        sizes.insert(0, len(frame.headers))
    words = [b"HMSG" if frame.headers else b"MSG", frame.subject, str(frame.sid).encode()]
    words += [frame.reply] if frame.reply else []
    words += [str(size).encode() for size in sizes]
    return b" ".join(words) + b"\r\n" + frame.headers + frame.payload + b"\r\n"


@given(st.lists(st.one_of(MESSAGES, LINES), max_size=8), st.data())
def test_messages_come_out_as_they_went_in_however_they_are_cut(frames, data):
    content = b"".join(map(encoded, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=9)))
    feeding = Frames()
    found: list[Message | bytes] = []
    for start, stop in zip([0, *cuts], [*cuts, len(content)], strict=True):
        found += feeding.feed(content[start:stop])
    assert found == frames


def test_what_was_not_taken_is_there_at_the_next_time():
    frames = Frames()
    first = next(iter(frames.feed(b"PING\r\nMSG a 1 2\r\nhi\r\nPON")))
    assert first == b"PING\r\n"
    assert list(frames.feed(b"G\r\n")) == [Message(1, b"a", b"", b"", b"hi"), b"PONG\r\n"]


@pytest.mark.parametrize("content", [b"MSG a 1 x\r\nhi\r\n", b"HMSG a 1 y 2\r\nhi\r\n"])
def test_what_is_nothing_of_the_protocol_is_told(content):
    with pytest.raises(ValueError, match="invalid literal"):
        list(Frames().feed(content))


@pytest.mark.parametrize("size", [-1, -12, -100, 1 << 40])
@pytest.mark.parametrize("head", [b"MSG a 1", b"HMSG a 1 0"])
def test_a_size_that_no_message_has_is_told_and_not_waited_for(head, size):
    with pytest.raises(ValueError, match="no message has"):
        # As many as would be there in vain, where it goes back to where it was.
        list(islice(Frames().feed(b"%s %d\r\nhi\r\n" % (head, size)), 10))


def test_a_line_without_an_end_does_not_fill_the_memory():
    frames = Frames()
    assert list(frames.feed(bytes(1 << 20))) == []
    with pytest.raises(ValueError, match="no line ends"):
        list(frames.feed(b"x"))


def test_only_the_engine_itself_has_a_status():
    said = b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 7\r\n\r\n"
    assert status_of(said) == b"409"
    assert description_of(said) == b"Message Size Exceeds MaxBytes"
    assert status_of(b"NATS/1.0 503\r\n\r\n") == b"503"
    assert description_of(b"NATS/1.0 503\r\n\r\n") == b""
    assert status_of(b"NATS/1.0\r\nStatus: 503\r\n\r\n") == b""
    assert status_of(b"") == b""
