"""A disk in memory under a node that may fail, die or lose its power, and be started again."""

import errno
from random import Random

from poe.storage import Files
from torture.layers.crash_state import store_after_power_cut
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Recorder
from torture.layers.watched import Failing, Operation, WatchedFiles


class SimulatedDisk:
    """Hands out a file layer for each life of a process; that of a process that died is of no use.

    `failing` decides which operations fail; everything is recorded for the sake of power cuts.
    """

    def __init__(self) -> None:
        self.failing = Failing()
        self.boot = 0
        self._life = 0
        self._begin(MemoryFiles())

    def files(self) -> Files:
        """The file layer of the next process."""
        life = self._life

        def before(operation: Operation) -> None:
            if life != self._life:
                raise OSError(errno.EIO, "of a process that is dead")
            self.failing(operation)

        return WatchedFiles(self._recorder.files, before)

    def kill(self) -> None:
        """The process dies; what it wrote is there."""
        self._life += 1
        self.memory.locked.clear()

    def cut_power(self, random: Random) -> None:
        """The machine dies; what was synced is there, and what else happened to be written."""
        self.kill()
        self.boot += 1
        left = store_after_power_cut(self._recorder.events, random, self._begun_with)
        left.boot_id = f"boot {self.boot}"
        self._begin(left)

    def _begin(self, files: MemoryFiles) -> None:
        self.memory = files
        self._begun_with = files.copy(files.boot_id)
        self._recorder = Recorder(files)
