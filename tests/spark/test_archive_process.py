"""Real Spark in a process of its own, started by a real node or by hand, and killed."""

import errno
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from functools import partial

import pytest

from poe import Node
from poe.actors import GetPid
from poe.actors.python_process import python_command
from poe.broker import ArchiveFolders, missing_for_spark
from poe.broker.registry.archiver import ARCHIVE_PROCESS
from poe.cli.archive_process import topics_by_archive
from poe.errors import ActorDead
from poe.spark.archive import archive_topics
from poe.spark.folder_segments import FolderSegments
from poe.storage import Archive, RealFiles, SharedFolder
from tests.python_process import environment
from tests.spark.archives import TOPIC, assert_whole
from tests.spark.sources import batch_table, messages
from tests.storage.faulty_files import FaultyFiles
from tests.waiting import wait_until

MISSING = missing_for_spark()
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}"),
]

DEADLINE_S = 300
"""Generous, since what archives is nice to all others."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])


def put_segments(node, count):
    """Fill so many segments with ten numbered messages each."""
    for number in range(count):
        node.put_many(TOPIC, [b"%d" % (10 * number + n) for n in range(10)])
        wait_until(partial(has_segments, node, number + 2), DEADLINE_S)


def segments_count(node):
    return len(list(node.config.dir.glob("topics/*/*_data")))


def has_segments(node, count):
    return segments_count(node) == count


def read(**options):
    return list(map(int, messages(batch_table(topic=TOPIC, **options))))


def pid_of_archiver(node):
    """Tell the process that archives at this moment, if there is one."""
    try:
        return node.system.call(ARCHIVE_PROCESS, GetPid())
    except ActorDead:
        return None


def has_killed_archiver(node, archive_dir, least):
    """Kill the process that is at work, once so many segments are archived; tell whether it was."""
    pid = pid_of_archiver(node)
    if pid is None or len(list(archive_dir.glob("topic=t/_manifest/*"))) < least:
        return False
    os.kill(pid, signal.SIGKILL)
    return True


def test_a_node_archives_what_expires_whenever_its_archiver_is_killed(tmp_path):
    archive_dir = tmp_path / "archive"
    options = {"dir": tmp_path / "node", "port": None, "count_limit": 10, "check_interval": 0.01}
    with Node(**options) as node:
        put_segments(node, 30)
    archive_dir.mkdir()
    with Node(**options, max_age=1.0, archive_dir=archive_dir) as node:
        # Before Spark runs, and while segments are being archived.
        for manifests_count in (0, 1):
            wait_until(partial(has_killed_archiver, node, archive_dir, manifests_count), DEADLINE_S)
            assert node.next(TOPIC, 0) is not None or segments_count(node) == 1
        node.put(TOPIC, b"300")
        wait_until(partial(has_segments, node, 1), DEADLINE_S)
        wait_until(lambda: node.next(TOPIC, 0) is None, DEADLINE_S)
    found = read(path=tmp_path / "node", archive=archive_dir)
    assert found == list(range(301))
    assert read(archive=archive_dir) == found
    assert_whole(archive_dir, 31)


def test_what_a_topic_s_own_limits_make_due_is_archived_long_before_the_node_s_age(tmp_path):
    archive_dir = tmp_path / "archive"
    archive_dir.mkdir()
    options = {"dir": tmp_path / "node", "port": None, "count_limit": 10, "check_interval": 0.01}
    with Node(**options, max_age=86400.0, archive_dir=archive_dir) as node:
        node.create_topic("kept", max_age="none")
        node.create_topic(TOPIC, max_bytes=1)
        node.put("kept", b"0")
        for number in range(5):
            node.put_many(TOPIC, [b"%d" % (10 * number + n) for n in range(10)])
            wait_until(partial(has_segments, node, number + 3), DEADLINE_S)
        node.create_topic("aged", max_age=1.0)  # has the node look often
        node.put("aged", b"1")
        wait_until(lambda: node.next("aged", 0) is None, DEADLINE_S)
        wait_until(lambda: node.next(TOPIC, 0) is None, DEADLINE_S)
        assert node.next("kept", 0) is not None
    assert Archive.existing(archive_dir).topics() == [b"aged", TOPIC.encode()]
    assert read(archive=archive_dir) == list(range(50))


def test_a_topic_without_segments_keeps_no_other_from_being_archived(tmp_path):
    with Node(dir=tmp_path / "node", port=None) as node:
        node.put(TOPIC, b"0")
    (tmp_path / "node/topics/empty").mkdir()
    archives = ArchiveFolders(tmp_path).encode()
    arguments = str(tmp_path / "node"), archives, "[1, null]"
    command = python_command("poe.cli.archive_process", *arguments)
    run = subprocess.run(command, env=environment(), check=False, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_a_topic_whose_folder_the_disk_refuses_keeps_no_other_from_being_archived(tmp_path):
    with Node(dir=tmp_path / "node", port=None) as node:
        node.put("t", b"0")
        node.put("u", b"0")
    files = FaultyFiles(RealFiles.existing(tmp_path / "node"))
    files.fail(1, errno.EIO, "list_folder")
    topics = topics_by_archive(SharedFolder(files), ArchiveFolders(tmp_path / "archive"))
    assert files.failed_count == 1
    assert topics == {tmp_path / "archive": ["t", "u"]}, "why the one fails is told with it"


def test_each_topic_goes_into_its_own_folder_and_one_that_is_away_hinders_no_other(tmp_path):
    folders = {name: tmp_path / name for name in ("others", "own", "away")}
    for name in ("others", "own"):
        folders[name].mkdir()
    with Node(dir=tmp_path / "node", port=None, count_limit=1, check_interval=0.01) as node:
        for number, topic in enumerate(("t", "u", "v", "w"), 1):
            node.put(topic, b"1")
            wait_until(partial(has_segments, node, 2 * number), DEADLINE_S)
    named = {b"u": folders["own"], b"v": folders["away"], b"w": None}
    archives = ArchiveFolders(folders["others"], named).encode()
    arguments = str(tmp_path / "node"), archives, "[0, null]"
    command = python_command("poe.cli.archive_process", *arguments)
    run = subprocess.run(command, env=environment(), check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert f"nothing is archived into {folders['away']}: cannot read" in run.stderr
    assert not folders["away"].exists()
    for name, expected in (("others", b"t"), ("own", b"u")):
        assert Archive.existing(folders[name]).topics() == [expected]


def poe(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "poe", *map(str, arguments)],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_command_archives_a_topic_once(tmp_path):
    with Node(dir=tmp_path / "node", port=None, count_limit=10, check_interval=0.01) as node:
        put_segments(node, 5)
        command = ("archive", TOPIC, "--to", tmp_path / "archive", "--path", tmp_path / "node")
        first = poe(*command)
        assert first.stdout == "t: 5 segments archived, 50 messages\n", first.stderr
        assert first.returncode == 0
        assert_whole(tmp_path / "archive", 5)
        assert poe(*command).stdout == "t: 0 segments archived, 0 messages\n"
        assert read(path=tmp_path / "node", archive=tmp_path / "archive") == list(range(50))


def test_the_command_says_what_is_wrong(tmp_path):
    with Node(dir=tmp_path / "node", port=None) as node:
        node.put(TOPIC, b"0")
    command = ("archive", "other", "--to", tmp_path / "archive", "--path", tmp_path / "node")
    run = poe(*command)
    assert (run.returncode, run.stdout) == (1, "")
    assert "poe: topic 'other' is not known" in run.stderr
    run = poe("archive", TOPIC, "--to", tmp_path / "archive", "--path", tmp_path / "none")
    assert run.returncode == 2
    assert "a server's folder" in run.stderr


def test_a_master_that_is_none_is_told_in_a_sentence(tmp_path):
    with Node(dir=tmp_path / "node", port=None, count_limit=10, check_interval=0.01) as node:
        put_segments(node, 1)
    command = ("archive", TOPIC, "--to", tmp_path / "archive", "--path", tmp_path / "node")
    run = poe(*command, "--master", "local[x]")
    assert (run.returncode, run.stdout) == (2, "")
    told = run.stderr.splitlines()[-1]
    assert told.startswith("poe: Spark does not start (")
    assert "Could not parse Master URL: 'local[x]'" in told


def test_spark_reads_store_and_archive_as_one_table(tmp_path, spark):
    base, archive_dir = str(tmp_path / "node"), tmp_path / "archive"
    with Node(dir=base, port=None, count_limit=10, check_interval=0.01) as node:
        put_segments(node, 3)
        open_segments = partial(FolderSegments, base)
        outcomes = archive_topics(open_segments, [TOPIC], archive_dir, lambda: nullcontext(spark))
        assert [(each.count, each.failure) for each in outcomes] == [(10, "")] * 3
        node.put_many(TOPIC, [b"30", b"31"])
        places = {"path": base, "archive": str(archive_dir), "topic": TOPIC}

        def load():
            return spark.read.format("poe").options(**places).load()

        found = load().orderBy("pointer").collect()
        assert [int(row.message) for row in found] == list(range(32))
        assert load().filter(f"pointer > {found[15].pointer}").count() == 16
        archived = spark.read.parquet(str(archive_dir))
        assert archived.count() == 30
        assert archived.join(load(), ["pointer", "timestamp", "message"]).count() == 30
