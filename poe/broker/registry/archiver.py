"""Has segments archived before they expire, by a Spark program that runs while there is something.

    archiver_sup                one_for_one, with back-off
    ├── archiver                looks which segments are archived, and tells the topic registry
    └── archive_process         the program; started again, ever later, until it has succeeded

Spark takes seconds to start, so one run of the program archives all that waits. The disk of the
archive may be slow or dead and the program may fail: nobody waits for either. Only what is not
archived stays where it is.
"""

import contextlib
import json
import logging
import os
import shutil
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self

from poe.actors import GenServer, OsProcess, Work
from poe.actors.python_process import python_command
from poe.broker.appendix.server import REGISTRY
from poe.broker.registry.archive_folders import ArchiveFolders
from poe.broker.registry.expiry import Archived, Expiring, ExpiringSegment
from poe.broker.registry.topic_settings import Retention
from poe.errors import ChildRequestRefused, ChildStartFailed, OptionError, StorageError
from poe.storage import Archive
from poe.supervision import (
    Backoff,
    ChildSpec,
    Restart,
    Supervisor,
    SupervisorFlags,
    delete_child,
    start_child,
)

logger = logging.getLogger("poe.broker")

ARCHIVER = "archiver"
ARCHIVER_SUP = "archiver_sup"
ARCHIVE_PROCESS = "archive_process"

_FLAGS = SupervisorFlags(
    intensity=10_000,
    period_s=10_000_000,
    backoff=Backoff(first_s=1.0, max_s=600.0, reset_after_s=3600.0),
)
"""Tried again for weeks, ever more slowly: the node works without the archive."""
_GRACE_S, _SHUTDOWN_S = 0.2, 0.4
"""Part of the five seconds that a node has to stop; a segment that is half archived is no harm."""


class ArchiverParts(NamedTuple):
    """What the archiver works with."""

    archives: ArchiveFolders
    command: tuple[str, ...]
    """The program, which archives all that is due, or soon will be."""

    @classmethod
    def of(
        cls, base: Path, archives: ArchiveFolders, kept: Retention, *, adopted: bool
    ) -> Self | None:
        """Archive the topics of a base folder; None where the options do not ask for it.

        The program has `kept` of the node, and finds in the folder what topics say themselves.

        Raises:
            OptionError: Spark is not installed, or a folder is somebody else's and not adopted.
        """
        folders = archives.folders()
        if not folders:
            return None
        missing = missing_for_spark()
        if missing:
            raise OptionError("archive_dir", str(folders[0]), f"none, or install {missing}")
        if not adopted:
            for each in folders:
                Archive.check("archive_dir", each)
        retention = json.dumps([kept.max_age_s, kept.max_bytes])
        arguments = str(base.absolute()), archives.encode(), retention
        return cls(archives, tuple(python_command("poe.cli.archive_process", *arguments)))


def missing_for_spark() -> str:
    """Return what has to be installed before Spark can run, empty where nothing is missing."""
    missing = []
    if not find_spec("pyspark") or not find_spec("pyarrow"):
        missing.append("PySpark with Arrow (pip install '.[spark]' in a checkout)")
    java = Path(os.environ.get("JAVA_HOME", ""), "bin", "java")
    if not ("JAVA_HOME" in os.environ and java.is_file()) and not shutil.which("java"):
        missing.append("Java 17 (apt-get install default-jre-headless, or set JAVA_HOME)")
    return " and ".join(missing)


class ArchiverSup(Supervisor):
    """Keeps the archiver, and the program that it starts."""

    def configure(self, parts: ArchiverParts) -> Any:  # noqa: ANN401 - flags and specs
        """Describe the archiver; it adds the program."""
        return _FLAGS, [ChildSpec(id=ARCHIVER, actor=Archiver, args=(parts,), name=ARCHIVER)]


class Archiver(GenServer):
    """Compares what expires with the manifests in the archives, and has the rest archived.

    It holds nothing that matters: at its next look the registry tells again what expires.
    """

    def init(self, parts: ArchiverParts) -> None:
        """Wait for the first look of the registry."""
        self._parts = parts
        self._look: Work | None = None
        self._found = _Found()

    def handle_cast(self, message: Expiring) -> None:
        """Look at the manifests, in a thread: the archive's disk may be anywhere."""
        if self._look is None:
            self._found = _Found()
            self._look = Work(self, partial(self._find_archived, message, self._found))

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Tell what was found, and have the rest archived."""
        if self._look is None or message is not self._look:
            super().handle_info(message)
            return
        self._look = None
        if message.error is not None:
            logger.error("nothing expires that is to be archived: %s", message.error)
            return
        for error in self._found.away:
            logger.error("nothing expires that goes there, since the archive is away: %s", error)
        if self._found.is_any_there:
            self.cast(REGISTRY, Archived(frozenset(self._found.archived)))
        if self._found.waiting_count:
            await self._start_process()

    def _find_archived(self, expiring: Expiring, found: "_Found") -> None:
        """Find which segments are in their archives; runs in a thread.

        It does not make the folders: where a disk is not mounted, that would be another one.
        """
        by_folder: dict[Path, list[ExpiringSegment]] = {}
        for each in expiring.segments:
            folder = self._parts.archives.folder(each.topic)
            assert folder is not None, "what has no archive does not wait for one"
            by_folder.setdefault(folder, []).append(each)
        for folder, segments in by_folder.items():
            try:
                archive = Archive.existing(folder)
            except StorageError as error:
                found.away.append(error)
                continue
            found.is_any_there = True
            held = {each.key for each in segments if _holds(archive, each)}
            found.archived |= held
            found.waiting_count += len(segments) - len(held)

    async def _start_process(self) -> None:
        """Start the program, unless it runs or waits to be started again."""
        spec = ChildSpec(
            id=ARCHIVE_PROCESS,
            actor=OsProcess,
            args=(self._parts.command,),
            kwargs={"grace_s": _GRACE_S},
            restart=Restart.TRANSIENT,
            shutdown_s=_SHUTDOWN_S,
            name=ARCHIVE_PROCESS,
        )
        with contextlib.suppress(ChildRequestRefused):  # there is none, or it is still at work
            await delete_child(self, ARCHIVER_SUP, ARCHIVE_PROCESS)
        with contextlib.suppress(ChildRequestRefused):
            try:
                await start_child(self, ARCHIVER_SUP, spec)
            except ChildStartFailed as error:  # the next look tries again
                logger.error("nothing is archived for now: %s", error)
                return
            logger.info("segments to archive: %d", self._found.waiting_count)


@dataclass(slots=True)
class _Found:
    """What a look has found; written by its thread, and read when that is done."""

    archived: set[tuple[bytes, int]] = field(default_factory=set)
    """Keys of segments."""

    waiting_count: int = 0
    """Segments that are to be archived, into folders that are there."""

    is_any_there: bool = False
    """Whether a folder is there."""

    away: list[StorageError] = field(default_factory=list)
    """Why the others cannot be read."""


def _holds(archive: Archive, segment: ExpiringSegment) -> bool:
    try:
        manifest = archive.manifest(segment.topic, segment.timestamp)
    except StorageError:
        return False  # it is archived anew
    return manifest is not None and manifest.covers(segment.first, segment.last, segment.count)
