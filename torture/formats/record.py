"""Records a small store of a version of Poe, or of the original, as a file of this folder.

    git worktree add OLD COMMIT; PYTHONPATH=OLD python torture/formats/record.py > NAME.json
    TORTURE_ORIGINAL=... python -m torture.formats.record original > original.json

A record is JSON: the boot in which it was made, and stores by how they were left, `closed` or
`killed`; of each all files, and the messages by topic with their pointers. Bytes are in base64. It
uses nothing that the first version of `poe.storage` had not got.
"""

import json
import shutil
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

_START_US = 1_700_000_000_000_000
_TOPICS = (b"first", b"second")
_ROUNDS = 6

Records = dict[str, list[tuple[int, str]]]


def main() -> None:
    """Record, and print the JSON."""
    with tempfile.TemporaryDirectory() as folder:
        record = _original if sys.argv[1:] == ["original"] else _ours
        json.dump(record(Path(folder) / "store", Path(folder) / "killed"), sys.stdout, indent=1)
        print()


def _ours(folder: Path, killed: Path) -> dict[str, Any]:
    from poe.storage import RealFiles, SegmentOptions, Store

    records: Records = {}
    store = Store.open(folder, SegmentOptions())
    for number in range(_ROUNDS):
        for topic in _TOPICS:
            now_us = _START_US + number * 1_000_000
            if number in {0, _ROUNDS // 2}:
                store.create_segment(topic, now_us)
            messages = [b"%d of %s in %d" % (at, topic, number) for at in range(number % 3 + 1)]
            last = store.topics[topic][-1].append(messages, now_us)
            first = last - len(messages) + 1
            added = [(first + at, _text(message)) for at, message in enumerate(messages)]
            records.setdefault(topic.decode(), []).extend(added)
    for segments in store.topics.values():
        segments[-1].flush()
    shutil.copytree(folder, killed)
    store.close()
    return {
        "boot_id": RealFiles.at(folder).boot_id,
        "stores": {"closed": _store(folder, records), "killed": _store(killed, records)},
    }


def _original(folder: Path, killed: Path) -> dict[str, Any]:
    from torture.checker import Put
    from torture.original import Original

    records: Records = {}
    with Original(folder) as original:
        for number in range(2 * _ROUNDS):
            for topic in _TOPICS:
                put = Put(topic, 0, 0, [b"%d of %s" % (number, topic)])
                original.put(put)
                records.setdefault(topic.decode(), []).append(
                    (put.pointer or 0, _text(*put.messages))
                )
            if number == 10:
                original.rotate()
        for topic in _TOPICS:
            original.sync(topic)
        shutil.copytree(folder, killed)
    return {
        "boot_id": "",
        "stores": {"closed": _store(folder, records), "killed": _store(killed, records)},
    }


def _store(folder: Path, records: Records) -> dict[str, Any]:
    files = {
        str(path.relative_to(folder)): _text(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {"files": files, "records": records}


def _text(content: bytes) -> str:
    return b64encode(content).decode()


if __name__ == "__main__":
    main()
