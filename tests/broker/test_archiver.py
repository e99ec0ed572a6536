"""The archiver: what expires is archived by a program of its own, and nobody waits for that."""

import os
import sys
from pathlib import Path

import pytest

from poe import Node
from poe.actors import GenServer, LoopSystem
from poe.broker import ArchiveFolders, missing_for_spark
from poe.broker.appendix.server import REGISTRY
from poe.broker.registry.archiver import (
    ARCHIVE_PROCESS,
    ARCHIVER,
    ARCHIVER_SUP,
    ArchiverParts,
    ArchiverSup,
)
from poe.broker.registry.expiry import Archived, Expiring, ExpiringSegment
from poe.errors import OptionError
from poe.storage import Archive, ArchivedFile, Manifest, RowGroup, TopicOptions
from poe.storage.archive import NEW_FOLDER, file_path
from poe.supervision import WhichChildren, call_supervisor
from tests.waiting import wait_until

DEADLINE_S = 20
OLD = ExpiringSegment(b"t", 100, 101, 110, 10)
OLDER = ExpiringSegment(b"t", 50, 51, 60, 10)
LOOK = Expiring((OLDER, OLD))
SLEEP = "exec sleep 600"


class Registry(GenServer):
    """Stands where the topic registry is, and keeps what it is told."""

    def init(self):
        self.told = []

    def handle_cast(self, message):
        assert isinstance(message, Archived)
        self.told.append(message.keys)

    def handle_call(self, request, caller):
        return self.told


class World:
    """An archiver that runs a shell's script."""

    def __init__(self, archive_dir: Path, script: str):
        self.archive_dir = archive_dir
        self.system = LoopSystem()
        self.system.start(Registry, name=REGISTRY)
        archives = ArchiveFolders(archive_dir, {b"u": archive_dir.with_name("own")})
        parts = ArchiverParts(archives, ("sh", "-c", script))
        self.system.start(ArchiverSup, parts, name=ARCHIVER_SUP)

    def look(self, look=LOOK):
        """Do as the registry does at a tick; return what it is told then."""
        told = len(self.told())
        self.system.cast(ARCHIVER, look)
        wait_until(lambda: len(self.told()) > told, DEADLINE_S)
        return self.told()[-1]

    def told(self):
        return self.system.call(REGISTRY, "told")

    def program(self):
        children = call_supervisor(self.system, ARCHIVER_SUP, WhichChildren())
        return {child.id: child for child in children}.get(ARCHIVE_PROCESS)


@pytest.fixture
def world(tmp_path):
    worlds = []

    def start(script):
        (tmp_path / "archive").mkdir(exist_ok=True)
        worlds.append(World(tmp_path / "archive", script))
        return worlds[-1]

    yield start
    for each in worlds:
        each.system.shutdown()


def publish(archive_dir, segment, count=10):
    """Put the manifest of a segment into an archive."""
    archive = Archive.at(archive_dir)
    archive.files.make_folder(NEW_FOLDER)
    archive.files.open(f"{NEW_FOLDER}/1", "w+")
    group = RowGroup(segment.first, segment.last, count, 100)
    manifest = Manifest.of((ArchivedFile(file_path("1970-01-01", segment.timestamp), (group,)),))
    archive.publish(segment.topic, segment.timestamp, manifest, [f"{NEW_FOLDER}/1"])


def has_ended(program):
    return program is not None and program.ref is None


def test_what_is_archived_is_told_and_no_program_runs_for_it(tmp_path, world):
    publish(tmp_path / "archive", OLD)
    publish(tmp_path / "archive", OLDER)
    running = world(SLEEP)
    assert running.look() == {OLD.key, OLDER.key}
    assert running.program() is None


def test_for_what_is_not_archived_whole_a_program_runs(tmp_path, world):
    publish(tmp_path / "archive", OLD)
    publish(tmp_path / "archive", OLDER, count=9)
    running = world(SLEEP)
    assert running.look() == {OLD.key}
    wait_until(running.program, DEADLINE_S)


def test_however_many_looks_there_are_one_program_runs(tmp_path, world):
    running = world(f"echo $$ >> {tmp_path}/pids; {SLEEP}")
    for _ in range(5):
        assert running.look() == set()
    wait_until((tmp_path / "pids").exists, DEADLINE_S)
    running.look()
    assert len((tmp_path / "pids").read_text().split()) == 1


def test_a_program_that_has_succeeded_runs_again_for_what_waits_later(tmp_path, world):
    running = world(f"echo >> {tmp_path}/runs")
    running.look()
    wait_until(lambda: has_ended(running.program()), DEADLINE_S)
    running.look(Expiring((OLD,)))
    wait_until(lambda: (tmp_path / "runs").read_text() == "\n\n", DEADLINE_S)


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_a_program_that_fails_is_started_again_after_a_while_and_shows_why(tmp_path, world):
    running = world(f"echo >> {tmp_path}/runs; exit 3")
    running.look()
    runs = tmp_path / "runs"
    wait_until(lambda: runs.exists() and len(runs.read_text()) == 2, DEADLINE_S)
    assert running.look() == set()
    program = running.program()
    assert program.restarts == 1
    assert program.last_reason == "('exit_status', 3)"


