"""What a reader and a writer need of a node with users: exactly this, and with less they are told.

The grants are those of docs/spark.md.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from poe.broker.access import failure_delays
from poe.errors import (
    AuthenticationFailed,
    AuthenticationRequired,
    NotAuthorized,
    SecurityFileError,
    TlsFailed,
)
from poe.protocol import Socket
from poe.security.token import make_token
from poe.spark.retrying_socket import RetryingSocket
from tests.broker.nodes import address, read_by_next
from tests.spark.secured import SecuredNode
from tests.spark.sources import batch_table, data_source, messages, stream_reader, table

pytestmark = pytest.mark.spark

AT_ONCE_S = 20.0
"""A third of how long a server that is away is waited for."""

STAGING = [(each, {"prefixes": "poe.staging."}) for each in ("read", "write", "create", "delete")]
APART = [(each, {"prefixes": "poe.staging.team-a."}) for each, _ in STAGING]
NEEDS = {
    "read": [("read", {"topics": "in"})],
    "read by pattern": [("read", {"prefixes": "i"})],
    "count": [("read", {"topics": "in"})],
    "follow": [("read", {"topics": "in"})],
    "write": [("write", {"topics": "out"}), *STAGING],
    "write partitions": [("write", {"topics": "parted"}), *STAGING],
    "write as one producer": [("write", {"topics": "out"}), *STAGING],
    "write apart": [("write", {"topics": "out"}), *APART],
    "make": [("write", {"topics": "new"}), ("create", {"topics": "new"}), *STAGING],
}
"""Operations and names, by what somebody does."""

NUMBERS = count()
ROWS = pa.RecordBatch.from_pylist([{"message": "a"}, {"message": "b"}])
SCHEMA = StructType([StructField("message", StringType())])


def read(options):
    return messages(batch_table(**options, topic="in"))


def read_by_pattern(options):
    return messages(batch_table(**options, topicPattern=".*"))


def counted(options):
    return batch_table(**options, topic="in", counts="true")["count"].to_pylist()


def follow(options):
    reader = stream_reader(**options, topic="in")
    try:
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, reader.getDefaultReadLimit())
        return messages(table(reader, reader.partitions(begin, end)))
    finally:
        reader.stop()


def writes(**more):
    def write(options):
        writer = data_source(**options, **more).writer(SCHEMA, overwrite=False)
        try:
            writer.commit([writer.write(iter([ROWS]))])
        except NotAuthorized:
            writer.abort([])
            raise

    return write


def write_as_one_producer(options):
    """Write as a query does, which uses its staging topic again and again."""
    return writes(topic="out", producerId=str(next(NUMBERS)), epoch=0)(options)


DEEDS = {
    "read": read,
    "read by pattern": read_by_pattern,
    "count": counted,
    "follow": follow,
    "write": writes(topic="out"),
    "write partitions": writes(topic="parted"),
    "write as one producer": write_as_one_producer,
    "write apart": writes(topic="out", stagingPrefix="team-a."),
    "make": writes(topic="new"),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory, certificates):
    """Users that have all that they need, and others that lack one thing of it each."""
    node = SecuredNode(tmp_path_factory.mktemp("secured"), certificates)
    for name, needs in NEEDS.items():
        user = name.replace(" ", "-")
        node.add(user, needs)
        for number in range(len(needs)):
            node.add(f"{user}-{number}", needs[:number] + needs[number + 1 :])
    node.add("writer-of-in", [("write", {"topics": "in"})])
    node.add("one-of-many", [("read", {"topics": "sensor-7 parted-1"})])
    node.start()
    node.node.put_many("in", [b"1", b"2"])
    node.node.put("other", b"3")
    node.node.put("out", b"0")
    node.node.create_topic("parted", partitions=2)
    node.node.put("sensor-7", b"7")
    node.node.put("parted-1", b"p")
    yield node
    node.stop()


def staging_topics(node):
    return {each for each in node.node.topics() if each.startswith(b"poe.staging.")}


def test_who_has_these_grants_reads(node):
    both = [b"1", b"2"]
    assert read(node.options("read")) == both
    assert read_by_pattern(node.options("read-by-pattern")) == both
    assert counted(node.options("count")) == [2]
    assert follow(node.options("follow")) == both


def test_who_has_these_grants_writes_and_leaves_nothing_behind(node):
    for name, topics in {
        "write": ["out"],
        "write partitions": ["parted-0", "parted-1"],
        "write as one producer": ["out"],
        "write apart": ["out"],
        "make": ["new"],
    }.items():
        before = staging_topics(node)
        DEEDS[name](node.options(name.replace(" ", "-")))
        found = {message for topic in topics for _, message in read_by_next(node.node, topic)}
        assert found >= {b"a", b"b"}
        assert (staging_topics(node) == before) == ("producer" not in name)
    node.node.control("delete", topic="new")


LACKS = [(name, number) for name, needs in NEEDS.items() for number in range(len(needs))]


@pytest.mark.parametrize(("name", "number"), LACKS, ids=[f"{a}-{b}" for a, b in LACKS])
def test_who_lacks_one_of_them_is_told_at_once_what_it_is(node, name, number):
    operation, names = NEEDS[name][number]
    options = node.options(f"{name.replace(' ', '-')}-{number}")
    if name == "read by pattern":
        assert DEEDS[name](options) == []  # the names of others are not even listed
        return
    before, begin_s = staging_topics(node), time.monotonic()
    with pytest.raises(NotAuthorized) as refused:
        DEEDS[name](options)
    assert time.monotonic() - begin_s < AT_ONCE_S, "as if the server were away"
    told = f"not authorized to {operation} topic '{next(iter(names.values()))}"
    assert str(refused.value).startswith(told)
    if "producer" not in name:
        assert staging_topics(node) == before


def test_who_stages_apart_may_not_stage_where_all_do(node):
    with pytest.raises(NotAuthorized, match=r"topic 'poe\.staging\.[0-9a-f]{32}'"):
        DEEDS["write"](node.options("write-apart"))


def test_who_may_write_a_topic_is_told_that_reading_it_is_another_thing(node):
    for deed in (read, follow, read_by_pattern):
        with pytest.raises(NotAuthorized, match="not authorized to read topic 'in'"):
            deed(node.options("writer-of-in"))


@pytest.mark.parametrize(("topic", "message"), [("sensor-7", b"7"), ("parted-1", b"p")])
def test_a_topic_whose_name_ends_in_a_number_is_read_without_a_look_at_another(
    node, topic, message
):
    assert messages(batch_table(**node.options("one-of-many"), topic=topic))[0] == message


@pytest.fixture
def stranger(node, tmp_path):
    """Options of somebody who does not get in, by what is wrong with them."""
    token, _ = make_token("nobody-s")
    (tmp_path / "token").write_text(token)
    right, wrong = node.options("read"), {"tokenFile": str(tmp_path / "token")}
    host, port = address(node.node)
    return {
        AuthenticationFailed: right | wrong,
        AuthenticationRequired: {key: right[key] for key in ("url", "caFile")},
        SecurityFileError: right | {"tokenFile": str(tmp_path / "none")},
        TlsFailed: right | {"url": f"poes://{host}:{port}"},
    }


@pytest.mark.parametrize(
    "error", [AuthenticationFailed, AuthenticationRequired, SecurityFileError, TlsFailed]
)
def test_who_does_not_get_in_is_told_at_once(stranger, error, monkeypatch):
    monkeypatch.setattr(failure_delays, "FIRST_S", 0.001)
    begin_s = time.monotonic()
    for name in ("read", "follow", "write"):
        with pytest.raises(error):
            DEEDS[name](stranger[error])
    assert time.monotonic() - begin_s < AT_ONCE_S, "as if the server were away"


def test_more_tasks_than_may_be_on_their_way_in_at_once_get_in(node):
    """Of an address 16 may, others are hung up on; the tasks of a machine all have one."""
    tasks = 3 * node.node.config.security.unauthenticated_per_address_max
    begin = threading.Barrier(tasks)

    def task(_):
        with RetryingSocket([node.server("read")], 60.0) as server:
            begin.wait()
            return server.call(Socket.read, "in", 0, 1)[0][1]

    with ThreadPoolExecutor(tasks) as pool:
        assert set(pool.map(task, range(tasks))) == {b"1"}


def test_a_password_or_a_certificate_gets_in_as_a_token_does(tmp_path, certificates):
    node = SecuredNode(tmp_path, certificates)
    certificates.issue("runner", "runner.example.org")
    node.users.password("alice", "secret")
    (tmp_path / "password").write_text("secret\n")
    node.users.certificate("runner", "DNS:runner.example.org")
    node.users.grant("alice runner", "read", topics="in")
    node.add("ci", [("read", {"topics": "in"})])
    node.start(tls_client_ca=certificates.file("ca.pem"))
    node.node.put("in", b"1")
    token = node.options("ci")
    shown = {
        "url": node.url,
        "caFile": token["caFile"],
        "certificateFile": str(certificates.file("runner.pem")),
        "keyFile": str(certificates.file("runner.key")),
    }
    password = {"user": "alice", "passwordFile": str(tmp_path / "password")}
    try:
        for options in (token, shown, shown | password, shown | token):
            assert read(options) == [b"1"]
    finally:
        node.stop()
