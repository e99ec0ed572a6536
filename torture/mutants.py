"""Ways to break the product on purpose, so that a scenario can show that it would notice.

A mutant is applied inside the victim by `TORTURE_MUTANT`, never by an option of Poe. Each names
a mistake that somebody could make, or that the original made.
"""

import contextlib
import errno
import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from poe import config, protocol, storage
from poe.actors import Work
from poe.broker.appendix import server as appendix_server
from poe.broker.appendix.group_sync import GroupSync
from poe.broker.appendix.message import Seal
from poe.broker.connection import connection, input_deadline, listener
from poe.broker.connection.connection import Connection, begin_put
from poe.broker.connection.input_deadline import InputDeadline
from poe.broker.registry.crash_limit import CrashLimit
from poe.broker.registry.topic_registry import TopicRegistry
from poe.broker.requests.byte_budget import ByteBudget
from poe.errors import PoeError, StorageError
from poe.protocol import PutRequest
from poe.protocol.frames import HEADER_SIZE
from poe.protocol.messages import REQUESTS
from poe.storage.formats import hashed, segment_lock, store_meta, sum_file
from poe.storage.real_files import RealFile, RealFiles
from poe.storage.recovery import recovery
from poe.storage.recovery.survey import Survey
from poe.storage.segment import durability, segment, segment_files, segment_options
from poe.storage.segment.producers import Producers
from poe.storage.segment.sum_writer import SumWriter
from poe.storage.slab_log import record as slab_record
from poe.storage.store import folder_watch, store, topic_folders, topic_reader
from poe.storage.store.pointer_bound import PointerBound
from torture.cluster_mutants import CLUSTER_MUTANTS, ClusterMutant
from torture.group_mutants import GROUP_MUTANTS, GroupMutant
from torture.log_group_mutants import LOG_GROUP_MUTANTS, LogGroupMutant
from torture.log_mutants import LOG_MUTANTS, LogMutant
from torture.slab_mutants import SLAB_MUTANTS, SlabMutant

VARIABLE = "TORTURE_MUTANT"
_ABSENT = object()

Mutant = Literal[
    "recount-bases",
    "one-stand-in",
    "ack-in-memory",
    "no-data-sync",
    "no-sum-sync",
    "no-fsync",
    "no-base-folder-sync",
    "no-topics-folder-sync",
    "no-topic-folder-sync",
    "keep-half-batches",
    "no-repair",
    "no-data-hash",
    "end-before-sync",
    "keep-behind-holes",
    "foreign-torn-locks",
    "ack-during-sync",
    "ignore-write-errors",
    "ignore-sync-errors",
    "keep-what-failed",
    "stale-bound",
    "forget-producers",
    "any-topic-name",
    "payload-in-log",
    "no-restart",
    "clock-is-pointer",
    "pointers-again",
    "no-store-lock",
    "leak-per-client",
    "long-pause",
    "cut-foreign",
    "blind-to-original",
    "any-feature",
    "no-adoption",
    "trusting-readers",
    "serve-foreign",
    SlabMutant,
    GroupMutant,
    ClusterMutant,
    LogMutant,
    LogGroupMutant,
    "sync-in-loop",
    "restart-for-ever",
    "crash-takes-all",
    "no-turns",
    "no-budget",
    "no-patience",
    "half-puts",
]

Patch: TypeAlias = Any
"""Sets an attribute, as `setattr` does; it may remember how to undo it."""


def _ack_in_memory(patch: Patch) -> None:
    """P05: acknowledge what is in a buffer of the process."""
    patch(segment_options.SegmentOptions, "waiting_count_max", property(lambda _: 50))


def _no_data_sync(patch: Patch) -> None:
    """P06: "sync" is a write."""

    def begin_sync(self: Any, _shared: object = None) -> Callable[[], None]:
        self.flush()
        return lambda: None

    patch(segment.Segment, "begin_sync", begin_sync)


def _no_sum_sync(patch: Patch) -> None:
    """Sync what was put, and not what says that it is right."""

    patch(SumWriter, "sync", lambda _: None)