def test_while_the_archive_is_away_nothing_is_made_in_its_place(tmp_path, world, caplog):
    running = world(SLEEP)
    (tmp_path / "archive").rmdir()
    archiver = running.system.whereis(ARCHIVER)
    running.system.cast(ARCHIVER, LOOK)
    wait_until(lambda: "the archive is away: cannot read" in caplog.text, DEADLINE_S)
    assert running.told() == []
    assert running.program() is None
    publish(tmp_path / "archive", OLD)
    assert running.look() == {OLD.key}
    assert running.system.whereis(ARCHIVER) == archiver


def test_a_topic_with_an_archive_of_its_own_is_looked_for_there_alone(tmp_path, world, caplog):
    other = ExpiringSegment(b"u", 100, 101, 110, 10)
    running = world(SLEEP)
    for folder in ("archive", "own"):
        publish(tmp_path / folder, OLD)
        assert running.look(Expiring((OLD, other))) == {OLD.key}
    publish(tmp_path / "own", other)
    assert running.look(Expiring((OLD, other))) == {OLD.key, other.key}


def test_while_one_archive_is_away_topics_of_others_go_on(tmp_path, world, caplog):
    other = ExpiringSegment(b"u", 100, 101, 110, 10)
    running = world(SLEEP)
    publish(tmp_path / "archive", OLD)
    assert running.look(Expiring((OLD, other))) == {OLD.key}
    assert f"the archive is away: cannot read {tmp_path}/own: " in caplog.text
    assert running.program() is None, "it could not archive what is left"


def test_folders_of_topics_are_as_they_were_told_when_a_program_takes_them(tmp_path):
    topics = TopicOptions.from_table("topics", {
        "a": {"archive_dir": "~/a"}, "b": {"archive_dir": "none"}, "c": {"ack": "fsync"}
    })  # fmt: skip
    made = ArchiveFolders.of(tmp_path, topics)
    assert ArchiveFolders.decode(made.encode()) == made
    assert made.folder(b"a") == Path("~/a").expanduser()
    assert made.folder(b"b") is None
    assert made.folder(b"c") == made.folder(b"\xff") == tmp_path
    assert made.folders() == sorted([tmp_path, Path("~/a").expanduser()])
    named = ArchiveFolders(None, {b"\xff": tmp_path})
    assert ArchiveFolders.decode(named.encode()) == named
    assert ArchiveFolders.of(None, ()).folders() == []


@pytest.mark.usefixtures("quiet")
def test_a_damaged_manifest_does_not_count(tmp_path, world):
    publish(tmp_path / "archive", OLD)
    [path] = (tmp_path / "archive").glob("topic=t/_manifest/*.json")
    path.write_bytes(path.read_bytes()[:-5])
    assert world(SLEEP).look(Expiring((OLD,))) == set()


# ---- what has to be installed -------------------------------------------------------------------


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A machine with a program of the name, whatever is really there."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))
    (tmp_path / "jre" / "bin").mkdir(parents=True)
    (tmp_path / "jre" / "bin" / "java").touch(mode=0o755)


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("module", ["pyspark", "pyarrow"])
def test_without_pyspark_a_node_with_an_archive_does_not_start(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    node = Node(dir=tmp_path / "poe", port=None, max_age=10.0, archive_dir=tmp_path / "archive")
    with pytest.raises(OptionError, match=r"install PySpark .*pip install '\.\[spark\]'"):
        node.start()
    assert not (tmp_path / "poe").exists()


def test_without_java_it_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert "Java 17 (apt-get install default-jre-headless" in missing_for_spark()


def test_an_archive_of_what_never_expires_is_refused(tmp_path):
    told = "none, or set max_age or max_bytes, too"
    with pytest.raises(OptionError, match=f"archive_dir.*{told}"):
        Node(dir=tmp_path, archive_dir=tmp_path / "archive")
    with pytest.raises(OptionError, match=rf"'topics\.t\.archive_dir'.*{told}"):
        Node(dir=tmp_path, topics={"t": {"archive_dir": tmp_path / "archive"}})


@pytest.mark.parametrize("limit", [{"max_age": 60.0}, {"max_bytes": 1_000_000}])
def test_what_expires_by_age_or_by_bytes_alone_may_be_archived(tmp_path, limit):
    Node(dir=tmp_path, archive_dir=tmp_path / "archive", **limit)
    Node(dir=tmp_path, topics={"t": {"archive_dir": tmp_path / "archive"}}, **limit)
