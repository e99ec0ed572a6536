"""Bodies in gzip: inflated as they come, within the limit of all bodies."""

import gzip
import io
import os
import tracemalloc
import zlib

import pytest

from poe.gateway.http.gzip_body import MEMBERS_MAX, GzipBody
from tests.gateway.http.front import Front, reply, stored
from tests.gateway.http.test_limits import POST

GZIP = {"Content-Encoding": "gzip"}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small(node):
    """A gateway that takes bodies of 100 000 bytes, four of them at a time."""
    with Front(node, "--body-max", 100_000, "--in-flight-max", 400_000) as front:
        yield front


def post(front, topic, content, headers=GZIP):
    return front.http.post(f"/sync/{topic}", content=content, headers=headers)


@pytest.mark.parametrize("name", ["gzip", "GZip", "x-gzip"])
def test_a_body_in_gzip_is_stored_as_it_was_before(front, node, topic, name):
    told = post(front, topic, gzip.compress(b"message"), {"Content-Encoding": name})
    assert told.status_code == 200
    assert stored(node, topic) == [b"message"]


def test_lines_and_records_are_found_in_gzip(front, node, topic):
    headers = GZIP | {"Content-Type": "application/x-ndjson"}
    assert post(front, topic, gzip.compress(b"1\n2\n"), headers).json()["delivered"] == 2
    headers = GZIP | {"Content-Type": "application/json"}
    body = b'{"records": [{"value": "3"}, {"value": "4"}]}'
    assert post(front, topic, gzip.compress(body), headers).json()["delivered"] == 2
    assert stored(node, topic) == [b"1", b"2", b"3", b"4"]


def test_it_may_come_in_any_parts_and_of_several_members(front, node, topic):
    whole = gzip.compress(b"first ") + gzip.compress(b"") + gzip.compress(b"second", 0)
    for size in (1, 7, len(whole)):
        parts = (whole[i : i + size] for i in range(0, len(whole), size))
        assert post(front, topic, parts).status_code == 200
    assert stored(node, topic) == [b"first second"] * 3


@pytest.mark.parametrize("size", [1, 99_999, 100_000])
@pytest.mark.parametrize("make", [bytes, os.urandom], ids=["zeros", "random"])
def test_a_body_within_the_limit_is_taken_however_well_it_compresses(
    small, node, topic, size, make
):
    content = make(size)
    assert post(small, topic, gzip.compress(content)).status_code == 200
    assert stored(node, topic) == [content]


@pytest.mark.parametrize("size", [100_001, 300_000, 50_000_000])
def test_one_beyond_it_after_inflation_is_refused(small, node, topic, size):
    refused = post(small, topic, gzip.compress(bytes(size)))
    assert refused.status_code == 413
    assert "body_max" in refused.json()["error"]["message"]
    assert stored(node, topic) == []


def test_members_without_content_are_bounded_too(small, topic):
    assert post(small, topic, gzip.compress(b"") * 10_000).status_code == 413


def test_there_are_no_more_members_than_a_body_needs(front, node, topic):
    members = [gzip.compress(b"x")] * MEMBERS_MAX
    refused = post(front, topic, b"".join([*members, gzip.compress(b"")]))
    assert refused.status_code == 400
    assert f"more than {MEMBERS_MAX} members" in refused.json()["error"]["message"]
    assert post(front, topic, b"".join(members)).status_code == 200
    assert stored(node, topic) == [b"x" * MEMBERS_MAX]


def test_an_announced_size_is_refused_before_it_is_sent(small, topic):
    with small.connect() as connection:
        head = b"Content-Encoding: gzip\r\nContent-Length: 200000\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(POST % topic.encode() + head)
        assert reply(connection)[0].startswith(b"HTTP/1.1 413 ")


WHOLE = gzip.compress(b"a message that has some length")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no gzip",
        WHOLE[:-1],
        WHOLE[:12],
        WHOLE[:3],
        WHOLE + b"x",
        WHOLE + WHOLE[:-4],
        WHOLE[:-8] + bytes(4) + WHOLE[-4:],
        WHOLE[:-4] + bytes(4),
        WHOLE[:11] + b"\xff" + WHOLE[12:],
        zlib.compress(b"the format of another coding"),
    ],
    ids=["empty", "words", "short by one", "half", "half a head", "rest", "half a member",
         "wrong checksum", "wrong length", "damaged", "deflate"],
)  # fmt: skip
def test_what_is_no_gzip_is_a_wrong_request_and_stores_nothing(front, node, topic, content):
    refused = post(front, topic, content)
    assert refused.status_code == 400
    assert refused.json()["error"]["name"] == "RequestRefused"
    assert stored(node, topic) == []


@pytest.mark.parametrize(
    "name", ["br", "deflate", "zstd", "compress", "gzip, gzip", "gzip, br", "gzip;q=1", "gz\xef"]
)
def test_another_coding_is_refused(front, node, topic, name):
    headers = {"Content-Encoding": name.encode("latin-1")}
    refused = post(front, topic, gzip.compress(b"x"), headers)
    assert refused.status_code == 415
    assert refused.headers["Accept-Encoding"] == "gzip"
    assert stored(node, topic) == []


def test_two_codings_in_two_headers_are_refused(front, topic):
    headers = [("Content-Encoding", "gzip"), ("Content-Encoding", "gzip")]
    assert post(front, topic, gzip.compress(WHOLE), headers).status_code == 415


@pytest.mark.parametrize("name", ["identity", "", "IDENTITY"])
def test_a_body_that_is_not_coded_may_say_so(front, node, topic, name):
    assert post(front, topic, b"x", {"Content-Encoding": name}).status_code == 200
    assert stored(node, topic) == [b"x"]


def test_inflated_bodies_count_in_what_all_have_together(small, node, topic):
    """After any number of refusals as many bodies fit as before."""
    for _ in range(20):
        assert post(small, topic, gzip.compress(bytes(100_001))).status_code == 413
        assert post(small, topic, gzip.compress(bytes(100_000))[:-1]).status_code == 400
    assert post(small, topic, gzip.compress(bytes(100_000))).status_code == 200


def test_inflating_takes_the_memory_of_one_piece():
    bomb = gzip.compress(bytes(200_000_000))
    tracemalloc.start()
    try:
        pieces = GzipBody().inflate(bomb)
        assert sum(len(next(pieces)) for _ in range(20)) <= 20 << 16
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(bomb) + (1 << 20)


@pytest.mark.parametrize("part_bytes", [1, 1000, 1 << 20])
def test_all_that_was_compressed_comes_out(part_bytes):
    content = os.urandom(50_000) + bytes(300_000)
    body, source = GzipBody(), io.BytesIO(gzip.compress(content))
    found: list[bytes] = []
    while part := source.read(part_bytes):
        assert not body.is_whole
        found += body.inflate(part)
    assert b"".join(found) == content
    assert body.is_whole
