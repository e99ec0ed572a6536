"""Hostile topic names: nothing outside the folder, no harm to others, and restarts work."""

import re
from pathlib import Path
from random import Random

from poe.errors import PoeError
from torture.scenario import Run, Trial
from torture.server import Server, read_topics

_ALLOWED = re.compile(rb"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_NAMES = 500
_KNOWN = [
    b".", b"..", b"../x", b"../../x", b"/etc/x", b"a/../../x", b"a\0b", b"a\nb", b" ", b"~", b"%",
    b"%2e%2e", b"con", b"NUL", b"aux.txt", b"-rf", b"x_index", b"x_data", b"x_lock", b"topics",
    b"store.lock", b"\xff\xfe", "ä".encode(), b"a" * 200, b"a" * 201, b"a" * 256, b"a" * 10_000,
    b"1_data", b"123_index", b"*", b"$(id)", b"`id`", b"\x1b[2J", b"\r", b"a\\b", b"a:b", b"...",
]  # fmt: skip


def play(run: Run) -> None:
    """Put onto each of `_NAMES` names in each trial, and look at the folders around."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    outside = trial.folder / "outside"
    outside.mkdir()
    base = trial.folder / "inside" / "data"
    base.parent.mkdir()
    names = [*_KNOWN, *(_made_up(random) for _ in range(_NAMES - len(_KNOWN)))]
    stored: dict[bytes, bytes] = {}
    with Server(base) as server:
        (base / "topics" / "link").symlink_to(outside, target_is_directory=True)
        (base / "topics" / "file").write_bytes(b"in the way")
        with server.connect() as client:
            for name in [*names, b"link", b"file", b"good"]:
                message = random.randbytes(8)
                try:
                    client.write(name, [message])
                    stored[name] = message
                except PoeError:
                    continue
    for name in sorted(stored):
        if name in {b"link", b"file"} or not _ALLOWED.fullmatch(name):
            trial.failures.append(f"{name[:60]!r} was accepted")
    trial.expect(is_true=b"good" in stored, otherwise="an ordinary name was refused")
    trial.expect(is_true=not list(outside.iterdir()), otherwise="a link led outside")
    around = {path.name for path in base.parent.iterdir()} - {"data", "data.log"}
    trial.expect(is_true=not around, otherwise=f"{around} was made outside of the folder")
    with Server(base) as server:
        found = {t: [m for _, m in records] for t, records in read_topics(server).items()}
    wrong = [name for name, message in stored.items() if found.get(name) != [message]]
    trial.expect(is_true=not wrong, otherwise=f"after a restart {wrong[:3]} are not what they were")
    trial.note(names=len(names), accepted=len(stored))
    _expect_only_topics(trial, base / "topics", stored)


def _made_up(random: Random) -> bytes:
    kind = random.randrange(4)
    if kind == 0:
        return random.randbytes(random.randint(1, 30))
    if kind == 1:
        return b"".join(random.choices([b"..", b"/", b"a", b"%", b"\0", b"\n"], k=6))
    if kind == 2:
        return bytes(random.choices(b"abcXYZ019._-", k=random.randint(1, 210)))
    name = bytearray(b"ordinary-%d" % random.randrange(1000))
    name[random.randrange(len(name))] = random.randrange(256)
    return bytes(name)


def _expect_only_topics(trial: Trial, folder: Path, stored: dict[bytes, bytes]) -> None:
    names = {path.name for path in folder.iterdir()} - {"link", "file"}
    surplus = names - {name.decode("ascii", "replace") for name in stored}
    trial.expect(is_true=not surplus, otherwise=f"folders without a topic: {sorted(surplus)[:3]}")