def _no_fsync(patch: Patch) -> None:
    """What libeatmydata does: no sync of anything."""
    patch(RealFile, "sync", lambda _: None)
    patch(RealFiles, "sync_folder", lambda *_: None)
    patch(RealFiles, "sync_all", lambda _: None)


def _no_folder_sync(depth: int) -> Callable[[Patch], None]:
    """Leave out the sync of one kind of folder: 0 is the base, 1 `topics`, 2 that of a topic."""

    class Without:
        def __init__(self, files: Any) -> None:
            self.files = files

        def __getattr__(self, name: str) -> Any:
            return getattr(self.files, name)

        def sync_folder(self, path: str) -> None:
            if len(path.split("/")) - (path == "") != depth:
                self.files.sync_folder(path)

        def sync_all(self) -> None:
            raise OSError(errno.EOPNOTSUPP, "names would be synced, too")

    def apply(patch: Patch) -> None:
        open_store = store.Store.open.__func__  # type: ignore[attr-defined]  # of a class method

        def open_without(cls: Any, base: Any, *rest: Any) -> Any:
            files = RealFiles.at(base) if isinstance(base, Path) else base
            return open_store(cls, Without(files), *rest)

        patch(store.Store, "open", classmethod(open_without))

    return apply


def _keep_half_batches(patch: Patch) -> None:
    """Forget where the last whole batch ended."""
    find_lock = segment_lock.find_lock

    def find(files: Any, path: str) -> segment_lock.FoundLock | None:
        return segment_lock.FoundLock(None) if find_lock(files, path) else None

    patch(recovery, "find_lock", find)


def _no_repair(patch: Patch) -> None:
    """P11 to P14: remove the lock, and take the files as they are."""

    def recover(files: Any, path: str, *_: object, **__: object) -> Any:
        data, index = (recovery.open_maybe(files, path + s) for s in ("_data", "_index"))
        files.unlink(path + "_lock")
        if data is None or index is None:
            return None
        return recovery._covered(data, index, data.size())

    patch(segment_files, "recover", recover)


def _no_data_hash(patch: Patch) -> None:
    """Have recovery take what its sums cover for what was written."""
    compare = Survey._compare

    def trusting(self: Survey, found: sum_file.FoundSum, *, is_cut: bool) -> bool:
        entry = found.entry
        actual = sum_file.hash_of(self.data, self.end, entry.end)
        return compare(self, found._replace(entry=entry._replace(data_hash=actual)), is_cut=is_cut)

    patch(Survey, "_compare", trusting)


def _end_before_sync(patch: Patch) -> None:
    """Say that a segment was closed in good order before it is durable."""
    seal = segment.Segment.seal

    def end(self: segment.Segment) -> None:
        was_writer = self.role is segment.Role.WRITER
        seal(self)
        sums = self.durability.extent.sums
        if was_writer and sums is not None and not sums.flags & sum_file.Flag.CLEAN:
            content, ended = sum_file.closing(sums, self.size_bytes, self.pointer_high or 0)
            self.durability.extent = replace(self.durability.extent, sums=ended)
            files = self._files.files
            files.open(self.path + "_sum", "r+").write_at(content, sums.size_bytes)

    patch(segment.Segment, "seal", end)


def _keep_behind_holes(patch: Patch) -> None:
    """Recover each segment by itself, whatever is left of those before it."""
    patch(recovery._Recovery, "_is_continued", lambda _: True)


def _foreign_torn_locks(patch: Patch) -> None:
    """Take what a power cut leaves of a lock for the original's, which means what it says."""
    find_lock = segment_lock.find_lock

    def find(files: Any, path: str) -> segment_lock.FoundLock | None:
        lock = find_lock(files, path)
        is_whole = lock is None or files.open(path, "r").read_at(8, 0) == b"poe-lock"
        return lock if is_whole else segment_lock.FoundLock(None)

    patch(recovery, "find_lock", find)
    patch(recovery, "_is_lock_torn", lambda *_, **__: False)


def _ack_during_sync(patch: Patch) -> None:
    """Acknowledge with a sync what was put while it ran."""
    end = GroupSync.end

    def answer_all(self: GroupSync) -> None:
        self._syncing += self._group
        self._group = []
        end(self)

    patch(GroupSync, "end", answer_all)


