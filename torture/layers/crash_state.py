"""What may be on the disk when a process, or the power, ends in the midst of recorded events.

A process that dies leaves all events before that moment, and a part of the one under way. A power
cut leaves what was synced; of what was not, any part may have reached the disk: whole writes, their
beginnings, or 512-byte sectors, and names in a folder or not. What was written at the end of a file
may be there, and its size not: then it lies behind the end, until a later life has the file grow
over it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random

from torture.layers.memory import Inode, MemoryFiles
from torture.layers.recorder import Event

_SECTOR_BYTES = 512
_STALE_SHARE = 0.5
"""Part of the files whose size on the disk is older than what was written."""
_GROWN_SHARE = 0.7
"""Part of the writes that were lost over something behind an end, and their sizes not."""
_NAMING = frozenset({"make", "rename", "unlink", "make_folder", "remove_folder"})


def after_kill(
    events: Sequence[Event], share: float, begun_with: MemoryFiles | None = None
) -> MemoryFiles:
    """Rebuild what a process leaves that dies in the last event, `share` of which is done."""
    files = begun_with or MemoryFiles()
    for event in events[:-1]:
        apply(files, event)
    if events:
        last = events[-1]
        if last.kind == "write":
            part = last.data[: int(len(last.data) * share)]
            last = Event("write", last.path, part, last.offset if part else 0)
        elif share < 1:
            return files
        apply(files, last)
    return files


def after_power_cut(
    events: Sequence[Event],
    random: Random,
    *,
    has_torn_sectors: bool,
    has_stale_ends: bool = False,
    begun_with: MemoryFiles | None = None,
) -> MemoryFiles:
    """Rebuild one of the disks that a power cut behind the last event may leave.

    What it has `begun_with` was all durable. With `has_stale_ends`, sizes may be older than what
    was written, as on ext4, and newer than that where something lies behind an end.
    """
    before = begun_with or MemoryFiles()
    # Files made by events have the number of the event; those from before have negative ones.
    names = {path: -number for number, path in enumerate(before.inodes, 2)}
    made = {-number: inode.copy() for number, inode in enumerate(before.inodes.values(), 2)}
    synced_sizes = {number: len(inode.content) for number, inode in made.items()}
    inodes = _inodes(events, names)
    synced = _synced(events, inodes)
    is_kept = _choice(random)
    files = MemoryFiles("another boot")
    files.folders |= before.folders
    for number, event in enumerate(events):
        inode = inodes[number]
        if event.kind in _NAMING:
            if synced[number] or is_kept():
                _apply_name(files, names, made, event, inode)
        elif event.kind in {"write", "store", "truncate"}:
            target = made.setdefault(inode, Inode())
            if synced[number]:
                _apply_content(target, event)
                synced_sizes[inode] = len(target.content)
            elif is_kept():
                _apply_in_part(target, event, random, has_torn_sectors=has_torn_sectors)
            elif target.behind and event.kind == "write" and random.random() < _GROWN_SHARE:
                target.grow_alone(event.offset + len(event.data))
    if has_stale_ends:
        _forget_sizes(made, synced_sizes, random)
    files.inodes = {path: made.setdefault(inode, Inode()) for path, inode in names.items()}
    return files


def store_after_power_cut(
    events: Sequence[Event], random: Random, begun_with: MemoryFiles | None = None
) -> MemoryFiles:
    """Rebuild what a power cut leaves of a store, torn sectors and all; none that is a known limit.

    Data that was never synced may have its name, and its sums none: see `docs/durability.md`. No
    file system that keeps the order of names leaves that.
    """
    while True:
        files = after_power_cut(events, random, has_torn_sectors=True, begun_with=begun_with)
        data = [path for path in files.inodes if path.endswith("_data") and files.size(path)]
        if all(f"{path.removesuffix('_data')}_sum" in files.inodes for path in data):
            return files


def _forget_sizes(
    made: Mapping[int, Inode], synced_sizes: Mapping[int, int], random: Random
) -> None:
    """Have some files end earlier, but not before what was synced."""
    for number, inode in made.items():
        if random.random() < _STALE_SHARE:
            size = len(inode.content)
            inode.forget_size(random.randint(min(synced_sizes.get(number, 0), size), size))


def _choice(random: Random) -> Callable[[], bool]:
    """Choose how much of what was not synced is kept: nothing, all, or each thing by chance."""
    share = random.choice([0.0, 1.0, 0.5, random.random(), 0.95])
    return lambda: random.random() < share


def _inodes(events: Sequence[Event], names: Mapping[str, int]) -> list[int]:
    """Tell which file each event is about: names come and go, the file is the same."""
    current = dict(names)
    found = []
    for number, event in enumerate(events):
        if event.kind == "make":
            current[event.path] = number
        found.append(current.get(event.path, -1))
        if event.kind == "rename":
            current[event.new_path] = current.pop(event.path)
        elif event.kind == "unlink":
            current.pop(event.path, None)
    return found


def _synced(events: Sequence[Event], inodes: list[int]) -> list[bool]:
    """Tell which events a later sync has made durable: of the file, or of the folder of a name."""
    synced = [False] * len(events)
    files: set[int] = set()
    folders: set[str] = set()
    is_all_synced = False
    for number in range(len(events) - 1, -1, -1):
        event = events[number]
        if is_all_synced or event.kind == "sync_all":
            synced[number] = is_all_synced = True
        elif event.kind == "sync":
            files.add(inodes[number])
        elif event.kind == "sync_folder":
            folders.add(event.path)
        elif event.kind in _NAMING:
            synced[number] = event.path.rpartition("/")[0] in folders
        else:
            synced[number] = inodes[number] in files
    return synced


def apply(files: MemoryFiles, event: Event) -> None:
    match event.kind:
        case "make":
            files.make(event.path)
        case "write" | "store" | "truncate":
            _apply_content(files.inodes[event.path], event)
        case "rename":
            files.rename(event.path, event.new_path)
        case "unlink":
            files.unlink(event.path)
        case "make_folder":
            files.folders.add(event.path)
        case "remove_folder":
            files.folders.discard(event.path)
        case _:
            pass


def _apply_content(inode: Inode, event: Event) -> None:
    if event.kind == "truncate":
        inode.resize(event.offset)
    elif event.data:
        inode.write(event.data, event.offset)
    else:
        inode.resize(max(event.offset, len(inode.content)))


def _apply_in_part(inode: Inode, event: Event, random: Random, *, has_torn_sectors: bool) -> None:
    """Apply a write that may be torn: it is whole, or ends early, or lacks sectors."""
    data, offset = event.data, event.offset
    kind = random.random()
    if event.kind != "write" or not data or kind < 0.6:
        _apply_content(inode, event)
    elif kind < 0.8 or not has_torn_sectors:
        _apply_content(inode, Event("write", data=data[: random.randrange(1, len(data) + 1)],
                                    offset=offset))  # fmt: skip
    else:
        inode.resize(max(offset + len(data), len(inode.content)))
        first = -offset % _SECTOR_BYTES
        starts = [0, *range(first or _SECTOR_BYTES, len(data), _SECTOR_BYTES), len(data)]
        for start, end in pairwise(starts):
            if start < end and random.random() < 0.7:
                inode.write(data[start:end], offset + start)


def _apply_name(
    files: MemoryFiles, names: dict[str, int], made: dict[int, Inode], event: Event, inode: int
) -> None:
    match event.kind:
        case "make":
            if event.path.rpartition("/")[0] in files.folders:
                names[event.path] = inode
        case "rename":
            if event.path in names:
                names[event.new_path] = names.pop(event.path)
        case "unlink":
            names.pop(event.path, None)
        case "make_folder":
            if event.path.rpartition("/")[0] in files.folders:
                files.folders.add(event.path)
        case "remove_folder":
            if not any(name.startswith(event.path + "/") for name in names):
                files.folders.discard(event.path)
        case _:
            pass
