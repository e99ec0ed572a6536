"""Archives of a node with users: by the command, which gets in; by the node, which asks nobody."""

import pytest

from poe.broker import missing_for_spark
from tests.cli.processes import Background, complaint, poe
from tests.python_process import environment
from tests.spark.archives import TOPIC, assert_whole
from tests.spark.secured import SecuredNode
from tests.waiting import wait_until

MISSING = missing_for_spark()
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}"),
]

DEADLINE_S = 300


@pytest.fixture
def secured(tmp_path, certificates):
    """A node where `archivist` may read, and `guest` may not."""
    node = SecuredNode(tmp_path, certificates)
    node.add("archivist", [("read", {"topics": TOPIC})])
    node.add("guest", [("read", {"topics": "other"})])
    yield node
    node.stop()


def put_segments(node, count):
    """Fill so many segments with ten numbered messages each."""
    for number in range(count):
        node.node.put_many(TOPIC, [b"%d" % (10 * number + n) for n in range(10)])
        wait_until(lambda: len(segments(node)) > number + 1, DEADLINE_S)  # noqa: B023 - at once


def segments(node):
    return node.node.control("segments", topic=TOPIC.encode())


def test_the_command_archives_in_the_name_of_who_may_read(secured, tmp_path):
    secured.start(count_limit=10, check_interval=0.01)
    put_segments(secured, 3)
    place = ("--url", secured.url, "--ca", secured.certificates.file("ca.pem"))
    command = ("archive", TOPIC, "--to", tmp_path / "archive", *place)
    refused = poe(*command, "--token-file", tmp_path / "guest")
    assert complaint(refused).startswith(f"poe: not authorized to describe topic '{TOPIC}'")
    piped = poe(*command, "--token-file", "-", stdin=(tmp_path / "archivist").read_bytes())
    assert "use a file that holds it" in complaint(piped)
    # Its path is relative, and no task of Spark runs where the command does.
    with Background(*command, "--token-file", "archivist", cwd=tmp_path) as running:
        told, complaints = running.process.communicate(timeout=DEADLINE_S)
        assert running.process.returncode == 0, complaints
    assert told == b"t: 3 segments archived, 30 messages\n"
    assert_whole(tmp_path / "archive", 3)


def test_the_node_archives_by_itself_and_needs_no_user(secured, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    archive_dir = tmp_path / "archive"
    archive_dir.mkdir()
    secured.start(count_limit=10, check_interval=0.01, max_age=1.0, archive_dir=archive_dir)
    put_segments(secured, 3)
    wait_until(lambda: len(segments(secured)) == 1, DEADLINE_S)
    assert_whole(archive_dir, 3)
