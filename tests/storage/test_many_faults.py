"""Several things wrong at once: recovery ends and tells of it, and the next one changes nothing."""

import random

import pytest

from poe.storage import check_segments
from poe.storage.recovery.recovery import RecoveryMode
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, create, files_at, path_of, read_around, reopen

MODES: list[RecoveryMode] = ["point-in-time", "strict", "salvage"]


def spoil(path, rng):
    """Change a file in one of the ways in which files get changed."""
    content = bytearray(path.read_bytes()) or bytearray(1)
    at = rng.randrange(len(content))
    match rng.randrange(6):
        case 0:
            content[at] ^= 1 << rng.randrange(8)
        case 1:
            del content[at:]
        case 2:
            content += rng.randbytes(rng.randint(1, 60))
        case 3:
            content[at : at + 48] = bytes(len(content[at : at + 48]))
        case 4:
            del content[at : at + rng.choice([1, 12, 48])]
        case _:
            content[at:at] = content[at : at + rng.choice([12, 48])]
    path.write_bytes(content)


@pytest.mark.parametrize("seed", [*range(40), 3270, 3426, 8103])
def test_recovery_ends_and_what_it_leaves_can_be_read_around(tmp_path, seed):
    rng = random.Random(seed)
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    for number in range(rng.randint(0, 8)):
        segment.append([b"%d" % number * rng.randint(1, 40)] * rng.randint(1, 4), NOW)
        if rng.random() < 0.5:
            segment.flush()
    if rng.random() < 0.5:
        segment.close()
    else:
        segment.flush()
    del segment
    for _ in range(rng.randint(1, 4)):
        suffix = rng.choice(["data", "index", "sum"])
        spoil(path_of(tmp_path, suffix), rng)
    if rng.random() < 0.3:
        layer.boot_id = "another boot"
    mode = rng.choice(MODES)
    list(check_segments(layer))
    first = read_around(reopen(layer, recovery=mode), 7, 2000)
    content = {s: path_of(tmp_path, s).read_bytes() for s in ("data", "index", "sum")}
    assert read_around(reopen(layer, recovery=mode), 7, 2000) == first
    assert content == {s: path_of(tmp_path, s).read_bytes() for s in content}
    pointers = [pointer for pointer, _ in first]
    assert pointers == sorted(set(pointers))