def _ignore_write_errors(patch: Patch) -> None:
    """P09: whatever the write returned, it was fine."""
    patch(segment.Segment, "_refuse", lambda *_: None)


def _ignore_sync_errors(patch: Patch) -> None:
    """Believe the second sync after one that failed."""

    def ignore(_: Any, sync: Callable[[], None], *__: object) -> Callable[[], None]:
        def run() -> None:
            with contextlib.suppress(StorageError):
                sync()

        return run

    patch(durability.Durability, "_with_names", ignore)


def _keep_what_failed(patch: Patch) -> None:
    """Have what waited for a failing sync put again, and leave the first copy where it is."""

    def begin_cut(self: segment.Segment, failure: str) -> Callable[[], None]:
        self.fail(failure)
        self.durability.begin_anew()
        self.seal()
        return self.begin_sync()

    patch(segment.Segment, "begin_cut", begin_cut)


def _stale_bound(patch: Patch) -> None:
    """P18: record the upper bound of a segment as it was before the last put reached it."""
    server: Any = appendix_server.AppendixServer
    put, serve = server._put, server._serve
    bounds: dict[Any, int] = {}

    def noting_put(self: Any, request: Any, caller: Any) -> Any:
        bounds[self._segment] = self._segment.pointer_high
        return put(self, request, caller)

    def stale_serve(self: Any, request: Any, caller: Any) -> Any:
        bound = serve(self, request, caller)
        return bounds.get(self._segment) if isinstance(request, Seal) else bound

    patch(server, "_put", noting_put)
    patch(server, "_serve", stale_serve)


def _forget_producers(patch: Patch) -> None:
    """Tell a new segment nothing of who has put with ids."""
    patch(Producers, "live", lambda *_: iter(()))


def _any_topic_name(patch: Patch) -> None:
    """P51: the name is the path."""
    patch(topic_folders, "folder_name", lambda topic, _names: topic.decode("latin-1"))


def _payload_in_log(patch: Patch) -> None:
    """P49: log what was received."""
    put = appendix_server.AppendixServer._put

    def log_and_put(self: Any, request: Any, caller: Any) -> Any:
        appendix_server.logger.warning("put of %r", bytes(request.messages[0]))
        return put(self, request, caller)

    patch(appendix_server.AppendixServer, "_put", log_and_put)


def _pointers_again(patch: Patch) -> None:
    """P34a: forget at a start which pointers were given."""
    patch(PointerBound, "_read", lambda _: (0, 0, 0))


def _no_restart(patch: Patch) -> None:
    """P24: what has ended stays in the table."""

    async def ignore(*_: object) -> None:
        pass

    patch(TopicRegistry, "_appendix_ended", ignore)
    patch(TopicRegistry, "_restart_failed", ignore)


def _clock_is_pointer(patch: Patch) -> None:
    """P34: the pointer is what the clock says."""
    append = segment.Segment.append

    def at_clock(self: Any, messages: Any, now_us: int, *put: Any) -> int:
        self.last_pointer = 0
        return append(self, messages, now_us, *put)

    patch(segment.Segment, "append", at_clock)


def _no_store_lock(patch: Patch) -> None:
    """P02: look, then take."""
    patch(store, "lock_base", lambda files: (files.open(folder_watch.LOCK_FILE, "w+"), ""))


def _leak_per_client(patch: Patch) -> None:
    """P26: something of each client stays."""
    kept: list[bytearray] = []
    init = Connection.init

    def keep(self: Any, *arguments: Any) -> Any:
        kept.append(bytearray(b"x" * (128 << 10)))  # twice what `slow` allows
        return init(self, *arguments)

    patch(Connection, "init", keep)


def _long_pause(patch: Patch) -> None:
    """Wait for descriptors as if there would never be any."""
    patch(listener, "_PAUSE_S", 4.0)  # much longer than `fds` allows
    patch(listener, "_FILES_RESERVED", 0)  # else clients are turned away before any pause


def _cut_foreign(patch: Patch) -> None:
    """Take what another program appended behind a clean close for the rest of a crash."""
    adopted_end = recovery._Recovery._adopted_end

    def end(self: Any, survey: Any) -> int:
        return survey.end if survey.last_flags & sum_file.Flag.CLEAN else adopted_end(self, survey)

    patch(recovery._Recovery, "_adopted_end", end)


