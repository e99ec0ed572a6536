import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.cluster.fabric.envelope import (
    FRAME_MAX_BYTES,
    FRAMES_MAX,
    decode_envelope,
    encode_envelope,
)
from poe.cluster.fabric.interface import PAYLOAD_MAX_BYTES
from poe.cluster.identity import PROTOCOL
from poe.errors import IncompatibleProtocol, RemoteProtocolError


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_frames_come_out_as_they_went_in(frames):
    assert decode_envelope(encode_envelope(frames)) == frames


def test_the_largest_frame_fits():
    assert len(encode_envelope([bytes(FRAME_MAX_BYTES)])) <= PAYLOAD_MAX_BYTES
    assert len(encode_envelope([b""] * FRAMES_MAX)) <= PAYLOAD_MAX_BYTES


@pytest.mark.parametrize("version", [0, PROTOCOL + 1])
def test_another_version_is_refused_by_name(version):
    with pytest.raises(IncompatibleProtocol, match=f"version {version}"):
        decode_envelope(msgpack.packb((version, {"later": "perhaps"})[:1]))


BOMB = b"\x91" * 100_000
LONG_ARRAY = b"\x92\x01\xdd\xff\xff\xff\xff"
LONG_BYTES = b"\x92\x01\x91\xc6\xff\xff\xff\xff"


@given(st.binary(max_size=200))
@example(b"")
@example(BOMB)
@example(LONG_ARRAY)
@example(LONG_BYTES)
@example(encode_envelope([b"frame"]) + b"more")
@example(encode_envelope([b"frame"])[:-1])
@example(msgpack.packb((PROTOCOL, ["text"])))
@example(msgpack.packb((PROTOCOL, [[b"nested"]])))
@example(msgpack.packb((PROTOCOL, {})))
@example(msgpack.packb((PROTOCOL, [b"frame"], 3)))
@example(msgpack.packb((True, [b"frame"])))
@example(msgpack.packb((PROTOCOL, [b""] * (FRAMES_MAX + 1))))
def test_any_bytes_are_frames_or_an_error_of_the_peer(payload):
    try:
        frames = decode_envelope(payload)
    except (RemoteProtocolError, IncompatibleProtocol):
        return
    assert all(type(frame) is bytes for frame in frames)
    assert decode_envelope(encode_envelope(frames)) == frames
