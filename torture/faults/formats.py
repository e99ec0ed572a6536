"""Stores of older versions open; what a newer one wrote is refused untouched, unless it may be not.

The older stores were recorded, see torture/formats/record.py. Newer ones are made of the newest of
them: a file has a header with a version or a feature that nobody knows yet.
"""

import contextlib
import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_digest

from poe.errors import FormatNotSupported
from poe.storage import SegmentOptions, Store
from torture.checker import Record, Stored
from torture.layers.memory import Inode, MemoryFiles
from torture.scenario import Run, Trial
from torture.workload import START_US, open_store, read_store, read_topic

_FOLDER = Path(__file__).parent.parent / "formats"
_NEWEST = "sums-1"
_HASHED_BYTES, _HEADER_BYTES = 56, 64
REQUIRED = {"version": (9, 2), "feature": (11, 1), "hash": (12, 2)}
"""A byte of a header, and what it holds in a version that must be refused."""

OPTIONAL = (10, 2)
_META, _STORE_LOCK = "store.meta", "store.lock"


class Recorded(NamedTuple):
    """A store as some version has left it."""

    name: str
    boot_id: str
    contents: dict[str, bytes]
    stored: Stored

    def files(self, *, is_rebooted: bool) -> MemoryFiles:
        """Put it on a disk."""
        files = MemoryFiles("another boot" if is_rebooted else self.boot_id)
        for path, content in self.contents.items():
            files.inodes[path] = Inode(content)
            files.folders |= {str(parent) for parent in Path(path).parents} - {"."}
        return files


def play(run: Run) -> None:
    """Do each case, in a trial of its own."""
    for number, case in enumerate(_cases()):
        run.one(number, case)


def _cases() -> Iterator[Callable[[Trial], None]]:
    names = sorted(path.stem for path in _FOLDER.glob("*.json"))
    for name, is_rebooted in product(names, (False, True)):
        for store in _recorded(name):
            files = store.files(is_rebooted=is_rebooted)
            yield partial(_expect_opened, files=files, store=store, said=store.name)
    for store, is_rebooted, has_meta in product(_recorded(_NEWEST), (False, True), (False, True)):
        paths = [path for path in store.contents if path.endswith("_sum")]
        for path in [*paths, _META] if has_meta else paths:
            for change, (at, value) in [*REQUIRED.items(), ("optional", OPTIONAL)]:
                files = store.files(is_rebooted=is_rebooted)
                if not has_meta:
                    files.unlink(_META)
                _change_header(files, path, at, value)
                said = f"{store.name}, {is_rebooted=}, {has_meta=}, {change} of {path}"
                if change == "optional":
                    yield partial(_expect_opened, files=files, store=store, said=said)
                else:
                    yield partial(_expect_refused, files=files, store=store, said=said, path=path)


def _recorded(name: str) -> list[Recorded]:
    record = json.loads((_FOLDER / f"{name}.json").read_text())
    found = []
    for state, store in record["stores"].items():
        contents = {path: b64decode(text) for path, text in store["files"].items()}
        stored = {
            topic.encode(): [(pointer, b64decode(text)) for pointer, text in records]
            for topic, records in store["records"].items()
        }
        found.append(Recorded(f"{name}, {state}", record["boot_id"], contents, stored))
    return found


def _change_header(files: MemoryFiles, path: str, at: int, value: int) -> None:
    content = files.inodes[path].content
    content[at] = value
    content[_HASHED_BYTES:_HEADER_BYTES] = xxh3_64_digest(content[:_HASHED_BYTES])


def _expect_opened(trial: Trial, files: MemoryFiles, store: Recorded, said: str) -> None:
    """Expect that everything is read, and goes on, and is there at the next start."""
    expected = {topic: list(records) for topic, records in store.stored.items()}
    for _ in range(2):
        opened = open_store(files, SegmentOptions())
        trial.expect(is_true=read_store(opened) == expected, otherwise=f"{said}: others are read")
        damage = [segments[-1].damage for segments in opened.topics.values()]
        trial.expect(is_true=not any(damage), otherwise=f"{said}: {damage}")
        for topic, records in expected.items():
            pointer = opened.topics[topic][-1].append([b"next"], START_US)
            records.append((pointer, b"next"))
        opened.close()
    trial.note(opened=1)


def _expect_refused(
    trial: Trial, files: MemoryFiles, store: Recorded, said: str, path: str
) -> None:
    """Expect that a newer file keeps what it belongs to out of service, and all that as it is.

    That is the whole store, or a topic; or, where events vouch for it, one segment of a topic.
    """
    before = files.snapshot()
    topic = path.split("/")[1].encode() if "/" in path else None
    try:
        opened = Store.open(files)
    except FormatNotSupported:
        trial.expect(is_true=topic is None, otherwise=f"{said}: the whole store is refused")
    else:
        found = {each: _read_and_write(opened, each) for each in store.stored}
        others = {each: None if each == topic else store.stored[each] for each in store.stored}
        trial.expect(is_true=found == others, otherwise=f"{said}: {found} are read")
        opened.close()
    after = files.snapshot()
    for each in {*before, *after}:
        # The lock of the store tells who has looked.
        belongs = topic is None and each != _STORE_LOCK
        belongs = belongs or each.startswith(path.removesuffix("_sum"))
        if belongs and before.get(each) != after.get(each):
            trial.failures.append(f"{said}: {each} has changed")
    trial.note(refused=1)


def _read_and_write(store: Store, topic: bytes) -> list[Record] | None:
    """Read a topic, then put onto it; None where a newer version has written something of it."""
    if topic in store.failed:
        return None
    records = None
    with contextlib.suppress(FormatNotSupported):
        records = list(read_topic(store, topic))
    with contextlib.suppress(FormatNotSupported):
        store.topics[topic][-1].unseal()
        store.topics[topic][-1].append([b"next"], START_US)
    return records
