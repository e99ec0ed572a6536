"""Has segments archived before they expire, by a Spark program that runs while there is something.

    archiver_sup                one_for_one, with back-off
    ├── archiver                looks which segments are archived, and tells the topic registry
    └── archive_process         the program; started again, ever later, until it has succeeded

Spark takes seconds to start, so one run of the program archives all that waits. The disk of the
archive may be slow or dead and the program may fail: nobody waits for either. Only what is not
archived stays where it is.
"""

import contextlib
import logging
import os
import shutil
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from poe.actors import GenServer, OsProcess, Work
from poe.actors.python_process import python_command
from poe.broker.appendix_server import REGISTRY
from poe.broker.expiry import Archived, Expiring
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

if TYPE_CHECKING:
    from poe.broker.topic_registry import RegistryOptions

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
_SOON = 0.9
"""What is so much of `max_age` old is archived with what has expired: ten starts of Spark in that
time are enough."""
_GRACE_S, _SHUTDOWN_S = 0.2, 0.4
"""Part of the five seconds that a node has to stop; a segment that is half archived is no harm."""


@dataclass(frozen=True, slots=True)
class ArchiverParts:
    """What the archiver works with."""

    archive_dir: Path
    command: tuple[str, ...]
    """The program, which archives all that is too old, or soon will be."""

    @classmethod
    def of(cls, base: Path, options: "RegistryOptions", *, adopted: bool) -> Self | None:
        """Archive the topics of a base folder; None where the options do not ask for it.

        Raises:
            OptionError: Spark is not installed, or the folder is somebody else's and not adopted.
        """
        archive_dir, max_age_s = options.archive_dir, options.max_age
        if archive_dir is None or max_age_s is None:
            return None
        missing = missing_for_spark()
        if missing:
            raise OptionError("archive_dir", str(archive_dir), f"none, or install {missing}")
        archive_dir = archive_dir.expanduser().absolute()
        if not adopted:
            Archive.check("archive_dir", archive_dir)
        arguments = str(base.absolute()), str(archive_dir), str(max_age_s * _SOON)
        return cls(archive_dir, tuple(python_command("poe.cli.archive_process", *arguments)))


def missing_for_spark() -> str:
    """Tell what has to be installed before Spark can run, empty where nothing is missing."""
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
    """Compares what expires with the manifests in the archive, and has the rest archived.

    It holds nothing that matters: at its next look the registry tells again what expires.
    """

    def init(self, parts: ArchiverParts) -> None:
        """Wait for the first look of the registry."""
        self._parts = parts
        self._look: Work | None = None
        self._expiring = Expiring(())
        self._archived: set[tuple[bytes, int]] = set()

    def handle_cast(self, message: Expiring) -> None:
        """Look at the manifests, in a thread: the archive's disk may be anywhere."""
        if self._look is None:
            self._expiring = message
            self._archived = set()
            self._look = Work(self, partial(self._find_archived, message, self._archived))

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Tell what was found, and have the rest archived."""
        if self._look is None or message is not self._look:
            super().handle_info(message)
            return
        self._look = None
        if message.error is not None:
            logger.error("nothing expires, since the archive is away: %s", message.error)
            return
        self.cast(REGISTRY, Archived(frozenset(self._archived)))
        if len(self._archived) < len(self._expiring.segments):
            await self._start_process()

    def _find_archived(self, expiring: Expiring, archived: set[tuple[bytes, int]]) -> None:
        """Add the keys of the segments that the archive holds; runs in a thread.

        It does not make the folder: where a disk is not mounted, that would be another one.
        """
        archive = Archive.existing(self._parts.archive_dir)
        for each in expiring.segments:
            with contextlib.suppress(StorageError):  # then it is archived anew
                manifest = archive.manifest(each.topic, each.timestamp)
                if manifest is not None and manifest.covers(each.first, each.last, each.count):
                    archived.add(each.key)

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
            logger.info("segments to archive: %d", len(self._expiring.segments))