def _blind_to_original(patch: Patch) -> None:
    """Take the original's lock for a stale one, without looking for who holds it."""
    patch(RealFiles, "is_open_elsewhere", lambda *_: False)


def _sync_in_loop(patch: Patch) -> None:
    """P21: wait for the disk where all actors run."""
    init = Work.__init__

    def wait(work: Work, *arguments: Any) -> None:
        init(work, *arguments)
        work.wait()

    patch(Work, "__init__", wait)


def _restart_for_ever(patch: Patch) -> None:
    """Feed a writer again and again what crashes it."""
    patch(CrashLimit, "count", lambda *_: None)


def _crash_takes_all(patch: Patch) -> None:
    """P22: whoever has a topic that crashes, crashes as well."""

    async def crash(_: TopicRegistry, end: Any) -> None:
        raise RuntimeError(end.reason)

    patch(TopicRegistry, "_appendix_ended", crash)


def _no_turns(patch: Patch) -> None:
    """Serve whoever sends most for as long as it sends."""
    patch(connection, "_TURN", range(1 << 30))


def _no_budget(patch: Patch) -> None:
    """P45: take whatever clients send."""

    def change(budget: ByteBudget, difference_bytes: int) -> None:
        budget.held_bytes += difference_bytes

    patch(ByteBudget, "change", change)


def _no_patience(patch: Patch) -> None:
    """Take a slow network for a hostile client."""
    init = InputDeadline.__init__

    def hurry(deadline: InputDeadline, actor: Any, _: float, idle_s: float) -> None:
        init(deadline, actor, 0.2, idle_s)

    patch(InputDeadline, "__init__", hurry)
    patch(input_deadline, "_SLOWEST_BYTES_PER_S", 1 << 30)


def _half_puts(patch: Patch) -> None:
    """Store the whole messages of a request whose client has gone."""
    give_up = Connection._give_up

    def store(self: Connection, error: Exception | None) -> Any:
        body = memoryview(bytes(self._frames._unread()))[HEADER_SIZE:]
        for size in range(len(body), 0, -1):
            with contextlib.suppress(PoeError):
                begin_put(self._own_cell, self._routes, *PutRequest.decode(body[:size]))
                break
        return give_up(self, error)

    patch(Connection, "_give_up", store)


def _any_feature(patch: Patch) -> None:
    """Read and write what a newer version may mean otherwise."""
    patch(hashed, "_REQUIRED_FEATURES", 0)


def _no_adoption(patch: Patch) -> None:
    """Cut off what no sums cover, as if all versions had had sums."""
    patch(recovery._Recovery, "_adopted_end", lambda _, survey: survey.end)


def _trusting_readers(patch: Patch) -> None:
    """P54, Q07: take it for granted that what was announced is there, and of a known kind."""
    decode = hashed.ChainedEntries.decode

    def trusting(*arguments: Any) -> list[hashed.Found[Any]]:
        return [each._replace(is_chained=True) for each in decode(*arguments)]

    def toml(path: Any, _: object) -> dict[str, tuple[str, Any]]:
        return {key: (key, value) for key, value in tomllib.loads(Path(path).read_text()).items()}

    patch(protocol, "decode_request", lambda kind, body: dict(REQUESTS)[kind].decode(body))
    patch(storage, "decode_records", lambda data: list(_unchecked_records(bytes(data))))
    patch(hashed.ChainedEntries, "decode", trusting)
    patch(store_meta, "decode_events", _unchecked_events)
    patch(slab_record, "_split_checked", slab_record._split)
    patch(config, "_from_toml", toml)


def _serve_foreign(patch: Patch) -> None:
    """Take files for what their names say."""
    patch(recovery, "foreign_owner", lambda *_: "")


