"""Hostile topic names: nothing outside the folder, no harm to others, and restarts work."""

import contextlib
import re
from random import Random

from poe.errors import PoeError
from torture.scenario import Run, Trial
from torture.server import Server, read_topics

_ALLOWED = re.compile(rb"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_ODD = re.compile(rb"[^A-Za-z0-9._-]")
_FOLDER_BYTES_MAX = 255
_NAMES = 500
_KNOWN = [
    b".", b"..", b"../x", b"../../x", b"/etc/x", b"a/../../x", b"a\0b", b"a\nb", b" ", b"~", b"%",
    b"%2e%2e", b"con", b"NUL", b"aux.txt", b"-rf", b"x_index", b"x_data", b"x_lock", b"topics",
    b"store.lock", b"\xff\xfe", "ä".encode(), b"a" * 200, b"a" * 201, b"a" * 256, b"a" * 10_000,
    b"1_data", b"123_index", b"*", b"$(id)", b"`id`", b"\x1b[2J", b"\r", b"a\\b", b"a:b", b"...",
]  # fmt: skip


def play(run: Run) -> None:
    """Put onto each of `_NAMES` names in each trial, by both policies, and look at the folders."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    random = trial.random
    made_up = (_made_up(random) for _ in range(_NAMES - len(_KNOWN)))
    names = list(dict.fromkeys([*_KNOWN, *made_up]))
    for policy in ("strict", "escape"):
        _play_policy(run, trial, policy, names)


def _play_policy(run: Run, trial: Trial, policy: str, names: list[bytes]) -> None:
    outside = trial.folder / policy / "outside"
    outside.mkdir(parents=True)
    base = trial.folder / policy / "inside" / "data"
    base.parent.mkdir()
    stored: dict[bytes, bytes] = {}
    with Server(base, names=policy) as server:
        (base / "topics" / "link").symlink_to(outside, target_is_directory=True)
        (base / "topics" / "file").write_bytes(b"in the way")
        with server.connect() as client:
            for name in [*names, b"link", b"file", b"good"]:
                message = trial.random.randbytes(8)
                with contextlib.suppress(PoeError):
                    client.write(name, [message])
                    stored[name] = message
                is_allowed = _is_allowed(name, policy) and name not in {b"link", b"file"}
                if (name in stored) != is_allowed:
                    done = "accepted" if name in stored else "refused"
                    trial.failures.append(f"{name[:60]!r} was {done} with names={policy}")
                    if run.mutant:  # the others take minutes
                        return
    trial.expect(is_true=b"good" in stored, otherwise="an ordinary name was refused")
    trial.expect(is_true=not list(outside.iterdir()), otherwise="a link led outside")
    around = {path.name for path in base.parent.iterdir()} - {"data", "data.log"}
    trial.expect(is_true=not around, otherwise=f"{around} was made outside of the folder")
    with Server(base, names=policy) as server:
        found = {t: [m for _, m in records] for t, records in read_topics(server).items()}
    wrong = [name for name, message in stored.items() if found.get(name) != [message]]
    trial.expect(is_true=not wrong, otherwise=f"after a restart {wrong[:3]} are not what they were")
    folders = {path.name for path in (base / "topics").iterdir()} - {"link", "file"}
    trial.expect(
        is_true=len(folders) == len(stored),
        otherwise=f"{len(folders)} folders for {len(stored)} topics",
    )
    trial.note(names=len(names), **{f"accepted_{policy}": len(stored)})


def _is_allowed(name: bytes, policy: str) -> bool:
    if _ALLOWED.fullmatch(name):
        return True
    escaped_count = len(_ODD.findall(name)) + name.startswith(b".")
    return policy == "escape" and 0 < len(name) + 2 * escaped_count <= _FOLDER_BYTES_MAX


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