def _unchecked_records(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        yield int.from_bytes(data[4:11], "big"), data[11:end]
        data = data[end:]


def _unchecked_events(content: bytes, _: bytes) -> Iterator[store_meta.Event]:
    while content:
        kind, size, *numbers = store_meta._EVENT.unpack_from(content)
        topic, content = content[60 : 60 + size], content[60 + size + 8 :]
        yield store_meta.Event(store_meta.Kind(kind), topic, *numbers)


def _recount_bases(patch: Patch) -> None:
    """Count the ordinals of a topic anew at each start, by what is left of it."""
    number = topic_reader._number

    def recount(segments: list[segment.Segment]) -> None:
        number(segments)
        ordinal = 0
        for each in segments:
            each.base_maybe = ordinal
            ordinal += each.count

    patch(topic_reader, "_number", recount)


def _one_stand_in(patch: Patch) -> None:
    """Have one entry of the index stand for all records of a damaged batch."""
    stand_ins = Survey._stand_ins

    def one(self: Survey, entry: sum_file.SumEntry) -> bytes:
        return stand_ins(self, entry._replace(record_count=min(entry.record_count, 1)))

    patch(Survey, "_stand_ins", one)


_MUTANTS: dict[str, Callable[[Patch], None]] = {
    "recount-bases": _recount_bases,
    "one-stand-in": _one_stand_in,
    "ack-in-memory": _ack_in_memory,
    "no-data-sync": _no_data_sync,
    "no-sum-sync": _no_sum_sync,
    "no-fsync": _no_fsync,
    "no-base-folder-sync": _no_folder_sync(0),
    "no-topics-folder-sync": _no_folder_sync(1),
    "no-topic-folder-sync": _no_folder_sync(2),
    "keep-half-batches": _keep_half_batches,
    "no-repair": _no_repair,
    "no-data-hash": _no_data_hash,
    "end-before-sync": _end_before_sync,
    "keep-behind-holes": _keep_behind_holes,
    "foreign-torn-locks": _foreign_torn_locks,
    "ack-during-sync": _ack_during_sync,
    "ignore-write-errors": _ignore_write_errors,
    "ignore-sync-errors": _ignore_sync_errors,
    "keep-what-failed": _keep_what_failed,
    "stale-bound": _stale_bound,
    "forget-producers": _forget_producers,
    "any-topic-name": _any_topic_name,
    "payload-in-log": _payload_in_log,
    "no-restart": _no_restart,
    "pointers-again": _pointers_again,
    "clock-is-pointer": _clock_is_pointer,
    "no-store-lock": _no_store_lock,
    "leak-per-client": _leak_per_client,
    "long-pause": _long_pause,
    "cut-foreign": _cut_foreign,
    "blind-to-original": _blind_to_original,
    "any-feature": _any_feature,
    "no-adoption": _no_adoption,
    "trusting-readers": _trusting_readers,
    "serve-foreign": _serve_foreign,
    **SLAB_MUTANTS,
    **GROUP_MUTANTS,
    **CLUSTER_MUTANTS,
    **LOG_MUTANTS,
    **LOG_GROUP_MUTANTS,
    "sync-in-loop": _sync_in_loop,
    "restart-for-ever": _restart_for_ever,
    "crash-takes-all": _crash_takes_all,
    "no-turns": _no_turns,
    "no-budget": _no_budget,
    "no-patience": _no_patience,
    "half-puts": _half_puts,
}
assert set(_MUTANTS) == set(get_args(Mutant))


def _replace(where: Any, name: str, value: object) -> None:
    getattr(where, name)  # a mutant of what is not there any more would break nothing
    setattr(where, name, value)


def apply_chosen() -> None:
    """In a victim: break what the environment names; nothing where it names nothing."""
    name = os.environ.get(VARIABLE)
    if name:
        _MUTANTS[name](_replace)


@contextlib.contextmanager
def chosen(mutant: Mutant | None) -> Iterator[None]:
    """Break this process, which may be the victim, and all victims that it starts."""
    if mutant is None:
        yield
        return
    undone: list[tuple[object, str, object]] = []

    def patch(where: Any, name: str, value: object) -> None:
        undone.append((where, name, vars(where).get(name, _ABSENT)))
        _replace(where, name, value)

    _MUTANTS[mutant](patch)
    os.environ[VARIABLE] = mutant
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        for where, name, value in undone:
            if value is _ABSENT:
                delattr(where, name)
            else:
                setattr(where, name, value)
